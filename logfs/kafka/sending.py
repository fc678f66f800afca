"""Sending the batches of one partition: what is under way, acknowledged, or refused.

The sequence number of a record is its number among all that went to the outlet, so a broker takes
each record once, however often it is sent.

Source: Kafka ProducerStateManager, Sender.
"""

import logging
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from logfs.kafka.producing import Acknowledged, receive_answer, send_batch
from logfs.kafka.resuming import AskAgainError, Destination, ForwardFailedError, Outlet
from logfs.kafka.shipping import (
    Part,
    RefusedRecordError,
    Shaping,
    Shipment,
    partition_for,
    records_of,
    shipments_of,
)
from logfs.kafka.wire import Connection, error_of
from logfs.log.forwardfile import ForwardFile, ForwardPosition
from logfs.records.record import Record

logger = logging.getLogger(__name__)

_IN_FLIGHT = 5
"""Batches of an outlet under way: as many as a broker remembers of a producer."""
_REMEMBERED_MS = 3_600_000
"""How old records may be for more than one batch under way.

A broker forgets a producer once its records are older than ``producer.id.expiration.ms``, a day. It
takes any sequence number then: a batch whose predecessor had an error that passes, too.
"""
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
    """The work since the start."""

    bytes: int = 0
    records: int = 0
    retries: int = 0
    losses: int = 0
    produce_s: float = 0.0
    throttled_ms: int = 0
    errors: Counter[str] = field(default_factory=Counter)


class Sender:
    """Sends the records of a partition to its outlets. One thread runs it; others read.

    Args:
        file: The notes of the partition.
        shaping: How batches are made.
        skips_too_large: Records that the destination does not take are left out, as a loss.

    Attributes:
        outlets: By their partitions of the destination.
        frontier: Local offset before which every record was sent.
        position: Local offset before which every record was acknowledged.
        error: The last error, for people.
    """

    def __init__(
        self,
        destination: Destination,
        file: ForwardFile,
        shaping: Shaping,
        stopping: threading.Event,
        *,
        skips_too_large: bool,
    ) -> None:
        self.outlets: dict[int, Outlet] = {}
        self.totals = Totals()
        self.error = ""
        self.position = self.frontier = file.held().next_offset
        self.acknowledged_ms = file.held().time_ms
        self.destination = destination
        self._where = destination.where
        self._file = file
        self.shaping = shaping
        self._stopping = stopping
        self._skips_too_large = skips_too_large
        self._under_way: deque[tuple[Connection, _Sent]] = deque()
        self._skipped: set[int] = set()

    def reach(self, offset: int) -> None:
        """Note that everything before an offset was acknowledged, and nothing is under way."""
        self.position = self.frontier = offset

    def send(self, part: Part) -> None:
        """Send what a part has for each outlet; what an outlet has already is left out."""
        self._send_rows(part)
        self.frontier = part.end

    def _send_rows(self, part: Part) -> None:
        if self._file.identity.partitions != "key":
            (outlet,) = self.outlets.values()
            if part.end > outlet.next_offset:
                mine = None
                if part.header is not None and part.header.base_offset < outlet.next_offset:
                    mine = [r for r in records_of(part) if r.offset >= outlet.next_offset]
                elif part.records and part.records[0].offset < outlet.next_offset:
                    mine = [r for r in part.records if r.offset >= outlet.next_offset]
                self._send_to(outlet, part, mine)
            return
        records = records_of(part)
        by_partition: dict[int, list[Record]] = {}
        count = self._file.identity.spread_over
        for record in records:
            by_partition.setdefault(partition_for(record, count), []).append(record)
        for partition, rows in by_partition.items():
            outlet = self.outlets[partition]
            mine = [r for r in rows if r.offset >= outlet.next_offset]
            if mine:
                self._send_to(outlet, part, mine)

    def _send_to(self, outlet: Outlet, part: Part, records: list[Record] | None) -> None:
        name, partition = self.destination.topic.name, outlet.partition
        timeout_ms = self.destination.cluster.settings.socket_timeout_ms // 2
        try:
            for shipment in shipments_of(part, outlet.records, self.shaping, records):
                is_recent = _is_recent(shipment) and outlet.is_remembered
                while outlet.in_flight >= (_IN_FLIGHT if is_recent else 1):
                    self._receive()
                connection = self.destination.connection(partition, self.drain)
                send_batch(connection, name, partition, shipment.data, timeout_ms)
                outlet.records += shipment.records
                outlet.next_offset = shipment.last + 1
                outlet.in_flight += 1
                sent = _Sent(outlet, shipment, outlet.records, time.monotonic())
                self._under_way.append((connection, sent))
        except RefusedRecordError as error:
            if not self._skips_too_large:
                self.drain()
                raise
            self._skip(outlet, part, records, error)

    def _skip(
        self, outlet: Outlet, part: Part, records: list[Record] | None, error: RefusedRecordError
    ) -> None:
        self.drain()
        if error.offset not in self._skipped:
            self._skipped.add(error.offset)
            self.totals.losses += 1
            logger.warning("%s: left out: %s", self._where, error)
        # It has no number, so counting must begin after it.
        outlet.next_offset = error.offset + 1
        outlet.noted = outlet.noted._replace(next_offset=outlet.next_offset)
        self._file.put(outlet.partition, outlet.noted)
        rows = records_of(part) if records is None else records
        self._send_to(outlet, part, [r for r in rows if r.offset > error.offset])

    def drain(self) -> None:
        """Take all answers that are missing."""
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
                f"{self._where}: {self._file.identity.destination} has lost all records of this "
                f"forward, also those that it had acknowledged up to offset "
                f"{outlet.noted.destination_offset} there. --resume-at OFFSET sends them again"
            )
        if answer.base_offset < 0:  # of a batch that it had already
            last = outlet.noted.destination_offset
        outlet.noted = ForwardPosition(shipment.last + 1, sent.records_after, last, now_ms)
        outlet.is_remembered = _is_recent(shipment)
        self._file.put(outlet.partition, outlet.noted)
        self.acknowledged_ms = now_ms
        self.error = ""
        totals = self.totals
        totals.records += shipment.records
        totals.bytes += len(shipment.data)
        totals.produce_s += time.monotonic() - sent.sent_s
        self.position = min([self.frontier, *(s.shipment.first for _, s in self._under_way)])
        if answer.throttled_ms:
            totals.throttled_ms += answer.throttled_ms
            self._stopping.wait(answer.throttled_ms / 1000)

    def _refused(self, sent: _Sent, answer: Acknowledged) -> None:
        """Raise what follows from the answer to a batch."""
        outlet, shipment = sent.outlet, sent.shipment
        what = f"{self.destination.topic.name}/{outlet.partition}: Produce"
        error = error_of(answer.error, what)
        text = f"{error}{': ' if answer.text else ''}{answer.text}"
        self.error = text
        if answer.error in _TOO_LARGE and shipment.records > 1:
            self.shaping.most_bytes = max(len(shipment.data) // 2, 100)
            raise AskAgainError(text)
        if answer.error in _TOO_LARGE and self._skips_too_large:
            self.shaping.most_bytes = len(shipment.data) - 1
            raise AskAgainError(text)
        if answer.error in _LOST_TRACK or (error.is_retriable and answer.error != _FENCED):
            raise AskAgainError(text)
        raise ForwardFailedError(
            f"{self._where}: offset {shipment.first} is refused: {text}. {_remedy(answer.error)}"
        )

    def drop(self) -> None:
        """Close the connections, and forget what is under way."""
        self.destination.close()
        self._under_way.clear()


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
