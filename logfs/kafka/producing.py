"""Produce: batches as they are, to one partition a request, and how far a producer has got.

A producer id without transactions, whose sequence numbers are bound to local records: a broker
takes each batch once, and answers what it has already. ``last_sequence`` asks the leader for the
last sequence number of a producer. A leader forgets a producer once its records are old
(``producer.id.expiration.ms``, by the timestamps of records), so ``scan`` reads the headers of the
batches in the log instead.

Source: Kafka ProduceRequest.json, DescribeProducersRequest.json; KIP-98, KIP-360.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from logfs.errors import BrokerError
from logfs.kafka.fetching import (
    FIRST_WITH_IDS,
    NEWEST_VERSION,
    OLDEST_VERSION,
    FetchLimits,
    Wanted,
    decode_fetch,
    fetch_request,
)
from logfs.kafka.wire import Connection, check, decode
from logfs.records.layout import HEADER_BYTES, MAGIC, MAGIC_AT, size_of
from logfs.records.produced import add_to_sequence

_NEWEST_BY_NAME = 12
_ALL_REPLICAS = -1
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_NOT_AUTHORIZED = (29, 31)
OFFSET_OUT_OF_RANGE = 1


class Acknowledged(NamedTuple):
    """The answer to a batch.

    Attributes:
        error: Kafka's error code, 0 if there is none.
        base_offset: Of its first record there; -1 if that is not known any more.
        text: What the broker says of the error.
        throttled_ms: How long the client is to wait.
    """

    error: int
    base_offset: int
    text: str
    throttled_ms: int


class Reached(NamedTuple):
    """How far a producer has got: its last sequence number, and the epoch of that batch."""

    sequence: int
    epoch: int


_NOTHING = Reached(-1, -1)
"""The log ends before the first record of the producer."""


class LostTrackError(Exception):
    """The log there begins after the last record that was acknowledged."""


def send_batch(
    connection: Connection, topic: str, partition: int, batch: bytes, timeout_ms: int
) -> None:
    """Send a batch; ``receive_answer`` returns what the broker says.

    Raises:
        OSError: The connection is lost.
    """
    kind = ProduceRequest.TopicProduceData
    row = kind(
        name=topic,
        partition_data=[kind.PartitionProduceData(index=partition, records=batch)],
    )
    request = ProduceRequest(
        transactional_id=None, acks=_ALL_REPLICAS, timeout_ms=timeout_ms, topic_data=[row]
    )
    connection.send(request, connection.version(ProduceRequest, _NEWEST_BY_NAME, 3))


def receive_answer(connection: Connection) -> Acknowledged:
    """Return the answer to the oldest batch that has none.

    Raises:
        OSError: The connection is lost, or the answer does not decode.
    """
    version = connection.version(ProduceRequest, _NEWEST_BY_NAME, 3)
    answer = decode(connection.receive(), ProduceResponse, version)
    (row,) = answer.responses[0].partition_responses
    text = str(getattr(row, "error_message", None) or "")
    return Acknowledged(row.error_code, row.base_offset, text, answer.throttle_time_ms or 0)


def last_sequence(
    connection: Connection, topic: str, partition: int, producer_id: int
) -> Reached | None:
    """Ask the leader how far a producer has got; None if it does not know or does not say.

    Raises:
        BrokerError: It is not the leader, or has another error.
        OSError: The connection is lost.
    """
    if DescribeProducersRequest.API_KEY not in connection.versions:
        return None  # before Kafka 2.8
    kind = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[kind(name=topic, partition_indexes=[partition])])
    answer = connection.call(request, DescribeProducersResponse, 0)
    (row,) = answer.topics[0].partitions
    if row.error_code in _NOT_AUTHORIZED:
        return None
    check(row.error_code, f"{topic}/{partition}: DescribeProducers")
    for producer in row.active_producers:
        if producer.producer_id == producer_id and producer.last_sequence >= 0:
            return Reached(producer.last_sequence, producer.producer_epoch)
    return None


def scan(  # noqa: C901, PLR0913, PLR0917 - names of a partition and of a producer
    connection: Connection,
    topic: str,
    topic_id: UUID,
    partition: int,
    producer_id: int,
    after: int,
    find_start: Callable[[], int],
) -> Reached | None:
    """Read the headers of batches for the last one of a producer; None if there is none.

    Args:
        connection: To the leader.
        topic, topic_id, partition: Where.
        producer_id: The producer.
        after: Offset of its last batch that is known; the log is read from there on, and as a whole
            if it ends before.
        find_start: Asks the leader where the log begins.

    Raises:
        LostTrackError: The log begins after that offset, and has no batch of the producer.
        BrokerError: The broker refuses.
        OSError: The connection is lost.
    """
    found: Reached | None = None
    at, has_lost, low = max(after, 0), False, 0
    is_shorter = False
    while True:
        try:
            records, start, end = _fetch(connection, topic, topic_id, partition, at)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            low = find_start()
            has_lost, is_shorter = has_lost or low > at, is_shorter or low <= at
            at = low
            continue
        position = 0
        while len(records) - position >= HEADER_BYTES:
            size = size_of(records, position)
            if position + size > len(records) or size < HEADER_BYTES:
                break
            head = bytes(records[position : position + HEADER_BYTES])
            last = int.from_bytes(head[23:27], "big")
            if head[MAGIC_AT] == MAGIC:
                owner, epoch, sequence = _PRODUCER.unpack_from(head, _PRODUCER_AT)
                if owner == producer_id:
                    found = Reached(add_to_sequence(sequence, last), epoch)
                at = int.from_bytes(head[:8], "big") + last + 1
            else:
                at = int.from_bytes(head[:8], "big") + 1
            position += size
        if at >= end or not position:
            if found is None and is_shorter and low == 0:
                return _NOTHING  # it has lost all of them
            if found is None and (has_lost or is_shorter):
                raise LostTrackError(f"it has offsets {start} to {end - 1}, expected {after}")
            return found


def _fetch(
    connection: Connection, topic: str, topic_id: UUID, partition: int, offset: int
) -> tuple[memoryview, int, int]:
    version = connection.version(FetchRequest, NEWEST_VERSION, OLDEST_VERSION)
    row = Wanted(topic, topic_id if version >= FIRST_WITH_IDS else UUID(int=0), partition, offset)
    limits = FetchLimits(8 << 20, 8 << 20, 10, 0)
    connection.send(fetch_request([row], limits), version)
    answer = decode_fetch(connection.receive(), version)
    check(answer.error, f"{topic}/{partition}: Fetch")
    (found,) = answer.partitions
    check(found.error, f"{topic}/{partition}: Fetch")
    return found.records, found.log_start_offset, found.high_watermark
