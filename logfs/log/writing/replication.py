"""The end of a mirror: batches of another log are taken over as they are.

Offsets, leader epochs, producers, transactions, timestamps and gaps stay: what the source took is
right, so only what makes a batch readable is checked. What is appended is a prefix of the source,
so the log end offset is all that has to be known to continue after any stop.

    append_replica   batches that begin at or after the log end offset
    start_at         an empty log begins at another offset
    continue_at      the source no longer has the next records: the log continues after them

Source: Kafka UnifiedLog.appendAsFollower, truncateFullyAndStartAt.
"""

from typing import NamedTuple

from logfs.disk.vfs import DISK_FULL
from logfs.errors import CorruptRecordError, OffsetOutOfRangeError
from logfs.log.producers.replay import locate_transactions
from logfs.log.segments.snapshot import LogEnd, LogPoint
from logfs.log.segments.table import SegmentState
from logfs.log.writing.active import ActiveSegment, remove_segment_files
from logfs.log.writing.appender import Appender
from logfs.log.writing.flusher import Flusher
from logfs.log.writing.state import PartitionState
from logfs.records._reading import batch_run, first_offset
from logfs.records.compression import Buffer
from logfs.records.layout import MAX_RELATIVE_OFFSET
from logfs.types import Positions


class Replicated(NamedTuple):
    """What ``append_replica`` took over.

    Attributes:
        base_offset, last_offset: The first and the last offset of the batches.
        used_bytes: Their bytes. The rest of the payload was not taken: a batch that is cut, one
            that follows damage, or the disk filled up.
    """

    base_offset: int
    last_offset: int
    used_bytes: int


