"""From an address to positions: what a selector means at the moment it is looked up.

FROM is the first record at or after a point, TO the first one that is not shown any more. A name
*grows* if it has no TO, or one that lies ahead: a time later than now, an offset or byte beyond the
end. Every other name is *fixed*: its bytes are decided now and never change.

The end is that of the isolation level: what is after it has not been reached. What the level does
not show before it, aborted records, is no more there than what was compacted away; nothing is
moved by it.
"""

from dataclasses import dataclass
from typing import TypeAlias

from logfs.errors import BadSelectorError
from logfs.log.reading.aborted import aborted_runs
from logfs.log.reading.address import (
    AtByte,
    AtOffset,
    Earliest,
    Latest,
    Moment,
    PartitionAddress,
    Point,
    Suffix,
    Time,
    format_point,
    point_alone,
)
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.reading.readable import ReadableLog
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.types import IsolationLevel, View

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
    """What a name means.

    Attributes:
        end: Position after the last byte of a fixed name; None if it grows.
        limit: The end of a growing name; None if it has none.
        runs: Kept positions of a fixed name, half open, in order; its bytes one after the other.
        snapshot: The state of the log that a fixed name shows.
        segments: The segments a fixed name reads, to be pinned while it is open.
    """

    log: ReadableLog
    view: View
    start: int
    end: int | None = None
    limit: Limit | None = None
    runs: tuple[tuple[int, int], ...] = ()
    snapshot: Snapshot | None = None
    segments: tuple[Segment, ...] = ()
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED

    @property
    def grows(self) -> bool:
        """Whether bytes may still be added."""
        return self.end is None

    @property
    def size(self) -> int:
        """Bytes of a fixed name."""
        return sum(end - start for start, end in self.runs)


