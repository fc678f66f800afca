#!/usr/bin/env bash
# A guided tour, with the logs of this machine. They become topics, are read, followed and searched
# by time, and survive a kill -9 of the daemon. Every result is checked, and everything is removed.
#
# Run it with `make demo`. It needs neither root nor other files: every user with access
# to fusermount3 can run it.

set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH="$root/.venv/bin:$PATH"
export LC_ALL=C.UTF-8
unset LOGFS_DEBUG

checks=0
tail_pid=

fail() {
    printf '\nlogfs demo: FAILED: %s\n' "$1" >&2
    [ ! -s mount.log ] || { echo "the daemon's log:" >&2 && tail -n 20 mount.log >&2; }
    exit 1
}

clean_up() {
    local status=$?
    trap - EXIT
    exec 9>&-
    [ -z "$tail_pid" ] || kill "$tail_pid" 2>/dev/null || true
    if mounted; then
        logfs umount mnt || umount --lazy mnt || fusermount3 -u -z mnt || status=1
    fi 2>/dev/null
    cd /
    # Never into a mount that would not go.
    rm -rf --one-file-system "$work" || status=1
    exit "$status"
}

mounted() { grep -q " $work/mnt fuse.logfs " /proc/self/mounts; }

bold='' plain=''
[ ! -t 1 ] || bold=$'\033[1m' plain=$'\033[0m'
title() { printf '\n%s# %s%s\n' "$bold" "$1" "$plain"; }

# Show a command as one would type it, then do it.
run() {
    printf '$ %s\n' "$1"
    eval "$1" || fail "that command ended with status $?"
}

# The same for a command that prints much: only its first lines are shown.
run_head() {
    printf '$ %s | head -n %s | cut -c -150\n' "$1" "$2"
    eval "$1" >output || fail "that command ended with status $?"
    head -n "$2" output | cut -c -150
}

check_same() {
    cmp -- "$1" "$2" || fail "$1 and $2 differ"
    checks=$((checks + 1))
}

check_equal() {
    [ "$2" = "$3" ] || fail "$1: expected $3, got $2"
    checks=$((checks + 1))
}

# Real logs, as they are: whole lines, the newest if there are very many.
collect() {
    local topic=$1
    shift
    "$@" 2>/dev/null </dev/null | tail -n 200000 | sed -e '$a\' >"logs/$topic" || true
    if [ -s "logs/$topic" ]; then
        printf '%-14s %8s lines of %s\n' "$topic" "$(wc -l <"logs/$topic")" "${*#cat }"
        topics+=("$topic")
    else
        rm -f "logs/$topic"
    fi
}

refuse() {
    echo "logfs demo: $1" >&2
    exit 1
}
command -v logfs >/dev/null || refuse "run 'make demo', which installs logfs"
[ -r /dev/fuse ] && [ -w /dev/fuse ] || refuse "$(id -un) cannot mount here: /dev/fuse is closed"
command -v fusermount3 >/dev/null || refuse "fusermount3 is missing: install fuse3"
work=$(mktemp -d "${TMPDIR:-/tmp}/logfs-demo.XXXXXX")
work=$(realpath "$work")
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cd "$work"
mkdir logs

