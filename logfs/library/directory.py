"""A data directory that is looked into: which partitions it has, and some of them opened to read.

Without its lock and without changing anything. What follows it as it grows is in ``source``; here
nothing is imported that a command does not need which reads something once.
"""

from collections.abc import Collection, Sequence

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk
from logfs.errors import NoSuchPartitionError, NoSuchTopicError, UnknownNameError
from logfs.library.owner import data_directory
from logfs.library.places import Place
from logfs.log.loading.loader import list_partitions
from logfs.log.names import parse_partition_directory
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


def data_and_partitions(place: Place) -> tuple[str, list[TopicPartition] | None]:
    """Return the data directory of a PATH, and the partitions that it names; None: all.

    PATH is DATA, DATA/TOPIC, DATA/TOPIC/PARTITION or DATA/TOPIC-PARTITION.

    Raises:
        LogfsError: There is no such topic or partition, or PATH is of another form.
        OSError: The directory cannot be read, or a mount does not answer.
    """
    data = data_directory(place)
    return data, partitions_named(PosixDisk(data), place.address)


def partitions_named(disk: Disk, address: Sequence[str]) -> list[TopicPartition] | None:
    """Return the partitions that the names below the root of a PATH mean; None: all.

    Raises:
        LogfsError: There is no such topic or partition, or PATH is of another form.
        OSError: The directory cannot be read.
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
    if topic not in present:
        raise NoSuchTopicError(f"no topic {topic}")
    if not number:
        return [TopicPartition(topic, n) for n in present[topic]]
    if int(number) not in present[topic]:
        raise NoSuchPartitionError(f"topic {topic} has no partition {number}")
    return [TopicPartition(topic, int(number))]
