"""The partitions of a data directory as they are now, while other programs may write them.

Files are followed without a lock and without changing anything. Growth is seen at once. A deletion,
compaction or truncation is seen when two looks a few ms apart agree.
"""

import threading
import time
from collections.abc import Callable
from operator import attrgetter
from typing import TypeAlias

from logfs.config import StoreConfig
from logfs.disk.vfs import RootedDisk
from logfs.errors import LogOfflineError, NoSuchPartitionError
from logfs.library.directory import check_exists
from logfs.library.mounted_disk import MountedDisk
from logfs.library.points import offset_of, reached
from logfs.log.reading.address import (
    AtByte,
    Earliest,
    PartitionAddress,
    Point,
    point_alone,
    point_in_log,
)
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import current_host, system_clock
from logfs.services.following.followed import AnyLog
from logfs.services.following.store import FollowedStore
from logfs.services.following.watched import STEP_BYTES
from logfs.types import IsolationLevel, TopicPartition

Positions: TypeAlias = Callable[[ReadableLog, str], int | None]

SETTLING_S = 0.05
"""The time between two looks that must agree."""


class FollowedDirectory:
    """Partitions of a data directory, for readers. May be used by several threads.

    Args:
        disk: The data directory; see ``mounted_disk.reading_disk``.
        only: Selects partitions; None: all.
        step_bytes: How much of a log without positions one look reads.
        positions: Returns what a consumer group has committed for a log; None: points of groups
            are refused.
    """

    def __init__(
        self,
        disk: RootedDisk,
        only: Callable[[TopicPartition], bool] | None = None,
        *,
        step_bytes: int = STEP_BYTES,
        positions: Positions | None = None,
    ) -> None:
        self._positions = positions
        self.data = disk.root
        self.disk = disk
        self._step_bytes = step_bytes
        self._lock = threading.RLock()
        self._now_ms = system_clock().now_ms
        self._store = FollowedStore.follow(
            disk,
            StoreConfig.from_properties({}),
            current_host(),
            None,
            now_ms=self._now_ms(),
            at_once_bytes=step_bytes,
            only=only,
        )

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._store.close(self._now_ms())

    def partitions(self) -> list[TopicPartition]:
        """Return the present partitions that can be read."""
        with self._lock:
            self._store.look_around(self._now_ms())
            logs = self._store.all_partitions()
            return sorted(log.topic_partition for log in logs if not log.is_unreadable)

    def log(self, topic_partition: TopicPartition, *, is_around_known: bool = False) -> AnyLog:
        """Return the log of a partition as it is now.

        Args:
            is_around_known: See ``refresh``.

        Raises:
            NoSuchTopicError, NoSuchPartitionError: It does not exist.
            LogOfflineError: It cannot be loaded.
        """
        with self._lock:
            if not is_around_known:
                self._store.look_around(self._now_ms())
            topic, number = topic_partition
            if topic not in self._store.topics() or number not in self._store.partitions(topic):
                check_exists(self.disk, topic_partition)
                raise NoSuchPartitionError(f"{topic_partition} is just being created")
            log = self._store.partition(topic, number)
        if log.is_unreadable:
            raise LogOfflineError(f"{topic_partition}: {log.offline}")
        self.refresh(log, is_around_known=True)
        return log

    def logs(self) -> list[ReadableLog]:
        """Return the present logs of all partitions, also of unreadable ones."""
        with self._lock:
            self._store.look_around(self._now_ms())
            logs = self._store.all_partitions()
        for log in logs:
            self.refresh(log, is_around_known=True)
        return sorted(logs, key=attrgetter("topic_partition"))

    def refresh(self, log: ReadableLog, *, is_around_known: bool = False) -> bool:
        """Load the changes of a partition; return True if there is more to read at once.

        Args:
            is_around_known: ``partitions`` has just looked for deleted topics and trimmed
                partitions, which is too slow to do for each of many partitions.
        """
        if not log.is_followed:
            return False
        with self._lock:
            if not is_around_known:
                self._store.look_around(self._now_ms())
            return log.refresh(self._now_ms(), self._step_bytes)

    def watched(self, topic_partition: TopicPartition) -> str:
        """Return the directory in which inotify reports appends to a partition."""
        if isinstance(self.disk, MountedDisk):
            return f"{self.disk.point}/{topic_partition.topic}"
        return f"{self.data}/{topic_partition.directory}"

    def look_twice(self, log: ReadableLog, *, is_around_known: bool = False) -> None:
        """Load all changes, also those on which two looks must agree.

        Args:
            is_around_known: See ``refresh``.
        """
        while self.refresh(log, is_around_known=is_around_known) and log.indexing is None:
            pass
        if log.is_settling:
            time.sleep(SETTLING_S)
            self.refresh(log)

    def locate(
        self, log: ReadableLog, point: Point, level: IsolationLevel
    ) -> tuple[ReadableLog, int]:
        """Return the log to read a point from, and the offset of the point.

        While the log has no positions yet, this is another log, which starts near the point.

        Raises:
            CorruptRecordError: A corrupt batch precedes the point.
        """
        now_ms = self._now_ms()
        point = self._in_log(log, point)
        if log.indexing is not None:
            if isinstance(point, AtByte) or level is IsolationLevel.READ_COMMITTED:
                while self.refresh(log):
                    pass
            elif not isinstance(point, Earliest):
                return self._locate_part(log, point, level, now_ms)
        return log, offset_of(log.snapshot, point, now_ms, level)

    def end_before(self, log: ReadableLog, point: Point, level: IsolationLevel) -> int | None:
        """Return the offset at which to end before a point; None while no record has reached it."""
        point = self._in_log(log, point)
        return reached(log.snapshot, point, self._now_ms(), level)

    def has_changed(self, log: ReadableLog) -> bool:
        """Return whether a reader should retry after damage or a missing file.

        The writer may just have cut or replaced the data.
        """
        before = log.snapshot
        self.refresh(log)
        if log.is_settling:
            time.sleep(SETTLING_S)
            return True
        return (
            log.snapshot.segments != before.segments
            or log.snapshot.truncations != before.truncations
        )

    def _in_log(self, log: ReadableLog, point: Point) -> Point:
        positions = self._positions
        if positions is None:
            return point_alone(point)
        return point_in_log(point, lambda group: positions(log, group))

    def _locate_part(
        self, log: ReadableLog, point: Point, level: IsolationLevel, now_ms: int
    ) -> tuple[ReadableLog, int]:
        with self._lock:
            address = PartitionAddress(log.topic_partition.partition, point)
            found = self._store.part_for_range(log, address, now_ms)
        part, where = (log, address) if found is None else found
        return part, offset_of(part.snapshot, where.start or point, now_ms, level)
