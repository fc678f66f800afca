"""Real file systems for tests alone: ext4 on a loop device, where the machine has those."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import wait_until

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
_WITHOUT_LOG = b"\x02\0\0\0"


class LoopDevice:
    """A separate file system, mounted.

    Attributes:
        point: Where.
    """

    def __init__(self, image: Path, point: Path) -> None:
        self._image = image
        self.point = str(point)

    def mount(self) -> None:
        _run("mount", "-o", "loop,commit=1", str(self._image), self.point)

    def unmount(self) -> None:
        """Unmount it, and wait until the kernel has given it up.

        A program with its own namespace of mounts, such as a service, may keep it a while longer.
        """
        superblock = Path(f"/sys/fs/ext4/{self._name()}")
        _run("umount", self.point)
        wait_until(lambda: not superblock.exists(), f"{self.point} is mounted nowhere")

    def remount(self) -> None:
        """Unmount it and mount it again."""
        self.unmount()
        self.mount()

    def go_away(self) -> None:
        """Let the device be gone, with everything that was not synced; ``remount`` brings it back.

        The journal is written every second, as far as nothing new has been made since.
        """
        import fcntl

        descriptor = os.open(self.point, os.O_RDONLY)
        fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_LOG)
        os.close(descriptor)

    def become_read_only(self) -> None:
        """Be read-only from now on, as after an error, also for files that are open."""
        _run("mount", "-o", "remount,errors=remount-ro", self.point)
        Path(f"/sys/fs/ext4/{self._name()}/trigger_fs_error").write_text("1")

    def _name(self) -> str:
        """Return the kernel's name of the device."""
        return Path(os.path.realpath(f"/sys/dev/block/{_numbers_of(self.point)}")).name

    def fill(self) -> None:
        """Leave not a byte free."""
        with Path(self.point, "ballast").open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def make_room(self) -> None:
        """Take back what ``fill`` did."""
        Path(self.point, "ballast").unlink()


@contextlib.contextmanager
def loop_device(directory: Path, mebibytes: int) -> Iterator[LoopDevice]:
    """Make a file system, and unmount it when the block ends; skips the test if that cannot be."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or not Path("/dev/loop0").exists():
        pytest.skip("needs root, mkfs.ext4 and loop devices")
    image, point = directory / "image", directory / "filesystem"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    _run("mkfs.ext4", "-q", "-m", "0", str(image))
    device = LoopDevice(image, point)
    try:
        device.mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device: {error.stderr.strip()}")
    try:
        yield device
    finally:
        subprocess.run(["umount", "-l", device.point], check=False, capture_output=True)


def _numbers_of(point: str) -> str:
    number = Path(point).stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
