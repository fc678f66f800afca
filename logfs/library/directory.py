"""A data directory that is looked into: which partitions it has, and some of them opened to read.

Without its lock and without changing anything. What follows it as it grows is in ``source``; here
nothing is imported that a command does not need which reads something once.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from logfs.config import StoreConfig
from logfs.disk.vfs import Disk
from logfs.errors import NoSuchPartitionError, NoSuchTopicError, UnknownNameError
from logfs.library.owner import data_directory
from logfs.library.places import Place
from logfs.log.listing import list_partitions
from logfs.log.names import parse_partition_directory
from logfs.log.reading.address import SEGMENTS_NAME, PartitionAddress, parse_partition_name
from logfs.machine.disks import disk_of
from logfs.machine.host import current_host, system_clock
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.log.store import LogStore


def partitions_of(disk: Disk) -> dict[str, list[int]]:
    """Return the partition numbers of every topic of a data directory, by name; loads nothing."""
    found: dict[str, list[int]] = {}
    for topic, number in list_partitions(disk):
        found.setdefault(topic, []).append(number)
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def all_partitions(disk: Disk) -> list[TopicPartition]:
    """Return the partitions of a data directory, sorted."""
    return sorted(list_partitions(disk))


def chosen(
    present: Mapping[str, Sequence[int]], topic: str, number: int | None
) -> list[TopicPartition]:
    """Return a partition, or (None) all partitions, of a topic.

    Args:
        present: As of ``partitions_of``.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: There is no such topic; or no such partition of it.
    """
    if topic not in present:
        raise no_topic(topic)
    if number is not None and number not in present[topic]:
        raise NoSuchPartitionError(f"topic {topic} has no partition {number}")
    return [TopicPartition(topic, n) for n in (present[topic] if number is None else [number])]


def check_exists(disk: Disk, topic_partition: TopicPartition) -> None:
    """Refuse a partition that does not exist; see ``chosen``."""
    chosen(partitions_of(disk), *topic_partition)


def no_topic(topic: str) -> NoSuchTopicError:
    """Return the error of a topic that does not exist, which may be meant as a partition."""
    parsed = parse_partition_directory(topic)
    hint = "" if parsed is None else f"; a partition is named {parsed.topic}/{parsed.partition}"
    return NoSuchTopicError(f"no topic {topic}{hint}")


def split_address(
    address: Sequence[str], zone: tzinfo = UTC
) -> tuple[str, PartitionAddress | None]:
    """Return the topic ("": none) and the partition that names below a root mean."""
    topic, name, *more = *address, "", ""
    if topic == SEGMENTS_NAME or any(more):
        raise UnknownNameError(
            "expected TOPIC or TOPIC/PARTITION after the data directory, or nothing"
        )
    return topic, parse_partition_name(name, zone) if name else None


def open_for_reading(disk: Disk, only: Collection[TopicPartition]) -> "LogStore":
    """Open some partitions of a data directory, read-only and without its lock."""
    from logfs.log.store import LogStore  # it takes long to import, and followers do without

    return LogStore.open(
        disk,
        StoreConfig.from_properties({}),
        current_host(),
        now_ms=system_clock().now_ms(),
        read_only=True,
        only=only,
    )


def data_and_partitions(place: Place) -> tuple[str, list[TopicPartition] | None]:
    """Return the data directory of a PATH, and the partitions that it names; None: all.

    PATH is DATA, DATA/TOPIC, DATA/TOPIC/PARTITION or DATA/TOPIC-PARTITION.

    Raises:
        LogfsError: There is no such topic or partition, or PATH is of another form.
    """
    data = data_directory(place)
    return data, partitions_named(disk_of(data), place.address)


def partitions_named(disk: Disk, address: Sequence[str]) -> list[TopicPartition] | None:
    """Return the partitions that the names below the root of a PATH mean; None: all.

    Raises:
        LogfsError: There is no such topic or partition, or PATH is of another form.
    """
    if not address:
        return None
    present = partitions_of(disk)
    topic, number, *more = *address, "", ""
    directory = parse_partition_directory(topic)
    if topic not in present and directory is not None and len(address) == 1:
        topic, number = directory.topic, str(directory.partition)
    if any(more) or (number and not number.isdecimal()):
        raise UnknownNameError("expected a data directory, TOPIC or TOPIC/PARTITION in one")
    return chosen(present, topic, int(number) if number else None)
