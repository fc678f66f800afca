"""Reads that the native library renders, beside those of Python: through the kernel."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from tests.fs.mounting import Mounted
from tests.fs.test_native_writes import native_writes
from tests.processes import PATIENCE_S

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

APPEND = os.O_WRONLY | os.O_APPEND
SIZES = (1, 7, 100, 4096, 65536, 131072, 1 << 20)


@pytest.fixture
def native(tmp_path: Path) -> Iterator[Mounted]:
    """A mount with a topic."""
    mounted = Mounted(tmp_path)
    mounted.start()
    (mounted.point / "t").mkdir()
    yield mounted
    mounted.clear()
    mounted.check()


def alter(mounted: Mounted, name: str, value: object) -> None:
    os.setxattr(mounted.point / "t", f"user.logfs.{name}", str(value).encode())


def lines(chance: Random) -> bytes:
    """Return a piece to write: lines of many lengths, few or many."""
    if chance.random() < 0.02:
        return b"".join(b"%d\n" % number for number in range(40_000))
    made = [
        b"%d " % chance.getrandbits(20) * chance.choice([0, 0, 1, 5, 200, 9000])
        for _ in range(chance.choice([1, 1, 3, 50]))
    ]
    return b"\n".join(made) + b"\n"


class Programs:
    """A writer, one that only Python serves now and then, and readers; and what was written."""

    def __init__(self, mounted: Mounted) -> None:
        topic = mounted.point / "t"
        self.text = bytearray()
        self.mounted = mounted
        self.chance = Random(7)
        self.writer, self.keyed = (os.open(topic / name, APPEND) for name in ("0", "0.tsv"))
        self.places = {os.open(topic / "0", os.O_RDONLY): 0 for _ in range(5)}

    def change(self, number: int) -> None:
        """Append natively or by Python, or change the partition otherwise, or do nothing."""
        kind = self.chance.random()
        if kind < 0.2:
            data = lines(self.chance)
            assert os.write(self.writer, data) == len(data)
            self.text += data
        elif kind < 0.22:
            assert os.write(self.keyed, b"key\tvalue %d\n" % number)
            self.text += b"value %d\n" % number
        elif kind < 0.23:
            alter(self.mounted, "retention.ms", 10**12 + number)

    def read(self) -> None:
        """Read on in one of the files, sometimes after a seek."""
        chance = self.chance
        descriptor = chance.choice(list(self.places))
        if chance.random() < 0.02:
            self.places[descriptor] = chance.randrange(len(self.text) + 1)
        size = chance.choice(SIZES)
        for _ in range(chance.choice([1, 1, 4, 12])):
            place = self.places[descriptor]
            got = os.pread(descriptor, size, place)
            assert got == self.text[place : place + size]
            self.places[descriptor] += len(got)

    def end(self) -> None:
        """Read all files to their end."""
        for descriptor, begin in self.places.items():
            place = begin
            while got := os.pread(descriptor, 1 << 17, place):
                assert got == self.text[place : place + len(got)]
                place += len(got)
            assert place == len(self.text)
        for descriptor in (self.writer, self.keyed, *self.places):
            os.close(descriptor)


def test_every_read_returns_the_bytes_that_were_written(native: Mounted) -> None:
    """Segments are rolled, and for a while the batches are such as only Python renders."""
    alter(native, "segment.bytes", 1_100_000)
    programs = Programs(native)
    for number in range(1600):
        if number == 800:
            alter(native, "compression.type", "zstd")
        if number == 1000:
            alter(native, "compression.type", "producer")
        programs.change(number)
        programs.read()
    programs.end()
    assert native_writes(native, "reads") > 400


def test_a_reader_passes_what_is_deleted_while_it_reads_natively(native: Mounted) -> None:
    """It gets the line that it has begun to its end, then the first one that is kept."""
    path = native.point / "t/0"
    alter(native, "segment.bytes", 1_100_000)
    text = b"".join(b"%099d\n" % number for number in range(60_000))
    with path.open("ab", buffering=0) as file:
        for begin in range(0, len(text), 100_000):
            file.write(text[begin : begin + 100_000])
    with path.open("rb", buffering=0) as file:
        got = b"".join(file.read(1050) for _ in range(50))
        before = native_writes(native, "reads")
        assert before > 40
        with Daemon.connect(str(native.data)) or pytest.fail("no daemon") as daemon:
            daemon.ask("trim", {"names": ["t", "0@offset=30000"], "at_once": True})
        while part := file.read(1050):
            got += part
        assert native_writes(native, "reads") > before + 1000
    native.expected.append("fell behind retention")
    begun = -(-50 * 1050 // 100) * 100
    assert got == text[:begun] + text[30_000 * 100 :]


def test_a_reader_at_the_end_sees_each_line_and_what_close_ends(native: Mounted) -> None:
    path = native.point / "t/0"
    writer = os.open(path, APPEND)
    with path.open("rb", buffering=0) as file:
        for number in range(300):
            os.write(writer, b"line %d\n" % number)
            assert file.read(4096) == b"line %d\n" % number
            assert not file.read(4096)
        assert native_writes(native, "reads") > 500
        os.write(writer, b"not ended")
        assert not file.read(4096)
        os.close(writer)
        assert file.read(4096) == b"not ended\n"


def test_many_open_files_are_read_natively_in_turn(native: Mounted) -> None:
    """More than have a cursor at the same time."""
    path = native.point / "t/0"
    text = b"".join(b"%099d\n" % number for number in range(3000))
    with path.open("ab") as file:
        file.write(text)
    files = [path.open("rb", buffering=0) for _ in range(50)]
    parts = [b"" for _ in files]
    for _ in range(40):
        for number, reader in enumerate(files):
            parts[number] += reader.read(7000)
    assert all(part == text[: len(part)] and len(part) == 280_000 for part in parts)
    assert native_writes(native, "reads") > 1000
    for reader in files:
        reader.close()


READER = """
import os, sys
file, text = os.open(sys.argv[1], os.O_RDONLY), b""
while b"end\\n" not in text[-10:]:
    text += os.read(file, 5000)
sys.stdout.buffer.write(text)
"""


def test_a_reader_ends_with_every_line_after_the_daemon_was_killed(native: Mounted) -> None:
    """The bytes that it has read stay in its log, and those after them come once."""
    path = native.point / "t/0"
    text = b"".join(b"%099d\n" % number for number in range(2000))
    with path.open("ab") as file:
        file.write(text)
    with path.open("rb", buffering=0) as file:
        got = b"".join(file.read(1000) for _ in range(100))
    assert native_writes(native, "reads") > 80
    native.kill()
    native.start()
    done = subprocess.Popen([sys.executable, "-c", READER, path], stdout=subprocess.PIPE)
    with path.open("ab", buffering=0) as file:
        for number in range(100):
            file.write(b"%d\n" % number)
        file.write(b"end\n")
    try:
        found = done.communicate(timeout=PATIENCE_S)[0]
    finally:
        done.kill()  # a reader that gets other bytes waits for ever
    assert got == text[: len(got)]
    assert found == text + b"".join(b"%d\n" % number for number in range(100)) + b"end\n"
