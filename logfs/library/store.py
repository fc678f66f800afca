"""A data directory as a program sees it, and the functions that open one."""

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from weakref import WeakSet

from logfs.errors import NoDataDirectoryError, UnknownNameError
from logfs.library.consumer import Consumer, ConsumerAccess
from logfs.library.directory import check_exists, no_topic, partitions_of
from logfs.library.followed_directory import FollowedDirectory
from logfs.library.groups import Groups
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import data_directory, shown_level
from logfs.library.partition import Partition, PartitionAccess
from logfs.library.places import DirectoryKind, Place, kind_of, locate
from logfs.library.points import Point, point_of
from logfs.library.topic import Topic
from logfs.library.writer import Writer
from logfs.library.zones import zone_of
from logfs.log.names import check_group
from logfs.log.reading.address import SEGMENTS_NAME, parse_partition_name
from logfs.machine.host import LOCAL_ZONE
from logfs.types import Closeable, IsolationLevel, TopicPartition


class Store(Closeable):
    """The topics of a data directory. Get one from ``logfs.open_store``; threads may share it.

    Attributes:
        isolation_level: Which records of transactions its partitions show.
    """

    def __init__(self, place: Place, isolation_level: IsolationLevel, writer: Writer) -> None:
        self.data = data_directory(place)
        self.isolation_level = isolation_level
        self._place = place
        self._writer = writer
        self._zone = zone_of(place)
        self._is_closed = False
        self._partitions: dict[tuple[TopicPartition, IsolationLevel], Partition] = {}
        self._groups = Groups(place)
        self._consumers: WeakSet[Consumer] = WeakSet()

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic, sorted by name."""
        found = partitions_of(reading_disk(self._place))
        return {topic: len(numbers) for topic, numbers in found.items()}

    def partition(
        self, topic: str, number: int = 0, *, isolation_level: str | None = None
    ) -> Partition:
        """Return a partition, the same one if it is open already; ``close`` closes it too.

        Raises:
            NoSuchTopicError, NoSuchPartitionError: The partition does not exist.
            LogOfflineError: The partition cannot be loaded.
        """
        self._check_open()
        level = IsolationLevel(isolation_level or self.isolation_level)
        key = TopicPartition(topic, number), level
        found = self._partitions.get(key)
        if found is None or found.is_closed:
            found = self._partitions[key] = self._open(*key, ExitStack())
        return found

    def topic(self, name: str, *, isolation_level: str | None = None) -> Topic:
        """Return all partitions of a topic; its appends are distributed by their keys.

        Raises:
            NoSuchTopicError: The topic does not exist.
            LogOfflineError: A partition cannot be loaded.
        """
        self._check_open()
        numbers = partitions_of(reading_disk(self._place, {name})).get(name)
        if numbers is None:
            raise no_topic(name)
        partitions = [self.partition(name, n, isolation_level=isolation_level) for n in numbers]
        return Topic(name, partitions, self._zone)

    def consumer(
        self,
        group: str,
        topics: str | Iterable[str] | Mapping[str, Iterable[int]],
        *,
        start: Point = "earliest",
        isolation_level: str | None = None,
    ) -> Consumer:
        """Return a consumer, which reads topics from where its consumer group was.

        The positions are kept as Kafka keeps them, in the topic ``__consumer_offsets``.

        Args:
            group: The name of the group; it exists from its first commit on.
            topics: A topic, several topics, or topics with the numbers of partitions.
            start: The start in a partition in which the group has committed nothing.

        Raises:
            NoSuchTopicError: There is no such topic.
            BadSelectorError: ``start`` does not parse.
            InvalidConfigError: The name of the group is empty or too long.
        """
        self._check_open()
        check_group(group)
        level = IsolationLevel(isolation_level or self.isolation_level)
        wanted: dict[str, Iterable[int] | None]
        if isinstance(topics, Mapping):
            wanted = dict(topics)
        else:
            wanted = dict.fromkeys([topics] if isinstance(topics, str) else topics)
        point = point_of(start, self._zone)
        source = FollowedDirectory(
            reading_disk(self._place, set(wanted)),
            lambda one: one.topic in wanted,
            positions=self._groups.position_in,
        )
        access = ConsumerAccess(source, self._groups, self._writer)
        found = Consumer(group, access, wanted, level, point)
        self._consumers.add(found)
        return found

    def create_topic(
        self,
        topic: str,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; it is durable when this returns.

        Args:
            partitions: Their number; None: ``num.partitions`` of the daemon, or 1.

        Raises:
            TopicExistsError: There is a topic of that name.
            IllegalTopicNameError, InvalidConfigError: A name or a value is not one of Kafka's.
            LockedError: Another process that is not a daemon owns the directory.
            OSError: The disk failed or is full.
        """
        settings = dict(config or {})
        self._writer.change_topics(lambda topics: topics.create_topic(topic, partitions, settings))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all its records; programs that have it open can still read it.

        Raises:
            NoSuchTopicError: There is no such topic.
            LockedError: Another process that is not a daemon owns the directory.
            OSError: The disk failed.
        """
        self._writer.change_topics(lambda topics: topics.delete_topic(topic))

    def undelete_topic(self, topic: str) -> None:
        """Restore a topic that was deleted less than ``file.delete.delay.ms`` (a minute) ago.

        Records, positions, settings and owner are as before.

        Raises:
            TopicExistsError: There is a topic of that name.
            NoSuchTopicError: No deleted topic of that name is left.
            LockedError: Another process that is not a daemon owns the directory.
            OSError: The disk failed.
        """
        self._writer.change_topics(lambda topics: topics.undelete_topic(topic))

    def close(self) -> None:
        """Close all partitions; flush those first whose records must survive a power cut."""
        if self._is_closed:
            return
        self._is_closed = True
        for partition in list(self._partitions.values()):
            partition.close()
        self._partitions.clear()
        for consumer in list(self._consumers):
            consumer.close()
        self._groups.close()
        self._writer.close()

    def _open(
        self, topic_partition: TopicPartition, level: IsolationLevel, owned: ExitStack
    ) -> Partition:
        disk = reading_disk(self._place, {topic_partition.topic})
        check_exists(disk, topic_partition)
        positions = self._groups.position_in
        source = FollowedDirectory(
            disk, lambda other: other == topic_partition, positions=positions
        )
        owned.callback(source.close)
        place = PartitionAccess(topic_partition, source, self._writer, self._groups, self._zone)
        return Partition(place, level, owned)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"{self!r} is closed")

    def __repr__(self) -> str:
        return f"<logfs.Store {self.data}>"


def open_store(path: str | os.PathLike[str], *, isolation_level: str | None = None) -> Store:
    """Open a data directory, or what is mounted at a mount point.

    Args:
        path: A data directory, an empty directory, which becomes one, or a mount point.
        isolation_level: ``read_uncommitted``, ``read_committed`` or ``high_watermark``; None: what
            the mount shows if a daemon serves the directory, else all records.

    Raises:
        NoDataDirectoryError: The path is none of these.
        OSError: The directory cannot be read.
    """
    return _store(_directory(os.fspath(path)), isolation_level)


def open_partition(
    path: str | os.PathLike[str], *, isolation_level: str | None = None
) -> Partition:
    """Open a partition. ``logfs.open`` is this function.

    Args:
        path: ``DATA/TOPIC/PARTITION``; DATA is a data directory or a mount point.
        isolation_level: ``read_uncommitted``, ``read_committed`` or ``high_watermark``; None: what
            the mount shows if a daemon serves the directory, else all records.

    Raises:
        NoDataDirectoryError: No leading part of the path is a data directory or a mount point.
        UnknownNameError: The rest of the path is not a partition.
        NoSuchTopicError, NoSuchPartitionError: It does not exist.
        LogOfflineError: It cannot be loaded.
        OSError: It cannot be read.
    """
    place = locate(os.fspath(path))
    topic, name, *more = *place.address, "", ""
    if not topic or topic == SEGMENTS_NAME or not name or any(more):
        raise UnknownNameError(
            f"{os.fspath(path)}: expected a partition, {place.root}/TOPIC/PARTITION"
        )
    address = parse_partition_name(name, LOCAL_ZONE)
    if address.has_selector or address.view:
        raise UnknownNameError(
            f"{os.fspath(path)}: expected the number of a partition alone; points go into read()"
        )
    store, owned = _store(place, isolation_level), ExitStack()
    owned.callback(store.close)
    try:
        return store._open(TopicPartition(topic, address.partition), store.isolation_level, owned)
    except BaseException:
        store.close()
        raise


def _directory(path: str) -> Place:
    """Return the place of a data directory, or of an empty directory."""
    try:
        place = locate(path)
    except NoDataDirectoryError:
        real = os.path.realpath(path)
        if kind_of(real) is DirectoryKind.EMPTY:
            return Place(real, (), is_mount=False)
        raise
    if place.address:
        raise NoDataDirectoryError(f"{path}: expected the data directory itself, {place.root}")
    return place


def _store(place: Place, isolation_level: str | None) -> Store:
    level = shown_level(place) if isolation_level is None else IsolationLevel(isolation_level)
    writer = Writer.of(place)
    return Store(place, level, writer)
