"""A broker in this process that takes records as Kafka does, and fails where a test wants it to.

It knows the requests of a forward and of a mirror. It checks sequence numbers as Kafka's
ProducerStateManager does: of each producer it remembers five batches, until ``forget``. What fails
is drawn from ``chance``: the connection breaks before a batch is appended or after it, the producer
is forgotten, an error is answered that passes, or the end of the log is lost.
"""

import contextlib
import random
import socket
import socketserver
import struct
import threading
from collections import deque
from types import TracebackType
from typing import Self
from uuid import UUID

from kafka.protocol.admin.configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeProducersResponse
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from logfs.kafka.wire import Message
from logfs.records.batch import decode_header, decode_records
from logfs.records.layout import base_offset_of
from logfs.records.record import Record

INVALID_RECORD = 87
OUT_OF_ORDER, OUT_OF_RANGE, NOT_ENOUGH_REPLICAS, TOO_LARGE = 45, 1, 19, 10
AUTHENTICATION_FAILED, NOT_AUTHORIZED = 58, 30
VERSIONS = {
    ApiVersionsRequest: (0, 3),
    MetadataRequest: (0, 12),
    ProduceRequest: (3, 9),
    FetchRequest: (4, 11),
    ListOffsetsRequest: (1, 5),
    InitProducerIdRequest: (0, 4),
    DescribeProducersRequest: (0, 0),
    DescribeConfigsRequest: (1, 1),
    OffsetForLeaderEpochRequest: (2, 3),
    SaslHandshakeRequest: (1, 1),
    SaslAuthenticateRequest: (0, 1),
}
PAIRS = {
    MetadataRequest: MetadataResponse,
    ProduceRequest: ProduceResponse,
    FetchRequest: FetchResponse,
    ListOffsetsRequest: ListOffsetsResponse,
    InitProducerIdRequest: InitProducerIdResponse,
    DescribeProducersRequest: DescribeProducersResponse,
    DescribeConfigsRequest: DescribeConfigsResponse,
    OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
    SaslHandshakeRequest: SaslHandshakeResponse,
    SaslAuthenticateRequest: SaslAuthenticateResponse,
}
BY_KEY = {kind.API_KEY: kind for kind in VERSIONS}


class BrokenError(Exception):
    """The connection is to break now."""


class Partition:
    """The log of a partition: batches with the offsets that they got, and its producers."""

    def __init__(self) -> None:
        self.start = 0
        self.batches: list[bytes] = []
        self.producers: dict[int, deque[tuple[int, int, int]]] = {}

    @property
    def end(self) -> int:
        return self.start if not self.batches else decode_header(self.batches[-1]).last_offset + 1

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_records(batch, 0)]

    def append(self, batch: bytes) -> tuple[int, int]:
        """Return an error code, and the offset of the batch."""
        header = decode_header(batch)
        last = header.base_sequence + header.last_offset_delta
        known = self.producers.get(header.producer_id)
        if known and header.producer_id >= 0:
            for first, end, offset in known:
                if (first, end) == (header.base_sequence, last):
                    return 0, offset
            if header.base_sequence != known[-1][1] + 1:
                return OUT_OF_ORDER, -1
        offset = self.end
        self.batches.append(struct.pack(">q", offset) + batch[8:])
        remembered = self.producers.setdefault(header.producer_id, deque(maxlen=5))
        remembered.append((header.base_sequence, last, offset))
        return 0, offset

    def delete_all(self) -> None:
        """Delete all records, as retention does."""
        self.start, self.batches = self.end, []

    def lose_end(self, count: int) -> None:
        """Lose the last batches, as an unclean election does, but for the first one."""
        self.batches = self.batches[: max(1, len(self.batches) - count)]
        self.producers.clear()
        for batch in self.batches:
            header = decode_header(batch)
            row = (header.base_sequence, header.base_sequence + header.last_offset_delta)
            remembered = self.producers.setdefault(header.producer_id, deque(maxlen=5))
            remembered.append((*row, header.base_offset))


