"""The records a partition gives up at its start, and the files that go with them."""

import contextlib
import logging
from collections.abc import Sequence

from logfs.disk.vfs import DISK_FULL
from logfs.errors import OffsetOutOfRangeError
from logfs.log.names import FileKind
from logfs.log.reading import lookup
from logfs.log.segments.deletion import DeletedSegments, remove_files, unpin
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogPoint
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.log.standing import LogStanding
from logfs.log.startoffset import noted_start_offset
from logfs.log.state import PartitionState

logger = logging.getLogger(__name__)


class RemovableLog(LogStanding):
    """A partition whose oldest records can go; their positions become a hole."""

    def __init__(self, state: PartitionState) -> None:
        super().__init__(state)
        self._deleted = DeletedSegments(state.disk)
        self._unnoted: list[TableEntry] = []

    def advance_log_start_offset(self, offset: int, now_ms: int) -> None:
        """Give up the records below an offset; segments that hold nothing else are deleted.

        Their positions become a hole. Files are renamed, and removed once
        ``file.delete.delay.ms`` has passed and no fixed name reads them any more. Durable when this
        returns, other than in Kafka.

        Raises:
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
            OffsetOutOfRangeError: ``offset`` is above the high watermark.
            OSError: With ENOSPC the log is as before; anything else takes it offline. Deleting
                whole segments, up to the start of another one, needs no room.

        Source: Kafka UnifiedLog.maybeIncrementLogPointOffset, deleteLogPointOffsetBreachedSegments.
        """
        with self._lock:
            self.check_writable()
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
            snapshot = self.snapshot
            start = snapshot.start
            if offset > start.offset:
                start = LogPoint(offset, lookup.positions_of_offset(snapshot, offset))
            # A directory that a broker left may hold segments below its log start offset.
            first = max(snapshot.index_of_offset(offset), 0)
            gone, kept = snapshot.segments[:first], snapshot.segments[first:]
            if gone:
                self._sync_producers(kept[0])
            self._settle_lines(start.offset)
            with self._noted(start, kept[0]):
                is_noted = self._drop(gone)
                self._state.snapshot = snapshot.changed(kept, start, snapshot.end)
            self._has_new_epochs |= self._epochs.truncate_from_start(start.offset)
            due_ms = now_ms + self.config.file_delete_delay_ms
            for segment in gone:
                self._deleted.add(segment, due_ms)
            if not is_noted:
                # Without the note, the names that are gone say where the log starts.
                with self.offline_on_failure("fsync"):
                    self.disk.sync_directory(self.directory)

    def _noted(self, start: LogPoint, first: Segment) -> contextlib.AbstractContextManager[None]:
        if start.offset in (first.base_offset, self.log_start_offset):
            return contextlib.nullcontext()
        return noted_start_offset(self.disk, self.topic_partition, start.offset)

    def _sync_producers(self, first: Segment) -> None:
        """Make durable what the snapshot at a segment says of the producers before it.

        Without their batches nothing else has their sequence numbers, and a job may be half-way
        through publishing a batch.
        """
        with self.offline_on_failure("fsync"), contextlib.suppress(FileNotFoundError):
            self.disk.open(first.file_name(FileKind.SNAPSHOT)).sync()
            self.disk.sync_directory(self.directory)

    def _drop(self, segments: Sequence[Segment]) -> bool:
        """Note in the table that segments are gone; durable: a power cut must bring none back.

        Returns:
            False if the disk is too full for that. ``maintain`` notes it when there is room.
        """
        if not segments:
            return True
        self._unnoted += [segment.entry(SegmentState.DROPPED) for segment in segments]
        try:
            self.note_dropped()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            logger.warning("%s: %s; its segments go without a note", self.topic_partition, error)
            # Once they are gone only the table says at which positions the next one begins.
            with self.offline_on_failure("fsync"):
                self.table.sync()
            return False
        return True

    @property
    def has_unnoted(self) -> bool:
        """Whether segments went for which the table had no room."""
        return bool(self._unnoted)

    def note_dropped(self) -> None:
        """Note in the table which segments have gone, durably.

        Raises:
            OSError: With ENOSPC it is still due; anything else takes the log offline.
        """
        with self._lock:
            with self.offline_on_failure("write", but_not_full=True):
                self.table.put(*self._unnoted)
            self._unnoted.clear()
            with self.offline_on_failure("fsync"):
                self.table.sync()

    def hasten_removal(self, now_ms: int) -> tuple[int, int]:
        """Let the time of all deleted segments have come; see ``remove_due_files``.

        Returns:
            Bytes of the ``.log`` files that can go now, and of those that open fixed names read.
        """
        with self._lock:
            return self._deleted.hasten(now_ms)

    def remove_due_files(self, now_ms: int) -> None:
        """Remove the files of deleted segments whose time has come and that nobody reads."""
        with self._lock:
            due = self._deleted.take_due(now_ms)
        for segment in due:
            remove_files(self.disk, segment)

    def pin(self, segments: Sequence[Segment]) -> None:
        """Keep the files of segments until ``unpin``, deleted or not.

        Raises:
            DeletedError: The files of one are gone already.
        """
        with self._lock:
            self._deleted.pin(segments, self.snapshot.segments)

    def unpin(self, segments: Sequence[Segment]) -> None:
        """Undo ``pin``."""
        with self._lock:
            unpin(segments)

    @property
    def is_pinned(self) -> bool:
        """Whether an open file will still read a segment of it, deleted or not."""
        return any(s.pins for s in (*self.snapshot.segments, *self._deleted.segments))
