"""The records of a partition one after the other, from any offset, with holes and transactions."""

from collections.abc import Callable

import pytest

from logfs.errors import CorruptRecordError
from logfs.log.reading.records import RecordReader
from logfs.records.record import Record
from logfs.types import IsolationLevel
from tests.log import isolation, readers
from tests.log.gaps import HoledLog
from tests.log.support import Bench, log_name
from tests.log.transactions import TransactionLog

LEVELS = list(IsolationLevel)


def expected(log: HoledLog, start: int, stop: int | None = None) -> list[Record]:
    records = [kept.record for kept in log.model.visible if kept.record.offset >= start]
    return [record for record in records if stop is None or record.offset < stop]


def read_all(reader: RecordReader, stop: int | None = None) -> list[Record]:
    found: list[Record] = []
    while batch := reader.read(stop):
        found += batch
    return found


@readers.each_log
def test_from_every_offset(make: Callable[[], HoledLog]) -> None:
    log = make()
    for start in range(log.model.end_offset + 2):
        reader = RecordReader(lambda: log.log.snapshot, start)
        assert read_all(reader) == expected(log, start)
        assert reader.offset == max(start, log.model.end_offset)


@readers.each_log
def test_up_to_every_offset_and_then_on(make: Callable[[], HoledLog]) -> None:
    log = make()
    for stop in range(log.model.end_offset + 2):
        reader = RecordReader(lambda: log.log.snapshot, 0)
        assert read_all(reader, stop) == expected(log, 0, stop)
        assert read_all(reader) == expected(log, stop)


@isolation.each_log
@isolation.each_level
def test_each_level_sees_its_records(
    make: Callable[[], TransactionLog], level: IsolationLevel
) -> None:
    log = make()
    seen = log.seen(level)
    for start in range(0, log.model.end_offset + 2, 3):
        reader = RecordReader(lambda: log.log.snapshot, start, level)
        assert read_all(reader) == expected(seen, start)


def test_a_reader_continues_with_what_is_appended_rolled_and_cut() -> None:
    bench = Bench({"internal.segment.bytes": "300"})
    reader = RecordReader(lambda: bench.log.snapshot, 0)
    seen = [r.value for r in read_all(reader)]
    for n in range(90):
        bench.write(b"record %d" % n)
        seen += [r.value for r in read_all(reader)]
    assert seen == [b"record %d" % n for n in range(90)]
    bench.log.truncate_to(80, bench.now_ms)
    assert reader.read() == []
    for n in range(12):
        bench.write(b"again %d" % n)
    # What it had read before the cut is not read again; it continues where it was.
    assert [r.value for r in read_all(reader)] == [b"again 10", b"again 11"]


def test_what_retention_has_removed_is_passed_over() -> None:
    bench = Bench({"internal.segment.bytes": "300"})
    bench.write(*[b"record %d" % n for n in range(60)])
    reader = RecordReader(lambda: bench.log.snapshot, 0)
    first = reader.read(3)
    bench.log.advance_log_start_offset(40, bench.now_ms)
    assert [r.offset for r in first + read_all(reader)] == [0, 1, 2, *range(40, 60)]


def test_damage_ends_it_and_what_is_after_can_be_read() -> None:
    bench = Bench()
    bench.write(b"one", b"two", b"three")
    data = bytearray(bench.file(log_name(0)))
    data[2 * len(data) // 3 - 3] ^= 1
    bench.put(log_name(0), bytes(data))
    reader = RecordReader(lambda: bench.log.snapshot, 0)
    assert [r.value for r in reader.read()] == [b"one"]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="offset 1") as caught:
            reader.read()
        assert caught.value.file == f"t-0/{log_name(0)}"
        assert reader.offset == 1
    behind = RecordReader(lambda: bench.log.snapshot, 2)
    assert [r.value for r in behind.read()] == [b"three"]
