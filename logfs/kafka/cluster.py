"""A cluster: its brokers and topics, the leaders, and requests that go to the right broker.

``Cluster`` has one connection to each broker for questions, which any thread may ask, in
turn. Code that fetches or produces takes its own connections with ``connect``.

A broker that refused a login is not asked again for 10 s by any thread, since accounts that fail
often get locked.

A question is asked once. What may pass by itself (a broker that is gone, a leader that moves) is a
ClusterUnreachableError or a BrokerError that is retriable; the caller waits as ``BackOff`` says and
asks again.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kafka.protocol.consumer.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse

from logfs.errors import ClusterRefusedError, ClusterUnreachableError, IllegalTopicNameError
from logfs.kafka.answers import only
from logfs.kafka.settings import Address, ClientSettings
from logfs.kafka.wire import Connection, Message, check
from logfs.log.reading.address import parse_topic_name

logger = logging.getLogger(__name__)

NO_LEADER = -1
NO_ID = UUID(int=0)
LATEST = -1
EARLIEST = -2
_TOPIC_RESOURCE = 2
_SET_ON_THE_TOPIC = 1
_JITTER = 0.2
UNKNOWN_TOPIC = 3
REFUSED_S = 10.0
"""How long a refusal of a broker holds for all connections to it."""
_SPREADING_S = 3.0
"""How long a broker that has just started may not know topics that exist."""


class Leader(NamedTuple):
    """Which broker leads a partition, and since which epoch; ``NO_LEADER`` for now: none does."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic of the cluster.

    Attributes:
        topic_id: ``NO_ID`` if the cluster is too old to have ids.
        error: Kafka's error code, 0 if there is none.
        leaders: The leader of each partition.
    """

    name: str
    topic_id: UUID
    error: int
    leaders: Mapping[int, Leader] = field(default_factory=dict)


class BackOff:
    """How long to wait between attempts: twice as long each time, a little at random."""

    def __init__(self, first_ms: int, most_ms: int) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait before the next attempt."""
        wait_ms = min(self._first_ms * 2 ** min(self._failures, 30), self._most_ms)
        self._failures += 1
        wait_s: float = wait_ms / 1000 * random.uniform(1 - _JITTER, 1 + _JITTER)
        return wait_s

    def succeeded(self) -> None:
        """Begin with the shortest wait again."""
        self._failures = 0


