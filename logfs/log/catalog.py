"""The readable part of a store: its topics, their partitions and settings."""

import threading
import weakref
from collections.abc import Sequence
from typing import Generic, TypeVar

from logfs import config as configuration
from logfs.config import StoreConfig, TopicConfig
from logfs.disk.vfs import Disk
from logfs.errors import NoSuchPartitionError, NoSuchTopicError
from logfs.log import names
from logfs.log.attributes import Attributes
from logfs.log.checkpointing import read_checkpoint, read_start_offsets
from logfs.log.counters import LogCounters
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.groups.table import GroupTable
from logfs.log.host import Host
from logfs.log.loading.context import LoadContext
from logfs.log.quotas import TopicUsages
from logfs.log.reading.address import PartitionAddress
from logfs.log.reading.readable import ReadableLog
from logfs.log.segments.segment import OpenSegments
from logfs.types import TopicPartition

LogT = TypeVar("LogT", bound=ReadableLog, covariant=True)


class Catalog(Generic[LogT]):
    """The topics of one data directory.

    Attributes:
        read_only: Nothing is written into it, not even its lock.
        attributes: Remembered owners and modes of topics and partitions.
        topic_defaults: The settings of topics that have none.
        was_clean: The last owner had stopped cleanly.
        retired: The counters of deleted partitions.
        groups: The positions of consumer groups.
        is_followed: Another process writes the directory, and this one follows it.
    """

    is_followed = False

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        host: Host,
        opened: OpenSegments,
        *,
        read_only: bool,
    ) -> None:
        self.disk = disk
        self.config = config
        self.read_only = read_only
        self.attributes = Attributes(disk)
        self.topic_defaults = TopicConfig.from_properties(config.topic_defaults())
        self.was_clean = True
        self.retired = LogCounters()
        self._host = host
        self._opened = opened
        self._changes = threading.RLock()
        self._topics: dict[str, dict[int, LogT]] = {}
        # In no cycle: when a catalog goes, the files that it has open are closed at once.
        catalog = weakref.proxy(self)
        self._usages = TopicUsages(lambda topic: catalog._quota_bytes(topic))
        self.groups = GroupTable(
            lambda: sorted(catalog._topics.get(OFFSETS_TOPIC, ())),
            lambda number: catalog.partition(OFFSETS_TOPIC, number),
        )

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._topics)

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic, sorted; raise NoSuchTopicError."""
        return sorted(self._partitions(topic))

    def partition(self, topic: str, number: int) -> LogT:
        """Return one partition; raise NoSuchTopicError or NoSuchPartitionError."""
        log = self._partitions(topic).get(number)
        if log is None:
            raise NoSuchPartitionError(f"topic {topic} has no partition {number}")
        return log

    def all_partitions(self) -> list[LogT]:
        """Return every partition."""
        return [log for topic in list(self._topics.values()) for log in list(topic.values())]

    def followed(self) -> Sequence[ReadableLog]:
        """Return the logs to ``refresh``: those that another process writes, and parts of them."""
        return ()

    def look_around(self, now_ms: int) -> None:
        """Find topics that another process has made or deleted; nothing if none does."""

    def part_for_range(
        self, log: ReadableLog, address: PartitionAddress, now_ms: int
    ) -> tuple[ReadableLog, PartitionAddress] | None:
        """Return a log that begins where a range does, and the address in it.

        Only a followed log whose positions are not all known has such parts; None: there is none.
        """
        return None

    def topic_properties(self, name: str) -> dict[str, str]:
        """Return what was set for a topic."""
        config = self.topic_config(name)
        return {key: config.get(key) for key in config.overrides()} if config.explicit else {}

    def topic_config(self, name: str) -> TopicConfig:
        """Return the configuration of a topic; NoSuchTopicError if there is none."""
        return self._representative(name).config

    def has_config(self, name: str) -> bool | None:
        """Whether a topic has its own configuration; one that a broker made has none.

        None: the disk cannot tell now.
        """
        try:
            return self._config_exists(name)
        except OSError:
            return None

    def _config_exists(self, name: str) -> bool:
        log = self._representative(name)
        return self.disk.exists(f"{log.directory}/{names.TOPIC_CONFIG}")

    def topic_id(self, name: str) -> str | None:
        """Return the id of a topic; NoSuchTopicError if there is none."""
        return self._representative(name).topic_id

    def config_warnings(self, name: str) -> list[str]:
        """Return what is valid in a topic's configuration and probably not meant."""
        return configuration.warnings(self.topic_config(name))

    def new_id(self) -> bytes:
        """Return 16 random bytes."""
        return self._host.new_id()

    @property
    def open_segments(self) -> int:
        """How many sealed segments are kept open."""
        return len(self._opened)

    def _quota_bytes(self, topic: str) -> int:
        return sum(log.quota_bytes for log in list(self._topics.get(topic, {}).values()))

    def _partitions(self, topic: str) -> dict[int, LogT]:
        partitions = self._topics.get(topic)
        if not partitions:
            raise NoSuchTopicError(f"no topic {topic}")
        return partitions

    def _representative(self, topic: str) -> LogT:
        """Return a partition that says what its topic is; one that was loaded, if there is any."""
        logs = list(self._partitions(topic).values())
        return next((log for log in logs if not log.is_unreadable), logs[0])

    def _load_context(self, now_ms: int, *, is_clean: bool) -> LoadContext:
        recovery_points = read_checkpoint(self.disk, names.RECOVERY_POINT_CHECKPOINT)
        start_offsets = read_start_offsets(self.disk)
        compacted = read_checkpoint(self.disk, names.CLEANER_OFFSET_CHECKPOINT)
        return LoadContext(
            disk=self.disk,
            host=self._host,
            opened=self._opened,
            defaults=self.topic_defaults,
            is_clean=is_clean,
            recovery_points=recovery_points,
            start_offsets=start_offsets,
            now_ms=now_ms,
            read_only=self.read_only,
            producer_expiration_ms=self.config.producer_id_expiration_ms,
            compacted=frozenset[TopicPartition](compacted),
            usages=self._usages,
        )
