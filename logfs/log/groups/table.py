"""What consumer groups have committed, kept up to date from the logs of ``__consumer_offsets``.

A table reads each record once: a later look reads what has been appended since. Records of
transactions apply from their commit on, as in Kafka.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from logfs.disk.waiting import WouldWaitError, held, may_wait
from logfs.errors import CorruptRecordError, InvalidConfigError
from logfs.log.groups.coding import (
    OFFSETS_PARTITIONS,
    OFFSETS_TOPIC,
    GroupKey,
    GroupState,
    Position,
    PositionKey,
    decode_group,
    decode_key,
    decode_position,
    encode_key,
    encode_position,
    partition_of,
)
from logfs.log.names import check_group
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.records import RecordReader
from logfs.records.record import Record
from logfs.types import IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)

_FEW_OFFSETS = 4096
"""A thread that must not wait reads no more than that."""


@dataclass(slots=True)
class Group:
    """A consumer group.

    Attributes:
        positions: The positions that the group has committed.
        state: The note of a coordinator; None: none, as for a group of logfs.
        members: Ids of its members, by the protocol of KIP-848.
    """

    name: str
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    state: GroupState | None = None
    members: set[str] = field(default_factory=set)

    @property
    def has_members(self) -> bool:
        """Whether a coordinator has noted members, which may have gone with their broker."""
        return bool(self.members) or (self.state is not None and self.state.has_members)


class GroupTable:
    """The groups of a data directory. Any thread.

    Args:
        numbers: Returns the present partitions of the topic, sorted; none if it does not exist.
        log: Returns the log of one of them, with all present changes; called after ``numbers``.
    """

    def __init__(
        self, numbers: Callable[[], Sequence[int]], log: Callable[[int], ReadableLog]
    ) -> None:
        self._numbers = numbers
        self._log = log
        self._lock = threading.Lock()
        self._parts: dict[int, _Part] = {}
        self._reported: set[tuple[str, TopicPartition, int]] = set()

    def groups(self) -> dict[str, Group]:
        """Return the groups, sorted by name.

        Raises:
            LogfsError, OSError: The topic cannot be read.
        """
        with held(self._lock, OFFSETS_TOPIC):
            found: dict[str, Group] = {}
            for number in self._numbers():
                found |= self._look(number).copies()
            return {name: found[name] for name in sorted(found)}

    def group(self, name: str) -> Group | None:
        """Return a group; None if there is none of that name. Raises as ``groups`` does."""
        with held(self._lock, OFFSETS_TOPIC):
            for number in self._where(name):
                found = self._look(number).groups.get(name)
                if found is not None:
                    return _copy(found)
        return None

    def committed(self, group: str, topic_partition: TopicPartition) -> int | None:
        """Return the offset that a group has committed for a partition; None: none.

        Raises:
            LogfsError, OSError: The topic cannot be read.
        """
        with held(self._lock, OFFSETS_TOPIC):
            for number in self._where(group):
                found = self._look(number).groups.get(group)
                if found is not None and topic_partition in found.positions:
                    return found.positions[topic_partition].offset
        return None

    def position_in(self, log: ReadableLog, group: str) -> int | None:
        """Return the offset that a group has committed for a log.

        None if it has committed none, or one beyond the log end: that of another topic of the name,
        or of records that a power cut took. As with ``auto.offset.reset=earliest``, such a group
        begins again.

        Raises:
            LogfsError, OSError: The topic cannot be read.
        """
        offset = self.committed(group, log.topic_partition)
        if offset is None or log.indexing is not None or offset <= log.log_end_offset:
            return offset
        what = group, log.topic_partition, offset
        if what not in self._reported:
            self._reported.add(what)
            logger.warning(
                "%s: group %s has committed offset %d, but the log ends at %d: it begins at the "
                "earliest record",
                log.topic_partition, group, offset, log.log_end_offset,
            )  # fmt: skip
        return None

    def partition_of(self, group: str) -> int:
        """Return the partition of the topic to which the records of a group are appended."""
        return partition_of(group, _count(self._numbers()))

    def _where(self, group: str) -> Sequence[int]:
        """Return the partitions that may have records of a group."""
        numbers = self._numbers()
        if not numbers:
            return []
        if not _is_whole(numbers):
            return numbers  # of a cluster, whose other brokers have the others
        return [partition_of(group, len(numbers))]

    def _look(self, number: int) -> "_Part":
        log = self._log(number)
        part = self._parts.get(number)
        if part is None or not part.is_of(log):
            part = self._parts[number] = _Part(log)
        part.refresh()
        return part


def commit_records(group: str, positions: dict[TopicPartition, Position]) -> list[Record]:
    """Return the records that commit positions of a group.

    Raises:
        InvalidConfigError: The group or a position cannot be written.
    """
    check_group(group)
    return [
        Record(0, position.committed_ms, encode_key(PositionKey(group, one)),
               encode_position(position))
        for one, position in positions.items()
    ]  # fmt: skip


def removal_records(group: str, removed: Sequence[TopicPartition], now_ms: int) -> list[Record]:
    """Return the tombstones that remove positions of a group."""
    return [Record(0, now_ms, encode_key(PositionKey(group, one)), None) for one in removed]


def check_whole_topic(numbers: Sequence[int]) -> None:
    """Refuse to commit where partitions of the topic are missing.

    Raises:
        InvalidConfigError: Some are on other brokers.
    """
    if numbers and not _is_whole(numbers):
        raise InvalidConfigError(
            f"{OFFSETS_TOPIC} has {len(numbers)} partitions here, up to number {numbers[-1]}: the "
            "others are on other brokers of a cluster, which commits its positions itself"
        )


def _is_whole(numbers: Sequence[int]) -> bool:
    return len(numbers) == numbers[-1] + 1


def _count(numbers: Sequence[int]) -> int:
    return len(numbers) if numbers else OFFSETS_PARTITIONS


def _copy(group: Group) -> Group:
    return Group(group.name, dict(group.positions), group.state, set(group.members))


class _Part:
    """The contents of one partition of the topic."""

    def __init__(self, log: ReadableLog) -> None:
        self._log = log
        self._truncations = log.snapshot.truncations
        self._reader = RecordReader(lambda: log.snapshot, 0, IsolationLevel.READ_COMMITTED)
        self.groups: dict[str, Group] = {}

    def is_of(self, log: ReadableLog) -> bool:
        """Tell whether this is what a log says, up to a place that is still in it."""
        return self._log is log and self._truncations == log.snapshot.truncations

    def copies(self) -> dict[str, Group]:
        """Return copies of the groups."""
        return {name: _copy(group) for name, group in self.groups.items()}

    def refresh(self) -> None:
        """Read what has been appended.

        Raises:
            WouldWaitError: It takes long, and this thread must not wait.
        """
        missing = self._log.snapshot.end.offset - self._reader.offset
        if missing > _FEW_OFFSETS and not may_wait():
            raise WouldWaitError(str(self._log.topic_partition))
        latest: dict[bytes, bytes | None] = {}
        try:
            for record in self._records():
                if record.key is not None:
                    latest[record.key] = record.value
        finally:
            for key, value in latest.items():
                self._apply(key, value)

    def _records(self) -> Iterator[Record]:
        while records := self._reader.read():
            yield from records

    def _apply(self, key: bytes, value: bytes | None) -> None:
        try:
            self._set(decode_key(key), value)
        except CorruptRecordError as error:
            logger.warning("%s: ignored: %s", self._log.topic_partition, error)

    def _set(self, key: PositionKey | GroupKey | None, value: bytes | None) -> None:
        if key is None:
            return
        group = self.groups.get(key.group) or Group(key.group)
        if isinstance(key, PositionKey):
            if value is None:
                group.positions.pop(key.topic_partition, None)
            else:
                group.positions[key.topic_partition] = decode_position(value)
        elif key.member is not None:
            (group.members.discard if value is None else group.members.add)(key.member)
        else:
            group.state = None if value is None else decode_group(value)
        if group.positions or group.state or group.members:
            self.groups[key.group] = group
        else:
            self.groups.pop(key.group, None)
