"""A data directory that is looked into: which partitions it has, and some of them opened to read.

Without its lock and without changing anything. What follows it as it grows is in ``source``; here
nothing is imported that a command does not need which reads something once.
"""

from collections.abc import Collection

from logfs.config import StoreConfig
from logfs.disk.vfs import Disk
from logfs.errors import NoSuchPartitionError, NoSuchTopicError
from logfs.log.loading.loader import list_partitions
from logfs.log.store import LogStore
from logfs.machine.host import current_host, system_clock
from logfs.types import TopicPartition


def partitions_of(disk: Disk) -> dict[str, list[int]]:
    """Return the partition numbers of every topic of a data directory, by name; loads nothing."""
    found: dict[str, list[int]] = {}
    for topic, number in list_partitions(disk):
        found.setdefault(topic, []).append(number)
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def check_exists(disk: Disk, topic_partition: TopicPartition) -> None:
    """Refuse a partition that does not exist.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: There is no such topic; or no such partition of it.
    """
    present = partitions_of(disk)
    topic, number = topic_partition
    if topic not in present:
        raise NoSuchTopicError(f"no topic {topic}")
    if number not in present[topic]:
        raise NoSuchPartitionError(f"topic {topic} has no partition {number}")


def open_for_reading(disk: Disk, only: Collection[TopicPartition]) -> LogStore:
    """Open some partitions of a data directory, read-only and without its lock."""
    return LogStore.open(
        disk,
        StoreConfig.from_properties({}),
        current_host(),
        now_ms=system_clock().now_ms(),
        read_only=True,
        only=only,
    )
