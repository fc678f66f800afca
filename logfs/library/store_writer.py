"""Writes to a store that this process owns, as a daemon does them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logfs.log.lines.append import append_by_key, append_lines
from logfs.log.lines.form import Lines, LineTarget
from logfs.log.lines.pipelined import append_file, append_file_by_key
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.log.writing.producerbatches import Appended
from logfs.machine.host import system_clock
from logfs.machine.throttling import Throttled
from logfs.records.compression import Buffer
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.services.overview import topic_overview
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

FLUSH_AHEAD_BYTES = 64 << 20
"""Flush in the background after so many bytes, so that the flush at the end is short."""

FLUSH_RARELY_BYTES = 16 << 30
"""Flush after so many bytes in any case, since sealed segments stay open until a flush."""


class StoreWriter:
    """See ``Writer``. Threads must take turns.

    While lines are appended, a thread flushes the partitions and renews their leases. So a durable
    end does not take long.

    Args:
        is_durable: All lines are flushed at the end.

    Attributes:
        store: The store.
    """

    has_gone = False

    def __init__(self, store: LogStore, *, is_durable: bool) -> None:
        self.store = store
        self._flush_ahead_bytes = FLUSH_AHEAD_BYTES if is_durable else FLUSH_RARELY_BYTES
        self._now_ms = system_clock().now_ms
        self._unflushed = 0
        self._pool: ThreadPoolExecutor | None = None
        self._upkeep: Future[None] | None = None

    def append(
        self,
        topic_partition: TopicPartition,
        records: Sequence[Record],
        producer: ProducerBatch | None = None,
        *,
        is_durable: bool = False,
    ) -> Appended:
        """See ``Writer``."""
        log = self.store.partition(*topic_partition)
        done = log.append_records(records, self._now_ms(), producer)
        self._finish(log, is_durable=is_durable)
        return done

    def append_lines(self, target: LineTarget, lines: Buffer, *, is_durable: bool = False) -> Lines:
        """See ``Writer``."""
        logs, now_ms = self._logs(target), self._now_ms()
        if target.partition is None:
            done = append_by_key(logs, lines, target.form, target.unkeyed, now_ms)
        else:
            done = append_lines(logs[0], lines, target.form, now_ms)
        self._keep_up(logs, done.accepted)
        if is_durable:
            _flush(logs)
        return done

    def append_file(self, target: LineTarget, file: tuple[int, int]) -> Lines:
        """See ``Writer``."""
        logs, now_ms = self._logs(target), self._now_ms()
        if target.partition is None:
            done = append_file_by_key(logs, *file, target.form, target.unkeyed, now_ms)
        else:
            done = append_file(logs[0], *file, target.form, now_ms)
        self._keep_up(logs, done.accepted)
        return done

    def end_transaction(
        self, topic_partition: TopicPartition, producer_id: int, epoch: int, *, commit: bool
    ) -> int:
        """See ``Writer``."""
        log = self.store.partition(*topic_partition)
        offset = log.appender.end_transaction(
            producer_id, epoch, commit=commit, coordinator_epoch=0, now_ms=self._now_ms()
        )
        self._finish(log, is_durable=False)
        return offset

    def flush(self, topic_partition: TopicPartition) -> None:
        """See ``Writer``."""
        self.store.partition(*topic_partition).flush()

    def expired(self, topic: str, first: int, now_ms: int) -> Sequence[str]:
        """See ``Writer``."""
        return topic_overview(self.store, topic, now_ms, first=first).expired

    def throttled(self, target: LineTarget | TopicPartition) -> Throttled:
        """Return the wait after an append."""
        return Throttled(self._logs(target)[0])

    def close(self) -> None:
        """Wait for the background flush; closing the store raises its errors again."""
        if self._pool is not None:
            self._pool.shutdown()

    def _logs(self, target: LineTarget | TopicPartition) -> list[PartitionLog]:
        topic, number = target[:2]
        numbers = self.store.partitions(topic) if number is None else [number]
        return [self.store.partition(topic, one) for one in numbers]

    def _keep_up(self, logs: Sequence[PartitionLog], size_bytes: int) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # rarely needed, slow to import

            self._pool = ThreadPoolExecutor(1)
        self._unflushed += size_bytes
        if self._upkeep is None or self._upkeep.done():
            is_due = self._unflushed >= self._flush_ahead_bytes
            self._unflushed = 0 if is_due else self._unflushed
            self._upkeep = self._pool.submit(_flush if is_due else _extend_reservations, logs)

    def _finish(self, log: PartitionLog, *, is_durable: bool) -> None:
        if is_durable or self._is_flush_due(log):
            log.flush()
        if log.maintenance_due:
            log.maintain()

    def _is_flush_due(self, log: PartitionLog) -> bool:
        since_ms = log.unflushed_since_ms
        return since_ms is not None and self._now_ms() - since_ms >= log.config.flush_ms


def _flush(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.flush()


def _extend_reservations(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.extend_reservation()
