"""One partition: a log of segments, appended to at its end and read anywhere.

``PartitionLog`` owns the writing side: the active segment, rolls, truncation, the lease of
positions. Readers work on ``snapshot``, which every change replaces as a whole.

Threads. Changes take the lock of the partition (``exclusive``); ``flush`` and ``maintain`` run
beside appends, in threads of their own.
"""

from collections.abc import Sequence

from logfs.errors import OffsetOutOfRangeError
from logfs.log import names
from logfs.log.checkpoints import write_leader_epochs
from logfs.log.cleanercheckpoint import lower_cleaner_offset
from logfs.log.losses import Loss, log_loss
from logfs.log.producers.replay import Replay, locate_transactions, rewind_producers
from logfs.log.producers.state import ProducerState
from logfs.log.recoverypoint import lower_recovery_point
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogEnd, LogPoint
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.log.writing.active import ActiveSegment, trim_padding
from logfs.log.writing.appending import AppendableLog
from logfs.log.writing.truncation import cut_segments


class PartitionLog(AppendableLog):
    """One partition of a store."""

    # Durability

    @property
    def maintenance_due(self) -> bool:
        """Whether ``maintain`` has something to do."""
        return (  # asked by every append
            self._is_lease_low
            or self._flusher.has_sealed
            or self._state.losses.is_dirty
            or self._has_new_epochs
            or self.has_unnoted
            or self.adopt_later is not None
        )

    def maintain(self) -> None:
        """Do what others leave for later: sync sealed segments, move the lease on, save losses.

        Raises:
            OSError: An fsync failed; the log is offline from now on. With ENOSPC the log is as
                before, and some of it is still due.
        """
        if self.is_deleted:
            return
        if self.offline is None:
            if self.adopt_later is not None:
                self.adopt_waiting()
            with self.offline_on_failure("fsync"):
                if self._flusher.has_sealed:
                    self.line_files.sync()
                    self._flusher.flush_sealed()
                    self._remove_durable_lines()
                    with self._lock:
                        self.table.shrink()
            self.move_lease()
            if self._has_new_epochs:
                with self._lock, self.offline_on_failure("fsync", but_not_full=True):
                    self._save_epochs()
            if self.has_unnoted:
                self.note_dropped()
        self._state.losses.save()

    def move_lease(self) -> None:
        """Move the lease on if that will be due soon, so that no append has to wait for it.

        Raises:
            OSError: An fsync failed; the log is offline from now on.
        """
        if self._is_lease_low:
            with self._lock:
                noted = self._note_lease(self.snapshot.active, self.snapshot.end.positions)
            self._sync_lease(noted)

    # Removing

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove every record at ``offset`` or after it; whole batches go.

        Positions of removed records are not given again: what is appended next is after them.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log.

        Source: Kafka UnifiedLog.truncateTo.
        """
        with self._lock:
            self.check_writable()
            if not self.log_start_offset <= offset <= self.log_end_offset:
                raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
            if offset == self.log_end_offset:
                return
            self.finish_loading()
            self.flush()
            self._settle_lines(self.log_end_offset)
            self._leave_active()
            with self.offline_on_failure("truncation"), self._flusher.paused():
                self._truncate(offset, now_ms)

    # The rest

    def close(self) -> None:
        """Clean stop: everything durable, indexes trimmed, the end noted in the table."""
        if self.read_only or self.is_deleted or self.offline is not None:
            self.close_files()
            return
        with self._lock:
            self.finish_loading()
            self._close_active()
            entry = self.snapshot.active.entry(SegmentState.CLOSED)
            with self.offline_on_failure("closing", but_not_full=True):
                self._save_producers()
                self._save_epochs()
                if self.table.entries.get(entry.base_offset) != entry:
                    self.table.put(entry)
            with self.offline_on_failure("closing"):
                self.table.sync()
            self.close_files()

    def leave(self) -> TableEntry:
        """Close it without an fsync; returns the entry of its last segment, closed.

        The table keeps the open entry, with the lease, and the recovery point stays. Only for a
        partition that is writable.

        Raises:
            OSError: Not everything could be written.
        """
        with self._lock, self.offline_on_failure("closing", but_not_full=True):
            self.finish_loading()
            segment = self.snapshot.active
            if self._active is not None:
                self._active.seal()
            if segment.is_padded:
                trim_padding(self.disk, segment, self.snapshot.end.file_size)
            self._save_producers(is_durable=False)
            self._save_epochs()
            self.close_files()
            return segment.entry(SegmentState.CLOSED)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that have written nothing for ``producer.id.expiration.ms``.

        Source: Kafka ProducerStateManager.removeExpiredProducers.
        """
        with self._lock:
            self._state.producers.expire(now_ms, self._state.producer_expiration_ms)

    def close_files(self) -> None:
        """Let go of every file without writing anything."""
        with self._lock:
            self._active = None
            for segment in self.snapshot.segments:
                segment.close_files()
            self.table.close()

    def delete(self, directory: str) -> None:
        """Rename the partition's directory, because its topic is being deleted; readers go on.

        Raises:
            OSError: It is as it was.
        """
        with self._lock:
            self._state.is_deleted = True
            try:
                self.disk.rename(self.directory, directory)
            except OSError:
                self._state.is_deleted = False
                raise
            self.move(directory)

    def undelete(self) -> None:
        """Undo ``delete``.

        Raises:
            OSError: It stays deleted.
        """
        with self._lock:
            self.disk.rename(self._state.directory, self.topic_partition.directory)
            self.move(self.topic_partition.directory)
            self._state.is_deleted = False

    def move(self, directory: str) -> None:
        """Follow the partition's directory, which was renamed."""
        with self._lock:
            self._state.directory = directory
            self.table.moved_to(directory)
            for segment in (*self.snapshot.segments, *self._deleted.segments):
                segment.directory = directory

    def add_loss(
        self, kind: str, file: str, position: int, size: int, detail: str, now_ms: int
    ) -> None:
        """Note a loss: in the log of the daemon, in the losses file, in ``.meta``."""
        loss = Loss(now_ms, kind, file, position, size, self.log_end_offset, detail)
        log_loss(self.topic_partition, loss)
        self._state.losses.add(loss)

    @property
    def producers(self) -> ProducerState:
        """What is known of the producers at the log end."""
        return self._state.producers

    @property
    def writable(self) -> "PartitionLog":
        """The log to write to, which is this one; a followed log has none."""
        return self

    def new_unfinished_name(self) -> str:
        """Return a name for the file of an unfinished line that no other file has."""
        return names.format_unfinished_file(self._host.new_id().hex())

    def _close_active(self) -> None:
        """Make the records and the indexes durable, and cut the files to what they hold."""
        with self.offline_on_failure("closing"):
            self.flush()
            self._flusher.flush_sealed()
            segment = self.snapshot.active
            was_padded = segment.is_padded
            if self._active is not None:
                self._active.seal()
                for index in segment.files().indexes.all():
                    index.sync()
                if self._active.txn_index is not None:
                    self._active.txn_index.sync()
            if was_padded:
                trim_padding(self.disk, segment, self.snapshot.end.file_size)

    def _truncate(self, offset: int, now_ms: int) -> None:
        old = self.snapshot
        # First: what is appended at these offsets is not what the recovery point speaks of.
        self._flusher.lower(offset)
        lower_recovery_point(self.disk, self.topic_partition, offset)
        lower_cleaner_offset(self.disk, self.topic_partition, offset)
        self.cleaning.unsaved_offset = None
        # Until the entry of the new segment is there: a stop must not give a position twice.
        self.lease.distrust(old.active)
        kept = cut_segments(self.disk, self.config, old, offset)
        segment = self.new_segment(offset, old.end.positions)
        sealed = [s.entry(SegmentState.SEALED) for s in kept]
        self.table.rewrite([*sealed, self.lease.open_entry(segment)])
        ActiveSegment.create(self.disk, segment, self.config, now_ms).close_empty()
        self.disk.sync_directory(self.directory)
        end = LogEnd(offset, segment.bases, 0, -1)
        start = old.start if kept else LogPoint(offset, segment.bases)
        self._state.producers, self._snapshot_offset = rewind_producers(
            self._replay((*kept, segment), now_ms), offset, self._state.producers
        )
        snapshot = old.changed((*kept, segment), start, end, old.cuts + 1)
        locate_transactions(self._state.producers, snapshot)
        aborted = tuple(entry for entry in old.aborted if entry.last_offset < offset)
        self._state.snapshot = snapshot.with_transactions(aborted, self._state.producers.unstable)
        self._fit_epochs()
        self._flusher.truncated(offset)

    def _replay(self, segments: Sequence[Segment], now_ms: int) -> Replay:
        rows = [(segment, segment.size_bytes) for segment in segments]
        start, expiration_ms = self.log_start_offset, self._state.producer_expiration_ms
        return Replay(self.disk, self.directory, rows, start, now_ms, expiration_ms)

    def _save_producers(self, *, is_durable: bool = True) -> None:
        """Write a snapshot where the log ends, unless there is one."""
        if self.log_end_offset <= self._snapshot_offset:
            return
        file = self._write_snapshot(self.log_end_offset)
        if file is not None:
            if is_durable:
                file.sync()
                self.disk.sync_directory(self.directory)
            file.close()
            self._snapshot_offset = self.log_end_offset

    def _fit_epochs(self) -> None:
        if self._epochs.fit(self.log_start_offset, self.log_end_offset):
            self._has_new_epochs = True
            self._save_epochs()

    def _save_epochs(self) -> None:
        if self._has_new_epochs:
            write_leader_epochs(self.disk, self._state.directory, self._epochs.entries)
            self._has_new_epochs = False
