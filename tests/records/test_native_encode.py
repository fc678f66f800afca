import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.records._encoding import encode_lines, encode_records
from logfs.records._indexing import IndexBuilder
from logfs.records.batch import decode_header, decode_records
from logfs.records.compression import Compression, decompress
from logfs.records.encoded import Encoded, EncodeOptions
from logfs.records.layout import HEADER_BYTES
from logfs.records.record import Record
from logfs.types import View
from tests.records import oracle
from tests.records.encoding import ANY_TIME, OPTIONS, check, decoded, encode
from tests.records.strategies import (
    FIELDS,
    HEADERS,
    KEYS,
    NOW_MS,
    codecs,
    make_record,
    nullable,
    record_numbers,
    values,
    views,
)

lines = st.lists(values.map(lambda value: value.replace(b"\n", b"")), max_size=20)


@given(
    lines=lines, codec=codecs, limit=st.sampled_from([2200, 3000, 1 << 20]), append=st.booleans()
)
def test_text_lines(lines: list[bytes], codec: Compression, limit: int, append: bool) -> None:
    lines = [line[:2100] for line in lines]
    options = EncodeOptions(limit, 3, codec, log_append_time=append)
    body = b"".join(line + b"\n" for line in lines)
    encoded = encode(View.TEXT, body, options)
    check(encoded, options)
    assert encoded.refusal is None
    assert decoded(encoded.batches) == [
        Record(5 + i, NOW_MS, None, line) for i, line in enumerate(lines)
    ]
    ends = []
    for batch in encoded.batches:
        count = batch.last_offset - 5 + 1
        ends.append(sum(len(line) + 1 for line in lines[:count]))
    assert encoded.ends == ends


@given(numbers=st.lists(record_numbers, max_size=12), codec=codecs, append=st.booleans())
def test_records(numbers: list[int], codec: Compression, append: bool) -> None:
    records = [make_record(0, number) for number in numbers]
    options = dataclasses.replace(
        ANY_TIME, max_batch_bytes=6000, compression=codec, log_append_time=append, leader_epoch=-1
    )
    encoded = encode_records(records, 5, NOW_MS, options)
    check(encoded, options)
    assert encoded.refusal is None
    assert decoded(encoded.batches) == [
        record._replace(offset=5 + i, timestamp=NOW_MS if append else record.timestamp)
        for i, record in enumerate(records)
    ]
    counts = [batch.last_offset - batch.base_offset + 1 for batch in encoded.batches]
    assert encoded.ends == [sum(counts[: i + 1]) for i in range(len(counts))]


@given(
    view=st.sampled_from([View.TSV, View.JSONL]),
    keys=st.lists(nullable, max_size=6),
    value=nullable,
    codec=codecs,
)
def test_views_accept_what_they_print(
    view: View, keys: list[bytes | None], value: bytes | None, codec: Compression
) -> None:
    records = [Record(5 + i, NOW_MS, key, value) for i, key in enumerate([*keys, value])]
    if view is View.JSONL:
        records = [r._replace(timestamp=r.offset, headers=HEADERS[2]) for r in records]
    body = oracle.renderings(view, records)
    options = dataclasses.replace(OPTIONS, compression=codec)
    encoded = encode(view, body, options)
    check(encoded, options)
    assert encoded.refusal is None
    assert decoded(encoded.batches) == records
    assert encoded.ends == [len(body)]


@pytest.mark.parametrize("view", View)
def test_every_field_comes_back(view: View) -> None:
    records = [
        Record(5 + i, NOW_MS, KEYS[i % len(KEYS)], value, HEADERS[i % 4])
        for i, value in enumerate(FIELDS * 3)
    ]
    if view is View.TEXT:
        records = [
            Record(r.offset, NOW_MS, None, (r.value or b"").replace(b"\n", b"")) for r in records
        ]
    elif view is View.TSV:
        records = [record._replace(headers=()) for record in records]
    encoded = encode(view, oracle.renderings(view, records))
    check(encoded, OPTIONS)
    assert decoded(encoded.batches) == records


@given(view=views, head=st.integers(1, 100))
def test_a_head_is_the_beginning_of_the_first_line(view: View, head: int) -> None:
    records = [Record(5 + i, NOW_MS, None, v) for i, v in enumerate([b"x" * 40 + b"\\", b"", b"z"])]
    body = oracle.renderings(view, records)
    head = min(head, body.index(b"\n"))
    encoded = encode(view, body[head:], head=body[:head])
    check(encoded, OPTIONS)
    assert decoded(encoded.batches) == records
    assert encoded.ends == [len(body) - head]


def test_a_head_that_cuts_a_character() -> None:
    body = "ä\nö\n".encode()
    encoded = encode(View.TEXT, body[1:], head=body[:1])
    check(encoded, OPTIONS)
    assert decoded(encoded.batches)[0].value == "ä".encode()


