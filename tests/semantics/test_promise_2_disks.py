"""Promise 2 of SEMANTICS.md on real file systems whose disk fails, and whose power is cut then."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faultydisks import faulty_disk
from tests.mounting import Mount
from tests.semantics.programs import errno_of, meta

pytestmark = pytest.mark.fuse

BEFORE = b"".join(b"line %d\n" % n for n in range(1000))
FAILED = b"".join(b"failed line %d\n" % n for n in range(20_000))


def close(_mount: Mount) -> None:
    """Do nothing more: the partition is reloaded once its last file is closed."""


def crash(mount: Mount) -> None:
    mount.crash()


def restart(mount: Mount) -> None:
    mount.restart()


def check(directory: Path, kind: str, way: Callable[[Mount], None], how: str) -> None:
    """Fail a sync, load the log again, sync, cut the power, and compare."""
    with faulty_disk(directory, kind) as disk:
        mount = Mount(disk.point / "data", directory / "mnt", log_directory=directory)
        try:
            mount.start()
            path = mount.point / "orders" / "0"
            path.parent.mkdir()
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.write(file, BEFORE)
            os.fsync(file)
            disk.fail(how)
            os.write(file, FAILED)
            assert errno_of(os.fsync, file) in {errno.EIO, errno.ENOSPC}
            assert errno_of(os.fsync, file) == errno.EIO
            disk.heal()
            assert errno_of(os.fsync, file) == errno.EIO
            if way is close:
                assert errno_of(os.close, file) == errno.EIO
            else:
                way(mount)
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.write(file, b"after\n")
            os.fsync(file)
            shown = path.read_bytes()
            assert shown == BEFORE + FAILED + b"after\n"
            mount.clear()
            disk.cut_power()
            mount.start()
            assert path.read_bytes() == shown
            assert not meta(path)["losses"]
        finally:
            mount.clear()


def test_an_fsync_after_a_failed_one_holds_on_ext4(tmp_path: Path) -> None:
    """When fsync(2) returns, the lines before it are on the disk."""
    check(tmp_path, "ext4", close, "E")


@pytest.mark.long
@pytest.mark.parametrize("how", ["E", "S"])
@pytest.mark.parametrize("way", [close, crash, restart])
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_an_fsync_after_a_failed_one_holds(
    tmp_path: Path, kind: str, way: Callable[[Mount], None], how: str
) -> None:
    """When fsync(2) returns, the lines before it are on the disk."""
    check(tmp_path, kind, way, how)
