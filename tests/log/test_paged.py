"""Entries that are read page by page give what entries in memory give."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptIndexError
from logfs.log.indexes import index, textindex
from logfs.log.indexes.paged import PAGE_BYTES, PagedEntries
from logfs.types import View
from tests.log.entries import encode_offset_entry, encode_time_entry


class Stored:
    """Entries in a file, and how much of them was read."""

    def __init__(self, data: bytes, stride: int) -> None:
        self.data = data
        self.sizes: list[int] = []
        self.entries = PagedEntries(self.read, len(data), stride, "orders-0/the.index")

    def read(self, size: int, position: int) -> bytes:
        self.sizes.append(size)
        return self.data[position : position + size]


def offset_entries(offsets: list[int]) -> bytes:
    return b"".join(encode_offset_entry(o, 7 * o) for o in sorted(offsets))


def time_entries(times: list[int]) -> bytes:
    return b"".join(encode_time_entry(t, n) for n, t in enumerate(sorted(times)))


numbers = st.lists(st.integers(0, 5000), max_size=1500)


@given(offsets=numbers, targets=st.lists(st.integers(-1, 5001), min_size=1, max_size=5))
def test_offsets_are_found_as_in_memory(offsets: list[int], targets: list[int]) -> None:
    data = offset_entries(offsets)
    stored = Stored(data, 8).entries
    for target in targets:
        assert index.lookup_offset(stored, 10, target) == index.lookup_offset(data, 10, target)
        assert index.lookup_upper_bound(stored, 10, target) == index.lookup_upper_bound(
            data, 10, target
        )


@given(times=numbers, targets=st.lists(st.integers(-1, 5001), min_size=1, max_size=5))
def test_moments_are_found_as_in_memory(times: list[int], targets: list[int]) -> None:
    data = time_entries(times)
    stored = Stored(data, 12).entries
    for target in targets:
        found = index.lookup_timestamp(stored, 10, target)
        assert found == index.lookup_timestamp(data, 10, target)
        assert index.count_time_entries_below(stored, 10, target) == (
            index.count_time_entries_below(data, 10, target)
        )


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=600),
    targets=st.lists(st.integers(0, 5000), min_size=1, max_size=5),
)
def test_texts_and_gaps_are_found_as_in_memory(
    steps: list[tuple[int, int]], targets: list[int]
) -> None:
    rows, offset, length = [], 0, 0
    for step, size in steps:
        offset += step  # the same offset twice is a gap
        length += size
        rows.append(textindex.encode_text_entry(offset, 10 * offset, (length,) * 3))
    data = b"".join(rows)
    stored = Stored(data, 32).entries
    gaps = textindex.find_gaps(data)
    assert textindex.find_gaps(stored) == gaps
    assert textindex.gaps(stored, View.TSV) == textindex.gaps(data, View.TSV)
    for target in targets:
        for found in (textindex.lookup_offset, textindex.first_entry_after):
            assert found(stored, target) == found(data, target)
        assert textindex.next_gap(stored, View.TEXT, target, gaps) == textindex.next_gap(
            data, View.TEXT, target, gaps
        )
        assert textindex.lookup_position(stored, View.JSONL, target) == (
            textindex.lookup_position(data, View.JSONL, target)
        )


def test_a_look_up_reads_little_of_a_large_index() -> None:
    stored = Stored(struct.pack(">262144q", *range(0, 262144 << 32, 1 << 32)), 8)
    assert index.lookup_offset(stored.entries, 0, 200_000).offset == 200_000
    assert len(stored.sizes) <= 11
    assert sum(stored.sizes) <= PAGE_BYTES + 10 * 8
    stored.sizes.clear()
    assert index.lookup_offset(stored.entries, 0, 200_001).offset == 200_001
    assert stored.sizes == [], "it is in the page that was read last"


def test_parts_are_those_of_the_bytes() -> None:
    data = offset_entries(list(range(1300)))
    stored = Stored(data, 8).entries
    assert len(stored) == len(data)
    assert bytes(stored) == stored[:] == data
    for start, stop in ((0, 0), (0, 8), (4090, 4100), (-16, None), (10_000, 20_000), (9, 4)):
        assert stored[start:stop] == data[start:stop]
    with pytest.raises(IndexError):
        stored.place(1300)
    with pytest.raises(IndexError):
        stored.place(-1)


@pytest.mark.parametrize("left", [0, 1, 4095, 4096, 5000, 10_391])
def test_entries_that_another_process_cut_off_are_reported(left: int) -> None:
    stored = Stored(offset_entries(list(range(1300))), 8)
    stored.data = stored.data[:left]
    with pytest.raises(CorruptIndexError, match=r"orders-0/the\.index"):
        index.lookup_offset(stored.entries, 0, 1299)
