"""What loading a partition is given by the store."""

from collections.abc import Mapping
from dataclasses import dataclass

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log.host import Host
from logfs.log.segments.segment import OpenSegments
from logfs.log.segments.table import TableEntry
from logfs.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Loading:
    """What the store knows before it loads a partition.

    Attributes:
        is_clean: The last owner stopped cleanly: nothing needs to be scanned.
        recovery_points: First offset of each partition that may not be on the disk.
        start_offsets: Log start offsets that lie above the first segment's base.
        defaults: Configuration of topics, as the store sets it.
        has_failed: A write or fsync failed before: the page cache may differ from the disk.
        compacted: Partitions that were compacted at some time, maybe by a broker: their files need
            not be those that the table speaks of.
        producer_expiration_ms: A producer that wrote nothing for that long is forgotten.
        salvages: It is only read since it cannot be recovered: what cannot be read is done without.
        left: After a clean stop that flushed nothing the last segment of each partition: it and
            the recovery points say what may not be on the disk.
        is_live: Somebody else is writing: what is no whole batch at the end is not there yet.
    """

    disk: Disk
    host: Host
    opened: OpenSegments
    defaults: TopicConfig
    is_clean: bool
    recovery_points: dict[TopicPartition, int]
    start_offsets: dict[TopicPartition, int]
    now_ms: int
    read_only: bool
    has_failed: bool = False
    producer_expiration_ms: int = 86_400_000
    is_live: bool = False
    compacted: frozenset[TopicPartition] = frozenset()
    salvages: bool = False
    left: Mapping[TopicPartition, TableEntry] | None = None