@pytest.mark.parametrize(
    ("line", "count", "limits"),
    [
        (b"abcdefghi\n", 100, range(80, 100)),
        (b"abcdefghi\n", 100, range(1300, 1303)),  # offset deltas of two bytes
        (b"\n", 1000, range(1376, 1384)),  # just above the first guess of the buffer
        (b"\n", 1000, range(2000, 2008)),
    ],
)
def test_batches_are_as_few_as_the_limit_allows(line: bytes, count: int, limits: range) -> None:
    for limit in limits:
        options = EncodeOptions(limit)
        encoded = encode(View.TEXT, line * count, options)
        check(encoded, options)
        assert encoded.ends == [len(line) * (batch.last_offset - 4) for batch in encoded.batches]
        assert encoded.ends[-1] == len(line) * count


@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("length", [1, 3, 5000, 70_000])
def test_large_calls(view: View, length: int) -> None:
    """Longer than the first guess of the buffer, and than what is done under the GIL."""
    records = [Record(5 + i, NOW_MS, None, b"v" * length) for i in range(200_000 // (length + 20))]
    options = EncodeOptions(100_000)
    encoded = encode(view, oracle.renderings(view, records), options)
    check(encoded, options)
    assert decoded(encoded.batches) == records


def test_incompressible_records_are_compressed_nevertheless() -> None:
    value = bytes(range(256)) * 2
    options = EncodeOptions(1000, compression=Compression.GZIP)
    [batch] = encode_records([Record(0, -1, None, value[:8])], 0, NOW_MS, options).batches
    assert decode_header(batch.data).compression is Compression.GZIP
    assert len(batch.data) > HEADER_BYTES + 16


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_what_compression_makes_too_large_stays_plain(codec: Compression) -> None:
    noise = bytes(i * i * 7919 % 251 for i in range(400))
    records = [Record(0, -1, None, noise)]
    exact = len(encode_records(records, 0, NOW_MS, OPTIONS).batches[0].data)
    options = EncodeOptions(exact, compression=codec)
    [batch] = encode_records(records, 0, NOW_MS, options).batches
    assert decode_header(batch.data).compression in (codec, Compression.NONE)
    assert len(batch.data) <= exact
    tiny = [Record(0, -1, None, b"abc")]
    exact = len(encode_records(tiny, 0, NOW_MS, OPTIONS).batches[0].data)
    [batch] = encode_records(tiny, 0, NOW_MS, EncodeOptions(exact, compression=codec)).batches
    assert decode_header(batch.data).compression is Compression.NONE
    assert decode_records(batch.data) == tiny


def test_a_record_without_timestamp_is_kept_so() -> None:
    record = Record(0, -1, None, b"v")
    [batch] = encode_records([record], 0, NOW_MS, OPTIONS).batches
    assert batch.max_timestamp == -1
    assert decode_records(batch.data) == [record]
    [batch] = encode(View.JSONL, b'{"value":"v"}\n').batches
    assert batch.max_timestamp == NOW_MS


def test_the_largest_timestamp_need_not_be_the_first() -> None:
    times = [NOW_MS - 5, NOW_MS + 7, NOW_MS]
    body = b"".join(json.dumps({"timestamp": time}).encode() + b"\n" for time in times)
    [batch] = encode(View.JSONL, body).batches
    assert decode_header(batch.data).base_timestamp == NOW_MS - 5
    assert batch.max_timestamp == NOW_MS + 7


def test_crlf_is_data() -> None:
    for view in (View.TEXT, View.TSV):
        assert decoded(encode(view, b"a\r\n").batches)[0].value == b"a\r"
    assert decoded(encode(View.JSONL, b'{"value":"a"}\r\n').batches)[0].value == b"a"


def test_ranges_that_are_no_lines() -> None:
    assert encode(View.TEXT, b"") == Encoded([], [], None)
    for head, body, start, stop, problem in [
        (b"", b"abc", 0, 3, "last line has no end"),
        (b"a", b"", 0, 0, "first line has no end"),
        (b"", b"a\n", 0, 3, "not inside"),
        (b"", b"a\n", -1, 2, "not inside"),
        (b"", b"a\n", 2, 1, "not inside"),
    ]:
        with pytest.raises(ValueError, match=problem):
            encode_lines(View.TEXT, head, body, start, stop, 0, NOW_MS, OPTIONS)
    with pytest.raises(ValueError, match="no view"):
        encode_lines(3, b"", b"a\n", 0, 2, 0, NOW_MS, OPTIONS)


def test_types_are_checked() -> None:
    for record in (
        Record(0, 0, "k", None),  # type: ignore[arg-type]
        Record(0, 0, None, None, ((None, b""),)),  # type: ignore[arg-type]
        Record(0, 0, None, None, [(b"", b"")]),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, ValueError)):
            encode_records([record], 0, NOW_MS, OPTIONS)


def test_what_is_encoded_can_be_indexed() -> None:
    encoded = encode(View.TEXT, b"line of text\n" * 5000, EncodeOptions(4000))
    data = b"".join(batch.data for batch in encoded.batches)
    builder = IndexBuilder(5, 4096, decompress)
    assert builder.feed(data, 0, len(data), True) == len(data)
    assert builder.text == sum(batch.text_bytes for batch in encoded.batches) == 65_000
    assert builder.tsv == sum(batch.tsv_bytes for batch in encoded.batches)
    assert builder.jsonl == sum(batch.jsonl_bytes for batch in encoded.batches)
