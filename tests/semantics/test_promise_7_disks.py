"""Promise 7 of SEMANTICS.md on real file systems that are full, or that go away and return."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.client import Daemon
from tests.loopdevices import LoopDevice, loop_device
from tests.mounting import COMMAND, Mount, logfs, run, wait_until
from tests.semantics.programs import append, append_all, configure, errno_of, meta, numbered

pytestmark = pytest.mark.fuse

LINES = numbered(0, 2_000)
SMALL = {"internal_segment_bytes": 20_000, "max_message_bytes": 20_000, "retention_ms": -1}


@pytest.fixture
def device(tmp_path: Path) -> Iterator[LoopDevice]:
    with loop_device(tmp_path, 16) as found:
        yield found


@pytest.fixture
def mount(device: LoopDevice, tmp_path: Path) -> Iterator[Mount]:
    """A mount whose data directory lies on the device; what the daemon logs does not."""
    options = ("log.segment.delete.delay.ms=1000",)
    found = Mount(Path(device.point, "data"), tmp_path / "mnt", *options, log_directory=tmp_path)
    with found:
        yield found


def make(mount: Mount, topic: str, **changes: int) -> Path:
    """Make a topic of many segments."""
    (mount.point / topic).mkdir()
    configure(mount.point / topic, **SMALL, **changes)
    path = mount.point / topic / "0"
    for at in range(0, len(LINES), 100):
        append(path, b"".join(LINES[at : at + 100]))
    return path


def free_bytes(device: LoopDevice) -> int:
    found = os.statvfs(device.point)
    return found.f_bavail * found.f_frsize


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_the_mount_comes_up_on_a_full_disk(device: LoopDevice, mount: Mount, stop: str) -> None:
    """On a full disk the mount comes up: everything can be read, and appends succeed again once
    there is space."""
    path = make(mount, "orders")
    device.fill()
    for _ in range(2):
        getattr(mount, stop)()
        mount.start()
        assert path.read_bytes() == b"".join(LINES)
        assert meta(path)["offline"] is None
        refused = errno_of(append, path, b"x" * 10_000 + b"\n")
        assert refused == errno.ENOSPC
    device.make_room()
    append(path, b"room again\n")
    mount.crash()
    assert path.read_bytes() == b"".join([*LINES, b"room again\n"])
    assert not meta(path)["losses"]


def test_room_is_made_on_a_full_disk(device: LoopDevice, mount: Mount) -> None:
    """On a full disk `logfs trim` and `logfs topic delete` free space."""
    path, other = make(mount, "orders"), make(mount, "users")
    position = path.stat().st_size - len(b"".join(LINES[1_500:]))
    device.fill()
    logfs("trim", f"{path}@offset=1500", "--now")
    assert free_bytes(device) > 0
    assert path.read_bytes() == b"".join(LINES[1_500:])
    device.fill()
    logfs("topic", "delete", other.parent)
    assert not other.parent.exists()
    wait_until(lambda: free_bytes(device) > 0, "the deleted topic made room")
    mount.crash()
    assert not other.parent.exists()
    assert path.read_bytes() == b"".join(LINES[1_500:])
    assert int(os.getxattr(path, "user.logfs.start")) == position


@pytest.mark.parametrize("options", [(), ("no_native",)], ids=["native", "no_native"])
@pytest.mark.parametrize("command", ["trim", "topic delete"])
def test_what_is_removed_now_is_free_at_once(
    device: LoopDevice, tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    """With `--now` the space is free when the command returns."""
    data = Path(device.point, "data")
    with Mount(data, tmp_path / "mnt", *options, log_directory=tmp_path) as mount:
        path = mount.point / "orders" / "0"
        path.parent.mkdir()
        for _ in range(5):
            append_all(path, b"".join(LINES))
        with path.open("ab", buffering=0) as file:
            file.write(b"half a line ")
            device.fill()
            assert errno_of(append_all, path, b"".join(LINES)) == errno.ENOSPC
            assert free_bytes(device) == 0
            size = path.stat().st_size
        if command == "trim":
            logfs("trim", f"{path}@latest", "--now")
            assert not path.read_bytes()[:-100]
        else:
            logfs("topic", "delete", path.parent, "--now")
        assert free_bytes(device) > size


def test_retention_on_a_full_disk(device: LoopDevice, mount: Mount) -> None:
    """On a full disk retention frees space."""
    path = make(mount, "orders", file_delete_delay_ms=0, retention_bytes=40_000)
    device.fill()
    daemon = Daemon.connect(str(mount.data))
    assert daemon is not None
    with daemon:
        daemon.ask("retention", {})
    wait_until(lambda: free_bytes(device) > 0, "retention made room")
    append(path, b"room\n")
    assert path.read_bytes().endswith(LINES[-1] + b"room\n")


def test_status_on_a_full_disk(device: LoopDevice, mount: Mount) -> None:
    """`logfs status` says that a disk is full, and exits with status 1."""
    make(mount, "orders")
    assert run(*COMMAND, "status", mount.point).returncode == 0
    device.fill()
    found = run(*COMMAND, "status", mount.point)
    assert found.returncode == 1
    assert b"the disk is full" in found.stdout


def test_a_file_system_that_becomes_read_only(device: LoopDevice, mount: Mount) -> None:
    """If the file system becomes read-only under a mount, as ext4 does after an error, everything
    that was written can still be read.
    """
    path = mount.point / "orders" / "0"
    path.parent.mkdir()
    append(path, b"".join(LINES))
    device.become_read_only()
    assert errno_of(append, path, b"refused\n") in {errno.EROFS, errno.EIO}
    assert path.read_bytes() == b"".join(LINES)


def test_a_file_system_that_goes_away_and_returns(device: LoopDevice, mount: Mount) -> None:
    """If the file system goes away and returns, the next record begins after every size that was
    ever shown.
    """
    path = mount.point / "orders" / "0"
    path.parent.mkdir()
    append(path, b"".join(LINES))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    run("sync", "-f", device.point)
    append(path, b"lost\n" * 1_000)
    shown = path.stat().st_size
    device.go_away()
    mount.kill()
    mount.clear()
    device.remount()
    mount.start()
    assert path.stat().st_size >= shown
    text = path.read_bytes()
    assert text.startswith(b"".join(LINES))
    append(path, b"after\n")
    assert path.stat().st_size >= shown + len(b"after\n")
    assert path.read_bytes() == text + b"after\n"
