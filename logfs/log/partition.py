"""One partition: a log of segments, appended to at its end and read anywhere.

``PartitionLog`` is composed of parts that share a ``PartitionState``: they append, flush, remove
and replace segments. Readers work on ``snapshot``, which every change replaces as a whole.

Threads. Changes take the lock of the partition (``exclusive``); ``flush`` and ``maintain`` run
beside appends, in their own threads.
"""

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from logfs.config import TopicConfig
from logfs.errors import OffsetOutOfRangeError
from logfs.log import names
from logfs.log.losses import Loss, log_loss
from logfs.log.mirrorfile import MirrorSource, remove_mirror, write_mirror
from logfs.log.producers.state import ProducerState
from logfs.log.quotas import SEGMENT_BYTES
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.of_disk import catalog_of
from logfs.log.segments.segment import Segment, sync_indexes
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.log.writing._end import PartitionLock
from logfs.log.writing.active import trim_padding
from logfs.log.writing.appender import Appender
from logfs.log.writing.flusher import Flusher
from logfs.log.writing.replication import Replication
from logfs.log.writing.segmentremoval import SegmentRemoval
from logfs.log.writing.segmentreplacement import SegmentReplacement
from logfs.log.writing.state import PartitionState
from logfs.log.writing.truncation import truncate
from logfs.records.encoded import EncodeOptions

if TYPE_CHECKING:
    from logfs.log.remote.catalog import TieredPartition


