"""Unfinished lines that are too long to be kept in memory: they are read again from their files."""

import errno
import random

import pytest

from logfs.errors import CorruptRecordError
from logfs.log.writing.unfinished import UnfinishedFile, decode_unfinished
from logfs.types import View
from tests.fakes import FakeDisk
from tests.log.support import DIRECTORY, Bench, lines_of

LARGE = {"max.message.bytes": "10000000"}
SIZES = {
    "around what is kept": [4000, 95, 1, 1, 1, 5000],
    "one byte at a time": [1] * 9000,
    "around what is read at a time": [1_000_000, 48_564, 1, 12, 1_048_576],
    "pieces larger than that": [1_500_000, 10, 1_200_000],
}


@pytest.fixture
def bench() -> Bench:
    return Bench(LARGE)


def pieces_of(sizes: list[int], seed: int = 1) -> list[bytes]:
    some = random.Random(seed)
    return [some.randbytes(size).hex()[:size].encode() for size in sizes]


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_a_long_line_becomes_one_record(bench: Bench, sizes: list[int]) -> None:
    writer, expected = bench.writer(), []
    for number in range(3):
        pieces = pieces_of(sizes, number)
        for piece in pieces:
            assert writer.write(piece, bench.now_ms) == len(piece)
        assert writer.unfinished == sum(sizes)
        assert writer.write(b"end\nnext\n", bench.now_ms) == 9
        expected += [b"".join(pieces) + b"end", b"next"]
    assert lines_of(bench.log) == expected
    pieces = pieces_of(sizes)
    for piece in pieces:
        writer.write(piece, bench.now_ms)
    writer.close(bench.now_ms)
    assert lines_of(bench.log) == [*expected, b"".join(pieces)]
    assert bench.names(".unfinished") == []


def test_two_long_lines_at_the_same_time(bench: Bench) -> None:
    first, second = bench.writer(), bench.writer()
    for _ in range(50):
        first.write(b"a" * 1000, bench.now_ms)
        second.write(b"b" * 999, bench.now_ms)
    second.close(bench.now_ms)
    first.close(bench.now_ms)
    assert lines_of(bench.log) == [b"b" * 49_950, b"a" * 50_000]


def test_a_line_that_was_adopted_grows_long() -> None:
    disk = FakeDisk()
    disk.make_directory("orders-0")
    file = UnfinishedFile(disk, "orders-0", "logfs.1.unfinished", View.TEXT)
    file.keep(b"an earlier line")
    file.announce(7, 8)
    file.consumed()
    file.keep(b"a" * 3000)

    adopted = UnfinishedFile(disk, "orders-0", "logfs.1.unfinished", View.TEXT)
    adopted.adopt(decode_unfinished(adopted.name, disk.read(adopted.name)))
    adopted.keep(b"b" * 3000)

    assert adopted.line() == b"a" * 3000 + b"b" * 3000


def test_a_full_disk_at_the_end_of_a_long_line(bench: Bench) -> None:
    writer, pieces = bench.writer(), pieces_of([3000, 3000, 3000])
    for piece in pieces:
        writer.write(piece, bench.now_ms)
    for pattern in ("*.log", "*.unfinished"):
        bench.disk.fail_next_write(pattern, errno.ENOSPC, 5)
        with pytest.raises(OSError, match="No space"):
            writer.write(b"end\n", bench.now_ms)
    assert writer.unfinished == 9000
    writer.write(b"more", bench.now_ms)
    writer.write(b" end\n", bench.now_ms)
    assert lines_of(bench.log) == [b"".join(pieces) + b"more end"]


def test_a_long_line_survives_a_kill(bench: Bench) -> None:
    writer, pieces = bench.writer(), pieces_of([5000, 1, 2_000_000])
    for piece in pieces:
        writer.write(piece, bench.now_ms)
    assert lines_of(bench.kill()) == [b"".join(pieces)]


def test_a_line_whose_file_was_changed_is_no_record(bench: Bench) -> None:
    writer = bench.writer()
    for piece in pieces_of([3000, 3000, 3000]):
        writer.write(piece, bench.now_ms)
    (name,) = bench.names(".unfinished")
    file = bench.disk.open(f"{DIRECTORY}/{name}", write=True)
    file.pwrite(b"changed", 7000)
    with pytest.raises(CorruptRecordError, match=r"unfinished line of 9000 bytes is damaged at"):
        writer.write(b"end\n", bench.now_ms)
    bench.writer().write(b"another\n", bench.now_ms)
    assert lines_of(bench.log) == [b"another"]


def test_a_long_line_of_json(bench: Bench) -> None:
    writer = bench.writer(View.JSONL)
    writer.write(b'{"key":"k",', bench.now_ms)
    writer.write(b'"value":"' + b"v" * 100_000, bench.now_ms)
    writer.write(b'"}\n', bench.now_ms)
    assert lines_of(bench.log) == [b"v" * 100_000]
