"""Removing the oldest records of a partition, and the files that go with them.

Source: Kafka UnifiedLog.maybeIncrementLogStartOffset, LocalLog.deleteSegmentFiles.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from logfs.disk.remote.overlay import local_part
from logfs.disk.vfs import DISK_FULL, Disk
from logfs.errors import DeletedError, OffsetOutOfRangeError
from logfs.log.checkpoints import checkpoint_start_offset
from logfs.log.names import FileKind
from logfs.log.reading import lookup
from logfs.log.segments.segment import SEGMENT_FILE_KINDS, Segment, SegmentFiles
from logfs.log.segments.snapshot import LogPoint, Snapshot
from logfs.log.segments.table import SegmentState, TableEntry, decode_entry, encode_entry
from logfs.log.writing.active import remove_segment_files
from logfs.log.writing.flusher import Flusher
from logfs.log.writing.state import PartitionState
from logfs.types import IsolationLevel, Positions

logger = logging.getLogger(__name__)

_RESTORED_MS = 60_000
"""For how long at least the deleted segments of an earlier process wait for their open files."""
_REMOVED_KINDS = (*SEGMENT_FILE_KINDS, FileKind.SNAPSHOT)
"""The files that are removed with a segment: its own, and the producer snapshot at its start."""


_LOCAL_KINDS = tuple(kind for kind in _REMOVED_KINDS if kind is not FileKind.TXN_INDEX)
"""The files that are given up when the store has a segment."""


class DeletedFiles(NamedTuple):
    """The files of a deleted segment.

    Attributes:
        entry: The segment.
        copy: Tells the names of its files from those of others with its base offset.
    """

    entry: TableEntry
    copy: int

    def encode(self) -> tuple[str, str]:
        """Return it as two words: the copy, and the entry of the segment table."""
        return str(self.copy), encode_entry(self.entry).hex()

    @classmethod
    def decode(cls, copy: str, entry: str) -> "DeletedFiles":
        """Return what ``encode`` made words of."""
        return cls(decode_entry(bytes.fromhex(entry)), int(copy))


class DeletedNotes(Protocol):
    """Notes of the deleted segments that open files read, for the next process."""

    def note(self, files: DeletedFiles) -> None:
        """Note a segment, before its files get other names."""
        ...

    def forget(self, files: DeletedFiles) -> None:
        """Drop the note of a segment, if there is one: its files are removed."""
        ...


class SegmentRemoval:
    """Removes the oldest records of a partition; their positions become a hole."""

    def __init__(self, state: PartitionState, flusher: Flusher) -> None:
        self._state = state
        self.deleted = DeletedSegments(state.disk, flusher.forget)

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

        Source: Kafka UnifiedLog.maybeIncrementLogStartOffset, deleteLogStartOffsetBreachedSegments.
        """
        state = self._state
        # Before the lock is taken: the store may have to be asked.
        positions = _positions_at(state.snapshot, offset)
        with state.lock:
            state.check_writable()
            snapshot = state.snapshot
            start = snapshot.start
            if offset > snapshot.visible_end(IsolationLevel.HIGH_WATERMARK).offset:
                raise OffsetOutOfRangeError(offset, start.offset, snapshot.end.offset)
            if offset > start.offset:
                start = LogPoint(offset, positions.at_least(start.positions))
                if state.tier is not None:
                    state.tier.note_start(start)
            # A directory that a broker left may hold segments below its log start offset.
            first = max(snapshot.index_of_offset(offset), 0)
            gone, kept = snapshot.segments[:first], snapshot.segments[first:]
            if gone:
                # Later, no reader meets their damage again; on a disk without room it stays due.
                with contextlib.suppress(OSError):
                    state.losses.save()
                self._sync_producers(kept[0])
            state.settle_lines(start.offset)
            with self._start_noted(start, kept[0]):
                is_noted = self._drop(gone)
                state.snapshot = snapshot.changed(kept, start, snapshot.end)
            state.has_new_epochs |= state.epochs.truncate_from_start(start.offset)
            due_ms = now_ms + state.config.file_delete_delay_ms
            for segment in gone:
                if state.tier is not None:
                    state.tier.retire(segment.base_offset, segment.rewrites)
                self.deleted.add(segment, due_ms)
            if not is_noted:
                # Without the note, the names that are gone say where the log starts.
                with state.offline_on_failure("fsync"):
                    state.disk.sync_directory(state.directory)

    def _start_noted(
        self, start: LogPoint, first: Segment
    ) -> contextlib.AbstractContextManager[None]:
        state = self._state
        if start.offset in (first.base_offset, state.snapshot.start.offset):
            return contextlib.nullcontext()
        return checkpoint_start_offset(state.disk, state.topic_partition, start.offset)

    def _sync_producers(self, first: Segment) -> None:
        """Make durable what the snapshot at a segment says of the producers before it.

        Without their batches nothing else has their sequence numbers, and a job may be half-way
        through publishing a batch.
        """
        state = self._state
        with contextlib.suppress(FileNotFoundError):
            snapshot = local_part(state.disk).open(first.file_name(FileKind.SNAPSHOT))
            with state.offline_on_failure("fsync"):
                snapshot.sync()
                state.disk.sync_directory(state.directory)

    def _drop(self, segments: Sequence[Segment]) -> bool:
        """Note durably in the table that segments are gone; False: the disk is full, so later."""
        state = self._state
        if not segments:
            return True
        with state.offline_on_failure("write"):
            is_noted = state.table.put_or_owe(*(s.entry(SegmentState.DROPPED) for s in segments))
        if not is_noted:
            logger.warning(
                "%s: the disk is full; its segments go without a note", state.topic_partition
            )
        # Once they are gone only the table says at which positions the next one begins.
        with state.offline_on_failure("fsync"):
            state.table.sync()
        return is_noted

    def drop_local(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Give up the local files of tiered segments; readers continue with those of the store.

        Files are renamed, and removed like those of deleted segments. A transaction index stays:
        without it, a start would have to ask the store.

        Raises:
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
            OSError: Some files may have been renamed. The next start removes them.
        """
        state = self._state
        with state.lock:
            state.check_writable()
            tier, due_ms = state.tier, now_ms + state.config.file_delete_delay_ms
            for segment in segments:
                if tier is not None and segment.base_offset in tier.local:
                    entry = segment.entry(SegmentState.SEALED)
                    copy = Segment.from_entry(state.opened, state.directory, entry)
                    self.deleted.add_local(segment, copy, due_ms)
                    tier.local.discard(segment.base_offset)

    def expedite(self, now_ms: int) -> tuple[int, int]:
        """Make all deleted segments due; return their bytes, and those of open fixed names."""
        with self._state.lock:
            return self.deleted.expedite(now_ms)

    def remove_due_files(self, now_ms: int) -> None:
        """Remove the files of deleted segments that are due and that no open file reads."""
        if not self.deleted.has_any:
            return  # without the lock, so that threads continue: this is called every few seconds
        with self._state.lock:
            due = self.deleted.take_due(now_ms)
        for segment in due:
            remove_segment_files(self._state.disk, segment, _REMOVED_KINDS)
            self.deleted.forget(segment)
            if self._state.tier is not None:
                self._state.tier.forget_retired(segment.base_offset, segment.deleted_copy)

    def pin(self, segments: Sequence[Segment]) -> None:
        """Keep the files of segments until ``unpin``; raise DeletedError if one is gone."""
        with self._state.lock:
            self.deleted.pin(segments, self._state.snapshot.segments)

    def restore(self, deleted: Iterable[DeletedFiles], now_ms: int) -> None:
        """Take over segments that an earlier process had deleted, whose files are still there."""
        state = self._state
        due_ms = now_ms + max(state.config.file_delete_delay_ms, _RESTORED_MS)
        with state.lock:
            for entry, copy in deleted:
                segment = Segment.from_entry(state.opened, state.directory, entry)
                segment.is_deleted, segment.deleted_copy = True, copy
                self.deleted.restore(segment, due_ms)
                for live in state.snapshot.segments:
                    if live.base_offset == entry.base_offset:
                        live.rewrites = max(live.rewrites, copy + 1)  # its files get other names

    @property
    def is_pinned(self) -> bool:
        """Whether an open file will still read a segment of it, deleted or not."""
        return any(s.pins for s in (*self._state.snapshot.segments, *self.deleted.segments))


def _positions_at(snapshot: Snapshot, offset: int) -> Positions:
    """Return the positions of an offset; at the start of a segment without reading it."""
    segment = snapshot.segments[max(snapshot.index_of_offset(offset), 0)]
    if segment.base_offset == offset:
        return segment.bases
    return lookup.positions_of_offset(snapshot, offset)


class DeletedSegments:
    """The deleted segments of one partition that still have files. Under its lock.

    Args:
        unsync: Called with a segment, and whether another one replaces it: it is to be synced no
            more.

    Attributes:
        notes: The notes of segments that open files read; None: none.
    """

    def __init__(self, disk: Disk, unsync: Callable[[Segment, bool], None]) -> None:
        self._disk = local_part(disk)
        self._unsync = unsync
        self._waiting: list[tuple[int, Segment]] = []
        self.notes: DeletedNotes | None = None

    @property
    def has_any(self) -> bool:
        """Whether any segments wait; without the lock, too."""
        return bool(self._waiting)

    @property
    def segments(self) -> list[Segment]:
        """The segments that still have files, in the order of their deletion."""
        return [segment for _, segment in self._waiting]

    def restore(self, segment: Segment, due_ms: int) -> None:
        """Add a segment whose files have the names of a deleted one, if they are there."""
        if self._disk.exists(segment.file_name(FileKind.LOG)):
            self._waiting.append((due_ms, segment))

    def forget(self, segment: Segment) -> None:
        """Drop the note of a segment whose files are removed."""
        if self.notes is not None:
            self.notes.forget(_files_of(segment))

    def add(self, segment: Segment, due_ms: int, *, is_replaced: bool = False) -> None:
        """Rename the files of a segment; they may be removed from ``due_ms`` on.

        On a disk that has no room for the new names the files are removed at once.

        Args:
            is_replaced: Another segment has the same base offset: the producer snapshot stays.
        """
        # Not a number from the waiting segments: the files of those taken may not be removed yet.
        segment.deleted_copy = segment.rewrites
        self._unsync(segment, is_replaced)
        kinds = SEGMENT_FILE_KINDS if is_replaced else _REMOVED_KINDS
        if segment.pins and self.notes is not None:
            self.notes.note(_files_of(segment))
        try:
            for kind in kinds:
                old = segment.file_name(kind)
                if self._disk.exists(old):
                    self._disk.rename(old, segment.file_name(kind, is_deleted=True))
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._remove_at_once(segment, kinds, has_own_names=True)
            return
        segment.is_deleted = True
        segment.close_files()
        self._waiting.append((due_ms, segment))

    def add_local(self, segment: Segment, copy: Segment, due_ms: int) -> None:
        """Rename the local files of a tiered segment; they may be removed from ``due_ms`` on.

        On a disk that has no room for the new names the files are removed at once.

        Args:
            segment: Continues, with the files of the store.
            copy: Gets the local files.
            due_ms: The clock.

        Raises:
            OSError: Some of the files are renamed.
        """
        copy.deleted_copy = segment.rewrites + 1  # other than the one of the segment's own deletion
        try:
            for kind in _LOCAL_KINDS:
                old = segment.file_name(kind)
                if self._disk.exists(old):
                    self._disk.rename(old, copy.file_name(kind, is_deleted=True))
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            segment.close_files()
            self._remove_at_once(copy, _LOCAL_KINDS, has_own_names=True)
            return
        copy.is_deleted = True
        segment.close_files()
        self._waiting.append((due_ms, copy))

    def remove_at_once(self, segments: Sequence[Segment]) -> None:
        """Remove the files of added segments at once, to free the room that their names take."""
        for segment in segments:
            if any(segment is row[1] for row in self._waiting):
                self._waiting = [row for row in self._waiting if row[1] is not segment]
                self._remove_at_once(segment, SEGMENT_FILE_KINDS, has_own_names=False)

    def _remove_at_once(
        self, segment: Segment, kinds: Sequence[FileKind], *, has_own_names: bool
    ) -> None:
        """Remove the files of a segment; for its readers they are opened first.

        With ``has_own_names`` also those that still have the names of a segment in use.
        """
        files = _opened(segment) if segment.pins else None
        segment.is_deleted = True
        remove_segment_files(self._disk, segment, kinds, files, has_both_names=has_own_names)

    def expedite(self, now_ms: int) -> tuple[int, int]:
        """Make all of them due; returns the bytes of those not pinned and of those pinned."""
        self._waiting = [(min(at, now_ms), segment) for at, segment in self._waiting]
        sizes = [0, 0]
        for _, segment in self._waiting:
            sizes[segment.pins > 0] += segment.size_bytes
        return sizes[0], sizes[1]

    def take_due(self, now_ms: int) -> list[Segment]:
        """Return the due segments without pins, and forget them; see ``remove_segment_files``."""
        due = [s for at, s in self._waiting if at <= now_ms and not s.pins]
        self._waiting = [row for row in self._waiting if row[1] not in due]
        return due

    def pin(self, segments: Sequence[Segment], live: Sequence[Segment]) -> None:
        """Keep the files of segments until ``unpin``; DeletedError: one is gone, none is pinned."""
        present = {id(s) for s in live} | {id(s) for _, s in self._waiting}
        for segment in segments:
            if id(segment) not in present:
                raise DeletedError(f"{segment.name}: the segment has been deleted")
        for segment in segments:
            segment.pins += 1
            if segment.is_deleted and self.notes is not None:
                self.notes.note(_files_of(segment))


def _files_of(segment: Segment) -> DeletedFiles:
    return DeletedFiles(segment.entry(SegmentState.DROPPED), segment.deleted_copy)


def _opened(segment: Segment) -> SegmentFiles:
    """Return the files of a segment, open, with its indexes in memory."""
    files = segment.files()
    files.log.size()
    for entries in (files.offset_entries, files.time_entries, files.text_entries):
        entries()
    return files
