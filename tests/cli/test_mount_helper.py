"""``mount.logfs``: by itself, and called by mount(8) as in fstab."""

import os
import pwd
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from logfs.cli import mount_helper
from tests.cli.conftest import ROOT, Outcome, run

ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
"""At boot there is nothing else."""


def call(*arguments: str | Path) -> Outcome:
    """Call the helper as libmount does."""
    command = [sys.executable, "-m", "logfs.cli.mount_helper", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, env=ENVIRONMENT, timeout=60)
    errors = [line for line in done.stderr.decode().splitlines() if "no syslog" not in line]
    return Outcome(done.returncode, done.stdout, errors)


@pytest.fixture
def point(tmp_path: Path) -> Path:
    path = tmp_path / "mnt"
    path.mkdir()
    return path


@pytest.mark.fuse
def test_it_returns_when_the_mount_answers(tmp_path: Path, point: Path) -> None:
    config = tmp_path / "more.toml"
    config.write_text('options = "ro,umask=077"\n[kafka]\nnum.partitions = 3\n')
    options = f"rw,noatime,nosuid,user,_netdev,x-systemd.automount,uid=1,config={config}"
    (tmp_path / "data").mkdir()
    try:
        assert call(tmp_path / "data", point, "-n", "-o", options) == (0, b"", [])
        (point / "orders").mkdir()
        assert sorted(os.listdir(point / "orders")) == ["0", "1", "2"]
        facts = (point / "orders").stat()
        assert (facts.st_uid, facts.st_mode & 0o777) == (1, 0o700)
        line = next(
            x for x in Path("/proc/self/mounts").read_text().splitlines() if str(point) in x
        )
        assert line.split()[:3] == [str(tmp_path / "data"), str(point), "fuse.logfs"]
        assert {"rw", "noatime", "nosuid", "default_permissions"} <= set(line.split()[3].split(","))
    finally:
        assert run("umount", point) == (0, b"", [])


def test_fake_and_sloppy(tmp_path: Path, point: Path) -> None:
    data = tmp_path / "data"
    status, _, errors = call(data, point, "-sfv", "-o", "allow_other,xyzzy")
    assert status == 0
    assert errors == [
        "logfs: mount option xyzzy: unknown, ignored",
        f"logfs: {data} would be mounted at {point}",
    ]
    assert not data.exists()


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["{0}/data"], 1, "Missing argument 'MOUNTPOINT'"),
        (["{0}/data", "{0}/mnt", "-x"], 1, "No such option"),
        (["{0}/data", "{0}/mnt", "-o", "alow_other"], 32, "did you mean allow_other?"),
        (["{0}/data", "{0}/mnt", "-o", "remount,ro"], 32, "unmount it, then mount it"),
        (["{0}/data", "{0}/mnt", "-o", "config={0}/no.toml"], 32, "No such file or directory"),
        (["{0}/data", "{0}/mnt", "-o", "setuid=nobody-of-this-name"], 32, "there is no such user"),
        (["{0}/no/data", "{0}/mnt"], 32, "no such directory"),
        (["{0}/full", "{0}/mnt"], 32, "holds files but no logs"),
    ],
)
def test_refusals_have_the_status_of_mount(
    tmp_path: Path,
    point: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    reason: str,
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").touch()
    assert mount_helper.main([text.format(tmp_path) for text in arguments]) == status
    assert reason in capsys.readouterr().err
    assert os.listdir(point) == []


def test_root_becomes_another_user() -> None:
    program = (
        "import os; from logfs.cli.commands.mount import become; become('nobody'); "
        "print(os.getresuid(), os.getgid() == 0, 0 in os.getgroups(), os.environ['USER'])"
    )
    as_root = [] if os.geteuid() == 0 else ["sudo", "--non-interactive", "--preserve-env"]
    done = subprocess.run(
        [*as_root, sys.executable, "-c", program], check=True, capture_output=True, text=True,
        env=os.environ | ENVIRONMENT,
    )  # fmt: skip
    uid = pwd.getpwnam("nobody").pw_uid
    assert done.stdout == f"({uid}, {uid}, {uid}) False False nobody\n"


@pytest.mark.fuse
def test_a_missing_mount_point_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    status, _, errors = call(tmp_path / "data", tmp_path / "none")
    assert (status, len(errors)) == (32, 1)
    assert "the mount point has to be an existing directory" in errors[0]


def mounts(directory: Path, data: Path, point: Path, program: Path) -> str:
    """Return a script that mounts in every way: by type, by fstab, all of fstab, sloppily."""
    line = f"{data} {point} logfs noauto,nofail,_netdev,user,defaults,noatime,num.partitions=2 0 0"
    return f"""
set -eu
sbin=$(realpath /sbin)
[ "$sbin" != /usr/bin ] || exit 9  # Debian still has both
mount -t tmpfs helpers "$sbin"
cp {program} "$sbin/mount.logfs"
ln -s mount.logfs "$sbin/mount.fuse.logfs"
touch {directory}/fstab
mount --bind {directory}/fstab /etc/fstab
show() {{ findmnt --noheadings --output SOURCE,FSTYPE,TARGET {point} | tr -s ' '; }}

for kind in logfs fuse.logfs; do
    env -i /bin/mount -t $kind -o ro {data} {point}
    echo "$kind: $(show)"
    umount {point}
done
echo "{line}" >/etc/fstab
mount {point}
mkdir {point}/orders
echo "fstab: $(show) $(ls {point}/orders | tr '\\n' ' ')"
umount {point}
mount -a
echo "all but noauto: $(show)"
sed s/noauto,// /etc/fstab >{directory}/other
cat {directory}/other >/etc/fstab
mount -a
mount -a
echo "all: $(show)"
umount {point}
mount -t logfs -o xyzzy {data} {point} || echo "refused: $?"
mount -s -t logfs -o xyzzy {data} {point}
echo "sloppy: $(show)"
umount {point}
"""


@pytest.mark.fuse
@pytest.mark.slow
def test_mount_runs_the_helper(tmp_path: Path, point: Path) -> None:
    """In its own namespace, where the helpers are in /sbin and fstab has a line."""
    data = tmp_path / "data"
    program = tmp_path / "mount.logfs"
    program.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={ROOT}\n"
        f'exec {shlex.quote(sys.executable)} -m logfs.cli.mount_helper "$@" 2>/dev/null\n'
    )
    program.chmod(0o755)
    data.mkdir()
    as_root = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    done = subprocess.run(
        [*as_root, "unshare", "--mount", "bash", "-c", mounts(tmp_path, data, point, program)],
        check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    shown = f"{data} fuse.logfs {point}"
    assert done.returncode == 0, done
    assert done.stdout.splitlines() == [
        f"logfs: {shown}",
        f"fuse.logfs: {shown}",
        f"fstab: {shown} 0 1 ",
        "all but noauto: ",
        f"all: {shown}",
        "refused: 32",
        f"sloppy: {shown}",
    ]
