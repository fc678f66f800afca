"""Mounting for real: start, stop, crash, and what is refused."""

import errno
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from logfs.errors import LockedError, MountError
from logfs.fs.options import MountOptions
from logfs.fs.session.mount import run_mount
from logfs.fs.session.unmounting import unmount
from logfs.machine import mountpoints
from tests.fs.mounting import Mounted
from tests.mounting import COMMAND, PATIENCE_S, environment, is_mounted, take_away, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def errno_of(call: object, *args: object) -> int | None:
    """Return the errno a system call ends with."""
    try:
        call(*args)  # type: ignore[operator]  # any function
    except OSError as error:
        return error.errno
    return None


# Start and stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_cleanly(mounted: Mounted, number: int) -> None:
    mounted.shell("mkdir orders; echo one >> orders/0")
    daemon = json.loads((mounted.data / "logfs.daemon").read_text())
    assert daemon == {"version": 1, "pid": mounted.pid, "mountpoint": str(mounted.point)}
    assert mounted.end(number) == 0
    assert not os.path.ismount(mounted.point)
    assert (mounted.data / ".kafka_cleanshutdown").exists()
    assert not (mounted.data / "logfs.daemon").exists()


def test_an_unmount_stops_the_daemon_cleanly(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; printf unfinished >> orders/0")
    mounted.unmount()
    assert mounted.wait() == 0
    assert (mounted.data / ".kafka_cleanshutdown").exists()
    mounted.start()
    assert mounted.shell("cat orders/0") == "unfinished\n"


def test_unmount_waits_until_the_store_is_closed(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; echo one >> orders/0")
    unmount(str(mounted.point))
    assert (mounted.data / ".kafka_cleanshutdown").exists()
    assert not (mounted.data / "logfs.daemon").exists()
    assert mounted.wait() == 0
    with pytest.raises(MountError, match="not mounted"):
        unmount(str(mounted.point))


def test_unmount_waits_with_any_device_name(mounted: Mounted) -> None:
    mounted.options = ("fsname=mine",)
    mounted.restart()
    assert os.getxattr(mounted.point, "user.logfs.data") == os.fsencode(mounted.data)
    assert os.getxattr(mounted.point, "user.logfs.pid") == b"%d" % mounted.pid
    unmount(str(mounted.point))
    assert not (mounted.data / "logfs.daemon").exists()
    assert mounted.wait() == 0


def test_unmount_does_not_wait_for_a_daemon_that_died(mounted: Mounted) -> None:
    mounted.kill()
    mounted.options = ("ro",)
    mounted.start()
    assert (mounted.data / "logfs.daemon").exists()  # of the one that died
    unmount(str(mounted.point))
    assert mounted.wait() == 0


def test_stopping_ends_the_lines_of_open_files(mounted: Mounted) -> None:
    mounted.shell("mkdir orders")
    file = (mounted.point / "orders/0").open("ab", buffering=0)
    file.write(b"one\nunfinished")
    assert mounted.end() == 0
    assert errno_of(file.close) in (None, errno.ENOTCONN)
    mounted.start()
    assert mounted.shell("cat orders/0") == "one\nunfinished\n"


def test_a_dead_mount_is_cleared_and_nothing_is_lost(mounted: Mounted) -> None:
    mounted.shell("mkdir orders")
    file = (mounted.point / "orders/0").open("ab", buffering=0)
    file.write(b"one\ntwo\nunfin")
    number = (mounted.point / "orders/0").stat().st_ino
    mounted.kill()
    assert errno_of(os.statvfs, mounted.point) == errno.ENOTCONN
    mounted.start()
    assert mounted.shell("cat orders/0") == "one\ntwo\nunfin\n"
    assert (mounted.point / "orders/0").stat().st_ino == number
    assert errno_of(file.close) in (None, errno.ENOTCONN)


def test_unmount_takes_a_dead_mount_away(mounted: Mounted) -> None:
    mounted.kill()
    unmount(str(mounted.point))
    assert not os.path.ismount(mounted.point)


def test_the_mount_says_what_it_is(mounted: Mounted) -> None:
    found = mountpoints.mount_at(str(mounted.point))
    assert found is not None
    assert (found.kind, found.source) == ("fuse.logfs", str(mounted.data))


def test_a_mount_point_that_is_taken_is_refused(mounted: Mounted, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(MountError, match="is mounted there already"):
        run_mount(str(tmp_path / "other"), str(mounted.point), MountOptions())
    mounted.shell("true")


@pytest.mark.parametrize(("data", "point"), [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_data_and_mount_point_lie_apart(tmp_path: Path, data: str, point: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    with pytest.raises(MountError, match="mount point"):
        run_mount(str(tmp_path / data), str(tmp_path / point), MountOptions())


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(MountError, match="existing directory"):
        run_mount(str(tmp_path / "data"), str(tmp_path / "mnt"), MountOptions())
    with pytest.raises(MountError, match="no such data directory"):
        run_mount(str(tmp_path / "none"), str(tmp_path / "data"), MountOptions())


def test_a_second_daemon_does_not_get_the_data_directory(mounted: Mounted, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with pytest.raises(LockedError, match=f"process {mounted.pid}"):
        run_mount(str(mounted.data), str(tmp_path / "second"), MountOptions())


def test_a_read_only_mount(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; echo one >> orders/0")
    mounted.stop()
    before = sorted((path, path.stat().st_mtime_ns) for path in mounted.data.rglob("*"))
    mounted.options = ("ro",)
    mounted.start()
    assert mounted.shell("cat orders/0 orders/0@earliest..latest") == "one\none\n"
    path = mounted.point
    assert errno_of(os.open, path / "orders/0", os.O_WRONLY | os.O_APPEND) == errno.EROFS
    assert errno_of(os.mkdir, path / "more") == errno.EROFS
    assert errno_of(os.rmdir, path / "orders") == errno.EROFS
    assert errno_of(os.open, path / "orders/7", os.O_WRONLY | os.O_CREAT) == errno.EROFS
    assert errno_of(os.unlink, path / "orders/0") == errno.EROFS
    assert errno_of(os.utime, path / "orders/0") == errno.EROFS
    mounted.stop()
    assert sorted((path, path.stat().st_mtime_ns) for path in mounted.data.rglob("*")) == before


FIRST_PROCESS = ["unshare", "--pid", "--fork", "--kill-child", "env", "--block-signal=TERM"]


@pytest.mark.skipif(os.geteuid() != 0, reason="its own process namespace needs root")
def test_sigterm_to_the_first_process_of_a_container_before_it_handles_it(tmp_path: Path) -> None:
    data, point = tmp_path / "data", tmp_path / "mnt"
    data.mkdir()
    point.mkdir()
    command = [*FIRST_PROCESS, *COMMAND, "mount", str(data), str(point)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_until(lambda: has_blocked(signal.SIGTERM, children.read_text()), "env has begun")
        os.kill(int(children.read_text()), signal.SIGTERM)
        try:
            assert parent.wait(PATIENCE_S) == 128 + signal.SIGTERM
        finally:
            parent.kill()
            if is_mounted(point):
                take_away(point)


def has_blocked(number: int, process: str) -> bool:
    try:
        text = Path(f"/proc/{process.strip()}/status").read_text()
    except OSError:
        return False
    (name,) = re.findall(r"Name:\s+(\w+)", text)
    (blocked,) = re.findall(r"SigBlk:\s+(\w+)", text)
    # unshare blocks it as well, and lets it go before it becomes env.
    return name != "unshare" and bool(int(blocked, 16) >> (number - 1) & 1)
