"""Offset and time index: golden entries, and lookups against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptIndexError, UnsupportedFormatError
from logfs.log.indexes import index
from logfs.log.indexes.index import IndexFormat, OffsetPosition, TimestampOffset
from tests.log.entries import encode_offset_entry, encode_time_entry

BASE = 50


@st.composite
def offset_indexes(draw: st.DrawFn) -> list[OffsetPosition]:
    """Draw what an offset index holds: offsets increase, and so do positions."""
    count = draw(st.integers(0, 30))
    steps = st.lists(st.integers(1, 50), min_size=count, max_size=count)
    offset, position, found = BASE - 1, 0, []
    for offset_step, position_step in zip(draw(steps), draw(steps), strict=True):
        offset += offset_step
        position += position_step
        found.append(OffsetPosition(offset, position))
    return found


@st.composite
def time_indexes(draw: st.DrawFn) -> list[TimestampOffset]:
    """Draw what a time index holds: timestamps increase, offsets do not decrease."""
    count = draw(st.integers(0, 30))
    timestamps = draw(st.sets(st.integers(0, 300), min_size=count, max_size=count))
    offset, found = BASE, []
    for timestamp in sorted(timestamps):
        offset += draw(st.integers(0, 20))
        found.append(TimestampOffset(timestamp, offset))
    return found


def offset_bytes(entries: list[OffsetPosition]) -> bytes:
    return b"".join(encode_offset_entry(o - BASE, p) for o, p in entries)


def time_bytes(entries: list[TimestampOffset]) -> bytes:
    return b"".join(encode_time_entry(t, o - BASE) for t, o in entries)


def test_golden_offset_entry() -> None:
    entry = bytes.fromhex("0000000500001068")
    assert index.decode_offset_entry(entry, 0, 50) == (55, 4200)
    assert index.decode_offset_entry(bytes(8) + entry, 1, 50) == (55, 4200)


def test_golden_time_entry() -> None:
    entry = bytes.fromhex("0000018bcfe5680500000005")
    assert index.decode_time_entry(entry, 0, 50) == (1700000000005, 55)
    assert index.decode_time_entry(bytes(12) + entry, 1, 50) == (1700000000005, 55)


def test_lookups_without_a_smaller_entry_give_the_start_of_the_segment() -> None:
    entries = offset_bytes([OffsetPosition(60, 100)])
    assert index.lookup_offset(b"", BASE, 55) == (BASE, 0)
    assert index.lookup_offset(entries, BASE, 59) == (BASE, 0)
    assert index.lookup_offset(entries, BASE, 0) == (BASE, 0)
    times = time_bytes([TimestampOffset(1000, 60)])
    assert index.lookup_timestamp(b"", BASE, 999) == (-1, BASE)
    assert index.lookup_timestamp(times, BASE, 999) == (-1, BASE)
    assert index.lookup_timestamp(times, BASE, -1) == (-1, BASE)
    assert index.lookup_upper_bound(b"", BASE, 0) is None


@given(offset_indexes(), st.integers(0, 2000))
def test_offset_lookup_is_the_last_entry_that_is_not_larger(
    entries: list[OffsetPosition], target: int
) -> None:
    data = memoryview(offset_bytes(entries))
    smaller = [entry for entry in entries if entry.offset <= target]
    assert index.lookup_offset(data, BASE, target) == (smaller or [OffsetPosition(BASE, 0)])[-1]
    assert index.count_offsets_up_to(data, BASE, target) == len(smaller)
    kept = index.count_offset_entries_below(data, BASE, target)
    assert entries[:kept] == [entry for entry in entries if entry.offset < target]


@given(offset_indexes(), st.integers(0, 2000))
def test_upper_bound_is_the_first_entry_at_or_after_a_position(
    entries: list[OffsetPosition], position: int
) -> None:
    behind = [entry.offset for entry in entries if entry.position >= position]
    expected = behind[0] if behind else None
    assert index.lookup_upper_bound(offset_bytes(entries), BASE, position) == expected


@given(time_indexes(), st.integers(-1, 301), st.data())
def test_time_lookup_is_the_last_entry_that_is_not_larger(
    entries: list[TimestampOffset], target: int, drawn: st.DataObject
) -> None:
    data = memoryview(time_bytes(entries))
    offset = drawn.draw(st.sampled_from([BASE, *(entry.offset for entry in entries)]))
    smaller = [entry for entry in entries if entry.timestamp <= target]
    assert (
        index.lookup_timestamp(data, BASE, target) == (smaller or [TimestampOffset(-1, BASE)])[-1]
    )
    assert index.count_timestamps_up_to(data, target) == len(smaller)
    kept = index.count_time_entries_below(data, BASE, offset)
    assert entries[:kept] == [entry for entry in entries if entry.offset < offset]


def test_timestamps_and_offsets_at_their_limits() -> None:
    last = 2**31 - 1
    entries = encode_time_entry(2**63 - 1, last)
    assert index.lookup_timestamp(entries, BASE, 2**63 - 1) == (2**63 - 1, BASE + last)
    assert index.lookup_timestamp(entries, BASE, 2**63 - 2) == (-1, BASE)
    data = encode_offset_entry(last, last)
    assert index.lookup_offset(data, 2**62, 2**62 + last) == (2**62 + last, last)


@pytest.mark.parametrize("size", [1, 7, 9, 11, 13])
def test_a_fragment_of_an_entry_is_corruption(size: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"{size} bytes is not a multiple of 8"):
        index.lookup_offset(bytes(size), 0, 0)
    with pytest.raises(CorruptIndexError, match=f"{size} bytes is not a multiple of 12"):
        index.lookup_timestamp(bytes(size), 0, 0)


@given(offset_indexes(), st.integers(0, 40), st.integers(0, 7))
def test_zero_tail_and_fragment_are_left_out(
    entries: list[OffsetPosition], zeros: int, fragment: int
) -> None:
    data = offset_bytes(entries)
    padded = memoryview(data + bytes(8 * zeros + fragment))
    assert bytes(index.without_zero_tail(padded, 8)) == data


def test_header_of_a_format() -> None:
    form = IndexFormat(32, b"LFTI", 1)
    assert form.header == b"LFTI\0\0\0\1" + bytes(8)
    assert form.header_bytes == 16
    form.check_header(form.header, "a.textindex")
    for cut in range(16):
        with pytest.raises(CorruptIndexError, match=r"^a\.textindex: the header is"):
            form.check_header(form.header[:cut], "a.textindex")
    with pytest.raises(CorruptIndexError, match="the header is"):
        form.check_header(bytes(16), "a.textindex")
    marked = form.header_of(b"12345678")
    assert marked == b"LFTI\0\0\0\00112345678"
    form.check_header(marked, "a.textindex")
    with pytest.raises(UnsupportedFormatError, match="version 2, this logfs reads version 1"):
        form.check_header(IndexFormat(32, b"LFTI", 2).header, "a.textindex")


def test_kafka_indexes_have_no_header() -> None:
    assert index.OFFSET_INDEX.entry_bytes == 8
    assert index.TIME_INDEX.entry_bytes == 12
    assert index.OFFSET_INDEX.header == index.TIME_INDEX.header == b""
    index.OFFSET_INDEX.check_header(b"", "a.index")
