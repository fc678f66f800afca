"""Batches to columns, against a plain decoding of the same batches and of the buffers."""

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._columnar import ColumnBuilder
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.columns import (
    AT_STOP,
    FULL,
    WINDOW_END,
    Columns,
    RecordColumns,
)
from logfs.records.compression import decompress
from logfs.records.record import Record
from tests.records.arrow import lists, numbers, strings
from tests.records.oracle import Batch
from tests.records.strategies import NOW_MS, joined, logs, sealed, visible

ALL = Columns(63)
MOST = 2**63 // 1000 * 1000


def rows_of(columns: RecordColumns) -> list[tuple[object, ...]]:
    rows = columns.rows
    nothing = [None] * rows
    return list(
        zip(
            strings(rows, columns.keys) if columns.keys else nothing,
            strings(rows, columns.values) if columns.values else nothing,
            nothing if columns.offsets is None else numbers("q", rows, columns.offsets),
            nothing if columns.timestamps is None else numbers("q", rows, columns.timestamps),
            lists(rows, columns.headers) if columns.headers else nothing,
            strict=True,
        )
    )


def as_java_reads_it(text: bytes) -> bytes:
    # Python and Java count what is wrong differently where a sequence breaks off.
    return text if text.decode(errors="replace").encode() == text else b"?"


