"""The end of a partition, where records come in: appends, rolls, the positions they are given.

A batch of a producer is checked after the roll that it may cause, as Kafka does, and then written
like any other; what the log knows of producers changes once it is in the log.
"""

import errno
import logging
from collections.abc import Sequence

from logfs.disk.vfs import DISK_FULL, File
from logfs.errors import EarlierRecordsError
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.producers.snapshots import write_snapshot
from logfs.log.producers.state import LastRecord
from logfs.log.quotas import GRANT_S
from logfs.log.segments.segment import sync_indexes
from logfs.log.segments.snapshot import LogEnd
from logfs.log.writing._end import LINE_KEPT_BYTES
from logfs.log.writing.active import ActiveSegment, draw_jitter_ms, remove_segment_files
from logfs.log.writing.flusher import Flusher
from logfs.log.writing.producerbatches import (
    Appended,
    encode_marker,
    encode_produced,
    rebase_encoded,
)
from logfs.log.writing.state import LAST_APPEND_OFFSET, PartitionState
from logfs.records._encoding import encode_records
from logfs.records.compression import Buffer, Compression
from logfs.records.encoded import EncodedBatch, EncodeOptions, ProducerBatch
from logfs.records.produced import DATA, ProducedBatch
from logfs.records.record import Record
from logfs.types import Positions

logger = logging.getLogger(__name__)

_WITHOUT_END = 1 << 62
_NEVER = 2**63 - 1
_LEAST_BATCH_BYTES = 2 * LINE_KEPT_BYTES
"""Where batches may be smaller, Python decides whether an unfinished line fits."""


