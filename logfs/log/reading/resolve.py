"""From an address to positions: what a selector means at the moment it is looked up.

FROM is the first record at or after a point, TO the first one that is not shown any more. A name
*grows* if it has no TO, or one that lies ahead: a time later than now, an offset or byte beyond the
end. Every other name is *fixed*: its bytes are decided now and never change.
"""

from dataclasses import dataclass
from typing import TypeAlias

from logfs.log.partition import PartitionLog
from logfs.log.reading.address import (
    Ago,
    AtByte,
    AtOffset,
    Earliest,
    Latest,
    Moment,
    Now,
    PartitionAddress,
    Point,
    Suffix,
)
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.types import View

Limit: TypeAlias = Moment | AtOffset | AtByte
"""The TO of a growing name: absolute, and not reached yet."""

VIEWS = {
    Suffix.TEXT: View.TEXT,
    Suffix.TSV: View.TSV,
    Suffix.JSONL: View.JSONL,
    Suffix.FOLLOW: View.TEXT,
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a name stands for.

    Attributes:
        start: Position of the first byte.
        end: Position behind the last byte of a fixed name; None if it grows.
        limit: Where a growing name will end; None if nowhere.
        runs: Kept positions of a fixed name, half open, in order; its bytes one after the other.
        snapshot: The state of the log that a fixed name shows.
        segments: The segments a fixed name reads, to be pinned while it is open.
    """

    log: PartitionLog
    view: View
    start: int
    end: int | None = None
    limit: Limit | None = None
    runs: tuple[tuple[int, int], ...] = ()
    snapshot: Snapshot | None = None
    segments: tuple[Segment, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether bytes may still be added."""
        return self.end is None

    @property
    def size(self) -> int:
        """Bytes of a fixed name."""
        return sum(end - start for start, end in self.runs)


def resolve(log: PartitionLog, address: PartitionAddress, now_ms: int) -> Resolved:
    """Resolve the address of one of the views of a partition.

    Args:
        log: The partition.
        address: What is asked for; its view is text, tsv or jsonl.
        now_ms: The time of the look-up.

    Raises:
        CorruptRecordError: The place cannot be found behind a corrupt batch.
    """
    view = VIEWS[address.view]
    if address.start is None:
        return Resolved(log, view, 0)
    snapshot = log.snapshot
    start = _position(snapshot, view, address.start, now_ms)
    if address.end is None:
        return Resolved(log, view, start)
    limit = _limit_ahead(snapshot, view, address.end, now_ms)
    if limit is not None:
        return Resolved(log, view, start, limit=limit)
    end = max(start, _position(snapshot, view, address.end, now_ms, past_corrupt=True))
    return _fixed(log, view, snapshot, start, end)


def resolve_segment(log: PartitionLog, segment: Segment, view: View) -> Resolved:
    """Resolve one segment as text: fixed if it is sealed, else it grows."""
    snapshot = log.snapshot
    if segment is snapshot.active:
        return Resolved(log, view, segment.bases[view])
    return _fixed(log, view, snapshot, segment.bases[view], segment.ends[view])


def growing_end(snapshot: Snapshot, view: View, limit: Limit | None) -> int:
    """Return the position at which a growing name ends now."""
    end = snapshot.end.positions[view]
    if limit is None:
        return end
    if isinstance(limit, AtByte):
        return min(limit.n, end)  # wherever the log starts by now
    return _position(snapshot, view, limit, 0, past_corrupt=True)


def kept_runs(snapshot: Snapshot, view: View, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return what is kept of a range of positions: half-open runs in order."""
    runs = []
    position = max(start, snapshot.start.positions[view])
    for hole_start, hole_end in _holes(snapshot, view, position, end):
        if hole_start > position:
            runs.append((position, min(hole_start, end)))
        position = max(position, hole_end)
    if position < end:
        runs.append((position, end))
    return tuple(runs)


def _holes(snapshot: Snapshot, view: View, start: int, end: int) -> list[tuple[int, int]]:
    holes = [(hole.begin[view], hole.end[view]) for hole in snapshot.holes]
    for segment in snapshot.gapped:
        base = segment.bases[view]
        holes += [(base + gap.end_of_run, base + gap.next_start) for gap in segment.gaps(view)]
    return sorted(hole for hole in holes if hole[0] < end and hole[1] > start)


def _fixed(log: PartitionLog, view: View, snapshot: Snapshot, start: int, end: int) -> Resolved:
    runs = kept_runs(snapshot, view, start, end)
    segments: tuple[Segment, ...] = ()
    if runs:
        first = max(snapshot.index_of_position(view, runs[0][0]), 0)
        last = snapshot.index_of_position(view, runs[-1][1] - 1)
        segments = snapshot.segments[first : last + 1]
    return Resolved(log, view, start, end, None, runs, snapshot, segments)


def _limit_ahead(snapshot: Snapshot, view: View, point: Point, now_ms: int) -> Limit | None:
    """Return TO if it lies ahead, None if it can be resolved now."""
    match point:
        case Moment(timestamp_ms) if timestamp_ms > now_ms:
            return point
        case AtOffset(n) if n > snapshot.end.offset:
            return point
        case AtByte(n) if n > snapshot.end.positions[view]:
            return point
    return None


def _position(
    snapshot: Snapshot, view: View, point: Point, now_ms: int, *, past_corrupt: bool = False
) -> int:
    start, end = snapshot.start.positions[view], snapshot.end.positions[view]
    offset: int | None
    match point:
        case Earliest():
            return start
        case Latest():
            return end
        case AtByte(n):
            return min(max(n if n >= 0 else end + n, start), end)
        case AtOffset(n):
            offset = n if n >= 0 else snapshot.end.offset + n
        case Moment(timestamp_ms):
            offset = offset_for_time(snapshot, timestamp_ms)
        case Ago(duration_ms):
            offset = offset_for_time(snapshot, now_ms - duration_ms)
        case Now():
            offset = offset_for_time(snapshot, now_ms)
    if offset is None:
        return end
    return positions_of_offset(snapshot, offset, past_corrupt=past_corrupt)[view]
