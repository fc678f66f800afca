"""A broker in memory for one partition: it takes batches of producers once, and says what it has.

Each message may be the last one: ``before`` is called when a request arrives, and before its answer
leaves.
"""

import copy
import struct
from collections import deque
from collections.abc import Callable, Mapping

from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

import logfs.kafka  # noqa: F401 - loads kafka-python without its clients
from logfs.kafka.cluster import EARLIEST, NO_ID, Cluster, ClusterTopic, Leader
from logfs.kafka.fetching import Fetched
from logfs.kafka.settings import ClientSettings
from logfs.kafka.wire import Connection, Message
from logfs.records.batch import decode_records

TOPIC = "t"
NODE = 1
PARTITION = 0
PRODUCER_ID = 7
_VERSIONS = {
    ProduceRequest.API_KEY: (3, 8),
    FetchRequest.API_KEY: (4, 11),
    DescribeProducersRequest.API_KEY: (0, 0),
}
_PRODUCER, _PRODUCER_AT = struct.Struct(">qhi"), 43
_LAST_DELTA, _LAST_DELTA_AT = struct.Struct(">i"), 23
_OUT_OF_ORDER, _DUPLICATE = 45, 46
_REMEMBERED = 5


class SimulatedBroker:
    """See above.

    Attributes:
        batches: What it has, by base offset.
        end: The offset of the next record.
        before: See above.
    """

    def __init__(self) -> None:
        self.batches: dict[int, bytes] = {}
        self.end = 0
        self.before: Callable[[str], None] = lambda _: None
        self._producers: dict[int, deque[tuple[int, int, int]]] = {}

    def copied(self) -> "SimulatedBroker":
        """Return another one that has the same."""
        other = SimulatedBroker()
        other.batches, other.end = dict(self.batches), self.end
        other._producers = copy.deepcopy(self._producers)
        return other

    def records(self) -> list[tuple[int, bytes]]:
        """Return the offset and the value of each record."""
        found = []
        for base, batch in self.batches.items():
            rows = decode_records(batch, 0)
            found += [(base + number, row.value or b"") for number, row in enumerate(rows)]
        return found

    def produce(self, batch: bytes) -> tuple[int, int]:
        """Take a batch once; returns an error code and its base offset."""
        producer, _, first = _PRODUCER.unpack_from(batch, _PRODUCER_AT)
        count = _LAST_DELTA.unpack_from(batch, _LAST_DELTA_AT)[0] + 1
        rows = self._producers.setdefault(producer, deque(maxlen=_REMEMBERED))
        for known, last, base in rows:
            if (known, last) == (first, first + count - 1):
                return 0, base
        if rows and first != rows[-1][1] + 1:
            return _DUPLICATE if first <= rows[-1][1] else _OUT_OF_ORDER, -1
        base, self.end = self.end, self.end + count
        self.batches[base] = base.to_bytes(8, "big") + batch[8:]
        rows.append((first, first + count - 1, base))
        return 0, base

    def last_sequence(self, producer: int) -> int:
        """Return the last sequence number of a producer; -1: it has sent nothing."""
        rows = self._producers.get(producer)
        return rows[-1][1] if rows else -1

    def fetch(self, offset: int, most: int) -> Fetched:
        """Return a number of batches from an offset on."""
        found = [batch for base, batch in self.batches.items() if base >= offset][:most]
        records = memoryview(b"".join(found))
        numbers = (PARTITION, 0, self.end, self.end, 0, -1)
        return Fetched(TOPIC, NO_ID, *numbers, None, None, records)


class SimulatedConnection(Connection):
    """A connection to it."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self.versions = _VERSIONS
        self._broker = broker
        self._answers: deque[bytes] = deque()

    @property
    def is_expired(self) -> bool:
        """See ``Connection``."""
        return False

    def version(self, request: Message, newest: int | None = None, oldest: int = 0) -> int:
        """See ``Connection``."""
        return _VERSIONS[request.API_KEY][1]

    def send(self, request: Message, version: int) -> None:
        """See ``Connection``."""
        self._broker.before("a request")
        answer = self._answered(request)
        self._answers.append(bytes(4) + bytes(answer.encode(version=version)))

    def receive(self, most: int | None = None) -> memoryview:
        """See ``Connection``."""
        self._broker.before("an answer")
        return memoryview(self._answers.popleft())

    def call(self, request: Message, response: Message, newest: int | None = None) -> Message:
        """See ``Connection``."""
        self._broker.before("a question")
        return self._answered(request)

    def close(self) -> None:
        """See ``Connection``."""
        self._answers.clear()

    def _answered(self, request: Message) -> Message:
        if isinstance(request, ProduceRequest):
            (row,) = request.topic_data[0].partition_data
            error, base = self._broker.produce(bytes(row.records))
            kind = ProduceResponse.TopicProduceResponse
            told = kind.PartitionProduceResponse(
                index=PARTITION, error_code=error, base_offset=base
            )
            return ProduceResponse(
                responses=[kind(name=TOPIC, partition_responses=[told])], throttle_time_ms=0
            )
        if isinstance(request, DescribeProducersRequest):
            return self._producers()
        found = self._broker.fetch(request.topics[0].partitions[0].fetch_offset, 100)
        kind = FetchResponse.FetchableTopicResponse
        part = kind.PartitionData(
            partition_index=PARTITION, error_code=0, high_watermark=self._broker.end,
            last_stable_offset=self._broker.end, log_start_offset=0, aborted_transactions=[],
            preferred_read_replica=-1, records=bytes(found.records),
        )  # fmt: skip
        topic = kind(topic=TOPIC, partitions=[part])
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

    def _producers(self) -> Message:
        kind = DescribeProducersResponse.TopicResponse
        state = kind.PartitionResponse.ProducerState(
            producer_id=PRODUCER_ID, producer_epoch=0, coordinator_epoch=0, last_timestamp=0,
            last_sequence=self._broker.last_sequence(PRODUCER_ID), current_txn_start_offset=-1,
        )  # fmt: skip
        part = kind.PartitionResponse(
            partition_index=PARTITION, error_code=0, error_message=None, active_producers=[state]
        )
        return DescribeProducersResponse(
            throttle_time_ms=0, topics=[kind(name=TOPIC, partitions=[part])]
        )


class SimulatedCluster(Cluster):
    """A client of a cluster that has only this broker."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__([], ClientSettings.from_properties({"linger.ms": "0"}))
        self._broker = broker
        self.topic = ClusterTopic(TOPIC, NO_ID, 0, {PARTITION: Leader(NODE, 0)})

    def connect(self, node: int) -> SimulatedConnection:
        """See ``Cluster``."""
        return SimulatedConnection(self._broker)

    def list_offsets(
        self, node: int, topic: str, times: Mapping[int, int]
    ) -> dict[int, tuple[int, int]]:
        """See ``Cluster``."""
        self._broker.before("a question")
        return {one: (0 if at == EARLIEST else self._broker.end, 0) for one, at in times.items()}
