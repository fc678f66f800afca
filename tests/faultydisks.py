"""Real file systems on a disk that fails on command, and whose power can be cut.

    with faulty_disk(tmp_path, "ext4") as disk:
        ...                  # files below disk.point
        disk.fail("E")       # writes of blocks that contain "failed line " are EIO
    disk.fail_reads(path)  # reads of the first block of a file or directory are
        disk.heal()
        disk.cut_power()     # what was not written is gone; everything on it must be closed

The disk is a loop device on a file of a small FUSE program, ``faultdisk.c``.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compiling import compiled
from tests.processes import wait_until

MAKERS = {
    "ext4": ("mkfs.ext4", "-q", "-m", "0", "-b", "4096"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
_MEBIBYTES = 320
"""The smallest that mkfs.xfs makes is 300."""


class FaultyDisk:
    """A mounted file system; made by ``faulty_disk``.

    Attributes:
        point: Where it is mounted.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        self.point = directory / "filesystem"
        self._fuse = directory / "faultdisk.mnt"
        self._image = directory / "image"
        self._mode = directory / "mode"
        self._device = ""
        self._process: subprocess.Popen[bytes] | None = None
        for path in (self.point, self._fuse):
            path.mkdir()
        self.heal()
        with self._image.open("wb") as file:
            file.truncate(_MEBIBYTES << 20)
        _run(*MAKERS[kind], str(self._image))
        source = Path(__file__).with_name("faultdisk.c")
        flags = _run("pkg-config", "--cflags", "--libs", "fuse3").split()
        self._program = compiled("faultdisk", "-O1", "-Wall", "-Wextra", source, *flags)

    def fail(self, how: str) -> None:
        """Let writes with the mark fail: "E" with EIO, "S" with ENOSPC."""
        self._mode.write_text(how)

    def fail_reads(self, path: Path) -> None:
        """Let reads of the first block of a file or directory fail; all must be closed."""
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        extents = _run("filefrag", "-v", "-b4096", str(path))
        found = re.search(r"^ *0: +0\.\. *\d+: +(\d+)\.\.", extents, re.MULTILINE)
        assert found is not None, extents
        start = int(found[1]) * 4096
        self.stop()
        self._mode.write_text(f"R {start} {start + 4096}")
        self.start()

    def heal(self) -> None:
        """Let everything succeed."""
        self._mode.write_text("0")

    def start(self) -> None:
        """Mount it."""
        command = [self._program, self._fuse, self._image, self._mode]
        self._process = subprocess.Popen(command)
        wait_until((self._fuse / "disk").exists, "the disk was there")
        # Direct: read-ahead over a block that cannot be read would take those beside it with it.
        source = str(self._fuse / "disk")
        self._device = _run("losetup", "--direct-io=on", "--find", "--show", source).strip()
        _run("mount", self._device, str(self.point))

    def stop(self) -> None:
        """Unmount it."""
        if self._process is not None:
            for command in (
                ["umount", str(self.point)],
                ["losetup", "--detach", self._device],
                ["umount", str(self._fuse)],
            ):
                subprocess.run(command, check=False, capture_output=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
            self._process.wait()
            self._process = None

    def cut_power(self) -> None:
        """Continue with what is on the disk now."""
        cut = self._image.with_suffix(".cut")
        _run("cp", "--sparse=always", str(self._image), str(cut))
        self.stop()
        cut.replace(self._image)
        self.start()


@contextlib.contextmanager
def faulty_disk(directory: Path, kind: str) -> Iterator[FaultyDisk]:
    """Make a file system of a kind; skips the test where there are no loop devices."""
    if os.geteuid() != 0 or not Path("/dev/loop0").exists():
        pytest.skip("needs root and loop devices")
    assert shutil.which(MAKERS[kind][0]), f"{MAKERS[kind][0]} is missing: see .ci/system-packages"
    disk = FaultyDisk(directory, kind)
    try:
        disk.start()
    except subprocess.CalledProcessError as error:
        disk.stop()
        pytest.skip(f"no loop device: {error.stderr.strip()}")
    try:
        yield disk
    finally:
        disk.heal()
        disk.stop()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