class Replication:
    """Appends what another log holds."""

    def __init__(self, state: PartitionState, flusher: Flusher, appender: Appender) -> None:
        self._state = state
        self._flusher = flusher
        self._appender = appender

    def append_replica(self, payload: Buffer, now_ms: int) -> Replicated:
        """Append whole batches of the source as they are.

        Readers see them when this returns, and a kill of the process loses nothing. Batches are
        checked as recovery checks them: checksum, decoding, lengths and order. Timestamps, keys,
        sizes and sequence numbers are not.

        Args:
            payload: Batches of any format, one after the other; the last one may be cut.
            now_ms: The clock.

        Returns:
            What was appended: the sound batches before the first one that is not, as far as the
            disk had room.

        Raises:
            OffsetOutOfRangeError: The first batch begins below the log end offset.
            CorruptRecordError: The first batch is not sound; nothing was appended. ``position`` is
                a byte of the payload.
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
            OSError: No batch was appended. With ENOSPC the log is as before; anything else takes it
                offline.

        Source: Kafka UnifiedLog.appendAsFollower.
        """
        state = self._state
        view = memoryview(payload).cast("B")
        with state.lock:
            state.check_writable()
            started_s = state.host.clock_s()
            base_offset = self._check_first(view)
            records, used = 0, 0
            try:
                while used < len(view):
                    taken, count = self._append_piece(view[used:], base_offset, now_ms)
                    if not taken:
                        break
                    used += taken
                    records += count
            except (OSError, CorruptRecordError) as error:
                if not used or (isinstance(error, OSError) and error.errno not in DISK_FULL):
                    raise
            counters = state.counters
            counters.appends += 1
            counters.records += records
            counters.bytes_in += used
            counters.append_s.observe(state.host.clock_s() - started_s)
            self._appender.flush_if_due()
            return Replicated(base_offset, state.snapshot.end.offset - 1, used)

    def start_at(self, offset: int, now_ms: int) -> None:
        """Let an empty log begin at an offset.

        Raises:
            OffsetOutOfRangeError: It is not empty, or the offset is below its end.
            LogOfflineError, DeletedError, ReadOnlyError, OSError: See ``append_replica``.

        Source: Kafka UnifiedLog.truncateFullyAndStartAt.
        """
        state = self._state
        with state.lock:
            start, end = state.snapshot.start.offset, state.snapshot.end.offset
            if start != end or offset < end:
                raise OffsetOutOfRangeError(offset, start, end)
            if offset > end:
                self._begin_segment(offset, now_ms, is_after_gap=False)

    def continue_at(self, offset: int, now_ms: int) -> None:
        """Continue at an offset beyond the log end, after records that the source has lost.

        The caller notes the loss. Positions have no hole there; the new segment is marked in the
        segment table, so that the missing offsets are no damage.

        Raises:
            OffsetOutOfRangeError: The offset is below the log end.
            LogOfflineError, DeletedError, ReadOnlyError, OSError: See ``append_replica``.
        """
        state = self._state
        with state.lock:
            end = state.snapshot.end.offset
            if offset < end:
                raise OffsetOutOfRangeError(offset, state.snapshot.start.offset, end)
            if offset > end:
                self._begin_segment(offset, now_ms, is_after_gap=True)

    # Inside

    def _check_first(self, view: memoryview) -> int:
        """Return the first base offset of a payload, which must be at or after the log end."""
        start, end = self._state.snapshot.start.offset, self._state.snapshot.end.offset
        base_offset = first_offset(view, 0, len(view))
        if base_offset < end:
            raise OffsetOutOfRangeError(base_offset, start, end)
        return base_offset

    def _append_piece(self, view: memoryview, base_offset: int, now_ms: int) -> tuple[int, int]:
        """Append what fits the active segment, or the next one; returns its bytes and records."""
        appender, state = self._appender, self._state
        active = appender.writable_active(now_ms)
        room = state.config.effective_segment_bytes - active.size_bytes
        size = batch_run(view, 0, len(view), room)
        if not size[0]:
            return 0, 0
        if appender.should_roll(active, size, now_ms):
            active = appender.roll_at(state.snapshot.end.offset, active.ends, now_ms)
            size = batch_run(view, 0, len(view), state.config.effective_segment_bytes)
        if size[1] - active.segment.base_offset > MAX_RELATIVE_OFFSET:
            active = self._move_base(view, now_ms)
        return self._write(active, view[: size[0]], now_ms)

    def _move_base(self, view: memoryview, now_ms: int) -> ActiveSegment:
        """Begin an empty segment nearer to batches that are very far from the log end."""
        first = first_offset(view, 0, len(view))
        if first > self._state.snapshot.end.offset:
            self._begin_segment(first, now_ms, is_after_gap=True)
        return self._appender.writable_active(now_ms)

    def _write(self, active: ActiveSegment, data: memoryview, now_ms: int) -> tuple[int, int]:
        state, builder = self._state, active.builder
        before = builder.records
        used = active.take_in(data)
        if not used:
            active.leave_out()
            raise CorruptRecordError(
                f"{state.topic_partition}: a batch for offset {state.snapshot.end.offset} is not "
                f"sound: {builder.problem}",
                0,
            )
        try:
            if not state.reservation.covers(active.ends):
                ends = Positions(*active.ends)
                state.sync_reservation(state.note_reservation(active.segment, ends))
        except OSError:
            active.leave_out()
            raise
        try:
            active.write_taken(data[:used])
        except OSError as error:
            active.leave_out()
            self._appender.write_failed(active, error)
            raise
        self._follow(active, now_ms)
        return used, builder.records - before

    def _follow(self, active: ActiveSegment, now_ms: int) -> None:
        """Take over leader epochs, producers and transactions of what was written; show it."""
        state, aborted, met = self._state, [], active.builder.produced
        # The batches are in the log: only recovery can make the rest fit again.
        with state.offline_on_failure("write of the transaction index"):
            for produced in met:
                ended = state.producers.apply(produced)
                if ended is not None:
                    active.append_aborted(ended)
                    aborted.append(ended)
            if met:
                met.clear()
                locate_transactions(state.producers, state.snapshot.moved(active.log_end))
        self._appender.publish(active, now_ms, *aborted)
        for epoch, offset in active.epochs_taken():
            state.has_new_epochs |= state.epochs.assign(epoch, offset)
        if state.has_new_epochs:
            # Without it a later scan, from the recovery point on, would find the epoch too late.
            with state.offline_on_failure("write", but_not_full=True):
                state.save_epochs()

    def _begin_segment(self, offset: int, now_ms: int, *, is_after_gap: bool) -> None:
        """Begin an empty segment at an offset, instead of the last one if that is empty.

        Durable on return. What was there before stays durable at every step: the table names the
        new segment before it has files, which the next start makes.
        """
        state, appender = self._state, self._appender
        state.check_writable()
        state.finish_loading()
        self._flusher.flush()
        state.settle_lines(state.snapshot.end.offset)
        appender.leave_active(is_durable=True)
        with state.offline_on_failure("beginning of a segment"), self._flusher.paused():
            old = state.snapshot
            kept = old.segments if old.end.file_size else old.segments[:-1]
            segment = state.new_segment(offset, old.end.positions)
            segment.is_after_gap = is_after_gap
            rows = [known.entry(SegmentState.SEALED) for known in kept]
            state.table.rewrite([*rows, state.reservation.open_entry(segment)])
            ActiveSegment.create(state.disk, segment, state.config, now_ms).close_empty()
            for left in old.segments[len(kept) :]:
                remove_segment_files(state.disk, left)
            state.disk.sync_directory(state.directory)
            start = old.start if kept else LogPoint(offset, old.end.positions)
            end = LogEnd(offset, segment.bases, 0, -1)
            state.snapshot = old.changed((*kept, segment), start, end)
            state.fit_epochs()
            self._flusher.truncated(offset)
