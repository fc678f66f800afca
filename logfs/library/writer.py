"""Writes of a program: through the daemon of a directory, or in this process under the lock.

The first write decides. After the daemon has ended, the next write looks for another daemon, or
takes the lock, which it keeps until ``close``. If the control socket is another user's, writes go
through the mount, as its permissions allow.
"""

import errno
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from logfs.client import Daemon
from logfs.config import StoreConfig
from logfs.errors import ControlError, LockedError, ReadOnlyError
from logfs.library.mounted_writer import MountedWriter
from logfs.library.owner import owned, read_only_store
from logfs.library.places import is_served, served_at
from logfs.library.topics import MountedTopics, StoredTopics, Topics
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.log.writing.producerbatches import Appended
from logfs.machine.disks import disk_of, is_url
from logfs.machine.host import current_host, system_clock
from logfs.machine.throttling import Throttled
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.types import TopicPartition

T = TypeVar("T")


_shared: dict[tuple[int, str, str | None], "Writer"] = {}
_sharing = threading.Lock()


class Writer:
    """Writes to a data directory. Several threads may use it; they take turns.

    A process has one for each directory, since there is one lock. Get it from ``of``.
    """

    def __init__(self, data: str, point: str | None) -> None:
        self._data = data
        self._point = point
        self._users = 0
        self._now_ms = system_clock().now_ms
        self._lock = threading.RLock()
        self._daemon: Daemon | None = None
        self._store: LogStore | None = None
        self._mounted: MountedWriter | None = None

    @classmethod
    def of(cls, data: str, point: str | None) -> "Writer":
        """Return the writer of a data directory; ``close`` it.

        Args:
            data: An absolute path without links.
            point: The mount point in the program's path. Then this process never takes the lock,
                as a mount without a control socket is read-only. None: the path has no mount point.
        """
        with _sharing:
            key = os.getpid(), data, point
            writer = _shared.setdefault(key, cls(data, point))
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
        throttled: list[Throttled] = []

        def do(store: LogStore) -> Appended:
            log = store.partition(*topic_partition)
            done = log.append_records(records, self._now_ms(), producer)
            throttled.append(Throttled(log))
            self._finish(log, is_durable=is_durable)
            return done

        done = self.act(
            lambda daemon: daemon.append(topic_partition, records, producer, is_durable=is_durable),
            do,
            None
            if producer is not None
            else lambda mounted: mounted.append(topic_partition, records, is_durable=is_durable),
        )
        for each in throttled:
            each.wait()
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
        """Append the marker that ends a transaction; return its offset."""

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
        """Make all earlier appends to a partition durable."""

        def do(store: LogStore) -> None:
            store.partition(*topic_partition).flush()

        self.act(
            lambda daemon: daemon.flush(topic_partition),
            do,
            lambda mounted: mounted.flush(topic_partition),
        )

    def act(
        self,
        ask: Callable[[Daemon], T],
        do: Callable[[LogStore], T],
        through: Callable[[MountedWriter], T] | None = None,
    ) -> T:
        """Act through the daemon, through the mount, or on the store.

        Args:
            through: Called with the mount if the control socket is another user's; None: the action
                needs the socket.

        Raises:
            PermissionError: The control socket is another user's, and the action needs it.
            LockedError: Another process that is not a daemon owns the directory.
            ReadOnlyError: The path has a mount point, and no daemon owns the directory.
            ControlError: The daemon ended before it answered.
            LogfsError, OSError: Errors of the action.
        """
        with self._lock:
            if self._daemon is not None and self._daemon.has_gone:
                self._let_daemon_go()
            if self._store is None and self._daemon is None:
                mounted = self._begin()
                if mounted is not None:
                    if through is None:
                        raise mounted.refusal or PermissionError(errno.EACCES, self._data)
                    return through(mounted)
            if self._store is not None:
                return do(self._store)
            assert self._daemon is not None
            try:
                return ask(self._daemon)
            except ControlError:
                self._let_daemon_go()
                raise

    def change_topics(self, change: Callable[[Topics], T]) -> T:
        """Change topics; see ``act``."""
        return self.act(
            change,
            lambda store: change(StoredTopics(self._data, store)),
            lambda mounted: change(MountedTopics(mounted.point)),
        )

    def close(self) -> None:
        """End one use; the last one releases the lock. Nothing is flushed."""
        with _sharing, self._lock:
            self._users -= 1
            if self._users:
                return
            _shared.pop((os.getpid(), self._data, self._point), None)
            self._let_daemon_go()
            mounted, self._mounted = self._mounted, None
            if mounted is not None:
                mounted.close()
            store, self._store = self._store, None
            if store is not None:
                store.close(self._now_ms(), is_durable=False)

    def _begin(self) -> MountedWriter | None:
        """Connect to a daemon or open the store; return the mount's writer if both are refused."""
        if is_url(self._data):
            raise read_only_store(self._data)
        try:
            self._daemon = Daemon.connect(self._data)
        except PermissionError as error:
            return self._begin_through_mount(error)
        if self._daemon is None and self._point is None and is_served(self._data):
            self._daemon = Daemon.connect(self._data)
        if self._daemon is not None:
            return None
        if self._point is not None:
            raise ReadOnlyError("the mount is read-only, its daemon changes nothing")
        try:
            self._store = LogStore.open(
                disk_of(self._data),
                StoreConfig.from_properties({}),
                current_host(),
                now_ms=self._now_ms(),
            )
        except LockedError as error:
            self._daemon = Daemon.connect(self._data)  # it may have started meanwhile
            if self._daemon is None:
                raise owned(self._data, error) from error
        return None

    def _begin_through_mount(self, refusal: PermissionError) -> MountedWriter:
        point = served_at(self._data) if self._point is None else self._point
        if point is None:
            raise refusal
        if self._mounted is None or self._mounted.point != point:
            self._mounted = MountedWriter(point, refusal)
        return self._mounted

    def _let_daemon_go(self) -> None:
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.close()

    def _finish(self, log: PartitionLog, *, is_durable: bool) -> None:
        """Flush and maintain a log after a change, as a daemon does."""
        if is_durable or self._is_flush_due(log):
            log.flush()
        if log.maintenance_due:
            log.maintain()

    def _is_flush_due(self, log: PartitionLog) -> bool:
        since_ms = log.unflushed_since_ms
        return since_ms is not None and self._now_ms() - since_ms >= log.config.flush_ms
