"""Reads that wait natively while something happens to the log, the disk or the mount."""

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from tests.fs.mounting import Mounted
from tests.fs.test_native_writes import native_writes
from tests.loopdevices import loop_device
from tests.mounting import is_mounted
from tests.processes import PATIENCE_S, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

APPEND = os.O_WRONLY | os.O_APPEND
READERS = 12
"""More than can wait natively."""
BATCH_HEADER_BYTES = 61


class Reader(threading.Thread):
    """A program that reads a file to its end, or until an error.

    Attributes:
        text: What it has read.
        error: The errno that ended it; 0 for the end of the file.
    """

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__()
        self.file = os.open(path, os.O_RDONLY)
        self._chance = Random(seed)
        self.text = bytearray()
        self.error: int | None = None

    def run(self) -> None:
        try:
            while got := os.read(self.file, self._chance.choice((1, 50, 4096, 1 << 20))):
                self.text += got
            self.error = 0
        except OSError as error:
            self.error = error.errno
        os.close(self.file)

    def end(self) -> int:
        """Wait for its end; returns the errno."""
        self.join(PATIENCE_S)
        assert self.error is not None, f"it hangs after {len(self.text)} bytes"
        return self.error


class Readers:
    """Readers of a ``.follow`` name, most of which wait natively."""

    def __init__(self, mounted: Mounted, count: int = READERS, name: str = "t/0") -> None:
        self._path = mounted.point / name
        self.writer = os.open(self._path, APPEND)
        self.text = b""
        before = native_writes(mounted, "reads")
        self.all = [Reader(Path(f"{self._path}.follow"), seed) for seed in range(count)]
        for reader in self.all:
            reader.start()
        for number in range(40):
            self.append(b"early %d\n" % number)
        assert native_writes(mounted, "reads") > before

    def append(self, line: bytes) -> None:
        """Append a line, and wait until each reader has it."""
        assert os.write(self.writer, line) == len(line)
        self.text += line
        self.wait()

    def wait(self) -> None:
        """Wait until each reader has everything."""
        wait_until(self._have_all, "each reader has each line")

    def _have_all(self) -> bool:
        return all(len(reader.text) >= len(self.text) for reader in self.all)

    def check(self, *errors: int) -> None:
        """See that each ended with one of the errors, and has read what was written."""
        assert {reader.end() for reader in self.all} <= set(errors)
        for reader in self.all:
            assert reader.text == self.text


def ask(mounted: Mounted, name: str, **fields: object) -> None:
    with Daemon.connect(str(mounted.data)) or pytest.fail("no daemon") as daemon:
        daemon.ask(name, fields)


def test_readers_end_with_their_topic_and_those_of_the_next_one_read_it(native: Mounted) -> None:
    for number in range(4):
        readers = Readers(native)
        ask(native, "delete", topic="t")
        readers.check(0)
        os.close(readers.writer)
        if number % 2:
            ask(native, "undelete", topic="t")
            assert (native.point / "t/0").read_bytes() == readers.text
            ask(native, "delete", topic="t")
        (native.point / "t").mkdir()


def test_readers_continue_after_a_lazy_unmount_until_the_files_are_closed(native: Mounted) -> None:
    readers = Readers(native)
    subprocess.run(["umount", "-l", native.point], check=True)
    assert not is_mounted(native.point)
    native.expected.append("failed to unmount")
    for number in range(30):
        readers.append(b"later %d\n" % number)
    assert native.end() == 0
    readers.check(errno.ENOTCONN, errno.ECONNABORTED)
    with pytest.raises(OSError, match="not connected"):
        os.close(readers.writer)


def batch_ends(log: bytes) -> Iterator[int]:
    """Return where each batch of a ``.log`` ends."""
    end = 0
    while end + BATCH_HEADER_BYTES <= len(log):
        end += 12 + int.from_bytes(log[end + 8 : end + 12])
        yield end


def test_a_damaged_batch_is_an_error_for_the_reader_that_comes_to_it(native: Mounted) -> None:
    """It has all lines before it, and EIO. Readers that wait after it continue."""
    late = Reader(native.point / "t/0", 1)
    readers = Readers(native)
    for number in range(200):
        os.write(readers.writer, b"more %d\n" % number)
        readers.text += b"more %d\n" % number
    readers.wait()
    path = native.data / "t-0/00000000000000000000.log"
    end = list(batch_ends(path.read_bytes()))[150]
    with path.open("r+b") as file:
        file.seek(end - 3)
        file.write(b"?")
    native.expected.append("checksum differs")
    late.start()
    assert late.end() == errno.EIO
    assert late.text == b"".join(readers.text.splitlines(keepends=True)[:150])
    for number in range(30):
        readers.append(b"later %d\n" % number)
    ask(native, "delete", topic="t")
    readers.check(0)
    os.close(readers.writer)


def write_until_full(writer: int, line: bytes) -> int:
    """Append a line until the disk is full; returns how often it was taken."""
    for count in range(20_000):
        try:
            os.write(writer, line)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return count
    pytest.fail("the disk does not become full")


def test_readers_get_what_a_full_disk_took_and_what_comes_when_it_has_room(tmp_path: Path) -> None:
    with loop_device(tmp_path, 64) as device:
        mounted = Mounted(Path(device.point))
        mounted.start()
        try:
            (mounted.point / "t").mkdir()
            readers = Readers(mounted)
            device.fill()
            line = b"x" * 999 + b"\n"
            for _ in range(20):
                readers.text += line * write_until_full(readers.writer, line)
            readers.wait()
            device.make_room()
            for number in range(30):
                readers.append(b"later %d\n" % number)
            ask(mounted, "delete", topic="t")
            readers.check(0)
            with pytest.raises(
                OSError, match="No space left"
            ):  # it says once more what was refused
                os.close(readers.writer)
        finally:
            mounted.clear()


def is_in_order(got: bytes, count: int) -> bool:
    """Whether lines are whole and come in order, up to the last; those of holes are missing."""
    numbers = [int(line[:10]) for line in got.splitlines()]
    is_whole = all(len(line) == 100 for line in got.splitlines(keepends=True))
    return is_whole and numbers == sorted(set(numbers)) and numbers[-1] == count - 1


def test_readers_that_fall_behind_retention_get_no_part_of_a_line(native: Mounted) -> None:
    """Lines are trimmed away while small reads are far behind."""
    topic = native.point / "t"
    os.setxattr(topic, "user.logfs.segment.bytes", b"1100000")
    native.expected.append("fell behind retention")
    writer, count = os.open(topic / "0", APPEND), 30_000
    files = [os.open(topic / name, os.O_RDONLY) for name in ("0", "0.follow", "0") * 3]
    texts, chance = [bytearray() for _ in files], Random(5)
    os.write(writer, b"".join(b"%010d%s\n" % (number, b"-" * 89) for number in range(count)))
    for step in range(10):
        for file, text in zip(files, texts, strict=True):
            for _ in range(20):
                text += os.read(file, chance.choice((1, 77, 1000, 5000)))
        ask(native, "trim", names=["t", f"0@offset={2500 * (step + 1) + 7}"], at_once=True)
    for file, text in zip(files, texts, strict=True):
        while not text.endswith(b"%010d%s\n" % (count - 1, b"-" * 89)):
            text += os.read(file, 7000)
        os.close(file)
        assert is_in_order(bytes(text), count)
    os.close(writer)
