"""What lines may have beside a view: keys before a delimiter, headers, a partition by key."""

import dataclasses

import pytest
from aiokafka.partitioner import murmur2 as their_murmur2
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import UnparsableLineError
from logfs.records._encoding import murmur2, partition_lines
from logfs.records.compression import Compression
from logfs.records.record import Header, Record
from logfs.types import View
from tests.records import oracle
from tests.records.encoding import ANY_TIME, check, decoded, encode
from tests.records.strategies import HEADERS, NOW_MS, codecs, headers, nullable, values, views

DELIMITERS = [b":", b"\t", b"::", b"=>", "§".encode(), b"x"]

one_liners = values.map(lambda value: value.replace(b"\n", b""))


@given(
    pairs=st.lists(st.tuples(one_liners, one_liners), max_size=8),
    delimiter=st.sampled_from(DELIMITERS),
    extra=headers,
    codec=codecs,
)
def test_keys_before_a_delimiter(
    pairs: list[tuple[bytes, bytes]],
    delimiter: bytes,
    extra: tuple[Header, ...],
    codec: Compression,
) -> None:
    body = b"".join(key + delimiter + value + b"\n" for key, value in pairs)
    options = dataclasses.replace(
        ANY_TIME, max_batch_bytes=40_000, key_delimiter=delimiter, headers=extra, compression=codec
    )
    encoded = encode(View.TEXT, body, options)
    check(encoded, options)
    assert encoded.refusal is None
    cut = [line.partition(delimiter) for line in body.split(b"\n")[:-1]]
    assert decoded(encoded.batches) == [
        Record(5 + n, NOW_MS, key, value, extra) for n, (key, _, value) in enumerate(cut)
    ]


@given(
    view=views,
    rows=st.lists(st.tuples(nullable, one_liners), max_size=6),
    extra=headers,
    limit=st.sampled_from([9000, 1 << 20]),
)
def test_headers_of_every_line(
    view: View, rows: list[tuple[bytes | None, bytes]], extra: tuple[Header, ...], limit: int
) -> None:
    own = HEADERS[2] if view is View.JSONL else ()
    records = [
        Record(5 + n, NOW_MS, None if view is View.TEXT else key, value, own)
        for n, (key, value) in enumerate(rows)
    ]
    options = dataclasses.replace(ANY_TIME, max_batch_bytes=limit, headers=extra)
    encoded = encode(view, oracle.renderings(view, records), options)
    check(encoded, options)
    assert decoded(encoded.batches) == [r._replace(headers=own + extra) for r in records]


def test_a_line_without_its_delimiter() -> None:
    options = dataclasses.replace(ANY_TIME, key_delimiter=b"::")
    encoded = encode(View.TEXT, b"a::b\nk:\nc::d\n", options)
    assert [record.key for record in decoded(encoded.batches)] == [b"a"]
    assert encoded.ends == [5]
    assert isinstance(encoded.refusal, UnparsableLineError)
    assert str(encoded.refusal) == "line 2: no '::' between a key and a value"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # Source: Kafka UtilsTest.testMurmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(st.binary(max_size=70))
def test_murmur2_is_that_of_another_client(key: bytes) -> None:
    assert murmur2(key) & 0xFFFFFFFF == their_murmur2(key) & 0xFFFFFFFF


@given(
    view=st.sampled_from([View.TSV, View.JSONL]),
    keys=st.lists(nullable, max_size=12),
    partitions=st.integers(1, 7),
    unkeyed=st.integers(0, 6),
)
def test_lines_are_spread_by_their_keys(
    view: View, keys: list[bytes | None], partitions: int, unkeyed: int
) -> None:
    unkeyed %= partitions
    expected = [b""] * partitions
    lines = []
    for n, key in enumerate(keys):
        line = oracle.rendering(view, Record(n, NOW_MS, key, b"%d" % n))
        place = unkeyed if key is None else (their_murmur2(key) & 0x7FFFFFFF) % partitions
        expected[place] += line
        lines.append(line)
    body = b"".join(lines)
    found = partition_lines(view, b"", b"##" + body + b"#\n", 2, 2 + len(body), partitions, unkeyed)
    assert found == expected


def test_text_is_spread_by_what_is_before_the_delimiter() -> None:
    body = b"foobar:1\n21:2\nnone\nfoobar:3\n"
    places = [(value & 0x7FFFFFFF) % 5 for value in (-790332482, -973932308)]
    expected = [b""] * 5
    expected[4] += b"none\n"
    expected[places[0]] += b"foobar:1\nfoobar:3\n"
    expected[places[1]] += b"21:2\n"
    assert len({4, *places}) == 3
    assert partition_lines(View.TEXT, b":", body, 0, len(body), 5, 4) == expected
    assert partition_lines(View.TEXT, b"", body, 0, len(body), 2, 0) == [body, b""]


def test_a_range_without_whole_lines_is_refused() -> None:
    for start, stop, unkeyed in ((0, 3, 0), (0, 9, 0), (0, 2, 2), (0, 2, -1)):
        with pytest.raises(ValueError, match=r"line|inside|partitions"):
            partition_lines(View.TEXT, b"", b"a\nb\n", start, stop, 2, unkeyed)
