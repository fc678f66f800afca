"""One partition: a log of segments, appended to at its end and read anywhere.

``PartitionLog`` owns the writing side: the active segment, rolls, truncation, the lease of
positions. Readers work on ``snapshot``, which every change replaces as a whole.

Threads. Changes take the lock of the partition (``exclusive``); ``flush`` and ``maintain`` run
beside appends, in threads of their own.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence

from logfs.errors import CorruptRecordError, OffsetOutOfRangeError
from logfs.log import names
from logfs.log.losses import Loss
from logfs.log.recoverypoint import lower_recovery_point
from logfs.log.removing import RemovableLog
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogEnd, LogPoint
from logfs.log.segments.table import SegmentState
from logfs.log.standing import DISK_FULL
from logfs.log.state import PartitionState
from logfs.log.writing.active import ActiveSegment, remove_segment_files
from logfs.log.writing.truncation import cut_segments
from logfs.records.encoded import EncodedBatch
from logfs.types import Positions

logger = logging.getLogger(__name__)


class PartitionLog(RemovableLog):
    """One partition of a store."""

    def __init__(self, state: PartitionState) -> None:
        super().__init__(state)
        self._host = state.host
        self._opened = state.opened
        self._active: ActiveSegment | None = None
        self._jitter_ms = 0
        self._outlived: list[tuple[int, str]] = []

    # Appending

    def append(self, batches: Sequence[EncodedBatch], now_ms: int) -> int:
        """Append whole batches whose offsets begin at the log end offset.

        Readers see them when this returns, and a kill of the process loses nothing.

        Returns:
            How many were appended: fewer than all only if the disk filled up in between.

        Raises:
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
            OSError: No batch was appended. With ENOSPC the log is as before; anything else takes it
                offline.

        Source: Kafka UnifiedLog.append.
        """
        with self._lock:
            active = self._writable_active(now_ms)
            self._reserve(active, batches)
            done = 0
            try:
                for batch in batches:
                    if active.should_roll(batch, self._config, self._jitter_ms, now_ms):
                        active = self._roll(batch.base_offset, active.ends, now_ms)
                    active.append(batch, self._leader_epoch)
                    done += 1
            except OSError as error:
                self._write_failed(active, error)
                if not done:
                    raise
            self._publish(active, now_ms)
        if self.log_end_offset - self.recovery_point >= self._config.flush_messages:
            self.flush()
        return done

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin the next one; nothing if it is empty.

        Source: Kafka LocalLog.roll.
        """
        with self._lock:
            active = self._writable_active(now_ms)
            if active.size_bytes:
                active = self._roll(self.log_end_offset, active.ends, now_ms)
                self._publish(active, now_ms)

    # Durability

    def flush(self) -> None:
        """Return once everything appended before the call is durable.

        Raises:
            LogOfflineError: An earlier write or fsync failed, so nothing can be promised.
            DeletedError: The topic was deleted.
            OSError: This fsync failed; the log is offline from now on.
        """
        if self.offline is not None or self.is_deleted:
            self.check_writable()
        # First: what is appended from now on is noted anew, and may not be covered.
        self.unflushed_since_ms = None
        with self.offline_on_failure("fsync"):
            self._flusher.flush(lambda: self.snapshot, self.log_end_offset)
        if self._outlived:
            self._remove_outlived(lambda offset: offset < self.recovery_point)

    def remove_when_durable(self, name: str, offset: int) -> None:
        """Remove a file after a flush that covers the record at an offset, or when that is cut."""
        with self._lock:
            self._outlived.append((offset, name))

    @property
    def maintenance_due(self) -> bool:
        """Whether ``maintain`` has something to do."""
        return self._flusher.has_sealed or self._is_lease_low or self._losses.is_dirty

    def maintain(self) -> None:
        """Do what others leave for later: sync sealed segments, move the lease on, save losses.

        Raises:
            OSError: An fsync failed; the log is offline from now on.
        """
        if self.is_deleted:
            return
        self._losses.save()
        if self.offline is not None:
            return
        with self.offline_on_failure("fsync"):
            if self._flusher.has_sealed:
                self._flusher.flush_sealed()
        if self._is_lease_low:
            with self._lock:
                noted = self._note_lease(self.snapshot.active, self.snapshot.end.positions)
            self._sync_lease(noted)

    # Removing

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove every record at ``offset`` or behind it; whole batches go.

        Positions of removed records are not given again: what is appended next stands behind them.

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
            self._leave_active()
            with self._flusher.paused(), self.offline_on_failure("truncation"):
                self._truncate(offset, now_ms)

    # The rest

    def close(self) -> None:
        """Clean stop: everything durable, indexes trimmed, the end noted in the table."""
        if self.read_only or self.is_deleted or self.offline is not None:
            self.close_files()
            return
        with self._lock, self.offline_on_failure("closing"):
            self.flush()
            self._flusher.flush_sealed()
            segment = self.snapshot.active
            if self._active is not None:
                self._active.seal()
                for index in segment.files().indexes.all():
                    index.sync()
            entry = segment.entry(SegmentState.CLOSED)
            if self.table.entries.get(segment.base_offset) != entry:
                self.table.put(entry)
                self.table.sync()
            self.close_files()

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
            self.is_deleted = True
            try:
                self.disk.rename(self.directory, directory)
            except OSError:
                self.is_deleted = False
                raise
            self.directory = directory
            for segment in (*self.snapshot.segments, *self._deleted.segments):
                segment.directory = directory

    def add_loss(
        self, kind: str, file: str, position: int, size: int, detail: str, now_ms: int
    ) -> None:
        """Note a loss: in the log of the daemon, in the losses file, in ``.meta``."""
        logger.warning("%s: %s", self.topic_partition, detail)
        offset = self.log_end_offset
        self._losses.add(Loss(now_ms, kind, file, position, size, offset, detail))

    def note_corrupt(self, error: CorruptRecordError, now_ms: int) -> None:
        """Count a corrupt batch that a reader has met as a loss; ``maintain`` saves it."""
        file, position = error.file or self.directory, error.position or 0
        self._losses.note(
            Loss(now_ms, "corrupt", file, position, error.size_bytes, None, str(error))
        )

    def new_unfinished_name(self) -> str:
        """Return a name for the file of an unfinished line that no other file has."""
        return names.format_unfinished_file(self._host.new_id().hex())

    def new_segment(self, base_offset: int, bases: Positions) -> Segment:
        """Describe a segment of this partition that has no files yet."""
        return Segment(self._opened, self.directory, base_offset, bases)

    def _writable_active(self, now_ms: int) -> ActiveSegment:
        if self.offline is not None or self.is_deleted or self.read_only:
            self.check_writable()
        if self._active is None:
            self._active = ActiveSegment.resume(
                self.disk, self.snapshot.active, self.snapshot.end, self._config, now_ms
            )
            self._jitter_ms = self._draw_jitter()
        return self._active

    def _truncate(self, offset: int, now_ms: int) -> None:
        old = self.snapshot
        # First: what is appended at these offsets is not what the recovery point speaks of.
        self._flusher.lower(offset)
        lower_recovery_point(self.disk, self.topic_partition, offset)
        # Until the entry of the new segment is there: a stop must not give a position twice.
        self.lease.distrust(old.active)
        kept = cut_segments(self.disk, self._config, old, offset)
        segment = self.new_segment(offset, old.end.positions)
        sealed = [s.entry(SegmentState.SEALED) for s in kept]
        self.table.rewrite([*sealed, self.lease.open_entry(segment)])
        ActiveSegment.create(self.disk, segment, self._config, now_ms).close_empty()
        self.disk.sync_directory(self.directory)
        end = LogEnd(offset, segment.bases, 0, -1)
        start = old.start if kept else LogPoint(offset, segment.bases)
        self.snapshot = old.changed((*kept, segment), start, end, old.cuts + 1)
        self._flusher.truncated(offset)
        self._remove_outlived(lambda announced: announced >= (kept[-1].next_offset if kept else 0))

    def _remove_outlived(self, is_due: Callable[[int], bool]) -> None:
        with self._lock:
            due = [row for row in self._outlived if is_due(row[0])]
            self._outlived = [row for row in self._outlived if row not in due]
        for _, name in due:
            with contextlib.suppress(OSError):
                self.disk.remove(name)

    def _leave_active(self) -> None:
        active, self._active = self._active, None
        if active is not None:
            active.seal()
            active.segment.close_files()

    def _reserve(self, active: ActiveSegment, batches: Sequence[EncodedBatch]) -> None:
        """Make sure that the lease covers what is about to be shown."""
        text, tsv, jsonl = self.snapshot.end.positions
        for batch in batches:
            text += batch.text_bytes
            tsv += batch.tsv_bytes
            jsonl += batch.jsonl_bytes
        ends = Positions(text, tsv, jsonl)
        if not self.lease.covers(ends):
            self._sync_lease(self._note_lease(active.segment, ends))

    @property
    def _is_lease_low(self) -> bool:
        return self._active is not None and self.lease.is_low(self.snapshot.end.positions)

    def _publish(self, active: ActiveSegment, now_ms: int) -> None:
        old = self.snapshot
        builder = active.builder
        end = LogEnd(builder.next_offset, active.ends, builder.file_position, builder.max_timestamp)
        self.snapshot = old._replace(end=end)
        self.last_modified_ms = now_ms
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms

    def _write_failed(self, active: ActiveSegment, error: OSError) -> None:
        if error.errno in DISK_FULL:
            try:
                active.cut_failed_write()
            except OSError as second:
                self.take_offline(f"write failed: {error}; then truncate failed: {second}")
            return
        self.take_offline(f"write failed: {error}")

    def _roll(self, base_offset: int, bases: Positions, now_ms: int) -> ActiveSegment:
        """Seal the active segment and begin one at an offset and positions."""
        old = self._writable_active(now_ms)
        segment = self.new_segment(base_offset, bases)
        new = ActiveSegment.create(self.disk, segment, self._config, now_ms)
        try:
            # In this order: of a torn write, the open entry with the lease is what is kept.
            self.table.put(self.lease.open_entry(segment), old.sealed_entry())
        except OSError:
            remove_segment_files(self.disk, segment)
            raise
        old.seal()
        self._flusher.add_sealed(old.segment, old.segment.files())
        self._active = new
        self._jitter_ms = self._draw_jitter()
        snapshot = self.snapshot
        self.snapshot = snapshot.changed(
            (*snapshot.segments, segment), snapshot.start, LogEnd(base_offset, bases, 0, -1)
        )
        return new

    def _draw_jitter(self) -> int:
        limit = min(self._config.segment_jitter_ms, self._config.max_segment_ms)
        return int.from_bytes(self._host.new_id()[:4], "big") % limit if limit else 0