class Cluster:
    """A client of a cluster.

    Args:
        bootstrap: Brokers to begin with.
        settings: How they are reached.
        clock_s: Seconds that only go forward.

    Attributes:
        cluster_id: As it names itself; empty before the first answer.
        brokers: The addresses of the brokers, by node id.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        settings: ClientSettings,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.cluster_id = ""
        self.brokers: dict[int, Address] = {}
        self._bootstrap = list(bootstrap)
        self._lock = threading.Lock()
        self._connections: dict[Address, Connection] = {}
        self._has_told = False
        self._clock_s = clock_s
        self._refusals: dict[Address, tuple[str, float]] = {}

    def back_off(self) -> BackOff:
        """Return the waits that the settings ask for."""
        settings = self.settings
        return BackOff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)

    def address(self, node: int) -> Address:
        """Return where a broker listens; raise ClusterUnreachableError if it is not known."""
        address = self.brokers.get(node)
        if address is None:
            raise ClusterUnreachableError(f"broker {node} is not among those of the cluster")
        return address

    def connect(self, node: int) -> Connection:
        """Return a new connection to a broker, for its owner alone.

        Raises:
            ClusterUnreachableError, ClusterRefusedError: See ``Connection``.
        """
        return self._connect(self.address(node))

    def call(
        self, node: int, request: Message, response: Message, newest: int | None = None
    ) -> Message:
        """Ask a broker a question; see ``Connection.call``.

        Raises:
            ClusterUnreachableError, ClusterRefusedError.
        """
        return self._call(self.address(node), request, response, newest)

    def close(self) -> None:
        """Close the connections for questions."""
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    # Questions

    def topics(self, names: Collection[str] | None) -> dict[str, ClusterTopic]:
        """Ask any broker for topics, and learn where all brokers listen.

        Args:
            names: The topics; None: all.

        Returns:
            What the cluster says of each, by name; of one that does not exist, an error code.

        Raises:
            ClusterUnreachableError: No broker answers; the message has the last reason.
            ClusterRefusedError: One refuses the login.
        """
        failure: ClusterUnreachableError | None = None
        for address in dict.fromkeys([*self.brokers.values(), *self._bootstrap]):
            try:
                return self._topics_from(address, names)
            except ClusterUnreachableError as error:
                failure = error
        raise failure or ClusterUnreachableError("no broker is known")

    def existing_topics(
        self, names: Collection[str], stopping: threading.Event
    ) -> dict[str, ClusterTopic]:
        """Ask for topics that should exist, for a while also if the cluster does not know one.

        Raises:
            ClusterUnreachableError, ClusterRefusedError: See ``topics``.
        """
        until_s, waits = time.monotonic() + _SPREADING_S, self.back_off()
        while True:
            found = self.topics(names)
            is_missing = any(found[name].error == UNKNOWN_TOPIC for name in names)
            if not is_missing or time.monotonic() > until_s or stopping.wait(waits.next_s()):
                return found

    def list_offsets(
        self, node: int, topic: str, times: Mapping[int, int]
    ) -> dict[int, tuple[int, int]]:
        """Ask a leader where partitions begin or end, or where a moment is.

        Args:
            node: The leader of all of them.
            topic: The topic.
            times: For each partition ``EARLIEST``, ``LATEST`` or a time in epoch milliseconds.

        Returns:
            The offset of each partition, and its leader epoch or -1. For a time after the last
            record the offset is -1.

        Raises:
            ClusterUnreachableError, ClusterRefusedError, BrokerError.
        """
        rows = [
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=-1, timestamp=time
            )
            for partition, time in times.items()
        ]
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=rows)],
            timeout_ms=self.settings.socket_timeout_ms,
        )
        answer = self.call(node, request, ListOffsetsResponse, 7)
        found = {}
        for row in answer.topics[0].partitions:
            check(row.error_code, f"{topic}/{row.partition_index}: ListOffsets")
            epoch = getattr(row, "leader_epoch", -1)
            found[row.partition_index] = (row.offset, -1 if epoch is None else epoch)
        return found

    def end_offset_for_epoch(
        self, node: int, topic: str, partition: int, leader_epoch: int, epoch: int
    ) -> tuple[int, int]:
        """Ask a leader for its largest leader epoch up to one, and where that ends; -1: not known.

        Raises:
            ClusterUnreachableError, ClusterRefusedError, BrokerError.
        """
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        row = kind.OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=leader_epoch, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[kind(topic=topic, partitions=[row])]
        )
        answer = self.call(node, request, OffsetForLeaderEpochResponse, 4)
        about = "OffsetForLeaderEpochResponse"
        found = only(only(answer.topics, about).partitions, about)
        check(found.error_code, f"{topic}/{partition}: OffsetForLeaderEpoch")
        return found.leader_epoch, found.end_offset

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Ask for the settings that a topic itself has, under Kafka's keys.

        Raises:
            ClusterUnreachableError, ClusterRefusedError, BrokerError (29: no right to see them).
        """
        from kafka.protocol.admin.configs import (  # a forward does not need them
            DescribeConfigsRequest,
            DescribeConfigsResponse,
        )

        kind = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[
                kind(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        answer = self.call(self._any_node(), request, DescribeConfigsResponse, 4)
        found = only(answer.results, "DescribeConfigsResponse")
        check(found.error_code, f"{topic}: DescribeConfigs")
        return {
            row.name: row.value
            for row in found.configs
            if row.config_source == _SET_ON_THE_TOPIC and row.value is not None
        }

    def new_producer_id(self) -> tuple[int, int]:
        """Ask for a new producer id and its epoch.

        Raises:
            ClusterUnreachableError, ClusterRefusedError, BrokerError (14 and others are retriable).
        """
        from kafka.protocol.producer.transaction import (  # a mirror does not need them
            InitProducerIdRequest,
            InitProducerIdResponse,
        )

        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = self.call(self._any_node(), request, InitProducerIdResponse, 4)
        check(answer.error_code, "InitProducerId")
        return answer.producer_id, answer.producer_epoch

    # Inside

    def _connect(self, address: Address) -> Connection:
        """Make a connection, unless one was refused just before."""
        refusal, until_s = self._refusals.get(address, ("", 0.0))
        if refusal and self._clock_s() < until_s:
            raise ClusterRefusedError(refusal)
        try:
            return Connection(address, self.settings)
        except ClusterRefusedError as error:
            self._refusals[address] = str(error), self._clock_s() + REFUSED_S
            raise

    def _any_node(self) -> int:
        if not self.brokers:
            self.topics(())
        return next(iter(self.brokers))

    def _topics_from(
        self, address: Address, names: Collection[str] | None
    ) -> dict[str, ClusterTopic]:
        request = MetadataRequest(
            topics=None if names is None else [_named(name) for name in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        answer = self._call(address, request, MetadataResponse, 12)
        self.brokers = {row.node_id: Address(row.host, row.port) for row in answer.brokers}
        self.cluster_id = answer.cluster_id or ""
        return {row.name: _topic_of(row) for row in answer.topics if self._is_topic(row.name)}

    def _is_topic(self, name: str | None) -> bool:
        """Whether a topic can have this name; the log says it of one that cannot."""
        if not name:
            return False
        try:
            parse_topic_name(name)
        except IllegalTopicNameError as error:
            if not self._has_told:
                logger.warning("the cluster names a topic that is left out: %s", error)
            self._has_told = True
            return False
        return True

    def _call(
        self, address: Address, request: Message, response: Message, newest: int | None
    ) -> Message:
        with self._lock:
            connection = self._connections.pop(address, None)
            if connection is not None and connection.is_expired:
                connection.close()
                connection = None
            is_new = connection is None
            while True:
                connection = connection or self._connect(address)
                try:
                    answer = connection.call(request, response, newest)
                except OSError as error:
                    connection.close()
                    connection = None
                    if is_new:
                        raise ClusterUnreachableError(
                            f"{address}: {error.strerror or error}"
                        ) from None
                    is_new = True  # it had been idle for too long
                    continue
                except BaseException:
                    connection.close()
                    raise
                self._connections[address] = connection
                return answer


def _named(name: str) -> Message:
    return MetadataRequest.MetadataRequestTopic(name=name)


def _topic_of(row: Message) -> ClusterTopic:
    leaders = {
        part.partition_index: Leader(part.leader_id, getattr(part, "leader_epoch", -1) or 0)
        for part in row.partitions
    }
    topic_id = getattr(row, "topic_id", None) or NO_ID
    return ClusterTopic(row.name, topic_id, row.error_code, leaders)