class FakeBroker:
    """One broker that leads all partitions of one topic.

    Args:
        partitions: How many the topic has.
        chance: Draws what fails; None: nothing does.

    Attributes:
        bootstrap: Where it listens.
        logs: Its partitions.
        loses: It may lose the end of a log, but for the first batch.
        most_bytes: The largest batch that it takes.
        high_watermark: The high watermark of all partitions; None: their end.
        password: The password of the only user.
        refused: How often a login was refused.
        replica: Another broker with the same partitions, node 2.
        prefers: How many more answers name the replica to clients with a rack.
        fetches: How many requests for records it has had.
        others: Names of more topics, which have no partitions.
    """

    def __init__(
        self, topic: str, partitions: int = 1, chance: random.Random | None = None
    ) -> None:
        self.topic = topic
        self.topic_id = UUID(int=77)
        self.logs = [Partition() for _ in range(partitions)]
        self.chance = chance
        self.loses = False
        self.most_bytes = 1 << 30
        self.high_watermark: int | None = None
        self.password = "secret"
        self.refused = 0
        self.replica: FakeBroker | None = None
        self.prefers = 0
        self.fetches = 0
        self.others: tuple[str, ...] = ()
        self._clients: set[socket.socket] = set()
        self._producers = 0
        self._handlers = {
            MetadataRequest: self._metadata,
            InitProducerIdRequest: self._new_producer,
            ProduceRequest: self._produce,
            DescribeProducersRequest: self._producers_of,
            ListOffsetsRequest: self._offsets,
            FetchRequest: self._fetch,
            DescribeConfigsRequest: self._configs,
            OffsetForLeaderEpochRequest: self._epochs,
            SaslHandshakeRequest: lambda _: SaslHandshakeResponse(
                error_code=0, mechanisms=["PLAIN"]
            ),
            SaslAuthenticateRequest: self._log_in,
        }
        self._lock = threading.Lock()
        owner = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                owner._clients.add(self.request)
                with contextlib.suppress(OSError, BrokenError, EOFError):
                    while True:
                        (size,) = struct.unpack(">i", owner._read(self.request, 4))
                        answer = owner._answer(owner._read(self.request, size))
                        self.request.sendall(answer)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def forget(self) -> None:
        """Forget all producers."""
        with self._lock:
            for log in self.logs:
                log.producers.clear()

    def hang_up(self) -> None:
        """Close all connections."""
        for client in list(self._clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    # Inside

    @staticmethod
    def _read(connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = connection.recv(size - len(data))
            if not got:
                raise EOFError
            data += got
        return data

    def _answer(self, frame: bytes) -> bytes:
        key, version, number = struct.unpack_from(">hhi", frame)
        kind = BY_KEY[key]
        if kind is ApiVersionsRequest:
            rows = [
                ApiVersionsResponse.ApiVersion(api_key=k.API_KEY, min_version=low, max_version=high)
                for k, (low, high) in VERSIONS.items()
            ]
            answer = ApiVersionsResponse(error_code=0, api_keys=rows, throttle_time_ms=0)
            body: bytes = struct.pack(">i", number) + bytes(answer.encode(version=version))
            return struct.pack(">i", len(body)) + body
        request = kind.decode(frame, version=version, header=True)
        with self._lock:
            answer = self._handlers[kind](request)
        answer.API_VERSION = version
        flexible = PAIRS[kind].flexible_version_q(version)
        body = struct.pack(">i", number) + b"\0" * flexible + bytes(answer.encode(version=version))
        return struct.pack(">i", len(body)) + body

    def _fails(self, odds: float) -> bool:
        return self.chance is not None and self.chance.random() < odds

    def _metadata(self, _request: Message) -> Message:
        topic = MetadataResponse.MetadataResponseTopic
        rows = [
            topic.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for number in range(len(self.logs))
        ]
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=node, host="127.0.0.1", port=broker.port, rack=None
                )
                for node, broker in ((1, self), (2, self.replica))
                if broker is not None
            ],
            cluster_id="fake",
            controller_id=1,
            topics=[
                topic(
                    error_code=0,
                    name=name,
                    topic_id=self.topic_id,
                    is_internal=False,
                    partitions=rows if name == self.topic else [],
                )
                for name in (self.topic, *self.others)
            ],
        )

    def _new_producer(self, _request: Message) -> Message:
        self._producers += 1
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=self._producers, producer_epoch=0
        )

    def _produce(self, request: Message) -> Message:
        (topic,) = request.topic_data
        (row,) = topic.partition_data
        log = self.logs[row.index]
        if self._fails(0.05):
            raise BrokenError
        if self._fails(0.05):
            log.producers.clear()
        if self.loses and self._fails(0.05):
            log.lose_end(2)
        if self._fails(0.05):
            error, offset = NOT_ENOUGH_REPLICAS, -1
        elif decode_header(bytes(row.records)).base_offset:
            error, offset = INVALID_RECORD, -1
        elif len(row.records) > self.most_bytes:
            error, offset = TOO_LARGE, -1
        else:
            error, offset = log.append(bytes(row.records))
        if self._fails(0.1):
            raise BrokenError
        kind = ProduceResponse.TopicProduceResponse
        answer = kind.PartitionProduceResponse(
            index=row.index,
            error_code=error,
            base_offset=offset,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=[],
            error_message=None,
        )
        rows = [kind(name=self.topic, partition_responses=[answer])]
        return ProduceResponse(responses=rows, throttle_time_ms=0)

    def _producers_of(self, request: Message) -> Message:
        kind = DescribeProducersResponse.TopicResponse
        (number,) = request.topics[0].partition_indexes
        active = [
            kind.PartitionResponse.ProducerState(
                producer_id=producer,
                producer_epoch=0,
                last_sequence=batches[-1][1],
                last_timestamp=0,
                coordinator_epoch=-1,
                current_txn_start_offset=-1,
            )
            for producer, batches in self.logs[number].producers.items()
        ]
        row = kind.PartitionResponse(
            partition_index=number, error_code=0, error_message=None, active_producers=active
        )
        return DescribeProducersResponse(
            throttle_time_ms=0, topics=[kind(name=self.topic, partitions=[row])]
        )

    def _offsets(self, request: Message) -> Message:
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        (row,) = request.topics[0].partitions
        end = (
            self.logs[row.partition_index].end
            if row.timestamp == -1
            else self.logs[row.partition_index].start
        )
        answer = kind.ListOffsetsPartitionResponse(
            partition_index=row.partition_index,
            error_code=0,
            timestamp=-1,
            offset=end,
            leader_epoch=0,
        )
        return ListOffsetsResponse(
            throttle_time_ms=0, topics=[kind(name=self.topic, partitions=[answer])]
        )

    def _configs(self, request: Message) -> Message:
        (resource,) = request.resources
        row = DescribeConfigsResponse.DescribeConfigsResult(
            error_code=NOT_AUTHORIZED,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        return DescribeConfigsResponse(throttle_time_ms=0, results=[row])

    def _epochs(self, request: Message) -> Message:
        (topic,) = request.topics
        (row,) = topic.partitions
        kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        answer = kind.EpochEndOffset(
            error_code=0,
            partition=row.partition,
            leader_epoch=row.leader_epoch,
            end_offset=self.logs[row.partition].end,
        )
        return OffsetForLeaderEpochResponse(
            throttle_time_ms=0, topics=[kind(topic=topic.topic, partitions=[answer])]
        )

    def _log_in(self, request: Message) -> Message:
        is_right = bytes(request.auth_bytes).split(b"\0")[-1] == self.password.encode()
        self.refused += not is_right
        return SaslAuthenticateResponse(
            error_code=0 if is_right else AUTHENTICATION_FAILED,
            error_message=None if is_right else "Invalid username or password",
            auth_bytes=b"",
            session_lifetime_ms=0,
        )

    def _fetch(self, request: Message) -> Message:
        (row,) = request.topics[0].partitions
        log, at = self.logs[row.partition], row.fetch_offset
        self.fetches += 1
        end = log.end if self.high_watermark is None else self.high_watermark
        is_preferred = bool(self.prefers and getattr(request, "rack_id", ""))
        self.prefers -= is_preferred
        is_out = not log.start <= at <= log.end
        records = (
            b""
            if is_out
            else b"".join(
                batch
                for batch in log.batches
                if decode_header(batch).last_offset >= at and base_offset_of(batch) < end
            )
        )
        kind = FetchResponse.FetchableTopicResponse
        answer = kind.PartitionData(
            partition_index=row.partition,
            error_code=OUT_OF_RANGE if is_out else 0,
            high_watermark=-1 if is_out else end,
            last_stable_offset=-1 if is_out else end,
            log_start_offset=-1 if is_out else log.start,
            aborted_transactions=[],
            preferred_read_replica=2 if is_preferred else -1,
            records=b"" if is_preferred else records,
        )
        return FetchResponse(
            throttle_time_ms=0,
            error_code=0,
            session_id=0,
            responses=[kind(topic=self.topic, partitions=[answer])],
        )
