"""One partition that is forwarded: what goes where, and what was acknowledged.

Each partition of the destination that records go to is an ``Outlet``. The sequence number of a
record is its number among all that went to the outlet, so a broker takes each record once, however
often it is sent. Where it continues after a stop is found by ``resuming``.

Source: Kafka ProducerStateManager, Sender.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from logfs.errors import (
    ClusterUnreachableError,
    CorruptRecordError,
)
from logfs.kafka.cluster import Cluster, ClusterTopic
from logfs.kafka.producing import Acknowledged, receive_answer, send_batch
from logfs.kafka.resuming import AskAgainError, ForwardFailedError, ForwardResumption, Outlet
from logfs.kafka.shipping import (
    Part,
    RefusedRecordError,
    Shaping,
    Shipment,
    partition_for,
    parts_of,
    records_of,
    shipments_of,
)
from logfs.kafka.wire import Connection, error_of
from logfs.log.forwardfile import ForwardFile, ForwardPosition
from logfs.log.reading.readable import ReadableLog
from logfs.records.record import Record
from logfs.services.clusters.batches import StoredBatches
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_IN_FLIGHT = 5
"""Batches of an outlet under way: as many as a broker remembers of a producer."""
_REMEMBERED_MS = 3_600_000
"""How old records may be for more than one batch under way.