title "The logs of this machine"
topics=()
collect packages cat /var/log/dpkg.log
collect apt cat /var/log/apt/history.log
collect syslog cat /var/log/syslog
collect auth cat /var/log/auth.log
collect alternatives cat /var/log/alternatives.log
collect journal journalctl --quiet --no-pager --lines=20000
if [ ${#topics[@]} -eq 0 ]; then
    echo "no log in /var/log can be read and holds anything: the kernel's messages and the list of"
    echo "installed packages stand in"
    collect kernel dmesg
    collect installed dpkg-query --list
fi
[ ${#topics[@]} -gt 0 ] || fail "there is nothing at all to read on this machine"
first=${topics[0]}
lines=$(wc -l <"logs/$first")

title "A data directory is mounted"
run "mkdir data mnt"
run "logfs mount data mnt --background --log-file mount.log"
run "grep $work/mnt /proc/self/mounts"

title "A topic is a directory, a partition is a file: append with >>"
for topic in "${topics[@]}"; do
    run "mkdir mnt/$topic"
    run "cat logs/$topic >> mnt/$topic/0"
done
run "ls -l mnt/$first"

title "Any program reads it"
run "wc -l mnt/*/0"
run "tail -n 2 mnt/$first/0 | cut -c -150"
word=$(tr -cs '[:alpha:]' '\n' <"logs/$first" | awk 'length > 4' | sort | uniq -c | sort -rn |
    awk 'NR == 1 { print $2 }')
run "grep -c '$word' mnt/$first/0"
check_equal "grep" "$(grep -c "$word" "mnt/$first/0")" "$(grep -c "$word" "logs/$first")"
for topic in "${topics[@]}"; do
    run "diff -s logs/$topic mnt/$topic/0"
    check_same "logs/$topic" "mnt/$topic/0"
done

title "tail -f follows it"
run "mkdir mnt/notes"
run "tail -f mnt/notes/0 > followed &"
tail_pid=$!
run "echo 'the first note' >> mnt/notes/0"
for _ in $(seq 100); do
    [ ! -s followed ] || break
    sleep 0.1
done
run "cat followed"
check_equal "tail -f" "$(cat followed)" "the first note"
kill "$tail_pid"
wait "$tail_pid" 2>/dev/null || true
tail_pid=

title "@ in a name is a moment"
sleep 1
since=$(date +%Y-%m-%dT%H:%M:%S)
sleep 1
run "echo 'the second note' >> mnt/notes/0"
sleep 1
until=$(date +%Y-%m-%dT%H:%M:%S)
sleep 1
run "echo 'the third note' >> mnt/notes/0"
run "cat mnt/notes/0@-5m"
check_equal "the last five minutes" "$(wc -l <mnt/notes/0@-5m)" 3
run "cat mnt/notes/0@$since..$until"
check_equal "a range of times" "$(cat "mnt/notes/0@$since..$until")" "the second note"
run "cat mnt/notes/0@$until"
check_equal "from a time on" "$(cat "mnt/notes/0@$until")" "the third note"
run "cat mnt/notes/0@offset=1"
check_equal "from an offset on" "$(wc -l <mnt/notes/0@offset=1)" 2
run "wc -l mnt/$first/0@earliest..latest"
check_same "logs/$first" "mnt/$first/0@earliest..latest"

title "Views: everything a record has, as JSON; keys and values; facts about the partition"
run "printf 'user-1\tlogged in\n' >> mnt/notes/0.tsv"
run "cat mnt/notes/0.tsv"
run "cat mnt/notes/0@offset=-2.jsonl"
run_head "cat mnt/$first/0.jsonl" 2
check_equal "lines of JSON" "$(python3 -c '
import json, sys
print(sum(1 for line in sys.stdin if json.loads(line)["value"] is not None))' <output)" "$lines"
run_head "cat mnt/$first/0.meta" 8
check_equal ".meta" "$(python3 -c '
import json, sys
print(json.load(sys.stdin)["log_end_offset"])' <output)" "$lines"

title "The daemon is killed in the middle of a line: for programs that is a pause"
run "exec 9>> mnt/notes/0"
run "printf 'the last' >&9"
pid=$(python3 -c 'import json; print(json.load(open("data/logfs.daemon"))["pid"])')
run "kill -9 $pid    # the daemon"
run "printf ' words\n' >&9    # waits for the next one"
run "exec 9>&-"
run "cat mnt/notes/0"
printf 'the %s note\n' first second third >expected
printf 'logged in\nthe last words\n' >>expected
check_same expected mnt/notes/0
run "tail -n 3 mount.log"
grep -q 'continuing the mount of a daemon that was killed' mount.log || fail "another mount"
checks=$((checks + 1))
for topic in "${topics[@]}"; do
    run "diff -s logs/$topic mnt/$topic/0"
    check_same "logs/$topic" "mnt/$topic/0"
done

title "The same paths on the command line, with a mount or without"
run "logfs topic create data/orders --partitions 3 --config segment.ms=3600000"
run "ls mnt/orders"
check_equal "partitions" "$(ls mnt/orders | wc -l)" 3
run "logfs umount mnt"
! mounted || fail "it is still mounted"
run "logfs topic list data"
run "logfs topic describe data/$first"
run "logfs cat data/notes/0@$since..$until.jsonl"
check_equal "without a mount" "$(logfs cat "data/notes/0@$since..$until")" "the second note"
run "logfs cat data/$first/0 | diff -s logs/$first -"
logfs cat "data/$first/0" >output
check_same "logs/$first" output

printf '\nlogfs demo: all %s checks passed\n' "$checks"
