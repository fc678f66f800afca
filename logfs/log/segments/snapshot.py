"""What readers see of a partition at one moment: immutable, replaced as a whole by every append.

Readers take a snapshot and continue with it; nothing they hold changes under them, so they need no
lock and never block the writer.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import NamedTuple

from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.segments.segment import Segment
from logfs.types import IsolationLevel, Positions, View


class LogPoint(NamedTuple):
    """A place between two records: offset and positions of the record after it."""

    offset: int
    positions: Positions


class LogEnd(NamedTuple):
    """Offset and positions of the next record.

    ``file_size`` and ``max_timestamp`` (-1: none) are of the active segment.
    """

    offset: int
    positions: Positions
    file_size: int
    max_timestamp: int


class Hole(NamedTuple):
    """Positions between two segments without any record, half open."""

    begin: Positions
    end: Positions


class Snapshot(NamedTuple):
    """Segments in offset order, the last one active; where the log starts and ends.

    ``holes`` lie between segments; those inside compacted segments are in their text indexes, and
    ``gapped`` are those segments. ``maxima`` are the largest timestamps up to each sealed segment:
    timestamps are not monotone, these are. ``sealed_bytes`` are in the ``.log`` files of sealed
    segments, if their sizes are known. ``truncations`` is their number so far: a reader
    that saw another number looks up its place again.

    ``aborted`` are the aborted transactions whose markers are kept, by last offset. ``unstable`` is
    the first record of the oldest open transaction, None if none is open; ``watermark`` the high
    watermark, None if it is the log end.
    """

    segments: tuple[Segment, ...]
    start: LogPoint
    end: LogEnd
    holes: tuple[Hole, ...] = ()
    maxima: tuple[int, ...] = ()
    gapped: tuple[Segment, ...] = ()
    sealed_bytes: int = 0
    truncations: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()
    unstable: LogPoint | None = None
    watermark: LogPoint | None = None

    @classmethod
    def of(cls, segments: tuple[Segment, ...], start: LogPoint, end: LogEnd) -> "Snapshot":
        """Derive holes, maxima and gapped segments from the segments.

        Positions before the first segment are a hole as well: the log does not start in it.
        """
        first = segments[0].bases
        if start.positions != first:
            start = start._replace(positions=start.positions.at_least(first))
        maxima = tuple(accumulate((s.max_timestamp for s in segments[:-1]), max))
        gapped = tuple(s for s in segments if s.has_gaps)
        sealed_bytes = sum(s.size_bytes for s in segments[:-1])
        return cls(segments, start, end, holes_between(segments), maxima, gapped, sealed_bytes)

    def changed(
        self,
        segments: tuple[Segment, ...],
        start: LogPoint,
        end: LogEnd,
        truncations: int | None = None,
    ) -> "Snapshot":
        """Return this one with other segments, and everything that is derived from them."""
        return (
            Snapshot.of(segments, start, end)
            ._replace(
                truncations=self.truncations if truncations is None else truncations,
                watermark=self.watermark,
            )
            .with_transactions(self.aborted, self.unstable)
        )

    def moved(self, end: LogEnd) -> "Snapshot":
        """Return this one with another end; ``_replace`` takes three times as long."""
        return Snapshot(self.segments, self.start, end, *self[3:])

    def with_transactions(
        self, aborted: tuple[AbortedTransaction, ...], unstable: LogPoint | None
    ) -> "Snapshot":
        """Return this one with other transactions; aborted ones only if their marker is kept."""
        first_offset = self.segments[0].base_offset
        if aborted and aborted[0].last_offset < first_offset:
            aborted = tuple(entry for entry in aborted if entry.last_offset >= first_offset)
        return self._replace(aborted=aborted, unstable=unstable)

    def visible_end(self, level: IsolationLevel) -> LogPoint:
        """Return the end of what a reader sees; never before the log start.

        Source: Kafka UnifiedLog.fetchLastStableOffsetMetadata, maybeIncrementFirstUnstableOffset.
        """
        point = None
        if level is IsolationLevel.READ_COMMITTED:
            point = self.unstable
        elif level is IsolationLevel.HIGH_WATERMARK:
            point = self.watermark
        if point is None:
            return LogPoint(self.end.offset, self.end.positions)
        return point if point.offset > self.start.offset else self.start

    def end_position(self, level: IsolationLevel, view: View) -> int:
        """Return the end of what a reader sees in a view."""
        if level is IsolationLevel.READ_UNCOMMITTED:  # asked by every read
            return self.end.positions[view]
        return self.visible_end(level).positions[view]

    @property
    def size_bytes(self) -> int:
        """Bytes of all ``.log`` files that hold batches."""
        return self.sealed_bytes + self.end.file_size

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segments[-1]

    def index_of_offset(self, offset: int) -> int:
        """Return the index of the last segment whose base offset is <= ``offset``; -1 if none."""
        return bisect_right(self.segments, offset, key=_base_offset) - 1

    def index_of_segment(self, segment: Segment) -> int:
        """Return the index of a segment; -1 if it was deleted or replaced before the snapshot."""
        index = self.index_of_offset(segment.base_offset)
        return index if index >= 0 and self.segments[index] is segment else -1

    def index_of_position(self, view: View, position: int) -> int:
        """Return the index of the last segment that begins at or before a position; -1 if none."""
        return bisect_right(self.segments, position, key=_BASE_OF[view]) - 1

    def segments_between(self, view: View, start: int, end: int) -> tuple[Segment, ...]:
        """Return the segments that hold a range of positions, which must not be empty."""
        first = max(self.index_of_position(view, start), 0)
        return self.segments[first : self.index_of_position(view, end - 1) + 1]

    def index_of_time(self, timestamp: int) -> int:
        """Return the index of the first segment that may hold a record at or after a moment.

        The active segment always may.
        """
        return bisect_left(self.maxima, timestamp)

    def aborted_in(self, index: int) -> frozenset[AbortedTransaction]:
        """Return the aborted transactions that may have records in a segment."""
        first = bisect_left(self.aborted, self.segments[index].base_offset, key=_last_offset)
        _, next_offset, _ = self.end_of(index)
        return frozenset(t for t in self.aborted[first:] if t.first_offset < next_offset)

    def end_of(self, index: int) -> tuple[Positions, int, int]:
        """Return where a segment ends: positions, next offset, bytes of its ``.log``."""
        if index == len(self.segments) - 1:
            return self.end.positions, self.end.offset, self.end.file_size
        segment = self.segments[index]
        return segment.ends, segment.next_offset, segment.size_bytes


def holes_between(segments: tuple[Segment, ...]) -> tuple[Hole, ...]:
    """Return the holes between neighbouring segments."""
    return tuple(Hole(a.ends, b.bases) for a, b in pairwise(segments) if a.ends != b.bases)


def _last_offset(transaction: AbortedTransaction) -> int:
    return transaction.last_offset


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


_BASE_OF = (
    lambda segment: segment.bases.text,
    lambda segment: segment.bases.tsv,
    lambda segment: segment.bases.jsonl,
)
