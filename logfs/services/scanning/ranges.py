"""The records of a range of offsets as columns, while files are added, replaced and deleted.

The files are found by their names again and again, and in them the place by its offset. One that
has vanished was rolled into another one by compaction, or deleted: the names are listed again, and
reading continues with the first offset not read yet. What is missing then is told, not passed over.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.errors import CorruptRecordError
from logfs.log.names import FileKind
from logfs.log.reading.lookup import place_of_offset
from logfs.log.segments.abortedruns import transaction_table
from logfs.log.segments.batches import BatchWalk, Window
from logfs.log.segments.segment import Segment
from logfs.records._columnar import ColumnBuilder
from logfs.records.columns import AT_STOP, FULL, Columns, RecordColumns
from logfs.records.compression import decompress
from logfs.services.following.files import FollowedSegments
from logfs.services.following.listing import SegmentNames, list_names
from logfs.services.following.transactions import read_aborted
from logfs.types import Positions, TopicPartition

MOST_ROWS = 65_536
MOST_BYTES = 4 * 1024 * 1024
"""The size of one set of columns: what Spark takes fastest lies between 1 and 10 MB."""
_TRIES = 100
"""Listings without progress after which something else than a change must be wrong."""


class OffsetRange(NamedTuple):
    """The offsets ``[start, end)`` of a partition."""

    topic_partition: TopicPartition
    start: int
    end: int


class RangeReader:
    """Reads a range once. ``on_loss`` is told of offsets that are gone, and may raise.

    Args:
        contains: Only records whose values have these bytes are read; empty: all records.
    """

    def __init__(
        self,
        disk: Disk,
        offsets: OffsetRange,
        wanted: Columns,
        *,
        hides_aborted: bool,
        on_loss: Callable[[int, int], None],
        contains: bytes = b"",
    ) -> None:
        self._disk = disk
        self._directory = offsets.topic_partition.directory
        self._opened = FollowedSegments(disk, 1)
        self._next = offsets.start
        self._end = offsets.end
        self._wanted = wanted
        self._hides_aborted = hides_aborted
        self._on_loss = on_loss
        self._contains = contains

    def columns(self) -> Iterator[RecordColumns]:
        """Read in sets of up to ``MOST_ROWS`` or ``MOST_BYTES``.

        Raises:
            CorruptRecordError: After the records before the damage.
        """
        builder = ColumnBuilder(
            self._wanted,
            MOST_ROWS,
            MOST_BYTES,
            decompress,
            self._aborted_table(),
            contains=self._contains,
        )
        builder.stop_offset = self._end
        try:
            yield from self._filled(builder)
        except CorruptRecordError:
            if builder.rows:
                yield RecordColumns.taken(builder)
            raise
        if builder.rows:
            yield RecordColumns.taken(builder)

    def _filled(self, builder: ColumnBuilder) -> Iterator[RecordColumns]:
        """Read into a builder; yield its columns each time they are full."""
        for segment, window in self._windows():
            builder.start_offset = self._next  # a segment may be read a second time
            builder.load(window.buffer, 0, window.stop)
            try:
                while (answer := builder.fill()) == FULL:
                    yield RecordColumns.taken(builder)
            except CorruptRecordError as error:
                position = window.file_position + (error.position or 0)
                raise CorruptRecordError(
                    f"{segment.name} at byte {position}: {error}", position, segment.name
                ) from None
            self._next = max(self._next, builder.next_offset)
            if answer == AT_STOP:
                self._next = self._end

    def _aborted_table(self) -> bytes:
        if not self._hides_aborted:
            return b""
        for _ in range(_TRIES):
            try:
                names = list_names(self._disk, self._directory)
                found = read_aborted(self._disk, self._directory, names, self._next, self._end)
            except FileNotFoundError:
                if not self._disk.exists(self._directory):
                    break
            else:
                return transaction_table(found)
        return b""

    def _windows(self) -> Iterator[tuple[Segment, Window]]:
        """Give whole batches up to the end, until nothing more is there."""
        listed: SegmentNames | None = None
        tries = 0
        while self._next < self._end and tries < _TRIES:
            before, seen = self._next, listed
            try:
                listed = list_names(self._disk, self._directory)
                self._pass_over_what_is_gone(listed)
                for base_offset in _bases_from(listed, self._next):
                    if self._next >= self._end or base_offset >= self._end:
                        return
                    yield from self._windows_of(self._describe(base_offset, listed))
            except FileNotFoundError:
                if not self._disk.exists(self._directory):
                    break
                tries = 0 if self._next > before else tries + 1
                continue
            if listed == seen:
                break  # looked twice: there is nothing more
        if self._next < self._end:
            self._on_loss(self._next, self._end)

    def _pass_over_what_is_gone(self, listed: SegmentNames) -> None:
        first = next(iter(listed.logs), self._next)
        if first > self._next:
            self._on_loss(self._next, min(first, self._end))
            self._next = min(first, self._end)

    def _describe(self, base_offset: int, listed: SegmentNames) -> Segment:
        segment = Segment(self._opened, self._directory, base_offset, Positions())
        segment.inode = listed.logs[base_offset]
        if base_offset in listed.swapped:
            segment.swapped = frozenset(FileKind) - {FileKind.SNAPSHOT}
        return segment

    def _windows_of(self, segment: Segment) -> Iterator[tuple[Segment, Window]]:
        log = segment.files().log
        size = log.size()
        begin, after = place_of_offset(segment, self._next, size, goes_on=True)
        walk = BatchWalk(log, begin, size, after=after, ends_at_refused=True)
        try:
            for window in walk:
                yield segment, window
                if self._next >= self._end:
                    break
        except CorruptRecordError as error:
            at = walk.position
            raise CorruptRecordError(
                f"{segment.name} at byte {at}, looking for offset {self._next}: {error}",
                at,
                segment.name,
            ) from None
        segment.close_files()


def _bases_from(listed: SegmentNames, offset: int) -> list[int]:
    """Return the base offsets of the segments that have an offset or come after it."""
    bases = list(listed.logs)
    before = [number for number, base in enumerate(bases) if base <= offset]
    return bases[before[-1] if before else 0 :]
