"""Writes of a program: through the daemon of a directory, or in this process under the lock.

The first write decides. After the daemon has ended, the next write looks for another daemon, or
takes the lock, which it keeps until ``close``. If the control socket is another user's, writes go
through the mount, as its permissions allow.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from logfs.errors import ControlError
from logfs.library.owner import access_to, data_and_point
from logfs.library.places import Place
from logfs.log.lines.form import Lines, LineTarget
from logfs.log.writing.producerbatches import Appended
from logfs.machine.host import system_clock
from logfs.machine.mountpoints import is_local
from logfs.records.compression import Buffer
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.client import Daemon
    from logfs.library.mounted_writer import MountedWriter
    from logfs.library.store_writer import StoreWriter
    from logfs.library.topics import Topics
    from logfs.log.store import Progress

T = TypeVar("T")


class _Way(NamedTuple):
    """How a directory is written.

    Attributes:
        writes: Has the writes of ``Writer``.
        can_read: Tells from a descriptor whether ``append_file`` can read a regular file.
        store: Not None if this process owns the directory.
    """

    writes: "Daemon | StoreWriter | MountedWriter"
    topics: "Topics"
    can_read: Callable[[int], bool]
    store: "StoreWriter | None" = None


_shared: dict[tuple[int, str, str | None], "Writer"] = {}
_sharing = threading.Lock()


class Writer:
    """Writes to a data directory. Several threads may use it; they take turns.

    A process has one for each directory, since there is one lock. Get it from ``of``.

    Every write raises these errors, and those of the write itself:

        PermissionError: The control socket is another user's, and the write needs it.
        LockedError: Another process that is not a daemon owns the directory.
        ReadOnlyError: The path has a mount point, and no daemon owns the directory.
        ControlError: The daemon ended before it answered.

    Args:
        place: Its directory, or the mount point in the program's path.
        progress: Called while loading a store takes long.
        is_durable: Flush a store that this process owns at the end.
    """

    def __init__(
        self, place: Place, progress: "Progress | None" = None, *, is_durable: bool = False
    ) -> None:
        self._data, self._point = data_and_point(place)
        self._progress = progress
        self._is_durable = is_durable
        self._users = 1
        self._lock = threading.RLock()
        self._opened = ExitStack()
        self._way: _Way | None = None
        self._mounted: MountedWriter | None = None

    @classmethod
    def of(cls, place: Place) -> "Writer":
        """Return the writer of a data directory; ``close`` it."""
        with _sharing:
            key = os.getpid(), *data_and_point(place)
            writer = _shared.get(key)
            if writer is None:
                writer = _shared[key] = cls(place)
            else:
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
        with self._appending(topic_partition) as writes:
            done = writes.append(topic_partition, records, producer, is_durable=is_durable)
        missing = len(records) - (done.last_offset - done.base_offset + 1)
        if missing:
            raise OSError(
                errno.ENOSPC,
                f"{os.strerror(errno.ENOSPC)}: the last {missing} of {len(records)} records were "
                f"not appended to {topic_partition}",
            )
        return done

    def append_lines(self, target: LineTarget, lines: Buffer, *, is_durable: bool = False) -> Lines:
        """Append whole lines.

        Args:
            lines: Possibly none; with ``is_durable`` earlier ones of the target become durable too.

        Raises:
            LogfsError, OSError: See ``logfs.log.lines.append``.
        """
        with self._appending(target) as writes:
            return writes.append_lines(target, lines, is_durable=is_durable)

    def can_read(self, descriptor: int) -> bool:
        """Return whether ``append_file`` can read a regular file."""
        with self.connected() as way:
            return way.can_read(descriptor)

    def append_file(self, target: LineTarget, file: tuple[int, int]) -> Lines:
        """Append some lines of a regular file, given by its descriptor, from a position on.

        Raises:
            LogfsError, OSError: See ``logfs.log.lines.pipelined``.
        """
        with self._appending(target) as writes:
            return writes.append_file(target, file)

    def end_transaction(
        self, topic_partition: TopicPartition, producer_id: int, epoch: int, *, commit: bool
    ) -> int:
        """Append the marker that ends a transaction; return its offset."""
        with self.connected() as way:
            return way.writes.end_transaction(topic_partition, producer_id, epoch, commit=commit)

    def flush(self, topic_partition: TopicPartition) -> None:
        """Make all earlier appends to a partition durable."""
        with self.connected() as way:
            way.writes.flush(topic_partition)

    def expired(self, topic: str, partition: int | None) -> Sequence[str]:
        """Return warnings about records that retention is about to delete, if that is known."""
        with self.connected() as way:
            return way.writes.expired(topic, partition or 0, system_clock().now_ms())

    def change_topics(self, change: "Callable[[Topics], T]") -> T:
        """Change topics."""
        with self.connected() as way:
            return change(way.topics)

    def close(self) -> None:
        """End one use; the last one releases the lock. Nothing is flushed."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _sharing, self._lock:
            self._users -= 1
            if self._users:
                return
            for key in [key for key, writer in _shared.items() if writer is self]:
                del _shared[key]
            mounted, self._mounted = self._mounted, None
            if mounted is not None:
                mounted.close()
            self._way = None
            self._opened.__exit__(kind, error, traceback)

    @contextmanager
    def _appending(
        self, target: LineTarget | TopicPartition
    ) -> "Iterator[Daemon | StoreWriter | MountedWriter]":
        """Yield what appends, and wait afterwards until the topic's rate allows more."""
        with self.connected() as way:
            yield way.writes
            throttled = None if way.store is None else way.store.throttled(target)
        if throttled is not None:
            throttled.wait()

    @contextmanager
    def connected(self) -> Iterator[_Way]:
        """Yield the way to the directory, which other threads cannot use meanwhile."""
        with self._lock:
            if self._way is None or self._way.writes.has_gone:
                self._disconnect()
                self._way = self._connect()
            try:
                yield self._way
            except ControlError:
                if self._way.store is None:
                    self._disconnect()
                raise

    def _connect(self) -> _Way:
        # Asking a daemon needs few of these imports, which take longer.
        from logfs.library.topics import MountedTopics, StoredTopics

        access = self._opened.enter_context(
            access_to(self._data, self._point, self._progress, is_durable=self._is_durable)
        )
        if access.daemon is not None:
            # A daemon must not wait for another program or machine.
            return _Way(access.daemon, access.daemon, is_local)
        if access.store is not None:
            from logfs.library.store_writer import StoreWriter

            store = StoreWriter(access.store, is_durable=self._is_durable)
            self._opened.callback(store.close)
            return _Way(store, StoredTopics(self._data, access.store), lambda _: True, store)
        from logfs.library.mounted_writer import MountedWriter

        assert access.point is not None
        if self._mounted is None or self._mounted.point != access.point:
            self._mounted = MountedWriter(access.point, access.refusal)
        return _Way(self._mounted, MountedTopics(access.point), lambda _: False)

    def _disconnect(self) -> None:
        self._way = None
        self._opened.close()
