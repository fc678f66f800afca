"""A cursor over the records of a partition: offset in, decoded records out, a window at a time.

Where ``reader`` renders bytes at positions, this gives records, for programs. Offsets are all it
needs: it continues where it was also if the segments change, and passes over what retention or
compaction has removed, over markers, and under read_committed over aborted records.
"""

from collections.abc import Callable

from logfs.errors import CorruptRecordError
from logfs.log.reading.offsetcursor import OffsetCursor
from logfs.log.segments.abortedruns import transaction_table
from logfs.log.segments.batches import LOOKUP_BYTES, SEQUENTIAL_BYTES, Window
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.records._reading import RecordSearch, decode_batches
from logfs.records.compression import decompress
from logfs.records.record import Record
from logfs.types import IsolationLevel

_SHARED_BYTES = 64 << 20
"""The memory for all logs that are read at the same time."""


def window_of(readers: int) -> int:
    """Return how many bytes of a log each of so many readers has in memory, to share it fairly."""
    return min(SEQUENTIAL_BYTES, max(LOOKUP_BYTES, _SHARED_BYTES // max(readers, 1)))


class RecordReader(OffsetCursor):
    """A cursor over the records of a partition. One user at a time.

    Args:
        offset: The offset to begin at; one that is not kept any more means the next that is.
        search: Which records to return; None: all.
        window_bytes: How much of a log is in memory, unless a batch is larger.

    Attributes:
        offset: Every record before it that is kept and seen has been returned.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        offset: int,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        *,
        search: RecordSearch | None = None,
        window_bytes: int = SEQUENTIAL_BYTES,
    ) -> None:
        super().__init__(offset)
        self._search = search
        self._window_bytes = window_bytes
        self._snapshot = snapshot
        self._level = level
        self._window = Window()

    def read(self, stop: int | None = None) -> list[Record]:
        """Return the next records: those of some whole batches, about half a megabyte.

        Args:
            stop: Offset at which to end; None: the end of what is seen.

        Returns:
            At least one record; none only at ``stop`` or at the end.

        Raises:
            CorruptRecordError: The next batch is damaged; ``offset`` is before it.
            FileNotFoundError: Another process has just removed or replaced a file: the snapshot
                is out of date.
        """
        while True:
            snapshot = self._snapshot()
            end = snapshot.visible_end(self._level).offset
            if stop is not None and stop < end:
                end = stop
            self._begin(snapshot)
            if self.offset >= end:
                return []
            records = self._read_some(snapshot, end)
            if records:
                return records

    @property
    def buffer_bytes(self) -> int:
        """How much memory the window takes."""
        return len(self._window.buffer)

    def drop_buffers(self) -> None:
        """Free the window; the place stays."""
        self._window = Window()

    def go_back(self, offset: int) -> None:
        """Continue at the offset of a record that was returned."""
        self.offset, self._segment = offset, None

    def _read_some(self, snapshot: Snapshot, end: int) -> list[Record]:
        """Read what one window holds; nothing if that is not seen, or at a border."""
        before, number = self._segment, self._enter(snapshot)
        if number is None:
            return []
        segment, (_, next_offset, file_end) = snapshot.segments[number], snapshot.end_of(number)
        if self._position >= file_end:
            self.offset = next_offset  # what was here has been compacted away
            return []
        chunk = self._window_bytes
        if segment is not before:
            self._window, chunk = Window(), min(LOOKUP_BYTES, chunk)
        window = self._window
        try:
            if not window.file_position <= self._position < window.file_end:
                log = segment.files().log
                window.load(log, self._position, file_end, chunk, True, self._after)
            records, at, self.offset = decode_batches(
                window.buffer,
                self._position - window.file_position,
                window.stop,
                self.offset,
                end,
                decompress,
                hidden_transactions(snapshot, number, self._level),
                self._search,
            )
        except CorruptRecordError as error:
            self._fail()
            raise unreadable(segment, self.offset, self._position, error) from None
        self._position = window.file_position + at
        return records


def hidden_transactions(snapshot: Snapshot, number: int, level: IsolationLevel) -> bytes:
    """Return the aborted transactions of a segment, for native code, if a level hides them."""
    if level is not IsolationLevel.READ_COMMITTED or not snapshot.aborted:
        return b""
    return transaction_table(snapshot.aborted_in(number))


def unreadable(
    segment: Segment, offset: int, position: int, error: CorruptRecordError
) -> CorruptRecordError:
    """Return an error of native code with the segment, and the offset that was to be read."""
    text = f"{segment.name}: offset {offset} or what follows it cannot be read: {error}"
    return CorruptRecordError(text, position, segment.name)
