"""What one can ask of a store without changing it: its topics, their partitions and settings."""

from logfs import config as configuration
from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.errors import NoSuchPartitionError, NoSuchTopicError, ReadOnlyError
from logfs.log import names
from logfs.log.partition import PartitionLog


class Catalog:
    """The topics of one data directory.

    Attributes:
        disk: The data directory.
        read_only: Nothing is written into it, not even its lock.
    """

    def __init__(self, disk: Disk, *, read_only: bool) -> None:
        self.disk = disk
        self.read_only = read_only
        self._topics: dict[str, dict[int, PartitionLog]] = {}

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._topics)

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic, sorted.

        Raises:
            NoSuchTopicError: There is no such topic.
        """
        return sorted(self._partitions(topic))

    def partition(self, topic: str, number: int) -> PartitionLog:
        """Return one partition.

        Raises:
            NoSuchTopicError, NoSuchPartitionError: It does not exist.
        """
        log = self._partitions(topic).get(number)
        if log is None:
            raise NoSuchPartitionError(f"topic {topic} has no partition {number}")
        return log

    def all_partitions(self) -> list[PartitionLog]:
        """Return every partition."""
        return [log for topic in list(self._topics.values()) for log in list(topic.values())]

    def topic_properties(self, name: str) -> dict[str, str]:
        """Return what was set for a topic."""
        config = self.topic_config(name)
        return {key: config.get(key) for key in config.overrides()} if config.explicit else {}

    def topic_config(self, name: str) -> TopicConfig:
        """Return the configuration of a topic; NoSuchTopicError if there is none."""
        return self._representative(name).config

    def has_config(self, name: str) -> bool:
        """Whether a topic has a configuration of its own; one that a broker made has none."""
        log = self._representative(name)
        return self.disk.exists(f"{log.directory}/{names.TOPIC_CONFIG}")

    def topic_id(self, name: str) -> str | None:
        """Return the id of a topic; NoSuchTopicError if there is none."""
        return self._representative(name).topic_id

    def config_warnings(self, name: str) -> list[str]:
        """Return what is valid in a topic's configuration and probably not meant."""
        return configuration.warnings(self.topic_config(name))

    def _partitions(self, topic: str) -> dict[int, PartitionLog]:
        partitions = self._topics.get(topic)
        if not partitions:
            raise NoSuchTopicError(f"no topic {topic}")
        return partitions

    def _representative(self, topic: str) -> PartitionLog:
        """Return a partition that says what its topic is; one that was loaded, if there is any."""
        logs = list(self._partitions(topic).values())
        return next((log for log in logs if not log.is_unreadable), logs[0])

    def _check_writable(self, topic: str | None = None) -> None:
        if self.read_only:
            raise ReadOnlyError("the data directory is open read-only")
        if topic is not None and (log := self._representative(topic)).is_unreadable:
            log.check_writable()
