import dataclasses
import json
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import LogfsError, RecordTooLargeError, UnparsableLineError
from logfs.records._native import (
    IndexBuilder,
    encode_lines,
    encode_records,
    unfinished_fits,
)
from logfs.records.batch import HEADER_BYTES, decode_header, decode_records
from logfs.records.compression import Compression, decompress
from logfs.records.encoded import Encoded, EncodedBatch, EncodeOptions
from logfs.records.record import Record
from logfs.types import View
from tests.records import oracle
from tests.records.strategies import (
    FIELDS,
    HEADERS,
    KEYS,
    NOW_MS,
    codecs,
    make_record,
    nullable,
    values,
    views,
)

OPTIONS = EncodeOptions(max_batch_bytes=1 << 20)
ANY_TIME = EncodeOptions(
    max_batch_bytes=1 << 20, timestamp_before_max_ms=2**64, timestamp_after_max_ms=2**64
)


def encode(
    view: View, body: bytes, options: EncodeOptions = OPTIONS, *, head: bytes = b""
) -> Encoded:
    """Encode all of a body that stands inside a larger buffer."""
    encoded = encode_lines(view, head, b"##" + body + b"#\n", 2, 2 + len(body), 5, NOW_MS, options)
    return encoded._replace(ends=[end - 2 for end in encoded.ends])


def decoded(batches: Sequence[EncodedBatch]) -> list[Record]:
    return [record for batch in batches for record in decode_records(batch.data)]


def check(encoded: Encoded, options: EncodeOptions, base_offset: int = 5) -> None:
    """What holds for every batch, whatever went in."""
    offset = base_offset
    for batch in encoded.batches:
        header = decode_header(batch.data)
        records = decode_records(batch.data)
        assert len(batch.data) <= options.max_batch_bytes
        assert batch.base_offset == header.base_offset == offset
        assert [r.offset for r in records] == list(range(offset, batch.last_offset + 1))
        assert batch.last_offset == header.last_offset
        assert batch.max_timestamp == header.max_timestamp
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert header.partition_leader_epoch == options.leader_epoch
        assert header.is_log_append_time == options.log_append_time
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert (batch.text_bytes, batch.tsv_bytes, batch.jsonl_bytes) == oracle.lengths(records)
        offset = batch.last_offset + 1


def greedy(sizes: Iterator[int], limit: int) -> list[int]:
    """How many records of given sizes go into each batch."""
    counts: list[int] = []
    room = 0
    for size in sizes:
        if size > room:
            counts.append(0)
            room = limit - HEADER_BYTES
        counts[-1] += 1
        room -= size
    return counts


lines = st.lists(values.map(lambda value: value.replace(b"\n", b"")), max_size=20)


@given(lines=lines, codec=codecs, limit=st.sampled_from([2200, 3000, 1 << 20]), append=st.booleans())
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


@given(numbers=st.lists(st.integers(0, 2**22), max_size=12), codec=codecs, append=st.booleans())
def test_records(numbers: list[int], codec: Compression, append: bool) -> None:
    records = [make_record(0, number % (2**19)) for number in numbers]
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
        records = [Record(r.offset, NOW_MS, None, (r.value or b"").replace(b"\n", b"")) for r in records]
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


def test_batches_are_as_few_as_the_limit_allows() -> None:
    count = 300  # offset deltas of one and two bytes
    for limit in range(100, 1500, 7):
        options = EncodeOptions(limit)
        encoded = encode(View.TEXT, b"abcdefghi\n" * count, options)
        check(encoded, options)
        total = 0
        for batch in encoded.batches[:-1]:
            room = limit - len(batch.data)
            records = batch.last_offset - batch.base_offset + 1
            assert room < (16 if records < 64 else 17)
            total += records
        assert [10 * (b.last_offset - 4) for b in encoded.batches] == encoded.ends


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


