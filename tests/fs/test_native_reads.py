"""Reads that the native library renders, beside those of Python: through the kernel."""

import json
import os
import subprocess
import sys
from itertools import chain
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


def records(chance: Random, number: int) -> tuple[str, bytes]:
    """Return the view in which to write, and lines: some with keys, headers, escapes, no value."""
    kind = chance.random()
    value = chance.choice(["", "x", 'a "b" \\ c', "\u00e4\u20ac", "\x01", "y" * 700, "z" * 70_000])
    if kind < 0.8:
        return "0", b"".join(b"%d %s\n" % (number, value.encode()) for _ in range(int(10 * kind)))
    if kind < 0.9:
        return "0.tsv", rb"k%d\t" % (number % 5) + b"\t" + rb"%d\\\n\r" % number + b"\n"
    headers = [["h", "\u00e4"]] if kind < 0.92 else []
    row = {"key": f"k{number % 5}", "value": None if kind > 0.98 else value, "headers": headers}
    return "0.jsonl", json.dumps(row).encode() + b"\n"


class Pair:
    """A mount with native reads and one without, in which the same is done."""

    def __init__(self, native: Mounted, other: Mounted, view: str) -> None:
        self.mounts, self.chance = (native, other), Random(11)
        other.start()
        (other.point / "t").mkdir()
        self.view = view
        self.writers = [
            {
                name: os.open(mounted.point / "t" / name, APPEND)
                for name in ("0", "0.tsv", "0.jsonl")
            }
            for mounted in self.mounts
        ]
        self.readers = [
            [os.open(mounted.point / "t" / f"0{view}", os.O_RDONLY) for mounted in self.mounts]
            for _ in range(4)
        ]
        self.places = [0] * len(self.readers)

    def write(self, number: int) -> None:
        name, data = records(self.chance, number)
        for writers in self.writers:
            assert os.write(writers[name], data) == len(data)

    def ask(self, name: str, **fields: object) -> None:
        for mounted in self.mounts:
            with Daemon.connect(str(mounted.data)) or pytest.fail("no daemon") as daemon:
                daemon.ask(name, fields)

    def change(self, number: int) -> None:
        """Change the partition otherwise than by an append."""
        changes = self.roll, self.pack, self.trim, self.compact, self.compress
        changes[number % len(changes)](number)

    def roll(self, _: int) -> None:
        self.ask("roll", topic="t", partition=0)

    def pack(self, _: int) -> None:
        self.alter("logfs.sealed.compression.type", "zstd")
        self.ask("pack", topic="t", partition=0, roll=False)
        self.alter("logfs.sealed.compression.type", "uncompressed")

    def trim(self, number: int) -> None:
        names = ["t", f"0@offset={number // 2}"]
        self.ask("trim", names=names, at_once=True, even_if_held=False)

    def compact(self, _: int) -> None:
        self.read_to_the_end()  # one that is not there may still get what is removed
        self.alter("cleanup.policy", "compact")
        self.ask("compact", topic="t", partition=0, roll=True)
        self.alter("cleanup.policy", "delete")

    def compress(self, _: int) -> None:
        self.alter("compression.type", self.chance.choice(["zstd", "producer", "producer"]))

    def alter(self, name: str, value: str) -> None:
        for mounted in self.mounts:
            alter(mounted, name, value)

    def read(self) -> None:
        """Read on in one of the files, sometimes after a seek."""
        chance, index = self.chance, self.chance.randrange(len(self.readers))
        if chance.random() < 0.02:
            self.places[index] = chance.randrange(self.places[index] + 1)
        size = chance.choice(SIZES)
        for _ in range(chance.choice([1, 4, 12])):
            found = [os.pread(file, size, self.places[index]) for file in self.readers[index]]
            got, expected = (part.translate(DIGITS) for part in found)
            assert got == expected
            self.places[index] += len(got)

    def read_to_the_end(self) -> None:
        for index, files in enumerate(self.readers):
            while found := os.pread(files[0], 1 << 17, self.places[index]):
                other = os.pread(files[1], 1 << 17, self.places[index])
                assert found.translate(DIGITS) == other.translate(DIGITS)
                self.places[index] += len(found)
            assert os.pread(files[1], 1, self.places[index]) == b""

    def end(self) -> None:
        self.read_to_the_end()
        self.compare_exactly()
        writers = [list(files.values()) for files in self.writers]
        for descriptor in chain(*self.readers, *writers):
            os.close(descriptor)

    def compare_exactly(self) -> None:
        """Read all of one file in pieces: the numbers too are those of a name that Python reads."""
        topic, view = self.mounts[0].point / "t", self.view.removeprefix("@earliest")
        whole = (topic / f"0@earliest..latest{view}").read_bytes()
        assert whole
        with (topic / f"0@earliest{view}").open("rb", buffering=0) as file:
            assert b"".join(iter(lambda: file.read(5000), b"")) == whole


DIGITS = bytes.maketrans(b"0123456789", b"#" * 10)
"""Times differ, but not in length."""


@pytest.mark.parametrize("view", [".tsv", ".jsonl", "@earliest.jsonl"])
def test_each_view_reads_as_without_native_code(native: Mounted, tmp_path: Path, view: str) -> None:
    """Segments are rolled, packed, compacted and trimmed between any two reads."""
    other = Mounted(tmp_path / "other", "no_native")
    pair = Pair(native, other, view)
    for number in range(400):
        for _ in range(pair.chance.choice([0, 1, 1, 6])):
            pair.write(number)
        if number % 25 == 24:
            pair.change(number // 25)
        pair.read()
    pair.end()
    assert native_writes(native, "reads") > 100
    assert native_writes(other, "reads") == 0
    for mounted in pair.mounts:
        mounted.expected.append("records without a key were removed")
    other.clear()
    other.check()


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
