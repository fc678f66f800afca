"""Rows of columns to batches: what the same records make, encoded one by one."""

import dataclasses
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import RecordTooLargeError, UnparsableLineError
from logfs.records._encoding import RowEncoder, encode_records, murmur2, spread_rows
from logfs.records.columns import Lists, Numbers, Strings
from logfs.records.compression import Compression
from logfs.records.encoded import EncodedBatch, EncodeOptions
from logfs.records.record import Record
from tests.records.encoding import ANY_TIME, OPTIONS, check, decoded
from tests.records.strategies import NOW_MS, codecs, make_record, record_numbers

SECOND = 1_000_000


def bitmap(values: Sequence[object], first: int) -> bytes | None:
    if first == 0 and None not in values:
        return None
    bits = [True] * first + [value is not None for value in values]
    return bytes(
        sum(bit << at for at, bit in enumerate(bits[byte : byte + 8]))
        for byte in range(0, len(bits), 8)
    )


def ends_of(lengths: Sequence[int], first: int, begin: int = 0) -> bytes:
    ends = [0] * first + [begin]
    for length in lengths:
        ends.append(ends[-1] + length)
    return struct.pack(f"={len(ends)}i", *ends)


def strings(values: Sequence[bytes | None], first: int = 0) -> Strings:
    """A column in the middle of larger buffers."""
    ends = ends_of([len(value or b"") for value in values], first, 2)
    data = b"##" + b"".join(value or b"" for value in values) + b"#"
    return Strings(bitmap(values, first), ends, data, first)


def numbers(values: Sequence[int | None], code: str = "q", first: int = 0) -> Numbers:
    slots = [0] * first + [value or 0 for value in values]
    return Numbers(bitmap(values, first), struct.pack(f"={len(slots)}{code}", *slots), first)


def lists(records: Sequence[Record], first: int = 0) -> Lists:
    values = [record.headers or None for record in records]
    flat = [header for record in records for header in record.headers]
    keys, contents = strings([key for key, _ in flat], first), strings([v for _, v in flat], 3)
    ends = ends_of([len(record.headers) for record in records], first)
    return Lists(bitmap(values, first), ends, keys, contents, first)


def put(
    encoder: RowEncoder,
    records: Sequence[Record],
    rows: Sequence[int] | None = None,
    first: int = 0,
) -> None:
    chosen = None if rows is None else struct.pack(f"={len(rows)}i", *rows)
    encoder.put(
        strings([record.key for record in records], first),
        strings([record.value for record in records], first),
        numbers([record.timestamp * 1000 + 999 for record in records], first=first),
        lists(records, first),
        chosen,
        len(records) if rows is None else len(rows),
    )


def made(number: int) -> Record:
    record = make_record(0, number)
    return record._replace(offset=0, timestamp=min(record.timestamp, 2**52))


@given(
    drawn=st.lists(record_numbers, max_size=12),
    codec=codecs,
    append=st.booleans(),
    pieces=st.integers(1, 4),
    first=st.integers(0, 17),
)
def test_rows_make_the_batches_that_their_records_make(
    drawn: list[int], codec: Compression, append: bool, pieces: int, first: int
) -> None:
    records = [made(number) for number in drawn]
    options = dataclasses.replace(
        ANY_TIME, max_batch_bytes=6000, compression=codec, log_append_time=append
    )
    encoder = RowEncoder(NOW_MS, options)
    found: list[EncodedBatch] = []
    for begin in range(0, len(records), pieces):
        put(encoder, records[begin : begin + pieces], first=first)
        found += encoder.take(last=False)
    found += encoder.take(last=True)
    expected = encode_records(records, 0, NOW_MS, options)
    assert found == expected.batches
    check(expected, options, 0)


@given(drawn=st.lists(record_numbers, min_size=1, max_size=8), rows=st.lists(st.integers(0, 7)))
def test_rows_may_be_chosen(drawn: list[int], rows: list[int]) -> None:
    records = [made(number) for number in drawn]
    rows = [row % len(records) for row in rows]
    encoder = RowEncoder(NOW_MS, ANY_TIME)
    put(encoder, records, rows)
    chosen = [records[row] for row in rows]
    assert encoder.take(last=True) == encode_records(chosen, 0, NOW_MS, ANY_TIME).batches


