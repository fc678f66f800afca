import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import RecordTooLargeError, UnparsableLineError
from logfs.records._encoding import encode_records, unfinished_fits
from logfs.records.compression import Compression
from logfs.records.encoded import EncodeOptions
from logfs.records.layout import HEADER_BYTES
from logfs.records.record import Record
from logfs.types import View
from tests.records import oracle
from tests.records.encoding import check, decoded, encode
from tests.records.strategies import (
    NOW_MS,
    values,
    views,
)


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
