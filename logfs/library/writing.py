"""Who writes for a program: the daemon of a directory, or the program itself under its lock.

Decided when the first write comes. A daemon that has gone since is looked for anew, and if there is
none the lock is taken; it is held until ``close``.
"""

import errno
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from logfs.client import Daemon
from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import ControlError, LockedError, ReadOnlyError
from logfs.library.owner import owned
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.log.writing.produced import Appended
from logfs.machine.host import current_host, system_clock
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.types import TopicPartition

T = TypeVar("T")


_shared: dict[tuple[int, str, bool], "Writer"] = {}
_sharing = threading.Lock()


class Writer:
    """Writes to a data directory. May be used by several threads, which take turns.

    All of a process that write to one directory share one: there is one lock. Get it from ``of``.
    """

    def __init__(self, data: str, *, may_own: bool) -> None:
        self._data = data
        self._may_own = may_own
        self._users = 0
        self._now_ms = system_clock().now_ms
        self._lock = threading.RLock()
        self._daemon: Daemon | None = None
        self._store: LogStore | None = None

    @classmethod
    def of(cls, data: str, *, may_own: bool) -> "Writer":
        """Return the writer of a data directory, an absolute path without links; ``close`` it.

        Without ``may_own`` it never takes the lock: a mount that is read-only says so.
        """
        with _sharing:
            key = os.getpid(), data, may_own
            writer = _shared.setdefault(key, cls(data, may_own=may_own))
            writer._users += 1
            return writer

    def append(
        self,
        topic_partition: TopicPartition,
        records: list[Record],
        producer: ProducerBatch | None = None,
        *,
        is_durable: bool = False,
    ) -> Appended:
        """Append records, at least one; those of a producer make one batch.

        Raises:
            OSError: The disk failed, or ENOSPC: some records, but not all, may have been appended.
            LogfsError: See ``PartitionLog.append_records``.
        """

        def do(store: LogStore) -> Appended:
            log = store.partition(*topic_partition)
            done = log.append_records(records, self._now_ms(), producer)
            self._finish(log, is_durable=is_durable)
            return done

        done = self.act(
            lambda daemon: daemon.append(topic_partition, records, producer, is_durable=is_durable),
            do,
        )
        missing = len(records) - (done.last_offset - done.base_offset + 1)
        if missing:
            raise OSError(
                errno.ENOSPC,
                f"{os.strerror(errno.ENOSPC)}: the last {missing} of {len(records)} records were "
                f"not appended to {topic_partition}",
            )
        return done

    def end_transaction(
        self, topic_partition: TopicPartition, producer_id: int, epoch: int, *, commit: bool
    ) -> int:
        """Write the marker that ends a transaction; returns its offset."""

        def do(store: LogStore) -> int:
            log = store.partition(*topic_partition)
            offset = log.end_transaction(
                producer_id, epoch, commit=commit, coordinator_epoch=0, now_ms=self._now_ms()
            )
            self._finish(log, is_durable=False)
            return offset

        return self.act(
            lambda daemon: daemon.end_transaction(
                topic_partition, producer_id, epoch, commit=commit
            ),
            do,
        )

    def flush(self, topic_partition: TopicPartition) -> None:
        """Return once everything that was appended to a partition before is durable."""

        def do(store: LogStore) -> None:
            store.partition(*topic_partition).flush()

        self.act(lambda daemon: daemon.flush(topic_partition), do)

    def act(self, ask: Callable[[Daemon], T], do: Callable[[LogStore], T]) -> T:
        """Have something done by the daemon, or do it.

        Raises:
            LockedError: Somebody owns the directory who cannot be asked.
            ReadOnlyError: It was named by a mount point, and nobody owns it.
            ControlError: The daemon has gone before it answered.
            LogfsError, OSError: What was met.
        """
        with self._lock:
            if self._daemon is not None and self._daemon.has_gone:
                self._let_daemon_go()
            if self._store is None and self._daemon is None:
                self._begin()
            if self._store is not None:
                return do(self._store)
            assert self._daemon is not None
            try:
                return ask(self._daemon)
            except ControlError:
                self._let_daemon_go()
                raise

    def close(self) -> None:
        """Let go of it; after the last one the lock is free. Nothing is flushed."""
        with _sharing, self._lock:
            self._users -= 1
            if self._users:
                return
            _shared.pop((os.getpid(), self._data, self._may_own), None)
            self._let_daemon_go()
            store, self._store = self._store, None
            if store is not None:
                store.close(self._now_ms(), is_durable=False)

    def _begin(self) -> None:
        self._daemon = Daemon.connect(self._data)
        if self._daemon is not None:
            return
        if not self._may_own:
            raise ReadOnlyError("the mount is read-only, its daemon changes nothing")
        try:
            self._store = LogStore.open(
                PosixDisk(self._data),
                StoreConfig.from_properties({}),
                current_host(),
                now_ms=self._now_ms(),
            )
        except LockedError as error:
            self._daemon = Daemon.connect(self._data)  # it may have started meanwhile
            if self._daemon is None:
                raise owned(self._data, error) from error

    def _let_daemon_go(self) -> None:
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.close()

    def _finish(self, log: PartitionLog, *, is_durable: bool) -> None:
        """Do what a daemon does after a change, as far as it must not wait for long."""
        if is_durable or self._is_flush_due(log):
            log.flush()
        if log.maintenance_due:
            log.maintain()

    def _is_flush_due(self, log: PartitionLog) -> bool:
        since_ms = log.unflushed_since_ms
        return since_ms is not None and self._now_ms() - since_ms >= log.config.flush_ms
