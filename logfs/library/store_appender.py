"""Appending to a store that this process owns: ``logfs append`` without a daemon."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from logfs.log.lines.append import append_by_key, append_lines
from logfs.log.lines.form import LineForm, Lines
from logfs.log.lines.pipelined import append_file, append_file_by_key
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.machine.host import system_clock
from logfs.machine.throttling import Throttled
from logfs.records.compression import Buffer

FLUSH_AHEAD_BYTES = 64 << 20
"""Flush in the background after so many bytes, so that the flush at the end is short."""

FLUSH_RARELY_BYTES = 16 << 30
"""Flush after so many bytes in any case, since sealed segments stay open until a flush."""


class StoreAppender:
    """See ``LineAppender``. Partitions of a store that this process owns.

    A thread flushes them and renews their leases meanwhile. So a durable end does not take long.
    """

    chunk_bytes = 4 << 20

    def __init__(
        self,
        store: LogStore,
        topic: str,
        partition: int | None,
        form: LineForm,
        *,
        is_durable: bool,
    ) -> None:
        self._form = form
        self._flush_ahead_bytes = FLUSH_AHEAD_BYTES if is_durable else FLUSH_RARELY_BYTES
        self._is_spread = partition is None
        self._now_ms = system_clock().now_ms
        if partition is None:
            self._logs = [store.partition(topic, number) for number in store.partitions(topic)]
        else:
            self._logs = [store.partition(topic, partition)]
        self._unflushed = 0
        self._pool = ThreadPoolExecutor(1)
        self._upkeep: Future[None] | None = None

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """See ``LineAppender``."""
        if self._is_spread:
            done = append_by_key(self._logs, lines, self._form, unkeyed, self._now_ms())
        else:
            done = append_lines(self._logs[0], lines, self._form, self._now_ms())
        return self._upkept(done)

    def append_file(self, descriptor: int, position: int, *, unkeyed: int) -> Lines:
        """See ``LineAppender``."""
        file, now_ms = (descriptor, position, self._form), self._now_ms()
        if self._is_spread:
            return self._upkept(append_file_by_key(self._logs, *file, unkeyed, now_ms))
        return self._upkept(append_file(self._logs[0], *file, now_ms))

    def can_read(self, descriptor: int) -> bool:
        """See ``LineAppender``; only this process waits for the file."""
        return True

    def _upkept(self, done: Lines) -> Lines:
        Throttled(self._logs[0]).wait()
        self._unflushed += done.accepted
        if self._upkeep is None or self._upkeep.done():
            is_due = self._unflushed >= self._flush_ahead_bytes
            self._unflushed = 0 if is_due else self._unflushed
            self._upkeep = self._pool.submit(_flush if is_due else _extend_reservations, self._logs)
        return done

    def flush(self) -> None:
        """See ``LineAppender``."""
        _flush(self._logs)

    def close(self) -> None:
        """Wait for the background flush; closing the store raises its errors again."""
        self._pool.shutdown()


def _flush(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.flush()


def _extend_reservations(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.extend_reservation()
