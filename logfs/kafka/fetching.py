"""Fetch: batches as the broker stores them, with what it says of each partition.

Versions 4 to 17. From 7 on a session could be used, which this does not; from 12 on the broker
compares leader epochs and says where logs diverge; from 13 on topics are named by their ids.

An answer is decoded here and not by kafka-python: the records of a partition are a view of what was
received, not a copy.

Pure. Source: Kafka FetchRequest.json, FetchResponse.json; KIP-74, KIP-320, KIP-392, KIP-516.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest

from logfs.kafka.answers import undecodable

OLDEST_VERSION = 4
NEWEST_VERSION = 17
FIRST_WITH_DIVERGENCE = 12
FIRST_WITH_IDS = 13
NO_EPOCH = -1
_NO_SESSION = -1

_I16, _I32, _I64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_DIVERGING_EPOCH, _CURRENT_LEADER = 0, 1


class Wanted(NamedTuple):
    """What is asked of one partition.

    Attributes:
        topic_id: Its id in the cluster; all zero if it has none.
        offset: The first one wanted; the answer begins with the batch that holds it.
        leader_epoch: The epoch of its leader, as far as is known; -1 if not.
        last_epoch: Leader epoch of the last record that the caller has; -1: it has none.
    """

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH


class Fetched(NamedTuple):
    """What a broker answers for one partition.

    Attributes:
        topic: Its name; before version 13, else "".
        topic_id: Its id; from version 13 on, else None.
        error: Kafka's error code, 0 if there is none.
        high_watermark, log_start_offset: The high watermark and the log start offset of the
            broker's log; -1 with an error.
        preferred_replica: Another broker that is nearer; -1: none.
        diverging: Leader epoch up to which both logs are the same, and its end offset; None if the
            broker did not find them to differ.
        leader: Id and leader epoch of the leader, if that is another broker; else None.
        records: Batches. The last one may be cut; valid until the connection receives again.
    """

    topic: str
    topic_id: UUID | None
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    preferred_replica: int
    diverging: tuple[int, int] | None
    leader: tuple[int, int] | None
    records: memoryview


class FetchAnswer(NamedTuple):
    """A whole answer.

    Attributes:
        throttled_ms: How long the broker held it back for a quota, or wants the client to wait.
        error: Kafka's error code for all of it.
    """

    throttled_ms: int
    error: int
    partitions: list[Fetched]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much may come, and how long a broker waits for it."""

    partition_bytes: int = 1 << 20
    total_bytes: int = 16 << 20
    wait_ms: int = 500
    least_bytes: int = 1


def fetch_request(
    wanted: Iterable[Wanted], limits: FetchLimits, *, rack: str = "", is_committed: bool = False
) -> FetchRequest:
    """Make a request.

    Args:
        wanted: The partitions, of one broker; the first ones are answered first.
        limits: See ``FetchLimits``.
        rack: The rack of the client; the leader may then name a replica near to it.
        is_committed: Leave out open transactions; else everything up to the high watermark.
    """
    topics: dict[tuple[str, UUID], list[object]] = {}
    for row in wanted:
        topics.setdefault((row.topic, row.topic_id), []).append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=row.partition,
                fetch_offset=row.offset,
                current_leader_epoch=row.leader_epoch,
                last_fetched_epoch=row.last_epoch,
                log_start_offset=-1,
                partition_max_bytes=limits.partition_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=limits.wait_ms,
        min_bytes=limits.least_bytes,
        max_bytes=limits.total_bytes,
        isolation_level=int(is_committed),
        session_id=0,
        session_epoch=_NO_SESSION,
        rack_id=rack,
        forgotten_topics_data=[],
        topics=[
            FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
    )


def decode_fetch(frame: memoryview, version: int) -> FetchAnswer:
    """Decode an answer of one of the versions of this module.

    Args:
        frame: The answer with its header, without its length.
        version: The version of the request.

    Raises:
        OSError: It is no such answer.
    """
    reader = _Reader(frame, is_flexible=version >= FIRST_WITH_DIVERGENCE)
    try:
        return _read_answer(reader, version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise undecodable("FetchResponse", error) from None


def _read_answer(reader: "_Reader", version: int) -> FetchAnswer:
    reader.i32()  # the correlation id
    reader.tags()
    throttled_ms, error = reader.i32(), 0
    if version >= 7:
        error, _ = reader.i16(), reader.i32()
    partitions = []
    for _ in range(reader.count()):
        name, topic_id = "", None
        if version >= FIRST_WITH_IDS:
            topic_id = UUID(bytes=bytes(reader.take(16)))
        else:
            name = reader.text()
        for _ in range(reader.count()):
            partitions.append(_read_partition(reader, version, name, topic_id))  # noqa: PERF401
        reader.tags()
    reader.tags()
    return FetchAnswer(throttled_ms, error, partitions)


def _read_partition(reader: "_Reader", version: int, name: str, topic_id: UUID | None) -> Fetched:
    partition, error = reader.i32(), reader.i16()
    high_watermark, stable = reader.i64(), reader.i64()
    log_start = reader.i64() if version >= 5 else -1
    for _ in range(reader.count()):  # aborted transactions: the markers say the same
        reader.take(16)
        reader.tags()
    preferred = reader.i32() if version >= 11 else -1
    records = reader.take(max(reader.size(), 0))
    tags = reader.tags()
    return Fetched(
        *(name, topic_id, partition, error, high_watermark, stable, log_start, preferred),
        _pair(tags.get(_DIVERGING_EPOCH), _I64),
        _pair(tags.get(_CURRENT_LEADER), _I32),
        records,
    )


def _pair(tag: memoryview | None, second: struct.Struct) -> tuple[int, int] | None:
    """Return the two numbers of a tagged field: an int32 and another; None if they are unset."""
    if tag is None:
        return None
    found = _I32.unpack_from(tag, 0)[0], second.unpack_from(tag, 4)[0]
    return None if found[0] < 0 else found


class _Reader:
    """Reads the fields of an answer, one after the other."""

    def __init__(self, view: memoryview, *, is_flexible: bool) -> None:
        self._view = view
        self._position = 0
        self._is_flexible = is_flexible

    def take(self, size: int) -> memoryview:
        begin, self._position = self._position, self._position + size
        if size < 0 or self._position > len(self._view):
            raise IndexError(f"{size} bytes at {begin} of {len(self._view)}")
        return self._view[begin : self._position]

    def i16(self) -> int:
        number: int = _I16.unpack(self.take(2))[0]
        return number

    def i32(self) -> int:
        number: int = _I32.unpack(self.take(4))[0]
        return number

    def i64(self) -> int:
        number: int = _I64.unpack(self.take(8))[0]
        return number

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise IndexError("a number of more than five bytes")

    def size(self) -> int:
        """The length of bytes; -1 for null."""
        return self.varint() - 1 if self._is_flexible else self.i32()

    def count(self) -> int:
        """The length of an array; null is an empty one."""
        return max(self.size(), 0)

    def text(self) -> str:
        size = self.varint() - 1 if self._is_flexible else self.i16()
        return bytes(self.take(size)).decode()

    def tags(self) -> dict[int, memoryview]:
        if not self._is_flexible:
            return {}
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}