A broker forgets a producer once its records are older than ``producer.id.expiration.ms``, a day. It
takes any sequence number then: a batch whose predecessor had an error that passes, too.
"""
_HOLD_EVERY_S = 1.0
_TOO_LARGE = (10, 18)
_LOST_TRACK = (45, 46, 59)
_FENCED = 47
_OLD_FORMAT = 43


@dataclass(frozen=True, slots=True)
class _Sent:
    outlet: Outlet
    shipment: Shipment
    records_after: int
    sent_s: float


@dataclass(slots=True)
class Totals:
    """What was done since the start."""

    bytes: int = 0
    records: int = 0
    retries: int = 0
    losses: int = 0
    produce_s: float = 0.0
    throttled_ms: int = 0
    errors: Counter[str] = field(default_factory=Counter)


class ForwardedPartition:
    """Forwards one partition. One thread runs it; others read its attributes.

    Args:
        where: The local partition.
        log: The same, for reading.
        look: Loads what was appended; True: there is more to load at once.
        wait: Waits for appends, at most so many seconds.
        cluster, topic: The destination.
        file: What is noted of it.
        home: See ``ForwardIdentity``; of this directory.
        shaping: How batches are made.

    Attributes:
        until: Local offset at which it is done; None: there is no end.
        failure: Why it does not continue.
        error: The last error, for people.
        position: Local offset before which every record was acknowledged.
        log: The local log; ``look`` replaces one that could not be followed at first.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - its parts
        self,
        where: TopicPartition,
        log: ReadableLog,
        look: Callable[[], bool],
        wait: Callable[[float], object],
        cluster: Cluster,
        topic: ClusterTopic,
        file: ForwardFile,
        home: str,
        shaping: Shaping,
        stopping: threading.Event,
    ) -> None:
        self.where = where
        self.home = home
        self.file = file
        self.shaping = shaping
        self.until: int | None = None
        self.skips_too_large = False
        self.resume_noted = False
        self.failure = ""
        self.error = ""
        self.totals = Totals()
        self.acknowledged_ms = file.held().time_ms
        self.is_ready = False
        self.log = log
        self._look = look
        self._wait = wait
        self._cluster = cluster
        self._topic = topic
        self._stopping = stopping
        self._outlets: dict[int, Outlet] = {}
        self._connections: dict[int, Connection] = {}
        self._under_way: deque[tuple[Connection, _Sent]] = deque()
        self._reader = StoredBatches(lambda: log.snapshot, 0)
        self._held_s = 0.0
        self.position = self._frontier = file.held().next_offset
        self._is_settled = False
        self._skipped: set[int] = set()

    @property
    def is_done(self) -> bool:
        """Whether everything that was wanted was acknowledged."""
        return self.until is not None and self.position >= self.until

    @property
    def lag(self) -> int:
        """Its lag in offsets."""
        return max(0, self.log.log_end_offset - self.position)

    def run(self) -> None:
        """Forward until it is done, fails or is told to stop.

        Raises:
            ForwardFailedError: It cannot continue.
            ClusterUnreachableError, ClusterRefusedError, BrokerError, OSError: It may continue
                later, with another call.
        """
        self._is_settled = False
        try:
            self._learn_positions()
            self.is_ready = True
            self._serve()
            self._is_settled = True
        except RefusedRecordError as error:
            raise ForwardFailedError(
                f"{self.where}: {error}: raise max.message.bytes of the destination, or use "
                "--skip-too-large, which is a loss"
            ) from None
        except CorruptRecordError as error:
            raise ForwardFailedError(
                f"{self.where}: {error}; 'logfs verify' shows what is left of it, and --resume-at "
                "OFFSET passes over it"
            ) from None
        finally:
            self._drop()

    def close(self) -> None:
        """Note durably where it is."""
        is_clean = self._is_settled
        for outlet in self._outlets.values():
            if outlet.noted.records or is_clean:
                self.file.put(outlet.partition, outlet.noted._replace(is_clean=is_clean))
        self._hold()
        self.file.sync()
        self.file.close()

    # Where it is

    def _learn_positions(self) -> None:
        """Find how far each outlet has got, and where reading begins."""
        self._look_all()
        held = self.file.held().next_offset
        is_copy = self.file.identity.home != self.home
        self._outlets = {number: Outlet(number, self._noted(number)) for number in self._wanted()}
        resumption = self._resumption(is_copy=is_copy)
        resumption.settle(self._outlets.values(), held)
        for outlet in self._outlets.values():
            noted = outlet.noted
            there = noted.destination_offset if outlet.records >= noted.records else -1
            outlet.noted = noted._replace(
                next_offset=outlet.next_offset,
                records=outlet.records,
                destination_offset=there,
                is_clean=False,
            )
            self.file.put(outlet.partition, outlet.noted)
        self.file.sync()  # before anything is sent that the note does not know of
        if is_copy:
            self._become_another_producer()
        first = min(outlet.next_offset for outlet in self._outlets.values())
        if first > self.log.log_end_offset:
            raise ForwardFailedError(
                f"{self.where} ends at offset {self.log.log_end_offset}, and what was forwarded "
                f"ends at {first}: this log has lost its end, in a power cut, or is another "
                "one. --resume-at OFFSET continues at another offset"
            )
        self._note_deleted(first)
        self.position = self._frontier = max(first, self.log.log_start_offset)
        if self.position < held:  # the destination has lost records that it had acknowledged
            self.file.hold(ForwardPosition(self.position, time_ms=self.acknowledged_ms))
        self._reader = StoredBatches(lambda: self.log.snapshot, self.position)

    def _wanted(self) -> range:
        """Return the partitions of the destination that records go to."""
        if self.file.identity.partitions == "key":
            return range(self.file.identity.spread_over)
        return range(self.where.partition, self.where.partition + 1)

    def _noted(self, partition: int) -> ForwardPosition:
        return self.file.position(partition) or ForwardPosition(self.file.identity.first_offset)

    def _resumption(self, *, is_copy: bool) -> ForwardResumption:
        return ForwardResumption(
            self.where,
            self.log,
            self._connection,
            self._cluster,
            self._topic,
            self.file,
            self.shaping,
            trusts_note=self.resume_noted,
            is_copy=is_copy,
        )

    def _become_another_producer(self) -> None:
        """Take a new producer id: a process that forwards from the other copy has the old one.

        A broker takes a batch for a repeat if it has one of the same producer with its number.
        """
        producer_id, epoch = self._cluster.new_producer_id()
        identity = self.file.identity
        self.file.change(
            identity._replace(producer_id=producer_id, producer_epoch=epoch, home=self.home)
        )
        self.shaping.producer_id, self.shaping.producer_epoch = producer_id, epoch
        logger.warning(
            "%s: this directory is a copy, or was moved: it is forwarded as its own producer, "
            "from what the other one had forwarded on",
            self.where,
        )

    def _note_deleted(self, expected: int) -> None:
        """Note a loss if the log begins after the offset that is forwarded next."""
        start = self.log.log_start_offset
        if expected < start:
            self.totals.losses += 1
            logger.warning(
                "%s: offsets %d to %d were deleted before they were forwarded",
                self.where, expected, start - 1,
            )  # fmt: skip

    # Sending

    def _serve(self) -> None:
        linger_s = self._cluster.settings.linger_ms / 1000
        while not self._stopping.is_set():
            piece = self._reader.read()
            if piece is None:
                self._drain()
                self.position = self._frontier = self._reader.offset
                self._hold_if_due()
                if self.is_done:
                    return
                if not self._look():
                    self._wait(_HOLD_EVERY_S)
                    self._stopping.wait(linger_s)
                    self._look()
                continue
            if piece.first > self._frontier:
                self._note_deleted(self._frontier)
            for part in parts_of(piece, self.shaping):
                self._send_part(part)
                self._frontier = part.end
                if self._stopping.is_set():
                    break
            self._hold_if_due()
        self._drain()

    def _send_part(self, part: Part) -> None:
        """Send what a part has for each outlet; what an outlet has already is left out."""
        if self.file.identity.partitions != "key":
            (outlet,) = self._outlets.values()
            if part.end > outlet.next_offset:
                mine = None
                if part.header is not None and part.header.base_offset < outlet.next_offset:
                    mine = [r for r in records_of(part) if r.offset >= outlet.next_offset]
                elif part.records and part.records[0].offset < outlet.next_offset:
                    mine = [r for r in part.records if r.offset >= outlet.next_offset]
                self._send(outlet, part, mine)
            return
        records = records_of(part)
        by_partition: dict[int, list[Record]] = {}
        count = self.file.identity.spread_over
        for record in records:
            by_partition.setdefault(partition_for(record, count), []).append(record)
        for partition, rows in by_partition.items():
            outlet = self._outlets[partition]
            mine = [r for r in rows if r.offset >= outlet.next_offset]
            if mine:
                self._send(outlet, part, mine)

    def _send(self, outlet: Outlet, part: Part, records: list[Record] | None) -> None:
        name, partition = self._topic.name, outlet.partition
        timeout_ms = self._cluster.settings.socket_timeout_ms // 2
        try:
            for shipment in shipments_of(part, outlet.records, self.shaping, records):
                is_recent = _is_recent(shipment) and outlet.is_remembered
                while outlet.in_flight >= (_IN_FLIGHT if is_recent else 1):
                    self._receive()
                connection = self._connection(partition)
                send_batch(connection, name, partition, shipment.data, timeout_ms)
                outlet.records += shipment.records
                outlet.next_offset = shipment.last + 1
                outlet.in_flight += 1
                sent = _Sent(outlet, shipment, outlet.records, time.monotonic())
                self._under_way.append((connection, sent))
        except RefusedRecordError as error:
            if not self.skips_too_large:
                self._drain()
                raise
            self._skip(outlet, part, records, error)

    def _skip(
        self, outlet: Outlet, part: Part, records: list[Record] | None, error: RefusedRecordError
    ) -> None:
        self._drain()
        if error.offset not in self._skipped:
            self._skipped.add(error.offset)
            self.totals.losses += 1
            logger.warning("%s: left out: %s", self.where, error)
        # It has no number, so counting must begin after it.
        outlet.next_offset = error.offset + 1
        outlet.noted = outlet.noted._replace(next_offset=outlet.next_offset)
        self.file.put(outlet.partition, outlet.noted)
        rows = records_of(part) if records is None else records
        self._send(outlet, part, [r for r in rows if r.offset > error.offset])

    def _drain(self) -> None:
        while self._under_way:
            self._receive()

    def _receive(self) -> None:
        """Take the oldest answer."""
        connection, sent = self._under_way[0]
        answer = receive_answer(connection)
        self._under_way.popleft()
        outlet, shipment = sent.outlet, sent.shipment
        outlet.in_flight -= 1
        if answer.error:
            self._refused(sent, answer)
        now_ms = round(time.time() * 1000)
        last = answer.base_offset + shipment.records - 1
        if outlet.noted.records and 0 <= answer.base_offset <= outlet.noted.destination_offset:
            raise ForwardFailedError(
                f"{self.where}: {self.file.identity.destination} has lost all records of this "
                f"forward, also those that it had acknowledged up to offset "
                f"{outlet.noted.destination_offset} there. --resume-at OFFSET sends them again"
            )
        if answer.base_offset < 0:  # of a batch that it had already
            last = outlet.noted.destination_offset
        outlet.noted = ForwardPosition(shipment.last + 1, sent.records_after, last, now_ms)
        outlet.is_remembered = _is_recent(shipment)
        self.file.put(outlet.partition, outlet.noted)
        self.acknowledged_ms = now_ms
        self.error = ""
        totals = self.totals
        totals.records += shipment.records
        totals.bytes += len(shipment.data)
        totals.produce_s += time.monotonic() - sent.sent_s
        self.position = min([self._frontier, *(s.shipment.first for _, s in self._under_way)])
        if answer.throttled_ms:
            totals.throttled_ms += answer.throttled_ms
            self._stopping.wait(answer.throttled_ms / 1000)

    def _refused(self, sent: _Sent, answer: Acknowledged) -> None:
        """Raise what follows from the answer to a batch."""
        outlet, shipment = sent.outlet, sent.shipment
        what = f"{self._topic.name}/{outlet.partition}: Produce"
        error = error_of(answer.error, what)
        text = f"{error}{': ' if answer.text else ''}{answer.text}"
        self.error = text
        if answer.error in _TOO_LARGE and shipment.records > 1:
            self.shaping.most_bytes = max(len(shipment.data) // 2, 100)
            raise AskAgainError(text)
        if answer.error in _TOO_LARGE and self.skips_too_large:
            self.shaping.most_bytes = len(shipment.data) - 1
            raise AskAgainError(text)
        if answer.error in _LOST_TRACK or (error.is_retriable and answer.error != _FENCED):
            raise AskAgainError(text)
        raise ForwardFailedError(
            f"{self.where}: offset {shipment.first} is refused: {text}. {_remedy(answer.error)}"
        )

    # Connections, holds

    def _connection(self, partition: int) -> Connection:
        leader = self._topic.leaders.get(partition)
        if leader is None:
            raise ForwardFailedError(
                f"{self.where}: topic {self._topic.name} has no partition {partition}: give it as "
                "many partitions as the local topic, or use --partitions key"
            )
        if leader.node < 0:
            raise ClusterUnreachableError(f"{self._topic.name}/{partition} has no leader now")
        found = self._connections.get(leader.node)
        if found is not None and found.is_expired:
            self._drain()
            found.close()
            found = None
        if found is None:
            found = self._connections[leader.node] = self._cluster.connect(leader.node)
        return found

    def use(self, topic: ClusterTopic) -> None:
        """Take the present leaders; between two calls of ``run``."""
        self._topic = topic

    def _drop(self) -> None:
        """Close the connections; what is under way is asked for at the next ``run``."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self.totals.retries += not self._is_settled
        self._under_way.clear()

    def _look_all(self) -> None:
        while self._look():
            pass

    def _hold_if_due(self) -> None:
        now_s = time.monotonic()
        if now_s - self._held_s >= _HOLD_EVERY_S:
            self._held_s = now_s
            self._hold()

    def _hold(self) -> None:
        held = self.file.held()
        if self.position > held.next_offset or self.acknowledged_ms > held.time_ms:
            self.file.hold(ForwardPosition(self.position, time_ms=self.acknowledged_ms))


def _is_recent(shipment: Shipment) -> bool:
    return shipment.newest > time.time() * 1000 - _REMEMBERED_MS


def _remedy(code: int) -> str:
    if code in {29, 31}:
        return "Give the client the right to write the topic (ACL operations Write, Describe)"
    if code == _OLD_FORMAT:
        return "Set message.format.version of the destination to 0.11.0 or newer"
    if code == _FENCED:
        return "Another process forwards as the same producer, from a copy of this directory"
    if code in _TOO_LARGE:
        return "Raise max.message.bytes of the destination, or use --skip-too-large"
    return "Change the settings of the destination, or continue after it with --resume-at OFFSET"
