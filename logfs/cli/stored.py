"""The topics of a data directory, worked on directly: nobody serves it, or it is only read.

Reading takes no lock and writes nothing. A change takes the lock, loads the store, recovering it if
need be, and closes it cleanly.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from logfs import config as configuration
from logfs.cli import failures
from logfs.cli.facts import TopicFacts
from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import InvalidConfigError, NoSuchTopicError
from logfs.fs.host import current_host, system_clock
from logfs.log.loading.loader import list_partitions
from logfs.log.meta import partition_meta
from logfs.log.store import LogStore
from logfs.types import TopicPartition


def partitions_of(data: str) -> dict[str, list[int]]:
    """Return the partition numbers of every topic of a data directory, by name; loads nothing."""
    found: dict[str, list[int]] = {}
    for topic, number in list_partitions(PosixDisk(data), read_only=True):
        found.setdefault(topic, []).append(number)
    return {topic: sorted(found[topic]) for topic in sorted(found)}


def open_for_reading(data: str, only: Collection[TopicPartition]) -> LogStore:
    """Open some partitions of a data directory, read-only and without its lock."""
    return LogStore.open(
        PosixDisk(data),
        StoreConfig.from_properties({}),
        current_host(),
        now_ms=system_clock().now_ms(),
        read_only=True,
        only=only,
    )


class StoredTopics:
    """See ``Topics``.

    Args:
        data: The data directory.
    """

    def __init__(self, data: str) -> None:
        self._data = data
        self._clock = system_clock()

    def sizes(self) -> dict[str, int]:
        """See ``Topics``."""
        return {topic: len(numbers) for topic, numbers in partitions_of(self._data).items()}

    def describe(self, topic: str) -> TopicFacts:
        """See ``Topics``."""
        numbers = partitions_of(self._data).get(topic)
        if numbers is None:
            raise NoSuchTopicError(f"no topic {topic}")
        store = open_for_reading(self._data, [TopicPartition(topic, n) for n in numbers])
        return TopicFacts(
            topic,
            store.topic_id(topic),
            store.topic_properties(topic),
            store.topic_config(topic).effective(),
            [partition_meta(store.partition(topic, number)) for number in numbers],
            store.config_warnings(topic),
        )

    def create(self, topic: str, partitions: int | None, config: Mapping[str, str]) -> list[str]:
        """See ``Topics``."""
        # Before the directory is touched: a mistake must not leave a lock file in an empty one.
        warnings = configuration.warnings(configuration.TopicConfig.from_properties(config))
        with self._open() as store:
            count = store.config.num_partitions if partitions is None else partitions
            store.create_topic(topic, count, config, self._clock.now_ms())
        return warnings

    def alter(
        self, topic: str, changes: Mapping[str, str | None], partitions: int | None
    ) -> list[str]:
        """See ``Topics``."""
        with self._open() as store:
            check_changes(topic, store.topic_properties(topic), changes)
            check_growth(topic, len(store.partitions(topic)), partitions)
            store.alter_topic(topic, changes)
            if partitions is not None:
                store.grow_topic(topic, partitions, self._clock.now_ms())
            return store.config_warnings(topic)

    def delete(self, topic: str) -> None:
        """See ``Topics``."""
        with self._open() as store:
            store.delete_topic(topic, self._clock.now_ms())

    @contextmanager
    def _open(self) -> Iterator[LogStore]:
        store = LogStore.open(
            PosixDisk(self._data),
            StoreConfig.from_properties({}),
            current_host(),
            now_ms=self._clock.now_ms(),
            progress=failures.warn if sys.stderr.isatty() else None,
        )
        try:
            yield store
        finally:
            store.close(self._clock.now_ms())


def check_changes(topic: str, config: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Refuse to take back what was not set.

    Raises:
        InvalidConfigError: A setting is not set, or there is none of that name.
    """
    for key, value in changes.items():
        if value is None and key not in config:
            configuration.TopicConfig().get(key)
            raise InvalidConfigError(f"{key} is not set for topic {topic}")


def check_growth(topic: str, present: int, partitions: int | None) -> None:
    """Refuse to make a topic smaller: records of the partitions would be lost.

    Raises:
        InvalidConfigError: It has more partitions than it should have.
    """
    if partitions is not None and partitions < present:
        raise InvalidConfigError(
            f"topic {topic} has {present} partitions; it can grow, but not shrink to {partitions}"
        )
