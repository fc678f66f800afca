"""Where a partition begins and ends as its files are now, and where in it a moment is.

``refresh`` is a look; most cost two stats. The end is that of the last whole batch with a right
checksum: what a writer is just putting there is treated as not there yet. The snapshot of a
look has no positions, only offsets.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from logfs.disk.vfs import Disk, FileStat
from logfs.errors import CorruptRecordError, LogfsError, NoSuchPartitionError
from logfs.log.indexes.index import TIME_INDEX, decode_time_entry, lookup_upper_bound
from logfs.log.names import CLEAN_SHUTDOWN, LOCK_FILE, SEGMENT_TABLE, FileKind
from logfs.log.reading.lookup import offset_for_time, offset_hint
from logfs.log.remote.of_disk import bucket_of
from logfs.log.segments.batches import BatchWalk
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogEnd, LogPoint, Snapshot
from logfs.log.segments.table import SegmentState, SegmentTable, TableEntry
from logfs.records._reading import whole_batches
from logfs.records.layout import size_of as batch_bytes
from logfs.services.following.entries import read_last
from logfs.services.following.files import FollowedSegments
from logfs.services.following.listing import RACY_MS, SegmentNames, list_names
from logfs.services.following.transactions import OffsetTransactions
from logfs.types import IsolationLevel, Positions, TopicPartition

if TYPE_CHECKING:
    from logfs.log.store import LogStore  # it takes long to import


class OffsetPiece(NamedTuple):
    """Offsets ``[start, end)``, and about how many bytes of ``.log`` they take."""

    start: int
    end: int
    size_bytes: int


class _Part(NamedTuple):
    """The part of a range in a segment: its number, and file positions."""

    number: int
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin


def size_of(snapshot: Snapshot, start: int, end: int) -> int:
    """Return about how many bytes of ``.log`` the offsets ``[start, end)`` take."""
    return sum(part.size_bytes for part in _parts(snapshot, start, end))


def cut(snapshot: Snapshot, start: int, end: int, most_bytes: int) -> list[OffsetPiece]:
    """Cut the offsets ``[start, end)`` into pieces of at most about ``most_bytes`` each."""
    if start >= end:
        return []
    parts = _parts(snapshot, start, end)
    total = sum(part.size_bytes for part in parts)
    count = max(1, -(-total // most_bytes))
    wanted = max(1, -(-total // count))
    pieces: list[OffsetPiece] = []
    begin, filled = start, 0
    for part in parts:
        position = part.begin
        while filled + part.end - position > wanted:
            target = position + wanted - filled
            offset = _offset_near(snapshot, part, target)
            if offset is None or not begin < offset < end:
                break
            pieces.append(OffsetPiece(begin, offset, wanted))
            begin, position, filled = offset, target, 0
        filled += part.end - position
        behind = snapshot.end_of(part.number)[1]
        if filled >= wanted and begin < behind < end:
            pieces.append(OffsetPiece(begin, behind, filled))
            begin, filled = behind, 0
    return [*pieces, OffsetPiece(begin, end, filled)]


def first_piece(snapshot: Snapshot, start: int, end: int, least_bytes: int) -> OffsetPiece:
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
            return OffsetPiece(start, offset, size_of(snapshot, start, offset))
        filled += part.size_bytes
    return OffsetPiece(start, end, filled)


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


T = TypeVar("T")

_NOWHERE = Positions()
_MAY_BE_ANY_TIME = 2**63 - 1
_TRIES = 10
"""Looks at a directory whose names change from one call to the next."""
_FAR_BYTES = 4 * 1024 * 1024
"""Growth after which the end is found from the index again."""


class Bounds(NamedTuple):
    """What other files say of where a partition begins and ends.

    Attributes:
        start_offset, high_watermark: From checkpoint files.
        recovered_end: See ``RecoveredEnds``; None: no bound.
    """

    start_offset: int = 0
    high_watermark: int | None = None
    recovered_end: int | None = None


NO_BOUNDS = Bounds()


class RecoveredEnds:
    """Where recovery would end the partitions of a directory of logfs that no process owns.

    Args:
        disk: The directory.
        open_store: Opens it for reading, with one partition.
    """

    def __init__(self, disk: Disk, open_store: "Callable[[TopicPartition], LogStore]") -> None:
        self._disk = disk
        self._open_store = open_store
        self._known: dict[TopicPartition, tuple[FileStat, int | None]] = {}
        self._is_unowned = False

    def look(self) -> None:
        """Look whether a process owns the directory, or has stopped cleanly; before ``of``."""
        disk = self._disk
        is_owned = bucket_of(disk) or disk.is_locked(LOCK_FILE) or disk.exists(CLEAN_SHUTDOWN)
        self._is_unowned = not is_owned

    def of(self, one: TopicPartition) -> int | None:
        """Return the offset after the last record that recovery keeps; None: that of the files."""
        if not self._is_unowned:
            return None
        try:
            found = self._disk.stat(f"{one.directory}/{SEGMENT_TABLE}")
        except FileNotFoundError:
            return None  # it is not logfs's own, or just being made
        known = self._known.get(one)
        if known is None or known[0] != found:
            try:
                log = self._open_store(one).partition(*one)
            except (LogfsError, OSError):
                return None  # a reader says why
            known = self._known[one] = found, None if log.is_unreadable else log.log_end_offset
        return known[1]


class StoredLog:
    """One partition, as the last look found it. One thread at a time.

    Attributes:
        snapshot: Its segments and its ends.
        names: The files of its directory; another object whenever they may have changed.
    """

    snapshot: Snapshot

    def __init__(
        self, disk: Disk, opened: FollowedSegments, topic_partition: TopicPartition
    ) -> None:
        self.disk = disk
        self.topic_partition = topic_partition
        self._opened = opened
        self.names: SegmentNames | None = None
        self._mtime_ms: int | None = None
        self._size = -1
        self._indexed_size = 0
        self._end: tuple[int, int] = (0, 0)
        self._bounds = Bounds()
        self._transactions = OffsetTransactions(disk, topic_partition.directory)

    def refresh(self, now_ms: int, bounds: Bounds = NO_BOUNDS) -> None:
        """Look at the partition; raise NoSuchPartitionError if it is gone."""
        self._bounds = bounds
        for _ in range(_TRIES):
            try:
                mtime_ms = self.disk.stat(self.topic_partition.directory).mtime_ms
                if mtime_ms != self._mtime_ms:
                    self._look(mtime_ms, now_ms)
                self._find_end()
            except FileNotFoundError:
                self._mtime_ms = None  # names are just changing
            else:
                return
        raise NoSuchPartitionError(
            f"{self.topic_partition} is not there, or is just being made or deleted"
        )

    def earliest(self) -> int:
        """Return the log start offset."""
        return self.snapshot.start.offset

    def latest(self, level: IsolationLevel, now_ms: int) -> int:
        """Return the offset after the last record that a level shows."""
        seen = self._steadily(lambda: self._seen(level, now_ms), now_ms)
        return seen.visible_end(level).offset

    def offset_for_time(self, timestamp_ms: int, level: IsolationLevel, now_ms: int) -> int | None:
        """Return the offset of the first record that is seen at or after a moment; None if none is.

        Raises:
            CorruptRecordError: A segment that may hold it cannot be read.
        """
        return self._steadily(lambda: self._find_time(timestamp_ms, level, now_ms), now_ms)

    def size_of(self, start: int, end: int, now_ms: int) -> int:
        """Return about how many bytes of the log a range of offsets takes."""
        return self._steadily(lambda: size_of(self.snapshot, start, end), now_ms)

    def cut(self, start: int, end: int, most_bytes: int, now_ms: int) -> list[OffsetPiece]:
        """Cut a range of offsets at places that the indexes know; see ``pieces.cut``."""
        return self._steadily(lambda: cut(self.snapshot, start, end, most_bytes), now_ms)

    def first_piece(self, start: int, end: int, least_bytes: int, now_ms: int) -> OffsetPiece:
        """Return the beginning of a range of offsets; see ``pieces.first_piece``."""
        return self._steadily(lambda: first_piece(self.snapshot, start, end, least_bytes), now_ms)

    def _steadily(self, ask: Callable[[], T], now_ms: int) -> T:
        """Ask something of the files; of those that are there then, if one has just gone."""
        for _ in range(_TRIES):
            try:
                return ask()
            except FileNotFoundError:
                self._mtime_ms = None
                self.refresh(now_ms, self._bounds)
        return ask()

    def _find_time(self, timestamp_ms: int, level: IsolationLevel, now_ms: int) -> int | None:
        seen = self._seen(level, now_ms)
        for segment in seen.segments[:-1]:
            if segment.max_timestamp < 0:
                segment.max_timestamp = self._largest_timestamp(segment)
        timed = Snapshot.of(seen.segments, seen.start, seen.end)
        timed = timed._replace(
            aborted=seen.aborted, unstable=seen.unstable, watermark=seen.watermark
        )
        return offset_for_time(timed, timestamp_ms, level)

    def _seen(self, level: IsolationLevel, now_ms: int) -> Snapshot:
        if level is not IsolationLevel.READ_COMMITTED or self.names is None:
            return self.snapshot
        return self._transactions.look_up(self.snapshot, self.names, now_ms)

    def _look(self, mtime_ms: int, now_ms: int) -> None:
        """Take over the names that are there; segments that are as they were stay."""
        found = list_names(self.disk, self.topic_partition.directory)
        if not found.logs:
            raise FileNotFoundError("there is no segment in it")
        old = {} if self.names is None else {s.base_offset: s for s in self.snapshot.segments}
        bases = list(found.logs)
        described = self._described()
        segments = []
        for number, base_offset in enumerate(bases):
            segment, inode = old.get(base_offset), found.logs[base_offset]
            if segment is None or segment.inode != inode:
                segment = self._describe(base_offset, found)
            if number < len(bases) - 1:
                segment.next_offset = bases[number + 1]
                if not segment.size_bytes:
                    segment.close_files()  # with the index that it had when it was the newest
                    segment.size_bytes = self.disk.stat(segment.name).size
                    entry = described.get(base_offset)
                    if entry is not None and entry.size_bytes == segment.size_bytes:
                        segment.max_timestamp = entry.max_timestamp
            segments.append(segment)
        if self.names is None or segments[-1] is not self.snapshot.active:
            self._size, self._end, self._indexed_size = -1, (0, bases[-1]), 0
        self.names = found
        self._mtime_ms = None if mtime_ms > now_ms - RACY_MS else mtime_ms
        self._publish(tuple(segments))

    def _described(self) -> Mapping[int, TableEntry]:
        """Return what the segment table says of sealed segments; nothing without a table.

        With it, a look-up by time opens the index of one segment, not of all.
        """
        try:
            entries = SegmentTable.load(self.disk, self.topic_partition.directory).entries
        except (LogfsError, OSError):
            return {}
        return {
            base: entry for base, entry in entries.items() if entry.state is SegmentState.SEALED
        }

    def _describe(self, base_offset: int, found: SegmentNames) -> Segment:
        segment = Segment(self._opened, self.topic_partition.directory, base_offset, _NOWHERE)
        segment.inode = found.logs[base_offset]
        if base_offset in found.swapped:
            segment.swapped = frozenset(FileKind) - {FileKind.SNAPSHOT}
        return segment

    def _publish(self, segments: tuple[Segment, ...]) -> None:
        position, offset = self._end
        if self._bounds.recovered_end is not None:
            offset = min(offset, self._bounds.recovered_end)
        first = segments[0].base_offset
        start = min(max(first, self._bounds.start_offset), max(offset, first))
        watermark = self._bounds.high_watermark
        self.snapshot = Snapshot(
            segments,
            LogPoint(start, _NOWHERE),
            LogEnd(offset, _NOWHERE, position, _MAY_BE_ANY_TIME),
            watermark=None if watermark is None else LogPoint(min(watermark, offset), _NOWHERE),
        )

    def _find_end(self) -> None:
        """Continue from where the end was seen last."""
        segments = self.snapshot.segments
        active = segments[-1]
        size = self.disk.stat(active.name).size
        if size < self._size or size < self._end[0]:
            self._end = 0, active.base_offset  # it has been truncated
            self._transactions.forget()
        if size - self._indexed_size > _FAR_BYTES:
            active.close_files()  # its index has grown as well
            self._indexed_size = size
        if size != self._size or self._end[0] != size:
            self._end = end_of(active, size, *self._end)
            self._size = size
        self._publish(segments)

    def _largest_timestamp(self, segment: Segment) -> int:
        """Return what the time index of a sealed segment ends with. Source: Kafka LogSegment."""
        name = segment.file_name(FileKind.TIME_INDEX)
        entry = read_last(self.disk, name, TIME_INDEX.entry_bytes)
        timestamp = decode_time_entry(entry, 0, segment.base_offset).timestamp if entry else -1
        return timestamp if timestamp >= 0 else _MAY_BE_ANY_TIME


def end_of(segment: Segment, size: int, position: int, offset: int) -> tuple[int, int]:
    """Return the end of the last whole batch and the next offset, given an earlier such pair."""
    if size - position > _FAR_BYTES:
        position = max(position, offset_hint(segment, _MAY_BE_ANY_TIME, size))
    walk = BatchWalk(segment.files().log, position, size, after=offset)
    with contextlib.suppress(CorruptRecordError):
        for window in walk:
            done, after, _ = whole_batches(window.buffer, 0, window.stop, 0, True)
            at = window.file_position + done
            if done:
                position, offset = at, after
            if done < window.stop:
                # A batch being written, if nothing follows; else damage, which a reader has to see.
                walk.position, walk.after = at + batch_bytes(window.buffer, done), offset
    return position, offset


def read_bounds(
    starts: Mapping[TopicPartition, int],
    watermarks: Mapping[TopicPartition, int],
    ends: RecoveredEnds,
    topic_partition: TopicPartition,
) -> Bounds:
    """Return what the checkpoint files say of a partition, and where recovery would end it."""
    start, watermark = starts.get(topic_partition, 0), watermarks.get(topic_partition)
    return Bounds(start, watermark, ends.of(topic_partition))