@pytest.mark.parametrize("view", View)
def test_a_record_too_large(view: View) -> None:
    """As Kafka measures it: alone in an uncompressed batch."""
    before = oracle.renderings(view, [Record(5, NOW_MS, None, b"ok")] * 3)
    large = oracle.rendering(view, Record(8, NOW_MS, None, b"x" * 100))
    for codec in Compression:
        size = len(encode(view, large).batches[0].data)
        assert encode(view, large, EncodeOptions(size, compression=codec)).refusal is None
        options = EncodeOptions(size - 1, compression=codec)
        encoded = encode(view, before + large + before, options)
        assert isinstance(encoded.refusal, RecordTooLargeError)
        assert (encoded.refusal.size_bytes, encoded.refusal.limit_bytes) == (size, size - 1)
        assert str(encoded.refusal) == (
            f"line 4: its record alone makes a batch of {size} bytes; "
            f"max.message.bytes is {size - 1}"
        )
        assert len(decoded(encoded.batches)) == 3
        assert encoded.ends == [len(before)]


def test_a_record_too_large_among_records() -> None:
    records = [Record(0, value=b"a"), Record(0, value=b"b" * 100)]
    encoded = encode_records(records, 0, NOW_MS, EncodeOptions(100))
    assert isinstance(encoded.refusal, RecordTooLargeError)
    assert encoded.ends == [1]
    assert encode_records(records[1:], 0, NOW_MS, EncodeOptions(100)).batches == []


REFUSED = [
    (View.TSV, b"a\tb\tc", "more than one TAB"),
    (View.TSV, b"a\\x", "a backslash must be followed by"),
    (View.TSV, b"a\\", "a backslash must be followed by"),
    (View.TSV, b"k\ta\\N", "a backslash must be followed by"),
    (View.TSV, b"\\Nx\ta", "a backslash must be followed by"),
    (View.JSONL, b"", "not JSON in UTF-8: Expecting value"),
    (View.JSONL, b'{"value":1}', "value must be a string"),
    (View.JSONL, b'{"Value":"v"}', "unknown field 'Value'"),
]


@pytest.mark.parametrize(("view", "line", "reason"), REFUSED)
@pytest.mark.parametrize("in_head", [False, True])
def test_a_line_that_does_not_parse(view: View, line: bytes, reason: str, in_head: bool) -> None:
    good = oracle.rendering(view, Record(0, NOW_MS, b"k", b"v"))
    encoded = encode(view, good * 2 + line + b"\n" + good)
    assert isinstance(encoded.refusal, UnparsableLineError)
    assert str(encoded.refusal).startswith(f"line 3: {reason}")
    assert encoded.ends == [2 * len(good)]
    assert len(decoded(encoded.batches)) == 2
    if in_head and line:
        encoded = encode(view, line[1:] + b"\n" + good, head=line[:1])
        assert str(encoded.refusal).startswith(f"line 1: {reason}")
        assert (encoded.batches, encoded.ends) == ([], [])


def test_lines_are_counted_across_batches() -> None:
    encoded = encode(View.TSV, b"aaaaaaaaaa\n" * 50 + b"\\\n", EncodeOptions(100))
    assert len(encoded.batches) > 10
    assert str(encoded.refusal).startswith("line 51: ")
    assert encoded.ends[-1] == 550


def refusal_of(encoded: Encoded) -> LogfsError:
    assert encoded.refusal is not None
    return encoded.refusal


def test_topics_that_need_keys() -> None:
    options = EncodeOptions(1000, require_key=True)
    for encoded, good in [
        (encode(View.TEXT, b"v\n", options), 0),
        (encode(View.TSV, b"k\tv\n\t\\N\n\\N\tv\n", options), 2),
        (encode(View.TSV, b"k\tv\nv\n", options), 1),
        (encode(View.JSONL, b'{"key":""}\n{"value":"v"}\n', options), 1),
        (encode_records([Record(0, key=b""), Record(0)], 0, NOW_MS, options), 1),
    ]:
        assert isinstance(encoded.refusal, UnparsableLineError)
        assert ">> FILE.tsv" in str(encoded.refusal)
        assert f" {good + 1}: " in str(encoded.refusal)
        assert len(decoded(encoded.batches)) == good


