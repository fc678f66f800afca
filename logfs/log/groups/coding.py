"""Keys and values of ``__consumer_offsets``. Pure.

A key begins with an int16 that says what the record is::

    0, 1   a position            group, topic, partition
    2      a group with members  group (the classic protocol)
    5      a member              group, member (the protocol of KIP-848)

The value of a position begins with an int16, its version: offset int64, leader epoch int32 (3 and
later), metadata string, time of the commit int64, time of expiry int64 (1 only). Strings have an
int16 length; from version 4 on they are compact. A null value removes the position.

Source: Kafka OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue,
ConsumerGroupMemberMetadataKey, GroupCoordinatorRecordHelpers.
"""

import struct
from typing import NamedTuple

from logfs.errors import CorruptRecordError, InvalidConfigError
from logfs.types import MAX_OFFSET, TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 50
"""Source: Kafka ``offsets.topic.num.partitions``."""
OFFSETS_CONFIG = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
"""The configuration of the topic. Source: Kafka GroupCoordinator.groupMetadataTopicConfigs."""
MAX_METADATA_BYTES = 4096
"""Source: Kafka ``offset.metadata.max.bytes``."""

_POSITION_TYPES = (0, 1)
_POSITION, _CLASSIC_GROUP, _MEMBER = 1, 2, 5
_VALUE_VERSION, _LAST_VALUE_VERSION = 3, 4


class PositionKey(NamedTuple):
    """The key of a position."""

    group: str
    topic_partition: TopicPartition


class GroupKey(NamedTuple):
    """The key of a record about a group itself, or about one of its members.

    Attributes:
        member: The member's id; None: the group itself.
    """

    group: str
    member: str | None = None


class Position(NamedTuple):
    """What a group has committed for a partition.

    Attributes:
        offset: The offset of the next record that the group will read.
        metadata: A text of the program that committed.
        committed_ms: The clock of the commit.
        expires_ms: When it expires, as old clients could say; None: by the retention of the store.
        leader_epoch: The leader epoch of the last record that was read; -1: unknown.
    """

    offset: int
    metadata: str = ""
    committed_ms: int = -1
    expires_ms: int | None = None
    leader_epoch: int = -1


class GroupState(NamedTuple):
    """What a coordinator has noted of a group.

    Attributes:
        has_members: Members were in it.
        since_ms: The clock of its last change; -1: unknown.
    """

    has_members: bool
    since_ms: int


def partition_of(group: str, partitions: int) -> int:
    """Return the partition of the topic that has the records of a group.

    Source: Kafka Utils.abs(groupId.hashCode()) % partitions, and Java's String.hashCode.
    """
    code = 0
    utf16 = group.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", utf16):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def encode_key(key: PositionKey) -> bytes:
    """Return the key of a position as bytes."""
    topic, partition = key.topic_partition
    return struct.pack(">h", _POSITION) + _string(key.group) + _string(topic) + _int32(partition)


def encode_position(position: Position) -> bytes:
    """Return a position as bytes of version 3, as a broker writes it.

    Raises:
        InvalidConfigError: The offset is negative, or the metadata is too long.
    """
    if not 0 <= position.offset <= MAX_OFFSET:
        raise InvalidConfigError(f"offset {position.offset}: expected 0 to {MAX_OFFSET}")
    if len(position.metadata.encode()) > MAX_METADATA_BYTES:
        raise InvalidConfigError(
            f"metadata of {len(position.metadata.encode())} bytes: expected at most "
            f"{MAX_METADATA_BYTES}"
        )
    head = struct.pack(">hqi", _VALUE_VERSION, position.offset, position.leader_epoch)
    return head + _string(position.metadata) + struct.pack(">q", position.committed_ms)


def decode_key(data: bytes) -> PositionKey | GroupKey | None:
    """Return what a key names; None if logfs has no use for it.

    Raises:
        CorruptRecordError: The bytes do not parse.
    """
    reader = _Reader(data)
    kind = reader.number(">h")
    if kind in _POSITION_TYPES:
        group, topic = reader.string(), reader.string()
        return PositionKey(group, TopicPartition(topic, reader.number(">i")))
    if kind == _CLASSIC_GROUP:
        return GroupKey(reader.string())
    if kind == _MEMBER:
        group = reader.string()
        return GroupKey(group, reader.string())
    return None


def decode_position(data: bytes) -> Position:
    """Return a position from the bytes of any version.

    Raises:
        CorruptRecordError: The bytes do not parse, or are of a later version.
    """
    reader = _Reader(data)
    version = reader.number(">h")
    if not 0 <= version <= _LAST_VALUE_VERSION:
        raise CorruptRecordError(
            f"a committed offset of version {version}: expected 0 to {_LAST_VALUE_VERSION}"
        )
    offset = reader.number(">q")
    epoch = reader.number(">i") if version >= 3 else -1
    metadata = reader.compact_string() if version >= 4 else reader.string()
    committed_ms = reader.number(">q")
    expires_ms = reader.number(">q") if version == 1 else None
    return Position(offset, metadata, committed_ms, expires_ms, epoch)


def decode_group(data: bytes) -> GroupState:
    """Return the state of a group of the classic protocol.

    Raises:
        CorruptRecordError: The bytes do not parse.
    """
    reader = _Reader(data)
    version = reader.number(">h")
    text = reader.compact_or_null if version >= 4 else reader.string_or_null
    text()  # the type of the protocol
    reader.number(">i")  # the generation
    text()  # the name of the protocol
    leader = text()
    since_ms = reader.number(">q") if version >= 2 else -1
    return GroupState(leader is not None, since_ms)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _int32(number: int) -> bytes:
    return struct.pack(">i", number)


class _Reader:
    """Takes fields from bytes; raises CorruptRecordError where they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (found,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(found)

    def string(self) -> str:
        return self.string_or_null() or ""

    def string_or_null(self) -> str | None:
        length = self.number(">h")
        return None if length < 0 else self._text(length)

    def compact_string(self) -> str:
        return self.compact_or_null() or ""

    def compact_or_null(self) -> str | None:
        length, shift = 0, 0
        while True:
            byte = self.number("B")
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 28:
                break
        return None if length == 0 else self._text(length - 1)

    def _text(self, length: int) -> str:
        return self._take(length).decode("utf-8", "replace")

    def _take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise CorruptRecordError(
                f"a record of {OFFSETS_TOPIC} ends after {len(self._data)} bytes; expected more"
            )
        self._at += count
        return part