class PartitionLog(ReadableLog):
    """One partition of a store.

    Attributes:
        append, append_records, roll: See ``Appender``.
        advance_log_start_offset, remove_due_files: See ``SegmentRemoval``.
        check_writable, check_appendable: See ``PartitionState``.
    """

    state: PartitionState  # type: ignore[mutable-override] # never replaced

    def __init__(self, state: PartitionState) -> None:
        super().__init__(state)
        self.line_files = state.line_files
        self.flusher = Flusher(state)
        self.removal = SegmentRemoval(state, self.flusher)
        self.appender = Appender(state, self.flusher)
        self.replication = Replication(state, self.flusher, self.appender)
        self.replacement = SegmentReplacement(state, self.removal)
        # Bound methods, so that a call costs no frame more than in the part itself.
        self.append = self.appender.append
        self.append_records = self.appender.append_records
        self.roll = self.appender.roll
        self.advance_log_start_offset = self.removal.advance_log_start_offset
        self.remove_due_files = self.removal.remove_due_files
        self.check_writable = state.check_writable
        self.check_appendable = state.check_appendable

    def flush(self) -> None:
        """Return once everything appended before the call is durable; see ``Flusher.flush``."""
        self.flusher.flush()

    def is_durable(self, offset: int) -> bool:
        """Whether a ``flush`` that is to cover every record below an offset would do nothing."""
        return self.flusher.is_durable(offset)

    def pin(self, segments: Sequence[Segment]) -> None:
        """Keep the files of segments until ``unpin``; see ``SegmentRemoval.pin``."""
        self.removal.pin(segments)

    def unpin(self, segments: Sequence[Segment]) -> None:
        """Undo ``pin``."""
        for segment in segments:
            segment.pins -= 1

    def watch(self, *, is_watched: bool) -> None:
        """See ``ReadableLog.watch``."""
        self.state.lock.is_watched = is_watched

    def exclusive(self) -> PartitionLock:
        """Return the lock that every change takes; hold it to make several changes one."""
        return self.state.lock

    @property
    def writable(self) -> "PartitionLog":
        """The log to write to, which is this one; a followed log has none."""
        return self

    @property
    def config(self) -> TopicConfig:
        """The topic's configuration."""
        return self.state.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self.state.set_config(config)

    @property
    def tier(self) -> "TieredPartition | None":
        """The segments that the object store has; None: it never had one."""
        return self.state.tier

    @property
    def mirror(self) -> MirrorSource | None:
        """The source of a mirror; None: an ordinary partition, which takes appends."""
        return self.state.mirror

    @property
    def refuses_records(self) -> bool:
        """See ``ReadableLog``."""
        return self.state.mirror is not None or self.state.fenced is not None

    def fence(self, reason: str) -> None:
        """Take no more records: another data directory owns the log in the object store."""
        with self.state.lock:  # a native thread leaves its appends to Python then
            if self.state.remote is not None:
                self.state.remote.fence(reason)

    @property
    def mirror_meta(self) -> dict[str, object] | None:
        """The facts of a mirror that ``.meta`` shows."""
        mirror = self.state.mirror
        return None if mirror is None else mirror.as_json(self.state.mirror_facts)

    def set_mirror(self, source: MirrorSource | None) -> None:
        """Note what it is a mirror of; None makes it an ordinary partition. Durable on return."""
        with self.state.lock:
            self.check_writable()
            if source is None:
                remove_mirror(self.disk, self.directory)
            else:
                write_mirror(self.disk, self.directory, source)
            self.state.mirror = source
            self.state.set_config(self.config)  # new records continue in the latest epoch

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record; -1 if the log is empty or that is not known."""
        if self.log_start_offset == self.log_end_offset:
            return -1
        epoch = self.state.epochs.epoch_for_offset(self.log_end_offset - 1)
        return -1 if epoch is None else epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return the largest epoch of the log up to one, and where it ends; None if not known.

        Source: Kafka UnifiedLog.endOffsetForEpoch.
        """
        with self.state.lock:
            return self.state.epochs.end_offset_for(epoch, self.log_end_offset)

    @property
    def producers(self) -> ProducerState:
        """The state of the producers at the log end."""
        return self.state.producers

    def encode_options(self) -> EncodeOptions:
        """Return how records for this topic become batches."""
        return self.state.options

    # Quotas

    @property
    def local_bytes(self) -> int:
        """Bytes of the ``.log`` files on this disk; without the segments that only a store has."""
        snapshot, tier = self.snapshot, self.tier
        if tier is None:
            return snapshot.size_bytes
        return sum(
            snapshot.end_of(number)[2]
            for number, segment in enumerate(snapshot.segments)
            if segment.base_offset not in tier.entries or segment.base_offset in tier.local
        )

    @property
    def quota_bytes(self) -> int:
        """Bytes of all files on this disk, as quotas measure them.

        An unfinished line is included before it is a record. A sealed segment takes at least
        ``SEGMENT_BYTES``: it has four files, however few records are in it.
        """
        snapshot, tier, total = self.snapshot, self.tier, self.line_files.unfinished_bytes
        for number, segment in enumerate(snapshot.segments):
            if (
                tier is None
                or segment.base_offset not in tier.entries
                or (segment.base_offset in tier.local)
            ):
                size = snapshot.end_of(number)[2]
                total += size if segment is snapshot.active else max(size, SEGMENT_BYTES)
        return total

    @property
    def throttle_mark(self) -> int:
        """The mark of a request that was applied just now, for ``throttle_s``."""
        return self.state.usage.spent_bytes

    def throttle_s(self, mark: int) -> float:
        """Return how many seconds the writer of a request still has to wait.

        A writer that has waited is counted with ``note_throttled``.
        """
        rate = self.config.logfs_quota_producer_byte_rate
        return self.state.usage.wait_s(mark, rate, self.state.host.clock_s()) if rate > 0 else 0.0

    def note_throttled(self, seconds: float) -> None:
        """Count an append whose writer had to wait."""
        self.state.usage.note_wait(seconds)

    @property
    def quota_meta(self) -> dict[str, int | float] | None:
        """The quotas of the topic as ``.meta`` shows them; None: it has none."""
        config, usage = self.config, self.state.usage
        if not config.has_quota:
            return None
        return {
            "bytes": config.logfs_quota_bytes,
            "used_bytes": usage.used_bytes(),
            "producer_byte_rate": config.logfs_quota_producer_byte_rate,
            "refused": usage.refused,
            "throttled": usage.throttled,
            "throttled_seconds": round(usage.throttled_s, 3),
        }

    # Durability

    @property
    def maintenance_due(self) -> bool:
        """Whether ``maintain`` has something to do."""
        return (  # asked by every append
            self.appender.is_reservation_low
            or self.flusher.has_sealed
            or self.state.losses.is_dirty
            or self.state.has_new_epochs
            or self.state.table.owes
            or bool(self.state.waiting_lines)
        )

    def maintain(self) -> None:
        """Do what others leave for later: sync sealed segments, reserve positions, save losses.

        Raises:
            OSError: An fsync failed; the log is offline from now on. With ENOSPC the log is as
                before, and some of it is still due.
        """
        if self.is_deleted:
            return
        if self.offline is None:
            if self.state.waiting_lines:
                self.state.adopt_waiting()
            with self.state.offline_on_failure("fsync"):
                if self.flusher.has_sealed:
                    self.state.line_files.sync()
                    self.flusher.flush_sealed()
                    self.flusher.remove_durable_lines()
                    with self.state.lock:
                        self.state.table.shrink()
            self.extend_reservation()
            if self.state.has_new_epochs:
                with self.state.lock, self.state.offline_on_failure("fsync", but_not_full=True):
                    self.state.save_epochs()
            if self.state.table.owes:
                with self.state.lock, self.state.offline_on_failure("write", but_not_full=True):
                    self.state.table.put()
                with self.state.offline_on_failure("fsync"):
                    self.state.table.sync()
        self.state.losses.save()

    def extend_reservation(self) -> None:
        """Reserve more positions if that will be due soon, so that no append waits for it.

        Raises:
            OSError: An fsync failed; the log is offline from now on.
        """
        if self.appender.is_reservation_low:
            with self.state.lock:
                noted = self.state.note_reservation(
                    self.snapshot.active, self.snapshot.end.positions
                )
            self.state.sync_reservation(noted)

    # Removing

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove every record at ``offset`` or after it; whole batches go.

        Positions of removed records are not given again: what is appended next is after them.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log.

        Source: Kafka UnifiedLog.truncateTo.
        """
        with self.state.lock:
            self.check_writable()
            if not self.log_start_offset <= offset <= self.log_end_offset:
                raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
            if offset == self.log_end_offset:
                return
            self.state.finish_loading()
            self.flush()
            self.state.settle_lines(self.log_end_offset)
            self.appender.leave_active()
            with self.state.offline_on_failure("truncation"), self.flusher.paused():
                truncate(self.state, self.flusher, offset, now_ms)

    # The rest

    def close(self) -> None:
        """Clean stop: everything durable, indexes trimmed, the end noted in the table."""
        if self.read_only or self.is_deleted or self.offline is not None:
            self.close_files()
            return
        with self.state.lock:
            self.state.finish_loading()
            self._close_active()
            entry = self.snapshot.active.entry(SegmentState.CLOSED)
            with self.state.offline_on_failure("closing", but_not_full=True):
                self.appender.save_producers()
                self.state.save_epochs()
                table = self.state.table
                if table.owes or table.entries.get(entry.base_offset) != entry:
                    table.put(entry)
            with self.state.offline_on_failure("closing"):
                self.state.table.sync()
            self.state.is_closed = True
            self.close_files()

    def fast_close(self) -> TableEntry:
        """Close it without an fsync; returns the entry of its last segment, closed.

        The table keeps the open entry, with the reservation, and the recovery point stays. Only
        for a partition that is writable.

        Raises:
            OSError: Not everything could be written.
        """
        with self.state.lock, self.state.offline_on_failure("closing", but_not_full=True):
            self.state.finish_loading()
            segment = self.snapshot.active
            if self.appender.active is not None:
                self.appender.active.seal()
            if segment.is_padded:
                trim_padding(self.disk, segment, self.snapshot.end.file_size)
            self.appender.save_producers(is_durable=False)
            self.state.save_epochs()
            if self.state.table.owes:
                self.state.table.put()
            self.state.is_closed = True
            self.close_files()
            return segment.entry(SegmentState.CLOSED)

    def expire_producers(self, now_ms: int, retained: Container[int] = frozenset()) -> None:
        """Forget producers that have written nothing for ``producer.id.expiration.ms``.

        Except those with an id in ``retained``.

        Source: Kafka ProducerStateManager.removeExpiredProducers.
        """
        with self.state.lock:
            self.state.producers.expire(now_ms, self.state.producer_expiration_ms, retained)

    def close_files(self) -> None:
        """Let go of every file without writing anything."""
        with self.state.lock:
            self.state.lock.disarm()
            self.appender.active = None
            self.state.use_end(None)
            for segment in (*self.snapshot.segments, *self.removal.deleted.segments):
                segment.close_files()
            self.flusher.forget_all()
            self.state.table.close()

    def delete(self, directory: str) -> None:
        """Rename the partition's directory, because its topic is being deleted; readers continue.

        Raises:
            OSError: It is as it was.
        """
        with self.state.lock:
            self.state.is_deleted = True
            try:
                self.disk.rename(self.directory, directory)
            except OSError:
                self.state.is_deleted = False
                raise
            self.move(directory)

    def undelete(self) -> None:
        """Undo ``delete``; raise OSError if it stays deleted."""
        with self.state.lock:
            self.disk.rename(self.state.directory, self.topic_partition.directory)
            self.move(self.topic_partition.directory)
            self.state.is_deleted = False

    def move(self, directory: str) -> None:
        """Follow the partition's directory, which was renamed."""
        with self.state.lock:
            catalog = catalog_of(self.disk)
            if catalog is not None:
                catalog.move(self.state.directory, directory)
            self.state.directory = directory
            self.state.table.moved_to(directory)
            for segment in (*self.snapshot.segments, *self.removal.deleted.segments):
                segment.directory = directory

    def add_loss(
        self, kind: str, file: str, position: int, size: int, detail: str, now_ms: int
    ) -> None:
        """Note a loss: in the log of the daemon, in the losses file, in ``.meta``."""
        loss = Loss(now_ms, kind, file, position, size, self.log_end_offset, detail)
        log_loss(self.topic_partition, loss)
        self.state.losses.add(loss)

    def new_unfinished_name(self) -> str:
        """Return a name for the file of an unfinished line that no other file has."""
        return names.format_unfinished_file(self.state.host.new_id().hex())

    def _close_active(self) -> None:
        """Make the records and the indexes durable, and cut the files to what they hold."""
        with self.state.offline_on_failure("closing"):
            self.flush()
            self.flusher.flush_sealed()
            segment = self.snapshot.active
            was_padded = segment.is_padded
            if self.appender.active is not None:
                self.appender.active.seal()
                self.appender.active.sync_indexes()
            elif self.state.unsynced_indexes is not None:
                sync_indexes(self.disk, segment)
            if was_padded:
                trim_padding(self.disk, segment, self.snapshot.end.file_size)
