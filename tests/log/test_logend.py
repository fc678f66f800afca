"""The end of a log: what one append after the other makes of a segment and its indexes."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.log.writing._end import NativeEnd
from logfs.records._indexing import IndexBuilder
from logfs.records.compression import decompress
from tests.fakes import FakeDisk
from tests.records import oracle
from tests.records.oracle import Batch
from tests.records.strategies import NOW_MS, joined, logs

NAME = "0.log"


def begin(base_offset: int = 0, interval: int = 70) -> tuple[FakeDisk, NativeEnd]:
    disk = FakeDisk()
    return disk, NativeEnd(disk.open(NAME, write=True, create=True), base_offset, interval)


def add(end: NativeEnd, size: int, first: int, last: int, time: int, *lengths: int) -> bool:
    text, tsv, jsonl = lengths or (1, 1, 1)
    return end.append(bytes(size), first, last, time, text, tsv, jsonl)


@given(log=logs, takes=st.lists(st.booleans(), min_size=1))
def test_appending_accounts_for_batches_as_recovery_does(
    log: list[Batch], takes: list[bool]
) -> None:
    disk, end = begin()
    taken = [b"", b"", b""]
    for number, batch in enumerate(log):
        lengths = oracle.lengths(batch.visible)
        has_entries = end.append(
            batch.data, batch.base_offset, batch.last_offset, batch.max_timestamp, *lengths
        )
        if takes[number % len(takes)] or number % 64 == 63:
            entries = end.take()
            assert has_entries == bool(entries[0])
            taken = [a + b for a, b in zip(taken, entries, strict=True)]
    taken = [a + b for a, b in zip(taken, end.take(), strict=True)]
    builder = IndexBuilder(0, 70, decompress)
    data = joined(log)
    builder.feed(data, 0, len(data), True)
    assert disk.read(NAME) == data
    assert tuple(taken) == builder.take()
    for name in ("file_position", "next_offset", "max_timestamp", "first_timestamp"):
        assert getattr(end, name) == getattr(builder, name)
    assert (end.text, end.tsv, end.jsonl) == (builder.text, builder.tsv, builder.jsonl)
    assert end.final_time_entry() == builder.final_time_entry()
    assert end.final_time_entry() == b""


def test_the_bytes_of_entries() -> None:
    """Reference vectors: offset 55 at 4200, and its time, in a segment that begins at 50."""
    _, end = begin(50, 4096)
    assert not add(end, 4200, 50, 54, NOW_MS, 10, 20, 30)
    assert end.take() == (b"", b"", b"")
    assert add(end, 100, 55, 55, NOW_MS + 5)
    assert end.take() == (
        bytes.fromhex("0000000500001068"),
        bytes.fromhex("0000018bcfe5680500000005"),
        struct.pack(">iiqqq", 5, 4200, 10, 20, 30),
    )


def test_a_counter_of_just_the_interval_makes_no_entry() -> None:
    _, end = begin(0, 100)
    add(end, 100, 0, 0, -1)
    assert not add(end, 1, 1, 1, -1)
    assert add(end, 1, 2, 2, -1)
    assert end.take()[0] == struct.pack(">ii", 2, 101)


def test_entries_that_are_not_taken_are_left_out_when_there_are_too_many() -> None:
    _, end = begin(0, 0)
    for number in range(100):
        add(end, 1, number, number, NOW_MS + number)
    offsets, times, texts = end.take()
    assert len(offsets) // 8 == len(times) // 12 == len(texts) // 32 == 64
    assert add(end, 1, 100, 100, NOW_MS + 100)
    assert end.take()[0] == struct.pack(">ii", 100, 100)


def test_a_restart_forgets_the_counter() -> None:
    _, end = begin(0, 100)
    end.restore(
        file_position=200,
        next_offset=1,
        max_timestamp=5,
        offset_of_max_timestamp=0,
        first_timestamp=5,
        last_time_entry=-1,
        text=1,
        tsv=2,
        jsonl=3,
    )
    assert not add(end, 101, 1, 1, -1)
    assert add(end, 1, 2, 2, -1)


def test_a_failed_write_changes_nothing() -> None:
    disk, end = begin()
    add(end, 100, 0, 4, NOW_MS)
    disk.fail_next("pwrite", NAME, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        add(end, 100, 5, 9, NOW_MS + 1)
    assert (end.file_position, end.next_offset, end.max_timestamp) == (100, 5, NOW_MS)
    assert end.take() == (b"", b"", b"")
    add(end, 100, 5, 9, NOW_MS + 1)
    assert end.file_position == 200