def test_timestamps_outside_the_limits() -> None:
    options = EncodeOptions(1000, timestamp_before_max_ms=10, timestamp_after_max_ms=20)

    def kept(timestamp: int, options: EncodeOptions = options) -> bool:
        line = b'{"timestamp":%d}\n' % timestamp
        by_line = encode(View.JSONL, line, options)
        by_record = encode_records([Record(0, timestamp)], 0, NOW_MS, options)
        for encoded in (by_line, by_record):
            if encoded.refusal is not None:
                assert isinstance(encoded.refusal, UnparsableLineError)
                assert f": timestamp {timestamp} is outside " in str(encoded.refusal)
        assert (by_line.refusal is None) == (by_record.refusal is None)
        return by_line.refusal is None

    assert [kept(NOW_MS + d) for d in (-11, -10, 20, 21)] == [False, True, True, False]
    assert kept(-1)
    assert not kept(-2)
    assert not kept(2**63 - 1)
    assert kept(NOW_MS + 21, dataclasses.replace(options, log_append_time=True))


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


@given(body=st.lists(values, max_size=5).map(b"\n".join), head=values, view=views)
def test_any_lines_become_records_or_a_refusal(body: bytes, head: bytes, view: View) -> None:
    body += b"\n"
    head = head.replace(b"\n", b"")
    options = EncodeOptions(1500)
    encoded = encode(view, body, options, head=head)
    check(encoded, options)
    if encoded.refusal is None:
        assert encoded.ends[-1] == len(body)
        assert len(decoded(encoded.batches)) == body.count(b"\n")
    else:
        assert isinstance(encoded.refusal, UnparsableLineError | RecordTooLargeError)
        taken = body[: encoded.ends[-1]] if encoded.ends else b""
        assert len(decoded(encoded.batches)) == taken.count(b"\n")
        assert taken == b"" or taken.endswith(b"\n")


def test_types_are_checked() -> None:
    for record in (
        Record(0, 0, "k", None),  # type: ignore[arg-type]
        Record(0, 0, None, None, ((None, b""),)),  # type: ignore[arg-type]
        Record(0, 0, None, None, [(b"", b"")]),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, ValueError)):
            encode_records([record], 0, NOW_MS, OPTIONS)


@pytest.mark.parametrize("view", View)
def test_what_may_still_become_a_record(view: View) -> None:
    """No line that fits is refused early; for text no other one is let through."""
    for limit in (100, 200, 300, 20_000):
        options = EncodeOptions(limit)
        for piece in (b"v", b"\n", b"\x01", b"\xff"):
            for length in range(1, 400):
                record = Record(0, NOW_MS, None, piece * length)
                if encode_records([record], 0, NOW_MS, options).refusal is None:
                    line = oracle.rendering(view, record)[:-1]
                    assert unfinished_fits(view, len(line), options)
        assert not unfinished_fits(view, 10 * limit + 5000, options)
    exact = EncodeOptions(HEADER_BYTES + 9 + 63)
    assert unfinished_fits(View.TEXT, 63, exact) == (
        encode(View.TEXT, b"x" * 63 + b"\n", exact).refusal is None
    )
    for length in range(200):
        fits = encode(View.TEXT, b"x" * length + b"\n", EncodeOptions(150)).refusal is None
        assert unfinished_fits(View.TEXT, length, EncodeOptions(150)) == fits


def test_what_is_encoded_can_be_indexed() -> None:
    encoded = encode(View.TEXT, b"line of text\n" * 5000, EncodeOptions(4000))
    data = b"".join(batch.data for batch in encoded.batches)
    builder = IndexBuilder(5, 4096, decompress)
    assert builder.feed(data, 0, len(data), True) == len(data)
    assert builder.text == sum(batch.text_bytes for batch in encoded.batches) == 65_000
    assert builder.tsv == sum(batch.tsv_bytes for batch in encoded.batches)
    assert builder.jsonl == sum(batch.jsonl_bytes for batch in encoded.batches)
