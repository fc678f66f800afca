"""Positions that are removed: they have expired, or their topic was deleted.

A position expires when its group has committed nothing for the partition, and had no members, for
``offsets.retention.minutes``. Source: Kafka OffsetExpirationConditionImpl,
OffsetMetadataManager.cleanupExpiredOffsets, onPartitionsDeleted.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from logfs.errors import LogfsError
from logfs.log.groups.coding import Position
from logfs.log.groups.table import Group, GroupTable, removal_records
from logfs.log.partition import PartitionLog
from logfs.records.record import Record
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

LogOf = Callable[[int], PartitionLog]
"""Returns a partition of ``__consumer_offsets`` by its number."""


class Removal(NamedTuple):
    """Positions to remove.

    Attributes:
        number: The partition of ``__consumer_offsets`` that has them.
        tombstones: To be appended to it.
    """

    number: int
    group: str
    removed: list[TopicPartition]
    tombstones: list[Record]


def expired(table: GroupTable, retention_ms: int, now_ms: int) -> Iterator[Removal]:
    """Yield the positions that have expired.

    Raises:
        LogfsError, OSError: The topic cannot be read.
    """

    def has_expired(group: Group, _one: TopicPartition, position: Position) -> bool:
        if position.expires_ms is not None and position.expires_ms >= 0:
            return now_ms >= position.expires_ms
        since_ms = position.committed_ms
        if group.state is not None:
            since_ms = max(since_ms, group.state.since_ms)
        return since_ms >= 0 and now_ms - since_ms >= retention_ms

    for group in table.groups().values():
        if not group.has_members:
            yield from _removal(table, group, now_ms, partial(has_expired, group))


def of_topic(table: GroupTable, topic: str, now_ms: int) -> Iterator[Removal]:
    """Yield the positions in a topic, of all groups.

    Raises:
        LogfsError, OSError: ``__consumer_offsets`` cannot be read.
    """
    for group in table.groups().values():
        yield from _removal(table, group, now_ms, lambda one, _: one.topic == topic)


def _removal(
    table: GroupTable,
    group: Group,
    now_ms: int,
    is_due: Callable[[TopicPartition, Position], bool],
) -> Iterator[Removal]:
    due = [one for one, position in group.positions.items() if is_due(one, position)]
    if due:
        tombstones = removal_records(group.name, due, now_ms)
        yield Removal(table.partition_of(group.name), group.name, due, tombstones)


def expire(table: GroupTable, log_of: LogOf, retention_ms: int, now_ms: int) -> list[Removal]:
    """Remove the positions that have expired; return them.

    Raises:
        LogfsError, OSError: ``__consumer_offsets`` cannot be read or appended to.
    """
    removals = list(expired(table, retention_ms, now_ms))
    for found in removals:
        log_of(found.number).append_records(found.tombstones, now_ms)
    return removals


def forget_topic(table: GroupTable, log_of: LogOf, topic: str, now_ms: int) -> None:
    """Remove the positions in a deleted topic; an error is logged.

    A new topic of that name begins at offset 0, so they would be wrong for it.
    """
    try:
        for found in of_topic(table, topic, now_ms):
            log_of(found.number).append_records(found.tombstones, now_ms)
    except (LogfsError, OSError) as error:
        logger.warning("%s: positions of groups could not be removed: %s", topic, error)