@pytest.mark.parametrize("length", [0, 100, 5000])
def test_many_rows(length: int) -> None:
    """More than the first guess of the buffer, and more than one batch."""
    values: list[bytes | None] = [b"v" * length] * (500_000 // (length + 20))
    encoder = RowEncoder(NOW_MS, EncodeOptions(100_000))
    encoder.put(None, strings(values), None, None, None, len(values))
    whole = encoder.take(last=False)
    batches = whole + encoder.take(last=True)
    assert len(batches) == len(whole) + 1
    assert encoder.take(last=True) == []
    expected = [Record(0, NOW_MS, None, value) for value in values]
    assert batches == encode_records(expected, 0, NOW_MS, EncodeOptions(100_000)).batches


def test_what_is_null() -> None:
    encoder = RowEncoder(NOW_MS, OPTIONS)
    encoder.put(strings([None, b""]), None, numbers([None, -1500]), None, None, 2)
    assert decoded(encoder.take(last=True)) == [
        Record(0, NOW_MS, None, None),
        Record(1, -2, b"", None),
    ]


def refused(
    options: EncodeOptions, keys: Strings | None, values: Strings, times: Numbers | None
) -> RowEncoder:
    encoder = RowEncoder(NOW_MS, options)
    encoder.put(None if keys is None else strings([b"k"]), strings([b"v"]), None, None, None, 1)
    encoder.put(keys, values, times, None, None, 2)
    return encoder


def test_refusals_name_the_record() -> None:
    values = strings([b"a", b"b" * 80])
    late = numbers([NOW_MS * 1000, NOW_MS * 1000 + 7200 * SECOND])
    with pytest.raises(RecordTooLargeError, match="record 3: alone it makes a batch of 150 bytes"):
        refused(EncodeOptions(100), None, values, None)
    with pytest.raises(UnparsableLineError, match="record 3: timestamp 1700007200000 is outside"):
        refused(OPTIONS, None, values, late)
    refused(dataclasses.replace(OPTIONS, log_append_time=True), None, values, late)
    with pytest.raises(UnparsableLineError, match=r"record 3: this topic needs a key \(cleanup"):
        refused(EncodeOptions(999, require_key=True), strings([b"k", None]), values, None)


def test_a_header_needs_a_key() -> None:
    headers = Lists(None, ends_of([1], 0), strings([None]), strings([b"x"]))
    with pytest.raises(UnparsableLineError, match="record 1: a header needs a key"):
        RowEncoder(NOW_MS, OPTIONS).put(None, strings([b"v"]), None, headers, None, 1)


@pytest.mark.parametrize(
    "values",
    [
        Strings(None, struct.pack("=2i", 0, 4), b"abc"),
        Strings(None, struct.pack("=2i", 2, 1), b"abc"),
        Strings(None, struct.pack("=2i", -1, 1), b"abc"),
        Strings(None, struct.pack("=i", 0), b"abc"),
        Strings(b"", struct.pack("=2i", 0, 1), b"abc"),
        Strings(None, struct.pack("=2i", 0, 1), b"abc", 1),
        Strings(None, struct.pack("=2i", 0, 1), b"abc", -1),
    ],
)
def test_buffers_are_not_trusted(values: Strings) -> None:
    encoder = RowEncoder(NOW_MS, OPTIONS)
    with pytest.raises(ValueError, match="column"):
        encoder.put(None, values, None, None, None, 1)
    pairs = Lists(None, struct.pack("=2i", 0, 1), values, strings([b"x"]))
    with pytest.raises(ValueError, match="column"):
        encoder.put(None, None, None, pairs, None, 1)
    with pytest.raises(ValueError, match="column"):
        spread_rows(values, None, None, 1, 3, 0)
    assert encoder.take(last=True) == []


@pytest.mark.parametrize("row", [-1, 1])
def test_rows_outside_of_the_columns(row: int) -> None:
    chosen = struct.pack("=i", row)
    with pytest.raises(ValueError, match="a row is outside"):
        RowEncoder(NOW_MS, OPTIONS).put(None, strings([b"v"]), None, None, chosen, 1)
    with pytest.raises(ValueError, match="not the numbers of 2 rows"):
        RowEncoder(NOW_MS, OPTIONS).put(None, strings([b"v"]), None, None, chosen, 2)
    with pytest.raises(ValueError, match="a row is outside"):
        spread_rows(strings([b"v"]), None, chosen, 1, 3, 0)


@given(
    keys=st.lists(st.none() | st.binary(max_size=9), max_size=20),
    partitions=st.integers(1, 5),
    data=st.data(),
)
def test_rows_go_where_they_say_or_where_their_key_says(
    keys: list[bytes | None], partitions: int, data: st.DataObject
) -> None:
    places = st.none() | st.integers(0, partitions - 1)
    given_places = data.draw(st.lists(places, min_size=len(keys), max_size=len(keys)))
    unkeyed = data.draw(st.integers(0, partitions - 1))
    expected: list[list[int]] = [[] for _ in range(partitions)]
    for row, (key, place) in enumerate(zip(keys, given_places, strict=True)):
        by_key = unkeyed if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions
        expected[by_key if place is None else place].append(row)
    found = spread_rows(
        strings(keys, 3), numbers(given_places, "i", 1), None, len(keys), partitions, unkeyed
    )
    assert [list(struct.unpack(f"={len(part) // 4}i", part)) for part in found] == expected
    backwards = struct.pack(f"={len(keys)}i", *reversed(range(len(keys))))
    found = spread_rows(
        strings(keys), numbers(given_places, "i"), backwards, len(keys), partitions, unkeyed
    )
    rows = [list(struct.unpack(f"={len(part) // 4}i", part)) for part in found]
    assert [part[::-1] for part in rows] == expected


def test_a_partition_that_the_topic_does_not_have() -> None:
    with pytest.raises(ValueError, match="partition 3: expected one of the topic's 3, from 0"):
        spread_rows(None, numbers([3], "i"), None, 1, 3, 0)
    with pytest.raises(ValueError, match="3 is none of 3 partitions"):
        spread_rows(None, None, None, 0, 3, 3)
