"""The names of the objects of a store of logs: all are formatted and parsed here, strictly. Pure.

A topic's directory has its id in its name. A topic that is deleted and made again has another one.
"""

import base64
import binascii
import re
from typing import NamedTuple
from uuid import UUID

from logfs.log.names import MAX_PARTITION, format_topic_id, parse_topic_id
from logfs.types import MAX_OFFSET, TopicPartition

STORE = "logfs-store"
HEAD = "logfs-head"
LOG = ".log"
INDEXES = ".indexes"

_TOPIC = re.compile(r"([a-zA-Z0-9._-]{1,249})-([a-zA-Z0-9_-]{22})")
_SEGMENT = re.compile(r"([0-9]{20})-([a-zA-Z0-9_-]{22})(\.log|\.indexes)")
_TABLE = re.compile(r"logfs-table-([0-9]{20})-([a-zA-Z0-9_-]{22})")


class PartitionPlace(NamedTuple):
    """The place of the objects of a partition."""

    topic_partition: TopicPartition
    topic_id: UUID

    @property
    def prefix(self) -> str:
        """The part that all its keys begin with; it ends with "/"."""
        topic, partition = self.topic_partition
        return f"{topic}-{format_topic_id(self.topic_id)}/{partition}/"

    @property
    def qualified(self) -> TopicPartition:
        """The partition under a name that no other topic has: that of the topic with its id."""
        topic, partition = self.topic_partition
        return TopicPartition(f"{topic}-{format_topic_id(self.topic_id)}", partition)

    @property
    def head(self) -> str:
        """The key of its head."""
        return self.prefix + HEAD

    def log(self, base_offset: int, segment_id: bytes) -> str:
        """The key of the .log of a segment; its id has 16 bytes."""
        return f"{self.prefix}{_stem(base_offset, segment_id)}{LOG}"

    def indexes(self, base_offset: int, segment_id: bytes) -> str:
        """The key of what belongs to the .log of a segment."""
        return f"{self.prefix}{_stem(base_offset, segment_id)}{INDEXES}"

    def table(self, first_offset: int, table_id: bytes) -> str:
        """The key of a table of entries that left the head; its id has 16 bytes."""
        return f"{self.prefix}logfs-table-{_stem(first_offset, table_id)}"


def parse_topic_directory(name: str) -> tuple[str, UUID] | None:
    """Return topic and id of a directory of the store; None for other names."""
    match = _TOPIC.fullmatch(name)
    if match is None:
        return None
    try:
        return match[1], parse_topic_id(match[2])
    except ValueError:
        return None


def parse_partition(name: str) -> int | None:
    """Return the number of a partition's directory of the store; None for other names."""
    is_number = name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0")
    return int(name) if is_number and int(name) <= MAX_PARTITION else None


def parse_segment(name: str) -> tuple[int, bytes, str] | None:
    """Return base offset, id and kind (``LOG``, ``INDEXES``) of an object; None for other names."""
    match = _SEGMENT.fullmatch(name)
    segment_id = None if match is None else _parse_id(match[2])
    if match is None or segment_id is None or int(match[1]) > MAX_OFFSET:
        return None
    return int(match[1]), segment_id, match[3]


def parse_table(name: str) -> tuple[int, bytes] | None:
    """Return first offset and id of a table of entries; None for other names."""
    match = _TABLE.fullmatch(name)
    table_id = None if match is None else _parse_id(match[2])
    return None if match is None or table_id is None else (int(match[1]), table_id)


def _stem(offset: int, unique_id: bytes) -> str:
    if len(unique_id) != 16:
        raise ValueError(f"an id has 16 bytes, not {len(unique_id)}")
    return f"{offset:020d}-{base64.urlsafe_b64encode(unique_id).rstrip(b'=').decode()}"


def _parse_id(text: str) -> bytes | None:
    try:
        return base64.urlsafe_b64decode(text + "==")
    except binascii.Error:
        return None
