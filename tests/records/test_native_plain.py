"""Runs of plain records, which take another way through the native module than the others do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._compaction import OffsetMap
from logfs.records._indexing import IndexBuilder
from logfs.records._reading import measure
from logfs.records._rendering import Renderer
from logfs.records.batch import BatchFields, decode_records, encode_batch
from logfs.records.compression import decompress
from logfs.records.record import Record
from logfs.types import View
from tests.records import oracle
from tests.records.strategies import NOW_MS, sealed

# Lengths around a vector and around one and two bytes of a number; what needs escapes at any place.
bodies = st.one_of(
    st.integers(0, 70).map(lambda n: b"x" * n),
    st.sampled_from([127, 128, 2047, 2048, 2049, 8191, 8192]).map(lambda n: b"y" * n),
    st.text('ab"\\\t\n\x01ä', max_size=40).map(str.encode),
    st.binary(max_size=20),
)
keys = st.none() | bodies
starts = st.sampled_from([0, 7, 95, 9_990, 10**9 - 3, 2**62])
times = st.sampled_from([-1, 0, 8, 99, 10**12 - 2, NOW_MS])


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    offset, timestamp = draw(starts), draw(times)
    found = []
    for key, value in draw(st.lists(st.tuples(keys, keys), min_size=1, max_size=12)):
        found.append(Record(offset, timestamp, key, value))
        offset += draw(st.sampled_from([1, 1, 1, 70, 9_000]))
        timestamp += draw(st.sampled_from([0, 0, 1, -1, 100, 70_000]))
    return found


def lengths(data: bytes) -> tuple[int, int, int] | None:
    """What a scan says of a batch; None if its records cannot be read."""
    base_offset = int.from_bytes(data[:8], "big")
    builder = IndexBuilder(base_offset, 0, decompress)
    if builder.feed(data, 0, len(data), True) == len(data):
        return builder.text, builder.tsv, builder.jsonl
    assert builder.problem is not None
    assert builder.problem.startswith("undecodable: record ")
    return None


def text(data: bytes) -> bytes | None:
    """The text of a batch; None if its records cannot be read."""
    renderer, out = Renderer(View.TEXT, decompress), bytearray(len(data))
    renderer.load(data, 0, len(data))
    try:
        size = renderer.render(out, 0, len(out))
        renderer.render(out, size, 1)  # what is damaged after the first piece
    except CorruptRecordError:
        return None
    return bytes(out[:size])


@given(records=runs(), is_append_time=st.booleans())
def test_lengths_and_text(records: list[Record], is_append_time: bool) -> None:
    data = encode_batch(records, BatchFields(is_log_append_time=is_append_time))
    seen = decode_records(data)
    assert [record.value for record in seen] == [record.value for record in records]
    assert lengths(data) == oracle.lengths(seen)
    assert text(data) == oracle.renderings(View.TEXT, seen)


@given(records=runs(), data=st.data())
def test_lengths_before_an_offset(records: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(records)
    stop = data.draw(st.sampled_from(records)).offset + data.draw(st.integers(0, 1))
    before = [record for record in records if record.offset < stop]
    assert measure(batch, 0, len(batch), stop, decompress) == oracle.lengths(before)


@given(records=runs(), data=st.data())
def test_a_damaged_record_is_refused_wherever_it_is(
    records: list[Record], data: st.DataObject
) -> None:
    """With a checksum that fits: the rules for what a record is are those for every record."""
    batch = bytearray(encode_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(61, len(batch) - 1))
        batch[at] = data.draw(st.sampled_from([0, 1, 2, 3, 127, 128, 129, 255, batch[at] ^ 2]))
    damaged = sealed(bytes(batch))
    try:
        seen = decode_records(damaged)
    except CorruptRecordError:
        assert lengths(damaged) is None
        assert text(damaged) is None
    else:
        assert lengths(damaged) == oracle.lengths(seen)
        assert text(damaged) == oracle.renderings(View.TEXT, seen)


def test_more_batches_than_are_measured_ahead() -> None:
    """Damage after them is found where it is, and says the same as if it was first."""
    batches = [encode_batch([Record(n, NOW_MS, None, b"v" * (n % 300))]) for n in range(700)]
    batches[600] = sealed(batches[600][:-1] + b"\x02")
    data = b"".join(batches)
    builder = IndexBuilder(0, 0, decompress)
    good = b"".join(batches[:600])
    assert builder.feed(data, 0, len(data), True) == len(good)
    assert builder.problem == "undecodable: record 0 of 1"
    assert (builder.batches, builder.text) == (600, sum(n % 300 + 1 for n in range(600)))
    assert builder.fed_epochs == (0, 0)


@pytest.mark.parametrize("key", [None, b"", b"k" * 9])
def test_a_batch_of_one_small_record(key: bytes | None) -> None:
    """Its record is too close to the end of the buffer for some ways of copying, not for others."""
    for size in range(80):
        record = Record(7, NOW_MS, key, b"v" * size)
        data = encode_batch([record])
        assert lengths(data) == oracle.lengths([record])
        assert text(data) == oracle.rendering(View.TEXT, record)
        latest = OffsetMap(1 << 12, 0.5, bytes(16))
        latest.put_batches(data, 0, len(data), 0, decompress)
        assert latest.get(key or b"") == (-1 if key is None else 7)
