"""Produce: batches as they are, to one partition a request, and how far a producer has got.

A producer id without transactions, whose sequence numbers are bound to local records: a broker
takes each batch once, and answers what it has already. ``last_sequence`` asks the leader for the
last sequence number of a producer. A leader forgets a producer once its records are old
(``producer.id.expiration.ms``, by the timestamps of records), so ``scan`` reads the headers of the
batches in the log instead. ``SentRecords`` reads the batches themselves.

Source: Kafka ProduceRequest.json, DescribeProducersRequest.json; KIP-98, KIP-360.
"""

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from logfs.errors import BrokerError
from logfs.kafka.answers import only
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
from logfs.records._reading import decode_batches
from logfs.records.batch import decode_header
from logfs.records.compression import decompress
from logfs.records.layout import HEADER_BYTES, MAGIC, MAGIC_AT, size_of
from logfs.records.produced import add_to_sequence
from logfs.records.record import Record

_NEWEST_BY_NAME = 12
_ALL_REPLICAS = -1
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_NOT_AUTHORIZED = (29, 31)
OFFSET_OUT_OF_RANGE = 1
_ANY_OFFSET = 2**63 - 1


class Acknowledged(NamedTuple):
    """The answer to a batch.

    Attributes:
        error: Kafka's error code, 0 if there is none.
        base_offset: The base offset of its first record there; -1 if that is not known any more.
        text: The text of the broker for the error.
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
    topic = only(answer.responses, "ProduceResponse")
    row = only(topic.partition_responses, "ProduceResponse")
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
    about = "DescribeProducersResponse"
    row = only(only(answer.topics, about).partitions, about)
    if row.error_code in _NOT_AUTHORIZED:
        return None
    check(row.error_code, f"{topic}/{partition}: DescribeProducers")
    for producer in row.active_producers:
        if producer.producer_id == producer_id and producer.last_sequence >= 0:
            return Reached(producer.last_sequence, producer.producer_epoch)
    return None


class SentRecords:
    """What a partition has of a producer, from an offset to the high watermark. One use each.

    Args:
        connection: To the leader.
        wanted: From which offset on a partition is read; as a whole if it ends before.
        producer_id: The producer.
        find_start: Asks the leader where the log begins.

    Attributes:
        last: How far the producer has got in what was read; None: no batch of it was read.
        has_lost: The log began after the offset that is wanted.
        is_shorter: The log ended before it.
        start: Offset from which on it was read.
        end: The high watermark.

    Each method raises BrokerError if the broker refuses, and OSError if the connection is lost.
    """

    def __init__(
        self,
        connection: Connection,
        wanted: Wanted,
        producer_id: int,
        find_start: Callable[[], int],
    ) -> None:
        self.after = self.start = wanted.offset
        self.last: Reached | None = None
        self.has_lost = False
        self.is_shorter = False
        self.end = -1
        self._fetch = partial(_fetch, connection, wanted)
        self._producer_id = producer_id
        self._find_start = find_start

    def batches(self) -> Iterator[tuple[int, memoryview]]:
        """Yield each batch with its first sequence number; valid until the next one."""
        at = self.after
        while True:
            try:
                records, _, self.end = self._fetch(at)
            except BrokerError as error:
                if error.code != OFFSET_OUT_OF_RANGE:
                    raise
                low = self._find_start()
                self.has_lost = self.has_lost or low > at
                self.is_shorter = self.is_shorter or low <= at
                at = self.start = low
                continue
            position = 0
            while len(records) - position >= HEADER_BYTES:
                size = size_of(records, position)
                if position + size > len(records) or size < HEADER_BYTES:
                    break
                head = bytes(records[position : position + HEADER_BYTES])
                last = int.from_bytes(head[23:27], "big") if head[MAGIC_AT] == MAGIC else 0
                at = int.from_bytes(head[:8], "big") + last + 1
                owner, epoch, sequence = _PRODUCER.unpack_from(head, _PRODUCER_AT)
                if head[MAGIC_AT] == MAGIC and owner == self._producer_id:
                    self.last = Reached(add_to_sequence(sequence, last), epoch)
                    yield sequence, records[position : position + size]
                position += size
            if at >= self.end or not position:
                return

    def records(self) -> Iterator[tuple[int, Record, bool]]:
        """Yield each record with its sequence number, and whether its timestamp is its own."""
        for sequence, batch in self.batches():
            header = decode_header(batch)
            rows = decode_batches(batch, 0, len(batch), 0, _ANY_OFFSET, decompress, b"")[0]
            for record in rows:
                delta = record.offset - header.base_offset
                yield add_to_sequence(sequence, delta), record, not header.is_log_append_time


def scan(sent: SentRecords) -> Reached | None:
    """Read what a partition has of a producer for its last batch; None if there is none.

    Raises:
        LostTrackError: The log begins after what was asked for, and has no batch of the producer.
        BrokerError, OSError: See ``SentRecords``.
    """
    for _ in sent.batches():
        pass
    if sent.last is None and sent.is_shorter and sent.start == 0:
        return _NOTHING  # it has lost all of them
    if sent.last is None and (sent.has_lost or sent.is_shorter):
        raise LostTrackError(
            f"it has offsets {sent.start} to {sent.end - 1}, expected {sent.after}"
        )
    return sent.last


def _fetch(connection: Connection, wanted: Wanted, offset: int) -> tuple[memoryview, int, int]:
    version = connection.version(FetchRequest, NEWEST_VERSION, OLDEST_VERSION)
    row = wanted._replace(offset=offset)
    if version < FIRST_WITH_IDS:
        row = row._replace(topic_id=UUID(int=0))
    what = f"{wanted.topic}/{wanted.partition}: Fetch"
    limits = FetchLimits(8 << 20, 8 << 20, 10, 0)
    connection.send(fetch_request([row], limits), version)
    answer = decode_fetch(connection.receive(), version)
    check(answer.error, what)
    found = only(answer.partitions, "FetchResponse")
    check(found.error, what)
    return found.records, found.log_start_offset, found.high_watermark
