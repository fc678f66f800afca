#!/usr/bin/env bash
# A log that does not end at the disk: a topic keeps its newest segment here and the others in an
# object store. It is read as one file, read from the bucket on "another machine", and continued
# there after the loss of this one. Every result is checked.
#
#     examples/tiered.sh s3://BUCKET/PREFIX [ENDPOINT]
#
# PREFIX has to be empty; the objects stay there. Credentials come from the environment, for example
# AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. A server for a try, whose objects are plain files:
#
#     go install github.com/versity/versitygw/cmd/versitygw@latest
#     mkdir -p objects/logs meta
#     versitygw --access me --secret mysecret --port 127.0.0.1:7070 \
#         posix --sidecar "$PWD/meta" objects &
#     AWS_ACCESS_KEY_ID=me AWS_SECRET_ACCESS_KEY=mysecret \
#         examples/tiered.sh s3://logs/web http://127.0.0.1:7070

set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH="$root/.venv/bin:$PATH"
export LC_ALL=C.UTF-8

if [ $# -lt 1 ]; then
    sed -n '/^#     examples/{s/^# *//;p;q}' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
url=$1 endpoint=${2:-}
[ -z "$endpoint" ] || export AWS_ENDPOINT_URL=$endpoint
work=$(mktemp -d)
cd "$work"

clean_up() {
    local status=$?
    trap - EXIT
    for point in here there again; do
        ! grep -q " $work/$point fuse.logfs " /proc/self/mounts || logfs umount "$point" || true
    done
    cd /
    rm -rf --one-file-system "$work"
    exit "$status"
}
trap clean_up EXIT

fail() {
    printf '\nlogfs tiered: FAILED: %s\n' "$1" >&2
    exit 1
}

# Show a command as one would type it, then do it.
run() {
    printf '$ %s\n' "$1"
    eval "$1" || fail "that command ended with status $?"
}

same() {
    cmp -- "$1" "$2" || fail "$1 and $2 differ"
}

# Wait until a command succeeds.
await() {
    for _ in $(seq 600); do
        ! eval "$1" || return 0
        sleep 0.2
    done
    fail "waited in vain: $1"
}

echo '# A store for a data directory, and a topic that is copied to it'
mkdir data here there again
run "logfs remote init data $url --config remote.log.manager.task.interval.ms=200 \\
    --config freshness.ms=500"
run "logfs mount --background --log-file daemon.log data here"
run "logfs topic create here/web --config remote.storage.enable=true \\
    --config local.retention.bytes=0 --config segment.bytes=2097152 --config retention.ms=-1"
seq 200000 | awk '{print "request", $1, "GET /page/" $1 * 7 % 1000}' >lines
run "cat lines >> here/web/0"
await '[ "$(ls data/web-0/*.log | wc -l)" = 1 ]'

printf '\n# The sealed segments are in the store alone. The file is as before\n'
run "logfs remote status data"
run "du -sh --apparent-size here/web/0"
run "cmp here/web/0 lines"
run "grep -c 'page/77$' here/web/0"
run "head -n 1 here/web/0@offset=150000"
run "tail -n 1 here/web/0"

printf '\n# The same log on any other machine, from the bucket\n'
run "logfs mount --background --log-file there.log -o ro $url there"
run "cat there/web/0 > copied"
head -c "$(stat -c %s copied)" lines >beginning
same copied beginning
run "logfs cat $url/web/0@offset=100000..offset=100001"
run "getfattr --only-values -n user.logfs.object there/.segments/web-0/00000000000000000000.log; echo"

printf '\n# This machine is lost. Another one continues, with all that is older than freshness.ms\n'
run "sleep 3"
run "logfs umount here"
rm -rf data
run "logfs promote $url restored --config remote.log.manager.task.interval.ms=200"
run "logfs mount --background --log-file again.log restored again"
run "cmp again/web/0 lines"
run "echo 'the first line after it' >> again/web/0"
run "tail -n 1 again/web/0"
run "logfs remote verify --all $url"
printf '\nAll results are as expected.\n'
