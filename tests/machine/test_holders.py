"""The search for processes that use a mount."""

import os
from pathlib import Path

from logfs.machine.holders import Holder, find_holders
from logfs.machine.mountpoints import Mount

MOUNT = Mount(id=7, device="0:42", point="/mnt/logs", kind="fuse.logfs", source="/data", user=0)


def process(proc: Path, pid: int) -> Path:
    """Make the directory of a process that works in the mount."""
    directory = proc / str(pid)
    (directory / "fdinfo").mkdir(parents=True)
    (directory / "comm").write_text("cat\n")
    (directory / "cwd").symlink_to("/mnt/logs/orders")
    return directory


def test_a_process_whose_maps_cannot_be_read_does_not_hang_the_search(tmp_path: Path) -> None:
    os.mkfifo(process(tmp_path, 5) / "maps")  # to open it waits for a writer
    (process(tmp_path, 6) / "maps").write_text("0-1 r--p 0 00:2a 9   /mnt/logs/orders/0\n")
    directory = "working directory /mnt/logs/orders"
    try:
        assert find_holders(MOUNT, tmp_path) == [
            Holder(5, "cat", [directory]),
            Holder(6, "cat", ["/mnt/logs/orders/0 mapped", directory]),
        ]
    finally:
        os.close(os.open(tmp_path / "5/maps", os.O_RDWR))


def test_the_command_that_searches_is_not_found(tmp_path: Path) -> None:
    for pid in (5, os.getpid()):
        (process(tmp_path, pid) / "maps").touch()
    assert [holder.pid for holder in find_holders(MOUNT, tmp_path)] == [5]