def expected(record: Record, wanted: Columns = ALL) -> tuple[object, ...]:
    headers = tuple((key, value) for key, value in record.headers) or None
    timestamp = min(max(record.timestamp, -(MOST // 1000)), MOST // 1000) * 1000
    return (
        record.key if wanted & Columns.KEY else None,
        record.value if wanted & Columns.VALUE else None,
        record.offset if wanted & Columns.OFFSET else None,
        timestamp if wanted & Columns.TIMESTAMP else None,
        headers if wanted & Columns.HEADERS else None,
    )


def mended(row: tuple[object, ...]) -> tuple[object, ...]:
    """Take all header keys that are not UTF-8, or were mended, for the same."""
    headers = row[-1]
    if not isinstance(headers, tuple):
        return row
    return *row[:-1], tuple(
        (b"?" if as_java_reads_it(key) == b"?" or "\ufffd".encode() in key else key, value)
        for key, value in headers
    )


def collect(builder: ColumnBuilder, *windows: bytes) -> Iterator[RecordColumns]:
    for data in windows:
        builder.load(data, 0, len(data))
        while (answer := builder.fill()) == FULL:
            yield RecordColumns.taken(builder)
        if answer == AT_STOP:
            break
    if builder.rows:
        yield RecordColumns.taken(builder)


@given(logs, st.integers(0, 63), st.integers(1, 9), st.sampled_from([1, 40, 3000, 1 << 20]))
def test_columns_are_what_the_records_say(
    log: list[Batch], mask: int, max_rows: int, max_bytes: int
) -> None:
    wanted = Columns(mask)
    builder = ColumnBuilder(mask, max_rows, max_bytes, decompress)
    found = list(collect(builder, *(batch.data for batch in log)))
    assert all(0 < columns.rows <= max_rows for columns in found)
    rows = [mended(row) for columns in found for row in rows_of(columns)]
    assert rows == [mended(expected(record, wanted)) for record in visible(log)]
    assert builder.next_offset == max((batch.last_offset + 1 for batch in log), default=0)


@given(logs, st.integers(0, 60), st.integers(0, 60))
def test_a_range_is_cut_at_both_ends(log: list[Batch], start: int, stop: int) -> None:
    first = log[0].base_offset if log else 0
    start, stop = first + start, first + stop
    builder = ColumnBuilder(Columns.OFFSET, 100, 1 << 20, decompress)
    builder.start_offset, builder.stop_offset = start, stop
    rows = [row[2] for columns in collect(builder, joined(log)) for row in rows_of(columns)]
    assert rows == [r.offset for r in visible(log) if start <= r.offset < stop]


@given(logs, st.binary(min_size=1, max_size=2), st.integers(0, 60), st.integers(0, 63))
def test_only_records_whose_value_has_some_bytes_are_taken(
    log: list[Batch], contains: bytes, count: int, mask: int
) -> None:
    stop = (log[0].base_offset if log else 0) + count
    builder = ColumnBuilder(mask | Columns.OFFSET, 3, 1 << 20, decompress, contains=contains)
    builder.stop_offset = stop
    rows = [row[2] for columns in collect(builder, joined(log)) for row in rows_of(columns)]
    wanted = [r for r in visible(log) if r.offset < stop and contains in (r.value or b"")]
    assert rows == [record.offset for record in wanted]


def batch(*records: Record, fields: BatchFields | None = None) -> bytes:
    return encode_batch(records, fields or BatchFields())


def one(data: bytes, mask: Columns = ALL, *, aborted: bytes = b"") -> RecordColumns:
    (columns,) = collect(ColumnBuilder(mask, 100, 1 << 20, decompress, aborted), data)
    return columns


def test_null_is_not_empty() -> None:
    data = batch(Record(0, 1, None, b""), Record(1, 1, b"", None, ((b"h", None),)))
    rows = rows_of(one(data))
    assert rows == [(None, b"", 0, 1000, None), (b"", None, 1, 1000, ((b"h", None),))]


def test_without_nulls_there_is_no_bitmap() -> None:
    columns = one(batch(Record(0, 1, b"k", b"v", ((b"h", b"x"),))))
    assert columns.keys is not None
    assert columns.headers is not None
    assert (columns.keys.valid, columns.headers.valid) == (None, None)


def test_the_bitmap_of_one_set_says_nothing_of_the_next() -> None:
    builder = ColumnBuilder(Columns.VALUE, 2, 1 << 20, decompress)
    records = [Record(n, 0, None, None if n < 2 else b"v") for n in range(4)]
    first, second = collect(builder, batch(*records))
    assert [row[1] for row in rows_of(first)] == [None, None]
    assert second.values is not None
    assert second.values.valid is None


def test_time_that_arrow_cannot_hold_is_the_last_it_can() -> None:
    data = batch(Record(0, 2**63 - 1), Record(1, -(2**63)), Record(2, -1))
    times = [row[3] for row in rows_of(one(data))]
    assert times == [(2**63 - 1) // 1000 * 1000, -((2**63 - 1) // 1000 * 1000), -1000]


def test_timestamp_types() -> None:
    plain = one(batch(Record(0, NOW_MS)))
    stamped = one(batch(Record(0, NOW_MS), fields=BatchFields(is_log_append_time=True)))
    assert plain.timestamp_types is not None
    assert stamped.timestamp_types is not None
    assert (plain.timestamp_types[:4], stamped.timestamp_types[:4]) == (
        struct.pack("=i", 0),
        struct.pack("=i", 1),
    )


def test_a_header_key_that_is_not_utf_8_is_replaced() -> None:
    columns = one(batch(Record(0, 1, None, None, ((b"a\xffb", b"\xff"),))))
    assert rows_of(columns)[0][-1] == (("a\ufffdb".encode(), b"\xff"),)


def test_markers_and_aborted_records_are_passed_over() -> None:
    mine = BatchFields(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = BatchFields(producer_id=7, producer_epoch=0, is_transactional=True, is_control=True)
    data = (
        batch(Record(0, 1, None, b"other"))
        + batch(Record(1, 1, None, b"aborted"), fields=mine)
        + batch(Record(2, 1, b"\0\0\0\0", b"\0" * 6), fields=marker)
        + batch(Record(3, 1, None, b"next"), fields=mine)
    )
    values = [row[1] for row in rows_of(one(data))]
    assert values == [b"other", b"aborted", b"next"]
    hidden = struct.pack("=3q", 7, 1, 2)
    assert [row[1] for row in rows_of(one(data, aborted=hidden))] == [b"other", b"next"]


def test_a_damaged_batch_is_named_and_what_is_before_it_stays() -> None:
    good, bad = batch(Record(0, 1, None, b"good")), bytearray(batch(Record(1, 1, None, b"bad")))
    bad[-2] ^= 1
    builder = ColumnBuilder(Columns.VALUE, 100, 1 << 20, decompress)
    builder.load(good + bad, 0, len(good + bad))
    with pytest.raises(CorruptRecordError, match=f"batch at position {len(good)}: checksum"):
        builder.fill()
    assert builder.rows == 1
    assert builder.next_offset == 1


def test_a_record_larger_than_the_bound_comes_alone() -> None:
    records = [Record(n, 0, None, b"x" * size) for n, size in enumerate((10, 5000, 10))]
    found = list(collect(ColumnBuilder(Columns.VALUE, 100, 1000, decompress), batch(*records)))
    assert [columns.rows for columns in found] == [1, 1, 1]


def test_header_keys_that_fit_into_no_column_are_refused_by_name() -> None:
    """Each of their bytes may become the three of U+FFFD; Arrow's offsets end at 2**31 - 1."""
    small = Record(7, 1, None, b"v", ((b"k", b"x"),))
    large = Record(8, 1, None, b"v" * 500, ((b"k" * 95, None),))
    data, needed = batch(small, large), 3 * 98
    wide = ColumnBuilder(ALL, 100, 1 << 20, decompress, max_column_bytes=needed)
    assert [columns.rows for columns in collect(wide, data)] == [1, 1]
    narrow = ColumnBuilder(ALL, 100, 1 << 20, decompress, max_column_bytes=needed - 1)
    narrow.load(data, 0, len(data))
    assert narrow.fill() == FULL
    narrow.take()
    message = "the record at offset 8 has 98 bytes of headers; expected at most 97 in a column"
    with pytest.raises(CorruptRecordError, match=message):
        narrow.fill()


def test_a_damaged_record_inside_a_sound_batch_is_refused() -> None:
    data = sealed(batch(Record(0, 1, None, b"v"))[:-1] + b"\x02")
    builder = ColumnBuilder(Columns.VALUE, 100, 1000, decompress)
    builder.load(data, 0, len(data))
    with pytest.raises(CorruptRecordError, match="a record does not decode"):
        builder.fill()


@pytest.mark.parametrize(("rows", "size"), [(0, 1), (1, 0), (1 << 25, 1), (1, 1 << 31)])
def test_bounds_are_checked(rows: int, size: int) -> None:
    with pytest.raises(ValueError, match="at most"):
        ColumnBuilder(0, rows, size, decompress)


def test_a_window_must_lie_inside_its_buffer() -> None:
    builder = ColumnBuilder(0, 1, 1, decompress)
    with pytest.raises(ValueError, match="not inside"):
        builder.load(b"abc", 0, 4)
    assert builder.fill() == WINDOW_END
