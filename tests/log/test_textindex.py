"""The text index: lookups and gaps against a plain list of kept records."""

import struct
from dataclasses import dataclass

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from logfs.errors import CorruptIndexError
from logfs.log.indexes import textindex
from logfs.log.indexes.textindex import ZERO, TextEntry
from logfs.types import View


@dataclass
class Kept:
    """A kept record: where it starts in the views, and which batch holds it."""

    offset: int
    file_position: int
    start: tuple[int, int, int]
    end: tuple[int, int, int]


@dataclass
class Segment:
    records: list[Kept]
    entries: list[TextEntry]

    @property
    def data(self) -> memoryview:
        return memoryview(
            b"".join(textindex.encode_text_entry(e[0], e[1], e[2:]) for e in self.entries)
        )


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """Draw a segment: some records removed by compaction, some batches indexed."""
    count = draw(st.integers(0, 25))
    records: list[Kept] = []
    entries: list[TextEntry] = []
    start, file_position = (0, 0, 0), 0
    was_removed = False
    for offset in range(count):
        size = draw(st.integers(1, 9))
        end = (start[0] + size, start[1] + size + 1, start[2] + size + 40)
        is_removed = draw(st.booleans())
        if not is_removed:
            is_first_of_batch = not records or draw(st.booleans())
            file_position += 100 if is_first_of_batch else 0
            if was_removed:
                before = records[-1].end if records else (0, 0, 0)
                entries.append(TextEntry(offset, file_position, *before))
                entries.append(TextEntry(offset, file_position, *start))
            elif is_first_of_batch and offset and draw(st.booleans()):
                entries.append(TextEntry(offset, file_position, *start))
            records.append(Kept(offset, file_position, start, end))
        was_removed = is_removed
        start = end
    return Segment(records, entries)


def test_golden_entry() -> None:
    entry = bytes.fromhex("0000000500001068000000000000019000000000000001f40000010000000000")
    assert textindex.encode_text_entry(5, 4200, (400, 500, 1 << 40)) == entry
    decoded = textindex.decode_text_entry(bytes(32) + entry, 1)
    assert decoded == (5, 4200, 400, 500, 1 << 40)
    assert decoded.lengths == (400, 500, 1 << 40)
    assert textindex.TEXT_INDEX.header.hex() == "4c465449000000010000000000000000"
    assert textindex.TEXT_INDEX.entry_bytes == 32


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(struct.error):
        textindex.encode_text_entry(2**31, 0, (0, 0, 0))
    with pytest.raises(struct.error):
        textindex.encode_text_entry(0, 0, (0, 0, 2**63))


def test_without_entries_everything_is_relative_to_the_start() -> None:
    assert textindex.lookup_offset(b"", 7) == ZERO
    assert textindex.lookup_position(b"", View.TSV, 7) == ZERO
    assert textindex.gaps(b"", View.TEXT) == []
    assert textindex.next_gap(b"", View.TEXT, 0) is None
    assert textindex.first_entry_after(b"", 0) is None
    assert textindex.count_text_entries_before(b"", 10) == 0


@given(segments(), st.integers(0, 26))
def test_offset_lookup_is_the_last_entry_that_is_not_larger(segment: Segment, target: int) -> None:
    smaller = [entry for entry in segment.entries if entry.relative_offset <= target]
    assert textindex.lookup_offset(segment.data, target) == (smaller or [ZERO])[-1]


@given(segments(), st.sampled_from(View), st.integers(0, 400))
def test_position_lookup_leads_to_the_record_at_the_position(
    segment: Segment, view: View, position: int
) -> None:
    """Counting kept records from the entry, gaps jumped, finds the record that has the byte."""
    expected = next((r for r in segment.records if r.end[view] > position), None)
    entry = textindex.lookup_position(segment.data, view, position)
    if expected is None:
        assert entry == (segment.entries or [ZERO])[-1]
        return
    assert entry.file_position <= expected.file_position
    # Nothing between the entry and the record is removed, so lengths can be added up.
    between = [r for r in segment.records if entry.relative_offset <= r.offset <= expected.offset]
    length = entry.lengths[view]
    for record in between:
        assert record.start[view] == length
        length = record.end[view]


