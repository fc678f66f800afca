#!/bin/bash
# boot.sh DIRECTORY COMMAND [own|host]: start systemd as process 1 in its own namespaces, over a root that
# is this machine's below and forgotten afterwards, with the units of this tree; let it run DIRECTORY
# /scenario; power off. What that prints is in DIRECTORY/out, what the daemons log in DIRECTORY/daemon.
#
# With LOGFS_ROOT, the root is that directory instead of this machine's, and has its own logfs: COMMAND
# and the units of this tree are not used.
#
# COMMAND is how logfs is called, "python -m logfs". The network is its own one, or the host's.
# None of the machine's units is started: they would clean up
# /tmp, set sysctls and load modules.

set -eu
directory=$(realpath "$1") command=$2 network=${3:-own} tree=$(realpath "$(dirname "$0")/../..")

if [ "${4-}" = "" ]; then
    for cgroups in /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [ -e $cgroups/cgroup.procs ] && break
    done
    own=$cgroups/logfs-test-$$
    mkdir "$own"
    # Processes may be left for a moment after their process 1 has gone.
    trap 'for _ in $(seq 50); do find "$own" -depth -type d -exec rmdir {} + 2>/dev/null && break; sleep 0.1; done' EXIT
    (
        sh -c 'echo $PPID' >"$own/cgroup.procs"
        own_network=(--net)
        [ "$network" = own ] || own_network=()
        exec unshare --mount --pid --cgroup --uts --ipc "${own_network[@]}" --fork --kill-child \
            bash "$0" "$directory" "$command" "$network" inside
    )
    exit
fi

mount --make-rprivate /
mkdir -p "$directory/layers"
mount -t tmpfs layers "$directory/layers"
cd "$directory/layers"
mkdir upper work root
mount -t overlay -o "lowerdir=${LOGFS_ROOT:-/},upperdir=upper",workdir=work overlay root
root=$PWD/root units=$PWD/root/etc/systemd/system
rm -rf "$units"/* "$root"/usr/lib/systemd/system/*.wants
: >"$root/etc/fstab"
for target in sysinit local-fs remote-fs basic; do
    printf '[Unit]\nDefaultDependencies=no\n' >"$units/$target.target"
done
printf '[Unit]\nDefaultDependencies=no\nRequires=scenario.service\n' >"$units/scenario.target"
cat >"$units/scenario.service" <<END
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
StandardOutput=file:/shared/out
StandardError=file:/shared/err
ExecStart=/bin/bash /shared/scenario
ExecStopPost=/bin/systemctl exit 0
END
[ -n "${LOGFS_ROOT-}" ] || cp "$tree"/systemd/*.service "$tree"/systemd/*.timer "$units"
for unit in logfs@ logfs-verify@ logfs-mirror@ logfs-forward@; do
    mkdir "$units/$unit.service.d"
    printf '[Service]\nStandardOutput=append:/shared/daemon\nStandardError=append:/shared/daemon\n' \
        >"$units/$unit.service.d/log.conf"
done
# This tree may lie in /tmp.
echo PrivateTmp=no >>"$units/logfs-verify@.service.d/log.conf"
mkdir -p "$root/etc/logfs" "$root/var/lib/logfs" "$root/mnt/logs"
program() {
    printf '#!/bin/sh\nexport PYTHONPATH=%s\nexec %s "$@"\n' "$tree" "$2" >"$1"
    chmod +x "$1"
}
if [ -z "${LOGFS_ROOT-}" ]; then
    mkdir -p "$root/opt/logfs/current/bin"
    program "$root/opt/logfs/current/bin/logfs" "$command"
    program "$root/usr/sbin/mount.logfs" "$command.cli.mount_helper"
    cp "$tree"/systemd/examples/*.mount "$units"
fi

mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs run "$root/run"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero full random urandom tty fuse; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
touch "$root/dev/console"
mount --bind /dev/null "$root/dev/console"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/old" "$root/shared"
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount --bind "$directory" "$root/shared"
cd "$root"
pivot_root . old
umount --lazy /old
exec env -i container=logfs PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
    --unit=scenario.target --log-target=null --show-status=no >/dev/null 2>&1
