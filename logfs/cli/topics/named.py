"""Which partitions PATHs name, for commands that read files whoever owns them."""

from collections.abc import Sequence

from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk
from logfs.errors import NoSuchPartitionError, NoSuchTopicError, UnknownNameError
from logfs.library.directory import partitions_of
from logfs.library.owner import data_directory
from logfs.library.places import Place
from logfs.log.names import parse_partition_directory
from logfs.types import TopicPartition


def data_and_partitions(place: Place) -> tuple[str, list[TopicPartition] | None]:
    """Return the data directory of a PATH, and the partitions it names; None for everything.

    PATH is DATA, DATA/TOPIC or DATA/TOPIC/PARTITION; DATA/TOPIC-PARTITION, as the directory is
    called, will do.

    Raises:
        LogfsError: There is no such topic or partition, or it is no such path.
        OSError: The directory cannot be read, or a mount does not answer.
    """
    data = data_directory(place)
    return data, partitions_named(PosixDisk(data), place.address)


def partitions_named(disk: Disk, address: Sequence[str]) -> list[TopicPartition] | None:
    """Return the partitions that the part of a PATH below its root names; None for everything.

    Raises:
        LogfsError: There is no such topic or partition, or it is no such path.
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
