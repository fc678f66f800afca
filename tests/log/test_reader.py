"""A cursor over a view: from every position of logs with holes, and positions that never move."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.log.partition import PartitionLog
from logfs.log.reader import TextReader
from logfs.records.record import Record
from logfs.types import View
from tests.log.gaps import compact
from tests.log.support import Bench, batches_in, end_of, kept_runs_of, log_name, records_in

VIEWS = list(View)
SMALL = {"internal.segment.bytes": "600", "index.interval.bytes": "100"}
Runs = list[tuple[int, bytes]]


def filled(count: int = 40, per_batch: int = 3, **properties: str) -> Bench:
    """A log of many small segments."""
    bench = Bench(SMALL | {name.replace("_", "."): text for name, text in properties.items()})
    add(bench, count, per_batch)
    return bench


def add(bench: Bench, count: int, per_batch: int = 3) -> None:
    """Append records whose lengths differ in every view; some values are two lines."""
    for first in range(0, count, per_batch):
        bench.append([record(bench, n) for n in range(first, min(first + per_batch, count))])


def record(bench: Bench, number: int) -> Record:
    value = [b"v%d" % number, b"two\nlines", b"", None, b"x" * (number % 17)][number % 5]
    key = None if number % 4 else b"k\t%d" % number
    return Record(0, bench.now_ms + number, key, value, ())


def next_kept_of(runs: Runs, position: int, end: int) -> int:
    for begin, data in runs:
        if position < begin + len(data):
            return max(position, begin)
    return max(position, end)


def bytes_at(runs: Runs, position: int) -> bytes:
    for begin, data in runs:
        if begin <= position < begin + len(data):
            return data[position - begin :]
    return b""


def everything(log: PartitionLog) -> dict[View, Runs]:
    return {view: kept_runs_of(log, view) for view in VIEWS}


def placed_lines(log: PartitionLog, view: View = View.JSONL) -> dict[int, bytes]:
    """Every line that is kept, by its position."""
    lines = {}
    for begin, data in kept_runs_of(log, view):
        position = begin
        for line in data.splitlines(keepends=True):
            lines[position] = line
            position += len(line)
    return lines


def check_every_position(log: PartitionLog, before: Runs, view: View, kept: Runs) -> None:
    """Seek to every position, and a little beyond the end."""
    reader, out, end = TextReader(view, lambda: log.snapshot), bytearray(1 << 16), end_of(log, view)
    assert kept_runs_of(log, view) == kept
    assert all(data in bytes_at(before, begin) for begin, data in kept)
    for position in range(end + 3):
        expected = next_kept_of(kept, position, end)
        assert reader.next_kept(position) == expected
        assert reader.seek(position) == reader.position == expected
        got = reader.read_into(memoryview(out), end)
        assert out[:got] == bytes_at(kept, expected)
        assert reader.position == expected + got


def without(runs: Runs, holes: list[tuple[int, int]]) -> Runs:
    """The runs with some positions taken out."""
    left = {p + i: data[i : i + 1] for p, data in runs for i in range(len(data))}
    for begin, end in holes:
        for position in range(begin, end):
            left.pop(position, None)
    found: Runs = []
    for position, byte in sorted(left.items()):
        if found and sum((found[-1][0], len(found[-1][1]))) == position:
            found[-1] = (found[-1][0], found[-1][1] + byte)
        else:
            found.append((position, byte))
    return found


def holes_of(log: PartitionLog, view: View, keeps: Callable[[int], bool]) -> list[tuple[int, int]]:
    """Where the records of the sealed segments that a compaction removes stand. Dense logs only."""
    holes = []
    for segment in log.snapshot.segments[:-1]:
        reader = TextReader(View.JSONL, lambda: log.snapshot)
        out = memoryview(bytearray(1 << 16))
        reader.seek(segment.bases.jsonl)
        reader.read_into(out, segment.ends.jsonl)
        position = segment.bases[view]
        for found in records_in(log.disk.read(segment.name)):
            length = lengths(found)[view]
            if not keeps(found.offset):
                holes.append((position, position + length))
            position += length
    return holes
