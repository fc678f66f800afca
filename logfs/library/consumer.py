"""A consumer: the partitions of topics, from the positions that its group has committed."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from logfs.disk.watching import Watch
from logfs.errors import DeletedError, NoSuchPartitionError, NoSuchTopicError
from logfs.library.cursor import LOOK_S, Cursor
from logfs.library.followed_directory import SETTLING_S, FollowedDirectory
from logfs.library.groups import Groups
from logfs.library.writer import Writer
from logfs.log.reading.address import AtGroup, Earliest, Point
from logfs.records.record import Header
from logfs.records.record import Record as _Record
from logfs.types import Closeable, IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)


class ConsumerRecord(NamedTuple):
    """A record and the partition that it is from.

    Attributes:
        timestamp: Milliseconds since the epoch.
        headers: Pairs of bytes, in order.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class ConsumerAccess(NamedTuple):
    """The reader of the topics of a consumer, which also reads and commits its positions."""

    source: FollowedDirectory
    groups: Groups
    writer: Writer


class Consumer(Closeable):
    """Reads topics from where its consumer group was. Get one from ``Store.consumer``.

    A partition begins at the position that the group has committed, or else at ``start``.
    ``commit`` saves what has been returned so far; ``close`` does not. After a crash the records
    since the last commit come again. One thread at a time.

    Programs of one group are not coordinated: give each its own partitions, or its own group.

    Attributes:
        group: The name of the group.
    """

    def __init__(
        self,
        group: str,
        access: ConsumerAccess,
        wanted: Mapping[str, Iterable[int] | None],
        level: IsolationLevel,
        start: Point | None,
    ) -> None:
        self.group = group
        self._source, self._groups, self._writer = source, _, _ = access
        self._wanted = {
            topic: None if numbers is None else frozenset(numbers)
            for topic, numbers in wanted.items()
        }
        self._level = level
        self._start = start
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._is_closed = False
        self._watch = Watch()
        self._watch.add([source.data])
        missing = set(wanted) - {one.topic for one in source.partitions()}
        if missing:
            self.close()
            raise NoSuchTopicError(f"no topic {', '.join(sorted(missing))}")
        self._find_new()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition."""
        return {one: self._positions[one] for one in sorted(self._positions)}

    def read(self) -> Iterator[ConsumerRecord]:
        """Iterate over the present records, partition by partition."""
        return self.follow(timeout=0)

    def follow(self, *, timeout: float | None = None) -> Iterator[ConsumerRecord]:
        """Iterate over records, and over new ones as they come.

        ``commit`` in the loop includes the record that was returned last.

        Args:
            timeout: End when no record has come for so many seconds; None: never.
        """
        for (topic, partition), records in self._batches(timeout):
            for offset, timestamp, key, value, headers in records:
                self._positions[TopicPartition(topic, partition)] = offset + 1
                yield ConsumerRecord(topic, partition, offset, timestamp, key, value, headers)

    def follow_batches(
        self, *, timeout: float | None = None
    ) -> Iterator[tuple[TopicPartition, list[_Record]]]:
        """Iterate over lists of records of one partition, about half a megabyte each.

        ``commit`` in the loop includes the list that was returned last.
        """
        for one, records in self._batches(timeout):
            self._positions[one] = records[-1].offset + 1
            yield one, records

    def follow_lists(self, *, timeout: float | None = None) -> Iterator[list[ConsumerRecord]]:
        """Iterate over lists of records; an empty one after each wait, of a second at most.

        Positions do not change: call ``note`` for each record.
        """
        for (topic, partition), records in self._batches(timeout, ticks=True):
            yield [
                ConsumerRecord(topic, partition, offset, timestamp, key, value, headers)
                for offset, timestamp, key, value, headers in records
            ]

    def note(self, record: ConsumerRecord) -> None:
        """Note that a record was returned: ``commit`` includes it."""
        self._positions[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue a partition at an offset; an iterator that is in use ends its list first.

        Raises:
            NoSuchPartitionError: The consumer does not read this partition.
        """
        one = TopicPartition(topic, partition)
        if one not in self._cursors:
            raise NoSuchPartitionError(f"the consumer of group {self.group} does not read {one}")
        self._cursors[one] = self._cursors[one].at(offset)
        self._positions[one] = offset

    def commit(self, *, metadata: str = "", durable: bool = False) -> None:
        """Commit the positions: the group continues after the records returned so far.

        Args:
            metadata: A text that ``logfs group describe`` shows.
            durable: Return when the positions are durable.

        Raises:
            LockedError, ControlError, PermissionError, OSError: The positions are not committed.
        """
        changed = {
            one: offset
            for one, offset in self._positions.items()
            if self._committed.get(one) != offset
        }
        self._groups.commit(
            self._writer, self.group, changed, metadata=metadata, is_durable=durable
        )
        self._committed |= changed

    def close(self) -> None:
        """End the iterators and close all files; nothing is committed."""
        if not self._is_closed:
            self._is_closed = True
            self._watch.close()
            self._source.close()

    def _batches(
        self, timeout_s: float | None, *, ticks: bool = False
    ) -> Iterator[tuple[TopicPartition, list[_Record]]]:
        for one, cursor in self._cursors.items():
            if cursor.offset != self._positions[one]:  # an iterator ended inside a list of records
                self._cursors[one] = cursor.at(self._positions[one])
        since_s = time.monotonic()
        while not self._is_closed:
            self._find_new()
            present, found = len(self._cursors), False
            for one in list(self._cursors):
                for records in self._coming(one):
                    found = True
                    yield one, records
            if found or len(self._cursors) < present:
                since_s = time.monotonic()
                continue
            left_s = LOOK_S
            if timeout_s is not None:
                left_s = since_s + timeout_s - time.monotonic()
                if left_s <= 0:
                    return
            is_settling = any(cursor.is_settling for cursor in self._cursors.values())
            self._watch.wait(min(left_s, SETTLING_S if is_settling else LOOK_S))
            if ticks:
                yield TopicPartition("", 0), []

    def _coming(self, one: TopicPartition) -> Iterator[list[_Record]]:
        """Yield what a partition has now; a deleted one is left out from there on."""
        cursor = self._cursors[one]
        try:
            has_more = True
            while has_more:
                has_more = cursor.refresh(is_around_known=True)
                while self._cursors.get(one) is cursor and (records := cursor.read()):
                    yield records
        except DeletedError as error:
            logger.warning("%s", error)
            self._cursors.pop(one, None)
            self._positions.pop(one, None)
            self._committed.pop(one, None)

    def _find_new(self) -> None:
        for one in self._source.partitions():
            numbers = self._wanted[one.topic]
            if one in self._cursors or (numbers is not None and one.partition not in numbers):
                continue
            self._watch.add([self._source.watched(one)])
            log = self._source.log(one)
            committed = self._groups.position_in(log, self.group)
            point = AtGroup(self.group) if committed is not None else self._start or Earliest()
            part, offset = self._source.locate(log, point, self._level)
            self._cursors[one] = Cursor(self._source, part, offset, self._level)
            self._positions[one] = offset
            if committed is not None:
                self._committed[one] = committed