@given(segments(), st.sampled_from(View))
def test_gaps_are_what_is_missing_between_kept_records(segment: Segment, view: View) -> None:
    ends = [(0, 0, 0), *(r.end for r in segment.records)]
    expected = [
        (end[view], record.start[view])
        for end, record in zip(ends, segment.records, strict=False)
        if end[view] < record.start[view]
    ]
    assert textindex.gaps(segment.data, view) == expected
    found = textindex.find_gaps(segment.data)
    assert textindex.gaps(segment.data, view, found) == expected
    borders = {
        0,
        *(edge for record in segment.records for edge in (record.start[view], record.end[view])),
    }
    for position in {border + step for border in borders for step in (-1, 0, 1)}:
        gap = next((gap for gap in expected if gap[1] > position), None)
        assert textindex.next_gap(segment.data, view, position) == gap
        assert textindex.next_gap(segment.data, view, position, found) == gap


@given(segments(), st.integers(0, 27).map(lambda number: 100 * number) | st.integers(0, 2700))
def test_a_cut_keeps_the_entries_of_the_batches_before_it(segment: Segment, size: int) -> None:
    kept = textindex.count_text_entries_before(segment.data, size)
    assert segment.entries[:kept] == [e for e in segment.entries if e.file_position < size]
    behind = [e for e in segment.entries if e.file_position > size]
    assert textindex.first_entry_after(segment.data, size) == (behind[0] if behind else None)


def test_position_inside_and_around_a_gap() -> None:
    before, pair = TextEntry(3, 10, 30, 0, 0), TextEntry(9, 20, 50, 0, 0)
    behind = pair._replace(text=90)
    data = b"".join(textindex.encode_text_entry(e[0], e[1], e[2:]) for e in (before, pair, behind))
    for position, entry in [(29, ZERO), (30, before), (49, before), (50, behind), (89, behind)]:
        assert textindex.lookup_position(data, View.TEXT, position) == entry
    assert textindex.lookup_position(data, View.TEXT, 1000) == behind
    # A target among the removed offsets: before the gap; the kept one itself: after it.
    assert textindex.lookup_offset(data, 8) == before
    assert textindex.lookup_offset(data, 9) == behind


def test_batches_that_render_to_nothing_are_passed_over() -> None:
    """A control batch between two entries leaves them equal in every length."""
    entries = [TextEntry(5, 100, 10, 11, 12), TextEntry(6, 178, 10, 11, 12)]
    data = b"".join(textindex.encode_text_entry(e[0], e[1], e[2:]) for e in entries)
    assert textindex.lookup_position(data, View.TEXT, 10) == entries[1]
    assert textindex.find_gaps(data) == []


def test_a_gap_that_is_empty_in_a_view_is_none_in_it() -> None:
    first = TextEntry(5, 100, 10, 20, 30)
    data = b"".join(
        textindex.encode_text_entry(e[0], e[1], e[2:]) for e in (first, first._replace(tsv=25))
    )
    assert textindex.gaps(data, View.TEXT) == []
    assert textindex.gaps(data, View.TSV) == [(20, 25)]
    assert textindex.next_gap(data, View.TEXT, 0) is None


@pytest.mark.parametrize("size", [1, 31, 33, 63])
def test_a_fragment_of_an_entry_is_corruption(size: int) -> None:
    for call in (
        lambda data: textindex.lookup_offset(data, 0),
        lambda data: textindex.lookup_position(data, View.TEXT, 0),
        lambda data: textindex.gaps(data, View.TEXT),
    ):
        with pytest.raises(CorruptIndexError, match=f"{size} bytes is not a multiple of 32"):
            call(bytes(size))


def test_the_model_has_gaps() -> None:
    find(segments(), lambda segment: len(textindex.find_gaps(segment.data)) > 1)
