"""The text index of a segment: log position <-> running lengths of its three renderings.

Sparse, and rebuilt from the log if needed, like the offset index. Only positions after a gap cannot
be rebuilt: they are in this file and, for the segment as a whole, in the segment table.

    header, 16 bytes
    bytes  field            type
    0-3    magic            "LFTI"
    4-7    version          int32   1; an older logfs refuses a newer file
    8-15   mark             8 bytes random in the text index of a compacted segment, else zero

    entry, 32 bytes
    0-3    relative offset  int32   base offset of a batch - base offset of the segment
    4-7    file position    int32   of that batch's first byte in the .log
    8-15   text             int64   lengths of the renderings of all records before it,
    16-23  tsv              int64     relative to the positions at which the segment begins
    24-31  jsonl            int64

After compaction an entry may name a record inside the batch at that file position, by the record's
relative offset. A *gap*, the positions of removed records, is a pair of entries with the same
offset and the same file position: the first has the lengths where the kept run before it ends, the
second those where the next kept record, which has that offset, begins.

Pure. Positions before the first entry are relative to ``ZERO``.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from logfs.errors import CorruptIndexError
from logfs.log.indexes.index import Entries, IndexFormat, count_up_to, place_of
from logfs.log.indexes.paged import PagedEntries
from logfs.records._indexing import first_out_of_order
from logfs.records.checksum import crc32c
from logfs.types import Positions, View

TEXT_INDEX = IndexFormat(entry_bytes=32, magic=b"LFTI", version=1)

_ENTRY = struct.Struct(">iiqqq")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_STRIDE = _ENTRY.size
_KEY_BYTES = 8
"""Offset and file position, which the two entries of a gap share."""


class TextEntry(NamedTuple):
    """An entry of a text index."""

    relative_offset: int
    file_position: int
    text: int
    tsv: int
    jsonl: int

    @property
    def lengths(self) -> Positions:
        """The three running lengths."""
        return Positions(self.text, self.tsv, self.jsonl)


ZERO = TextEntry(0, 0, 0, 0, 0)
"""The start of the segment, which has no entry."""


class Gap(NamedTuple):
    """Removed positions in one view: [end_of_run, next_start), from where the segment begins."""

    end_of_run: int
    next_start: int


def encode_text_entry(
    relative_offset: int, file_position: int, lengths: tuple[int, int, int]
) -> bytes:
    """Return the 32 bytes of an entry; ``struct.error`` for a number that does not fit."""
    return _ENTRY.pack(relative_offset, file_position, *lengths)


def decode_text_entry(entries: Entries, number: int) -> TextEntry:
    """Return entry ``number`` (0 is the first)."""
    return TextEntry._make(_ENTRY.unpack_from(*place_of(entries, number, _STRIDE)))


def entry_and_next(
    entries: Entries, number: int, end: TextEntry
) -> tuple[TextEntry, TextEntry] | None:
    """Return an entry and the next one; ``end``, where the segment ends, follows the last one.

    Returns:
        None if the numbers of the entry do not lie between those of its neighbours. Then it is
        wrong, or the entry beside it is: neither can be used.
    """
    entry = decode_text_entry(entries, number)
    offset, position, text, tsv, jsonl = entry
    if number:
        before = decode_text_entry(entries, number - 1)
        if not (
            before[0] <= offset
            and before[1] <= position
            and before[2] <= text
            and before[3] <= tsv
            and before[4] <= jsonl
        ):
            return None
    elif min(entry) < 0:
        return None
    if (number + 1) * _STRIDE >= len(entries):
        return entry, end
    after = decode_text_entry(entries, number + 1)
    if not (
        offset <= after[0]
        and position <= after[1]
        and text <= after[2]
        and tsv <= after[3]
        and jsonl <= after[4]
    ):
        return None
    return entry, after


def count_text_offsets_up_to(entries: Entries, relative_offset: int) -> int:
    """Count the entries up to a relative offset; raise CorruptIndexError for a fragment."""
    return count_up_to(entries, _INT32.unpack_from, _STRIDE, 0, relative_offset)


def lookup_offset(entries: Entries, relative_offset: int) -> TextEntry:
    """Find the last entry with a relative offset <= the target; ``ZERO`` if there is none.

    In a gap's pair that is the second. A target among removed records gives an entry before the
    gap: the caller walks the records up to the target, then ``next_gap`` gives the start of the
    next kept record.
    """
    count = count_text_offsets_up_to(entries, relative_offset)
    return decode_text_entry(entries, count - 1) if count else ZERO


def count_text_positions_up_to(entries: Entries, view: View, position: int) -> int:
    """Count the entries up to a position in a view; raise CorruptIndexError for a fragment."""
    return count_up_to(entries, _INT64.unpack_from, _STRIDE, 8 + 8 * view, position)


def lookup_position(entries: Entries, view: View, position: int) -> TextEntry:
    """Find where to start rendering for a position.

    Args:
        entries: Whole 32-byte entries.
        view: The rendering that ``position`` is in.
        position: Relative to where the segment begins, >= 0.

    Returns:
        The last entry whose length in that view is <= ``position``; for a position inside a gap the
        entry after the gap, whose length is larger; ``ZERO`` before the first entry.
    """
    count = count_text_positions_up_to(entries, view, position)
    if count == 0:
        return ZERO
    if _is_gap(entries, count - 1):
        return decode_text_entry(entries, count)
    return decode_text_entry(entries, count - 1)


def count_text_entries_before(entries: Entries, file_position: int) -> int:
    """Count the entries that remain when the ``.log`` is truncated to ``file_position`` bytes.

    A count by offset would be wrong. A batch that straddles the target offset is removed as a
    whole, and its entry must go with it.
    """
    return count_up_to(entries, _INT32.unpack_from, _STRIDE, 4, file_position - 1)


def first_entry_after(entries: Entries, file_position: int) -> TextEntry | None:
    """Find the first entry of a batch after a file position; None if there is none."""
    number = count_up_to(entries, _INT32.unpack_from, _STRIDE, 4, file_position)
    for candidate in range(number, len(entries) // _STRIDE):
        entry = decode_text_entry(entries, candidate)
        if entry.file_position > file_position:  # false only in a damaged index
            return entry
    return None


def check_crc(entries: bytes, expected: int) -> None:
    """Compare entries with their CRC-32C; raise CorruptIndexError if they have another one."""
    found = crc32c(entries)
    if found != expected:
        raise CorruptIndexError(f"the CRC is {found:#010x}, expected {expected:#010x}")


def find_gaps(entries: Entries) -> list[int]:
    """Return the numbers of the first entries of all gaps, in order.

    Reads every entry (25 ms for the 262,144 of a segment of 1 GiB): keep the answer, it changes
    only with the index.

    Raises:
        CorruptIndexError: The length is not a multiple of 32, or an entry is out of order.
    """
    if len(entries) % _STRIDE:
        raise CorruptIndexError(f"an index of {len(entries)} bytes is not a multiple of {_STRIDE}")
    data = bytes(entries) if isinstance(entries, PagedEntries) else entries
    wrong = first_out_of_order(data)
    if wrong >= 0:
        raise CorruptIndexError(f"entry {wrong} of the text index is out of order")
    keys = memoryview(data).cast("q")[:: _STRIDE // _KEY_BYTES].tolist()
    if len(set(keys)) == len(keys):
        return []
    return [number for number in range(len(keys) - 1) if keys[number] == keys[number + 1]]


def gaps(entries: Entries, view: View, found: Sequence[int] | None = None) -> list[Gap]:
    """List the gaps of a segment in one view; ``found`` is the answer of ``find_gaps``."""
    numbers = find_gaps(entries) if found is None else found
    pairs = (_gap(entries, view, number) for number in numbers)
    return [gap for gap in pairs if gap.end_of_run < gap.next_start]


def next_gap(
    entries: Entries, view: View, position: int, found: Sequence[int] | None = None
) -> Gap | None:
    """Find the first gap that ends after a position; ``found`` as in ``gaps``."""
    numbers = find_gaps(entries) if found is None else found
    first = bisect_right(
        numbers, position, key=lambda number: _gap(entries, view, number).next_start
    )
    for number in numbers[first:]:
        gap = _gap(entries, view, number)
        if gap.end_of_run < gap.next_start:
            return gap
    return None


def _is_gap(entries: Entries, number: int) -> bool:
    """Tell whether a gap lies between entry ``number`` and the next."""
    here = number * _STRIDE
    there = here + _STRIDE
    return entries[here : here + _KEY_BYTES] == entries[there : there + _KEY_BYTES]


def _gap(entries: Entries, view: View, number: int) -> Gap:
    end_of_run = decode_text_entry(entries, number).lengths[view]
    return Gap(end_of_run, decode_text_entry(entries, number + 1).lengths[view])
