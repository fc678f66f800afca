"""Where a forward continues: how many of its records an outlet has, and which local record is next.

How far an outlet has got is what its leader says: the number of records there. The local record
with that number is found from the last position that is noted, by walking on.

The records that the note does not know of are compared with those at the destination, since they
need not be the same. A data directory that was copied, restored from a backup or set back to a
snapshot has an old note, and other records may have been sent as the same producer since. After a
power cut the log may have lost records that the destination has, and have others in their place.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from logfs.errors import ClusterRefusedError, ClusterUnreachableError
from logfs.kafka.cluster import EARLIEST, LATEST, Cluster, ClusterTopic
from logfs.kafka.fetching import Wanted
from logfs.kafka.producing import LostTrackError, SentRecords, last_sequence, scan
from logfs.kafka.shipping import Part, Shaping, partition_for, parts_of, records_of
from logfs.kafka.wire import Connection
from logfs.log.forwardfile import ForwardFile, ForwardPosition
from logfs.log.reading.readable import ReadableLog
from logfs.records.produced import MAX_SEQUENCE
from logfs.records.record import Record
from logfs.services.clusters.batches import StoredBatches
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_HALF = (MAX_SEQUENCE + 1) // 2


class ForwardFailedError(ClusterRefusedError):
    """A partition cannot continue without its user."""


class AskAgainError(Exception):
    """The state of requests under way is lost: ask the brokers how far the forward has got."""


class _OtherRecordsError(Exception):
    """The destination has other records than the log, from a local offset on."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class Destination:
    """The destination of one partition. One thread uses it.

    Attributes:
        topic: With its present leaders.
        where: The local partition.
    """

    def __init__(self, cluster: Cluster, topic: ClusterTopic, where: TopicPartition) -> None:
        self.cluster = cluster
        self.topic = topic
        self.where = where
        self._connections: dict[int, Connection] = {}

    def connection(self, partition: int, drain: Callable[[], object] = lambda: None) -> Connection:
        """Return a connection to the leader of a partition.

        Args:
            drain: Takes the answers that are missing, before an expired connection is closed.
        """
        leader = self.topic.leaders.get(partition)
        if leader is None:
            raise ForwardFailedError(
                f"{self.where}: topic {self.topic.name} has no partition {partition}: give it as "
                "many partitions as the local topic, or use --partitions key"
            )
        if leader.node < 0:
            raise ClusterUnreachableError(f"{self.topic.name}/{partition} has no leader now")
        found = self._connections.get(leader.node)
        if found is not None and found.is_expired:
            drain()
            found.close()
            found = None
        if found is None:
            found = self._connections[leader.node] = self.cluster.connect(leader.node)
        return found

    def end(self, partition: int, end: int) -> int:
        """Return where a partition begins or ends: ``EARLIEST`` or ``LATEST``."""
        name, node = self.topic.name, self.topic.leaders[partition].node
        return self.cluster.list_offsets(node, name, {partition: end})[partition][0]

    def close(self) -> None:
        """Close the connections; others are made when they are needed."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


@dataclass(slots=True, eq=False)
class Outlet:
    """A partition of the destination.

    Attributes:
        records: Records that were sent to it, also those under way.
        next_offset: Local offset from which on records for it were not sent.
        noted: The last position that was acknowledged.
        is_remembered: The broker knows the producer for some time, by its last records.
    """

    partition: int
    noted: ForwardPosition
    records: int = 0
    next_offset: int = 0
    in_flight: int = 0
    is_remembered: bool = False


@dataclass(frozen=True, slots=True)
class ForwardResumption:
    """Finds where each outlet of a partition continues.

    Attributes:
        where: The local partition.
        log: The same, for reading; everything that was appended is loaded.
        file: The notes of the partition.
        shaping: How batches are made.
        trusts_note: The user says that what is noted is true.
        is_copy: The note was made in another directory or on another machine.
    """

    where: TopicPartition
    log: ReadableLog
    destination: Destination
    file: ForwardFile
    shaping: Shaping
    trusts_note: bool
    is_copy: bool

    def settle(self, outlets: Iterable[Outlet], held: int) -> None:
        """Set how many records each outlet has, and which local record is the next for it.

        Args:
            outlets: With the positions that are noted.
            held: Local offset before which the note says that every outlet has all.

        Raises:
            ForwardFailedError: It is not known, or the records there are not those of this log.
            AskAgainError: They cannot be read there yet.
            BrokerError, OSError: As connections raise them.
        """
        differs_at: list[int] = []
        for outlet in outlets:
            start = max(outlet.noted.next_offset, held)
            if self.file.position(outlet.partition) is None:
                self._begin(outlet, start)
                continue
            outlet.records = self._count_there(outlet)
            count = outlet.records - outlet.noted.records
            try:
                outlet.next_offset = self._offset_of(outlet, start, count)
            except _OtherRecordsError as error:
                differs_at.append(error.offset)
        if differs_at:
            offset = min(differs_at)
            raise ForwardFailedError(
                f"{self.where}: the destination has other records of this forward than this log "
                f"has from offset {offset} on. Either this directory is a copy or was restored "
                "from a backup, and more was forwarded from the other one; or this log has lost "
                f"its end in a power cut. --resume-at {offset} sends what is here from there on"
            )

    def records_for(self, outlet: Outlet, part: Part) -> list[Record]:
        """Return the records of a part that go to an outlet."""
        records = records_of(part)
        if self.file.identity.partitions != "key":
            return records
        count = self.file.identity.spread_over
        return [r for r in records if partition_for(r, count) == outlet.partition]

    # Inside

    def _begin(self, outlet: Outlet, start: int) -> None:
        """Note where the partition there ends: nothing of the producer can be before that."""
        self.destination.connection(outlet.partition)
        end = self.destination.end(outlet.partition, LATEST)
        outlet.noted = outlet.noted._replace(destination_offset=end - 1)
        outlet.records, outlet.next_offset = 0, start

    def _count_there(self, outlet: Outlet) -> int:
        """Return how many of our records an outlet has."""
        name, partition = self.destination.topic.name, outlet.partition
        producer = self.file.identity.producer_id
        connection = self.destination.connection(partition)
        reached = last_sequence(connection, name, partition, producer)
        if reached is None:
            try:
                reached = scan(self._sent(outlet))
            except LostTrackError as error:
                if (outlet.noted.is_clean and not self.is_copy) or self.trusts_note:
                    return outlet.noted.records
                raise ForwardFailedError(
                    f"{self.where}: it is not known whether partition {partition} of "
                    f"{self.file.identity.destination} has what was sent last: {error}, and the "
                    "broker has forgotten the producer. Compare both, then use --resume-at noted "
                    "or --resume-at OFFSET"
                ) from None
        if reached is None:
            return outlet.noted.records
        if reached.epoch > self.file.identity.producer_epoch:
            raise ForwardFailedError(
                f"{self.where}: another process forwards as the same producer, from a copy of this "
                "directory: stop it, or remove " + self.file.name
            )
        delta = self._number(outlet, reached.sequence) + 1 - outlet.noted.records
        if delta < 0:
            logger.warning(
                "%s: the destination has lost %d records; they are sent again", self.where, -delta
            )
        return outlet.noted.records + delta

    def _number(self, outlet: Outlet, sequence: int) -> int:
        """Return the number of the record with a sequence number, the first one is 0."""
        noted = outlet.noted.records
        delta = (sequence - noted + 1) % (MAX_SEQUENCE + 1)
        return noted - 1 + (delta if delta < _HALF else delta - MAX_SEQUENCE - 1)

    def _sent(self, outlet: Outlet) -> SentRecords:
        partition = outlet.partition
        topic, after = self.destination.topic, outlet.noted.destination_offset + 1
        return SentRecords(
            self.destination.connection(partition),
            Wanted(topic.name, topic.topic_id, partition, after),
            self.file.identity.producer_id,
            lambda: self.destination.end(partition, EARLIEST),
        )

    def _offset_of(self, outlet: Outlet, start: int, count: int) -> int:
        """Return the local offset after ``count`` more records of an outlet from ``start`` on.

        A negative count goes back.
        """
        if count > 0:
            return self._offset_after(outlet, start, count)
        return self._offset_before(outlet, start, -count) if count else start

    def _offset_after(self, outlet: Outlet, start: int, count: int) -> int:
        """Continue by records that the destination has, and compare them with those there."""
        first, sent = outlet.noted.records, self._sent(outlet)
        stop, local = first + count, self._local(outlet, start)
        number, mine = first - 1, Record(start - 1)
        for sequence, theirs, has_own_time in sent.records():
            wanted = self._number(outlet, sequence)
            if not number < wanted < stop:
                continue
            while number < wanted:
                number, mine = number + 1, self._next(local, start, stop - number - 1)
            if not self._is_same(mine, theirs, has_own_time=has_own_time):
                raise _OtherRecordsError(mine.offset)
            if number == stop - 1:
                break
        else:
            self._refuse_unknown(outlet, sent, stop)
        while number < stop - 1:
            number, mine = number + 1, self._next(local, start, stop - number - 1)
        return mine.offset + 1

    def _refuse_unknown(self, outlet: Outlet, sent: SentRecords, stop: int) -> None:
        """Raise if not all records up to a number were compared, and that is not in order."""
        reached = -1 if sent.last is None else self._number(outlet, sent.last.sequence)
        if reached >= stop - 1:
            return  # what is missing was compacted away there
        if not sent.has_lost:
            raise AskAgainError(
                f"{self.where}: records that the destination got last are not replicated there yet"
            )
        if self.is_copy and not self.trusts_note:
            raise ForwardFailedError(
                f"{self.where}: this directory is a copy, and the destination has deleted records "
                "that were sent from the other one or from here. Compare both, then use "
                "--resume-at noted or --resume-at OFFSET"
            )

    def _local(self, outlet: Outlet, start: int) -> Iterator[Record]:
        reader = StoredBatches(lambda: self.log.snapshot, start)
        while (piece := reader.read()) is not None:
            for part in parts_of(piece, self.shaping):
                yield from self.records_for(outlet, part)

    def _next(self, local: Iterator[Record], start: int, missing: int) -> Record:
        for record in local:
            return record
        raise ForwardFailedError(
            f"{self.where}: the destination has {missing} records more than this log from offset "
            f"{start} on: this log has lost its end, or is another one. --resume-at OFFSET "
            "continues all the same"
        )

    def _is_same(self, mine: Record, theirs: Record, *, has_own_time: bool) -> bool:
        if (mine.key, mine.value, mine.headers) != (theirs.key, theirs.value, theirs.headers):
            return False
        return self.shaping.is_stamped or not has_own_time or mine.timestamp == theirs.timestamp

    def _offset_before(self, outlet: Outlet, stop: int, count: int) -> int:
        """Return the local offset of the record of an outlet that is ``count`` before an offset."""
        step = count
        while True:
            start = max(stop - step, self.log.log_start_offset)
            offsets: list[int] = []
            reader = StoredBatches(lambda: self.log.snapshot, start)
            while reader.offset < stop and (piece := reader.read()) is not None:
                for part in parts_of(piece, self.shaping):
                    offsets += [r.offset for r in self.records_for(outlet, part)]
            offsets = [offset for offset in offsets if offset < stop]
            if len(offsets) >= count:
                return offsets[-count]
            if start <= self.log.log_start_offset:
                raise ForwardFailedError(
                    f"{self.where}: the destination has lost {count} records, and only "
                    f"{len(offsets)} of them are left here: --resume-at OFFSET continues"
                )
            step *= 2
