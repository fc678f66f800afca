"""A range of offsets cut into pieces of about equal size, at places that the indexes know.

A cut is an offset, so it is right for any contents of the indexes; they only make the pieces even.
"""

from typing import NamedTuple

from logfs.log.indexes.index import lookup_upper_bound
from logfs.log.reading.lookup import offset_hint
from logfs.log.segments.snapshot import Snapshot


class Piece(NamedTuple):
    """Offsets ``[start, end)``, and about how many bytes of ``.log`` they take."""

    start: int
    end: int
    size_bytes: int


class _Part(NamedTuple):
    """What a segment has of a range: its number, and file positions."""

    number: int
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin


def size_of(snapshot: Snapshot, start: int, end: int) -> int:
    """Return about how many bytes of ``.log`` the offsets ``[start, end)`` take."""
    return sum(part.size_bytes for part in _parts(snapshot, start, end))


def cut(snapshot: Snapshot, start: int, end: int, most_bytes: int) -> list[Piece]:
    """Cut the offsets ``[start, end)`` into pieces of at most about ``most_bytes`` each."""
    if start >= end:
        return []
    parts = _parts(snapshot, start, end)
    total = sum(part.size_bytes for part in parts)
    count = max(1, -(-total // most_bytes))
    wanted = max(1, -(-total // count))
    pieces: list[Piece] = []
    begin, filled = start, 0
    for part in parts:
        position = part.begin
        while filled + part.end - position > wanted:
            target = position + wanted - filled
            offset = _offset_near(snapshot, part, target)
            if offset is None or not begin < offset < end:
                break
            pieces.append(Piece(begin, offset, wanted))
            begin, position, filled = offset, target, 0
        filled += part.end - position
        behind = snapshot.end_of(part.number)[1]
        if filled >= wanted and begin < behind < end:
            pieces.append(Piece(begin, behind, filled))
            begin, filled = behind, 0
    return [*pieces, Piece(begin, end, filled)]


def first_piece(snapshot: Snapshot, start: int, end: int, least_bytes: int) -> Piece:
    """Return the beginning of ``[start, end)``, of about ``least_bytes`` or a little more.

    It ends where a batch ends, so that no batch has to be read twice; all of it if the indexes
    know no such place.
    """
    filled = 0
    for part in _parts(snapshot, start, end):
        if filled + part.size_bytes >= least_bytes:
            position = part.begin + least_bytes - filled
            offset = _offset_near(snapshot, part, position)
            if offset is None or offset <= start:
                offset = snapshot.end_of(part.number)[1]
            offset = min(offset, end)
            return Piece(start, offset, size_of(snapshot, start, offset))
        filled += part.size_bytes
    return Piece(start, end, filled)


def _parts(snapshot: Snapshot, start: int, end: int) -> list[_Part]:
    parts = []
    for number in range(max(snapshot.index_of_offset(start), 0), len(snapshot.segments)):
        segment = snapshot.segments[number]
        if segment.base_offset >= end:
            break
        _, behind, file_end = snapshot.end_of(number)
        first = offset_hint(segment, start, file_end) if segment.base_offset < start else 0
        last = offset_hint(segment, end, file_end) if end < behind else file_end
        parts.append(_Part(number, first, max(first, last)))
    return parts


def _offset_near(snapshot: Snapshot, part: _Part, position: int) -> int | None:
    """Return the offset after the first batch that the index has at or after a position."""
    segment = snapshot.segments[part.number]
    entries = segment.files().offset_entries()
    found = lookup_upper_bound(entries, segment.base_offset, position)
    return None if found is None else found + 1
