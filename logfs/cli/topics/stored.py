"""The topics of a data directory, worked on directly: nobody serves it, or it is only read.

Reading takes no lock and writes nothing. A change takes the lock, loads the store, recovering it if
need be, and closes it cleanly.
"""

from collections.abc import Mapping

from logfs.cli import failures
from logfs.config import TopicConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import NoSuchTopicError
from logfs.library.directory import open_for_reading, partitions_of
from logfs.library.owner import opened_store
from logfs.log import administration
from logfs.log.administration import TopicFacts
from logfs.machine.host import system_clock
from logfs.types import TopicPartition


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
        return {
            topic: len(numbers) for topic, numbers in partitions_of(PosixDisk(self._data)).items()
        }

    def describe(self, topic: str) -> TopicFacts:
        """See ``Topics``."""
        numbers = partitions_of(PosixDisk(self._data)).get(topic)
        if numbers is None:
            raise NoSuchTopicError(f"no topic {topic}")
        store = open_for_reading(PosixDisk(self._data), [TopicPartition(topic, n) for n in numbers])
        return administration.describe_topic(store, topic)

    def create(self, topic: str, partitions: int | None, config: Mapping[str, str]) -> list[str]:
        """See ``Topics``."""
        # Before the directory is touched: a mistake must not leave a lock file in an empty one.
        TopicConfig.from_properties(config)
        with opened_store(self._data, failures.progress()) as store:
            now_ms = self._clock.now_ms()
            return administration.create_topic(store, topic, partitions, config, now_ms)

    def alter(
        self, topic: str, changes: Mapping[str, str | None], partitions: int | None
    ) -> list[str]:
        """See ``Topics``."""
        with opened_store(self._data, failures.progress()) as store:
            now_ms = self._clock.now_ms()
            return administration.alter_topic(store, topic, changes, partitions, now_ms)

    def delete(self, topic: str) -> None:
        """See ``Topics``."""
        with opened_store(self._data, failures.progress()) as store:
            store.delete_topic(topic, self._clock.now_ms())

    def undelete(self, topic: str) -> None:
        """See ``Topics``."""
        with opened_store(self._data, failures.progress()) as store:
            store.undelete_topic(topic, self._clock.now_ms())