class Appender:
    """Appends to the end of a partition."""

    def __init__(self, state: PartitionState, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher
        self._clock_s = state.host.clock_s
        self.active: ActiveSegment | None = None
        self._jitter_ms = 0
        self._missing_snapshot: int | None = None

    def append(self, batches: Sequence[EncodedBatch], now_ms: int) -> int:
        """Append whole batches without producer ids whose offsets begin at the log end offset.

        Readers see them when this returns, and a kill of the process loses nothing.

        Returns:
            How many were appended: fewer than all only if the disk filled up in between.

        Raises:
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
            OSError: No batch was appended. With ENOSPC the log is as before; anything else takes it
                offline.

        Source: Kafka UnifiedLog.append.
        """
        state = self._state
        with state.lock:
            started_s = self._clock_s()
            active = self._appendable_active(now_ms)
            self._reserve(active, batches)
            done = 0
            try:
                for batch in batches:
                    size = len(batch.data), batch.last_offset, batch.max_timestamp
                    if active.should_roll(size, state.config, self._jitter_ms, now_ms):
                        active = self.roll_at(batch.base_offset, active.ends, now_ms)
                    active.append(batch)
                    done += 1
            except OSError as error:
                self.write_failed(active, error)
                if not done:
                    raise
            self.publish(active, now_ms)
            self._count(batches, done, started_s)
        self.flush_if_due()
        return done

    def append_records(
        self, records: Sequence[Record], now_ms: int, producer: ProducerBatch | None = None
    ) -> Appended:
        """Append records; with a producer exactly once, however often the call is repeated.

        Args:
            records: At least one; offsets are ignored. Those of a producer make one batch.
            now_ms: The clock; see ``EncodeOptions`` for what it is used for.
            producer: The producer; None: without protection against repetition.

        Returns:
            Their offsets: the offsets they had already if the very same sequence numbers are among
            the last five batches of the producer. A plain writer has fewer only if the disk
            filled up in between.

        Raises:
            ValueError: There are no records, or the producer's numbers are out of range.
            RecordTooLargeError, UnparsableLineError: A record, or the batch of a producer, is
                refused; nothing was appended.
            QuotaExceededError: They do not fit the quota of the topic; nothing was appended.
            EarlierRecordsError: The producer ``keeps_order``: call ``flush`` and try again.
            OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError: The producer's
                batch is refused; see ``logfs.log.producers.state``.
            LogOfflineError, DeletedError, ReadOnlyError, OSError: See ``append``.

        Source: Kafka UnifiedLog.appendAsLeader.
        """
        state = self._state
        with state.lock:
            state.adopt_waiting()
            base_offset = state.snapshot.end.offset
            if producer is not None:
                encoded = encode_produced(records, base_offset, now_ms, state.options, producer)
                return self.append_produced(*encoded, now_ms, keeps_order=producer.keeps_order)
            whole = encode_records(records, base_offset, now_ms, state.options)
            if whole.refusal is not None:
                raise whole.refusal
            if not whole.batches:
                raise ValueError("there are no records to append")
            if state.config.has_quota:
                state.admit(sum(len(batch.data) for batch in whole.batches))
            done = self.append(whole.batches, now_ms)
            return Appended(base_offset, whole.batches[done - 1].last_offset)

    def append_encoded(
        self, payload: Buffer, now_ms: int, producer: ProducerBatch | None = None
    ) -> Appended:
        """Append batches that a client has encoded; see ``append_records`` for the rest.

        Args:
            payload: Whole batches, one after the other; those of a producer are one. What is
                in their headers about offsets, epochs and producers means nothing.

        Raises:
            CorruptRecordError: The payload does not decode.
            ValueError, LogfsError, OSError: See ``append_records``.
        """
        state = self._state
        with state.lock:
            state.adopt_waiting()
            base_offset = state.snapshot.end.offset
            batches, produced = rebase_encoded(
                payload, base_offset, now_ms, state.options, producer
            )
            if producer is not None and produced is not None:
                return self.append_produced(
                    batches[0], produced, now_ms, keeps_order=producer.keeps_order
                )
            if state.config.has_quota:
                state.admit(sum(len(batch.data) for batch in batches))
            done = self.append(batches, now_ms)
            return Appended(base_offset, batches[done - 1].last_offset)

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
    ) -> int:
        """Write the marker that ends a producer's transaction; readers see it as a whole or never.

        Args:
            epoch: At least that of the transaction's batches; a higher one fences the producer off,
                whose next batch has sequence 0 of that epoch.
            commit: False aborts.
            coordinator_epoch: At least that of the last marker; 0 if there is no coordinator.

        Returns:
            The offset of the marker.

        Raises:
            ValueError: A number is out of range.
            InvalidProducerEpochError, TransactionCoordinatorFencedError: The marker is refused.
            LogOfflineError, DeletedError, ReadOnlyError, OSError: See ``append``.

        Source: Kafka KafkaApis.handleWriteTxnMarkersRequest.
        """
        state = self._state
        with state.lock:
            state.adopt_waiting()
            marker = ProducerBatch(producer_id, epoch, 0)
            encoded = encode_marker(
                state.snapshot.end.offset,
                now_ms,
                state.options,
                marker,
                commit,
                coordinator_epoch,
            )
            return self.append_produced(*encoded, now_ms).base_offset

    def append_produced(
        self,
        batch: EncodedBatch,
        produced: ProducedBatch,
        now_ms: int,
        *,
        keeps_order: bool = False,
    ) -> Appended:
        """Append a batch that has a producer id and begins at the log end offset.

        Args:
            batch: The batch, or a marker.
            produced: The producer of the batch; see ``find_produced``.
            now_ms: The clock.
            keeps_order: See ``ProducerBatch``.

        Returns:
            Where it is, or was already.

        Raises:
            LogfsError, OSError: See ``append_records``, ``end_transaction``.
        """
        state = self._state
        with state.lock:
            started_s = self._clock_s()
            active = self._appendable_active(now_ms)
            self._reserve(active, [batch])
            size = len(batch.data), batch.last_offset, batch.max_timestamp
            rolls = active.should_roll(size, state.config, self._jitter_ms, now_ms)
            if keeps_order:
                self._check_order(batch, produced, rolls=rolls)
            if rolls:
                active = self.roll_at(batch.base_offset, active.ends, now_ms)
            if produced.control == DATA:
                written = state.producers.find_duplicate(produced)
                if written is not None:
                    return Appended(written.first_offset, written.last_offset, True)
            state.producers.check(produced)
            if state.config.has_quota and produced.control == DATA and not keeps_order:
                state.admit(len(batch.data))  # else a job's, which was let in as a whole
            begin = active.ends
            try:
                active.append(batch)
            except OSError as error:
                self.write_failed(active, error)
                raise
            aborted = state.producers.apply(produced, begin)
            if aborted is not None:
                # The marker is in the log: only recovery can make the index fit again.
                with state.offline_on_failure("write of the transaction index"):
                    active.append_aborted(aborted)
            self.publish(active, now_ms, *(() if aborted is None else (aborted,)))
            self._count((batch,), 1, started_s)
            self.flush_if_due()
            return Appended(batch.base_offset, batch.last_offset)

    def _check_order(self, batch: EncodedBatch, produced: ProducedBatch, *, rolls: bool) -> None:
        """Raise EarlierRecordsError if earlier records in another segment may be lost alone."""
        state = self._state
        entry = state.producers.entries.get(produced.producer_id)
        if entry is None or not entry.batches:
            return
        last, begin = entry.batches[-1].last_offset, state.snapshot.active.base_offset
        if last >= state.recovery_point and (rolls or last < begin):
            raise EarlierRecordsError(
                f"{state.topic_partition}: the records up to offset {last} are not durable, and a "
                f"segment begins at offset {batch.base_offset if rolls else begin}"
            )

    def last_records_of_producers(self) -> dict[int, LastRecord]:
        """Return what each producer that is not forgotten wrote last, by producer id.

        Compaction keeps these batches: their headers hold the sequence numbers.

        Source: Kafka UnifiedLog.lastRecordsOfActiveProducers.
        """
        with self._state.lock:
            return self._state.producers.last_records()

    def next_sequence(self, producer_id: int) -> int:
        """Return the sequence number that continues what a producer wrote; 0 if it is not known."""
        with self._state.lock:
            return self._state.producers.next_sequence(producer_id)

    def roll(self, now_ms: int, *, only_if_quiet: bool = False) -> None:
        """Seal the active segment and begin the next one; nothing if it is empty.

        On a full disk the text index of the segment may go, to make room for the files of the next
        one: what is deleted by whole segments needs that.

        Args:
            only_if_quiet: Do nothing if something was appended within ``segment.ms``.

        Source: Kafka LocalLog.roll.
        """
        with self._state.lock:
            self._state.adopt_waiting()
            quiet_ms = now_ms - self._state.last_modified_ms
            if only_if_quiet and quiet_ms < self._state.config.max_segment_ms:
                return
            active = self.writable_active(now_ms)
            if not active.size_bytes:
                return
            try:
                new = self.roll_at(self._state.snapshot.end.offset, active.ends, now_ms)
            except OSError as error:
                is_full = error.errno in DISK_FULL and not only_if_quiet
                if not (is_full and active.give_up_text_index()):
                    raise
                new = self.roll_at(self._state.snapshot.end.offset, active.ends, now_ms)
            self.publish(new, now_ms)

    def save_producers(self, *, is_durable: bool = True) -> None:
        """Write a snapshot where the log ends, unless there is one."""
        state = self._state
        if state.snapshot.end.offset <= state.snapshot_offset:
            return
        file = self._write_snapshot(state.snapshot.end.offset)
        if file is not None:
            if is_durable:
                file.sync()
                state.disk.sync_directory(state.directory)
            file.close()
            state.snapshot_offset = state.snapshot.end.offset

    def arm(self) -> None:
        """Let the thread append lines, until one of its bounds is reached or Python takes the lock.

        Nothing happens if more than an append is due already, if lines of this topic take more
        than the thread can do, or if another thread has the lock. It waits for nothing.
        """
        state = self._state
        if not state.lock.take_now():
            return
        with state.lock:
            state.lock.__exit__(None, None, None)
            active = self.active
            if (
                active is not None
                and state.offline is None
                and not (state.is_deleted or state.read_only or state.waiting_lines)
                and (state.remote is None or state.fenced is None)
                and state.deferred is None
                and not state.line_files.void
                and state.config.flush_messages == _NEVER
                and _are_plain(state.options)
                and self._may_append()
            ):
                low = state.reservation.low
                active.arm(
                    state.lock,
                    state.config,
                    state.options,
                    self._jitter_ms,
                    low,
                    may_sync=self._flusher.takes_one_sync,
                )

    def _may_append(self) -> bool:
        """Take a grant if the topic has quotas; return False if there is none."""
        state, config = self._state, self._state.config
        state.end_grant()
        if not config.has_quota:
            state.lock.grant(_WITHOUT_END, _WITHOUT_END)
            return True
        limit, rate = config.logfs_quota_bytes, config.logfs_quota_producer_byte_rate
        state.grant = state.usage.grant(limit, rate, self._clock_s())
        if state.grant is None:
            return False
        state.lock.grant(state.grant.size_bytes, round(GRANT_S * 1000))
        return True

    # Inside

    def flush_if_due(self) -> None:
        """Flush if ``flush.messages`` says so."""
        state = self._state
        if state.snapshot.end.offset - state.recovery_point >= state.config.flush_messages:
            self._flusher.flush()

    def _appendable_active(self, now_ms: int) -> ActiveSegment:
        """Return the active segment for records of this log's own."""
        state = self._state
        if (
            state.mirror is not None
            or (state.remote is not None and state.fenced is not None)
            or state.snapshot.end.offset > LAST_APPEND_OFFSET
        ):
            state.check_appendable()
        if state.waiting_lines:
            raise OSError(
                errno.ENOSPC,
                "unfinished lines of closed files wait for room",
                state.directory,
            )
        return self.writable_active(now_ms)

    def writable_active(self, now_ms: int) -> ActiveSegment:
        """Return the active segment, opened if it is not yet; for any batches.

        Raises:
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
            OSError: It cannot be opened, or something that precedes every append fails.
        """
        state = self._state
        if state.offline is not None or state.is_deleted or state.read_only or state.is_closed:
            state.check_writable()
        if state.lock.take_failed():
            state.line_files.find_void()
        if state.line_files.void:
            with state.offline_on_failure("write", but_not_full=True):
                state.line_files.cut_void()
        if self.active is None:
            state.finish_loading()
            self.active = ActiveSegment.resume(
                state.disk,
                state.snapshot.active,
                state.snapshot.end,
                state.config,
                now_ms,
                has_unsynced_indexes=state.unsynced_indexes is not None,
            )
            state.unsynced_indexes = None
            state.use_end(self.active.end)
            self._jitter_ms = draw_jitter_ms(state.config, state.host.new_id)
        return self.active

    def leave_active(self, *, is_durable: bool = False) -> None:
        """Seal the active segment and close its files; ``is_durable``: its indexes are synced."""
        active, self.active = self.active, None
        self._state.lock.disarm()
        self._state.use_end(None)
        if active is not None:
            active.seal()
            if is_durable:
                active.sync_indexes()
            active.segment.close_files()
        elif is_durable and self._state.unsynced_indexes is not None:
            sync_indexes(self._state.disk, self._state.unsynced_indexes)
            self._state.unsynced_indexes = None

    def _reserve(self, active: ActiveSegment, batches: Sequence[EncodedBatch]) -> None:
        """Make sure that the reserved positions cover what is about to be shown."""
        state = self._state
        text, tsv, jsonl = state.snapshot.end.positions
        for *_, text_bytes, tsv_bytes, jsonl_bytes in batches:
            text += text_bytes
            tsv += tsv_bytes
            jsonl += jsonl_bytes
        if not state.reservation.covers((text, tsv, jsonl)):
            state.sync_reservation(
                state.note_reservation(active.segment, Positions(text, tsv, jsonl))
            )

    def should_roll(self, active: ActiveSegment, size: tuple[int, int, int], now_ms: int) -> bool:
        """Whether batches begin a new segment; see ``ActiveSegment.should_roll``.

        Args:
            size: Their bytes, last offset and max timestamp.
        """
        return active.should_roll(size, self._state.config, self._jitter_ms, now_ms)

    @property
    def is_reservation_low(self) -> bool:
        """Whether the reservation is to be extended soon."""
        return self.active is not None and self._state.reservation.is_low(
            self._state.snapshot.end.positions
        )

    def publish(self, active: ActiveSegment, now_ms: int, *aborted: AbortedTransaction) -> None:
        """Show readers what was appended; with the transactions that it has aborted."""
        state = self._state
        old = state.snapshot
        end = active.log_end
        unstable = state.producers.unstable
        if not aborted and unstable == old.unstable:
            state.snapshot = old.moved(end)
        else:
            known = (*old.aborted, *aborted)
            state.snapshot = old.moved(end).with_transactions(known, unstable)
        state.last_modified_ms = now_ms
        if state.unflushed_since_ms is None:
            state.unflushed_since_ms = now_ms

    def _count(self, batches: Sequence[EncodedBatch], done: int, started_s: float) -> None:
        """Count what was appended; on the path of every append."""
        if not done:
            return  # there was nothing to append
        counters = self._state.counters
        counters.appends += 1
        counters.records += batches[done - 1].last_offset - batches[0].base_offset + 1
        for batch in batches if done == len(batches) else batches[:done]:
            counters.bytes_in += len(batch.data)
        now_s, rate = self._clock_s(), self._state.config.logfs_quota_producer_byte_rate
        counters.append_s.observe(now_s - started_s)
        if rate > 0:
            size_bytes = sum(len(batch.data) for batch in batches[:done])
            self._state.end_grant()
            self._state.usage.spend(size_bytes, rate, now_s)

    def write_failed(self, active: ActiveSegment, error: OSError) -> None:
        """Cut what a failed write may have left, or take the log offline."""
        state = self._state
        state.counters.failed_appends += 1
        if error.errno in DISK_FULL:
            try:
                active.cut_failed_write()
            except OSError as second:
                state.take_offline(f"write failed: {error}; then truncate failed: {second}")
            return
        state.take_offline(f"write failed: {error}")

    def roll_at(self, base_offset: int, bases: Positions, now_ms: int) -> ActiveSegment:
        """Seal the active segment and begin one at an offset and positions."""
        state = self._state
        old = self.writable_active(now_ms)
        segment = state.new_segment(base_offset, bases)
        try:
            new = ActiveSegment.create(state.disk, segment, state.config, now_ms)
            # In this order: of a torn write, the open entry with the reservation is what is kept.
            state.table.put(state.reservation.open_entry(segment), old.sealed_entry())
        except OSError:
            with state.offline_on_failure("roll", but_not_full=True):
                remove_segment_files(state.disk, segment)
                # If a power cut brought the empty segment back, recovery would take the records
                # that the segment before it gets from now on for durable ones.
                state.disk.sync_directory(state.directory)
            raise
        old.seal()
        self._flusher.add_sealed(old.segment, old.segment.files(), self._helpers_of(old, new))
        state.lock.disarm()  # or the thread would keep the old file open until the next append
        self.active = new
        state.use_end(new.end)
        self._jitter_ms = draw_jitter_ms(state.config, state.host.new_id)
        snapshot = state.snapshot
        state.snapshot = snapshot.changed(
            (*snapshot.segments, segment), snapshot.start, LogEnd(base_offset, bases, 0, -1)
        )
        return new

    def _helpers_of(self, old: ActiveSegment, new: ActiveSegment) -> list[File]:
        """Return the files that have to be durable before recovery passes a segment over."""
        offset, snapshot = new.segment.base_offset, None
        if offset > self._state.snapshot_offset:
            snapshot = self._write_snapshot(offset)
        if snapshot is not None:
            self._state.snapshot_offset = offset
        return [file for file in (old.txn_index, snapshot) if file is not None]

    def _write_snapshot(self, offset: int) -> File | None:
        """Write a snapshot of the producers; of each that fails the log tells once."""
        state = self._state
        is_told = offset == self._missing_snapshot
        file = write_snapshot(state.disk, state.directory, offset, state.producers, is_told=is_told)
        self._missing_snapshot = offset if file is None else None
        return file


def _are_plain(options: EncodeOptions) -> bool:
    """Whether lines become records as the native encoder makes them."""
    return (
        options.compression is Compression.NONE
        and not (options.log_append_time or options.require_key or options.producer)
        and not (options.headers or options.key_delimiter)
        and options.max_batch_bytes >= _LEAST_BATCH_BYTES
    )