def resolve(
    log: ReadableLog,
    address: PartitionAddress,
    now_ms: int,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Resolved:
    """Resolve the address of a view; raise CorruptRecordError if damage hides the place."""
    view = VIEWS[address.view]
    if address.start is None:
        return Resolved(log, view, 0, level=level)
    seen = _Seen(log.snapshot, view, level)
    start = seen.position(address.start, now_ms)
    if address.end is None:
        return Resolved(log, view, start, level=level)
    limit = seen.limit_ahead(address.end, now_ms)
    if limit is not None:
        return Resolved(log, view, start, limit=limit, level=level)
    end = max(start, seen.position(address.end, now_ms, past_corrupt=True))
    return _fixed(log, seen, start, end)


def resolve_records(
    log: ReadableLog,
    address: PartitionAddress,
    now_ms: int,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> tuple[Resolved, range]:
    """Resolve the present records of a range: a fixed name, also where the range has no end.

    Args:
        address: An address with a selector of offsets and times, not of bytes and groups.

    Returns:
        The fixed name, and the offsets of its records; some of those may not be kept.

    Raises:
        CorruptRecordError: Damage hides the place.
    """
    seen = _Seen(log.snapshot, VIEWS[address.view], level)
    first = seen.offset(address.start or Earliest(), now_ms)
    last = max(first, seen.offset(address.end or Latest(), now_ms))
    start = seen.position(AtOffset(first), now_ms)
    end = max(start, seen.position(AtOffset(last), now_ms, past_corrupt=True))
    return _fixed(log, seen, start, end), range(first, last)


def resolve_segment(
    log: ReadableLog,
    segment: Segment,
    view: View,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Resolved:
    """Resolve one segment as text: fixed if it is sealed, else it grows."""
    snapshot = log.snapshot
    if segment is snapshot.active:
        return Resolved(log, view, segment.bases[view], level=level)
    seen = _Seen(snapshot, view, level)
    start = segment.bases[view]
    return _fixed(log, seen, start, max(start, min(segment.ends[view], seen.end)))


def fixed_now(resolved: Resolved) -> Resolved | None:
    """Return the bytes that a name means now, as a fixed name would.

    None where only a reader that goes through it finds out what is shown: compaction has left gaps,
    or there are aborted records to be hidden.
    """
    if not resolved.grows:
        return resolved
    log, level = resolved.log, resolved.level
    snapshot = log.snapshot
    if snapshot.gapped or (level is IsolationLevel.READ_COMMITTED and snapshot.aborted):
        return None
    end = growing_end(snapshot, resolved.view, resolved.limit, level)
    seen = _Seen(snapshot, resolved.view, level)
    return _fixed(log, seen, resolved.start, max(resolved.start, end))


def growing_end(
    snapshot: Snapshot,
    view: View,
    limit: Limit | None,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> int:
    """Return the position at which a growing name ends now."""
    seen = _Seen(snapshot, view, level)
    if limit is None:
        return seen.end
    if isinstance(limit, AtByte):
        return min(limit.n, seen.end)  # wherever the log starts by now
    return seen.position(limit, 0, past_corrupt=True)


def kept_runs(
    snapshot: Snapshot,
    view: View,
    start: int,
    end: int,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> tuple[tuple[int, int], ...]:
    """Return what is kept, and shown, of a range of positions: half-open runs in order."""
    runs = []
    position = max(start, snapshot.start.positions[view])
    for hole_start, hole_end in _holes(snapshot, view, position, end, level):
        if hole_start > position:
            runs.append((position, min(hole_start, end)))
        position = max(position, hole_end)
    if position < end:
        runs.append((position, end))
    return tuple(runs)


def _holes(
    snapshot: Snapshot, view: View, start: int, end: int, level: IsolationLevel
) -> list[tuple[int, int]]:
    holes = [(hole.begin[view], hole.end[view]) for hole in snapshot.holes]
    for segment in snapshot.gapped:
        base = segment.bases[view]
        holes += [(base + gap.end_of_run, base + gap.next_start) for gap in segment.gaps(view)]
    if level is IsolationLevel.READ_COMMITTED and snapshot.aborted and start < end:
        first = max(snapshot.index_of_position(view, start), 0)
        for index in range(first, snapshot.index_of_position(view, end - 1) + 1):
            base = snapshot.segments[index].bases[view]
            runs = aborted_runs(snapshot, index).runs(view)
            holes += [(base + run.end_of_run, base + run.next_start) for run in runs]
    return sorted(hole for hole in holes if hole[0] < end and hole[1] > start)


def _fixed(log: ReadableLog, seen: "_Seen", start: int, end: int) -> Resolved:
    snapshot, view = seen.snapshot, seen.view
    runs = kept_runs(snapshot, view, start, end, seen.level)
    segments: tuple[Segment, ...] = ()
    if runs:
        segments = snapshot.segments_between(view, runs[0][0], runs[-1][1])
    return Resolved(log, view, start, end, None, runs, snapshot, segments, seen.level)


class _Seen:
    """One view of a log as a reader of an isolation level sees it."""

    def __init__(self, snapshot: Snapshot, view: View, level: IsolationLevel) -> None:
        self.snapshot = snapshot
        self.view = view
        self.level = level
        self._end = snapshot.visible_end(level)
        self.end = self._end.positions[view]

    def limit_ahead(self, point: Point, now_ms: int) -> Limit | None:
        """Return TO if it lies ahead, None if it can be resolved now."""
        match point:
            case Time() if point.at(now_ms) > now_ms:
                return Moment(point.at(now_ms))
            case AtOffset(n) if n > self._end.offset:
                return point
            case AtByte(n) if n > self.end:
                return point
        return None

    def position(self, point: Point, now_ms: int, *, past_corrupt: bool = False) -> int:
        """Return where a point is; the end if nothing has reached it."""
        start, end = self.snapshot.start.positions[self.view], self.end
        match point := point_alone(point):
            case Earliest():
                return start
            case Latest():
                return end
            case AtByte(n):
                return min(max(n if n >= 0 else end + n, start), end)
        offset = self._offset(point, now_ms)
        if offset is None or offset >= self._end.offset:
            return end
        found = positions_of_offset(self.snapshot, offset, past_corrupt=past_corrupt)
        return min(found[self.view], end)

    def offset(self, point: Point, now_ms: int) -> int:
        """Return the offset of the first kept record at or after a point; the end if there is none.

        Raises:
            BadSelectorError: The point is a byte, or the position of a group.
        """
        start, end = self.snapshot.start.offset, self._end.offset
        match point := point_alone(point):
            case Earliest():
                return start
            case Latest():
                return end
            case AtByte():
                raise BadSelectorError(f"{format_point(point)}: expected an offset or a time")
        found = self._offset(point, now_ms)
        return end if found is None else min(max(found, start), end)

    def _offset(self, point: Time | AtOffset, now_ms: int) -> int | None:
        if isinstance(point, AtOffset):
            return point.n if point.n >= 0 else self._end.offset + point.n
        return offset_for_time(self.snapshot, point.at(now_ms), self.level)
