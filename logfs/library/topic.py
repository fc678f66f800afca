"""A topic as a program sees it: appends are distributed over its partitions by their keys."""

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, NamedTuple

from logfs.library.consumer import ConsumerRecord
from logfs.library.points import Point
from logfs.library.records import Appendable, Headers, NewRecord, chunks, to_record
from logfs.machine.host import system_clock
from logfs.records.partitioner import partition_for_key
from logfs.records.record import Record

if TYPE_CHECKING:
    from logfs.library.partition import Partition


class AppendedTo(NamedTuple):
    """The place of a record that was appended."""

    partition: int
    offset: int


class Topic:
    """All partitions of a topic. Get one from ``Store.topic``; threads may share it.

    A record with a key is appended to the partition that Kafka's default partitioner chooses: by
    the murmur2 hash of the key. Records without a key go to one partition after the other, those of
    a part of ``append_many`` to the same one. The number of partitions is that of the moment when
    the topic was opened; with another number, keys belong to other partitions.

    Attributes:
        name: The name of the topic.
        partitions: Its partitions.
    """

    def __init__(self, name: str, partitions: Sequence["Partition"], zone: tzinfo) -> None:
        self.name = name
        self.partitions = tuple(partitions)
        self._zone = zone
        self._now_ms = system_clock().now_ms
        self._turn = int.from_bytes(os.urandom(2), "big")

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        durable: bool = False,
    ) -> AppendedTo:
        """Append one record; return its partition and its offset.

        Args and errors are those of ``Partition.append``.
        """
        record = to_record(NewRecord(value, key, headers, timestamp), self._now_ms(), self._zone)
        number = self._next_turn() if key is None else partition_for_key(key, len(self.partitions))
        offsets = self.partitions[number].append_many([record], durable=durable)
        return AppendedTo(number, offsets.start)

    def append_many(
        self, records: Iterable[Appendable], *, durable: bool = False
    ) -> dict[int, int]:
        """Append records in as few batches as possible, in their order in each partition.

        Returns:
            The number of records that were appended, by partition.

        Raises:
            LogfsError, OSError: See ``Partition.append_many``. Records of earlier parts are
                appended, and of the failed part perhaps those of some partitions.
        """
        appended: dict[int, int] = {}
        for chunk in chunks(records, self._now_ms(), self._zone):
            for number, some in self._distributed(chunk).items():
                self.partitions[number].append_many(some)
                appended[number] = appended.get(number, 0) + len(some)
        if durable:
            for number in appended:
                self.partitions[number].flush()
        return dict(sorted(appended.items()))

    def read(
        self, start: Point = "earliest", stop: Point | None = None
    ) -> Iterator[ConsumerRecord]:
        """Iterate over the present records of all partitions, merged by their timestamps.

        The order in each partition is kept: a record is merged as if it had the largest timestamp
        of those before it. Args and errors are those of ``Partition.read``.
        """
        streams = [self._timed(partition, start, stop) for partition in self.partitions]
        for _, number, record in heapq.merge(*streams, key=lambda item: item[:2]):
            offset, timestamp, key, value, headers = record
            yield ConsumerRecord(self.name, number, offset, timestamp, key, value, headers)

    def __repr__(self) -> str:
        return f"<logfs.Topic {self.name} of {len(self.partitions)} partitions>"

    def _distributed(self, records: list[Record]) -> dict[int, list[Record]]:
        count, found = len(self.partitions), dict[int, list[Record]]()
        unkeyed = self._next_turn()
        for record in records:
            key = record.key
            number = unkeyed if key is None else partition_for_key(key, count)
            found.setdefault(number, []).append(record)
        return found

    def _next_turn(self) -> int:
        self._turn = turn = self._turn + 1
        return turn % len(self.partitions)

    @staticmethod
    def _timed(
        partition: "Partition", start: Point, stop: Point | None
    ) -> Iterator[tuple[int, int, Record]]:
        highest_ms = -1
        for record in partition.read(start, stop):
            highest_ms = max(highest_ms, record.timestamp)
            yield highest_ms, partition.number, record
