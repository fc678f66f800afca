"""The facts before a partition is loaded, and the state of one partition while it is loaded."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logfs.config import TopicConfig
from logfs.disk.vfs import DISK_FULL, Disk
from logfs.log.counters import LogCounters
from logfs.log.host import Host, cache_mark
from logfs.log.loading.preloading import Preloaded, PreloadedPartition
from logfs.log.losses import Loss, LossFile, log_loss
from logfs.log.names import FileKind, log_bases
from logfs.log.quotas import TopicUsages
from logfs.log.segments.segment import OpenSegments, Segment
from logfs.log.segments.table import SegmentTable, TableEntry
from logfs.log.topics import effective_config
from logfs.records.produced import ProducedBatch
from logfs.types import Positions, TopicPartition

if TYPE_CHECKING:
    from logfs.log.lines.notes import Resumption
    from logfs.log.lines.writer import LineWriter
    from logfs.log.remote.catalog import TieredPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What the store knows before it loads a partition.

    Attributes:
        is_clean: The last owner stopped cleanly: nothing needs to be scanned.
        recovery_points: First offset of each partition that may not be on the disk.
        start_offsets: Log start offsets above the first segment's base offset.
        defaults: Topic configuration of the store.
        has_failed: A write or fsync failed before: the page cache may differ from the disk.
        compacted: Partitions that were compacted at some time, perhaps by a broker. The segment
            table may describe files that are gone.
        producer_expiration_ms: A producer without a write for that long is forgotten.
        publishing: Ids of the producers of half published batches, which are not forgotten.
        salvages: The partition cannot be recovered and is only read: what cannot be read is
            replaced by defaults.
        unflushed: After a clean stop without a flush: the last segment of each partition. With the
            recovery points it says what may not be on the disk.
        is_live: Another process is writing: an incomplete batch at the end is still being written.
        resumed: The work of an earlier process that this one continues; None: none.
        leftovers: Receives the names of unfinished lines and staged files in each directory.
        configs: The configurations that loading has made, by the settings of the topics.
        preloaded: The files that were read before the last owner stopped; None: none.
        usages: The use of the quotas of topics.
    """

    disk: Disk
    host: Host
    opened: OpenSegments
    defaults: TopicConfig
    is_clean: bool
    recovery_points: dict[TopicPartition, int]
    start_offsets: Mapping[TopicPartition, int]
    now_ms: int
    read_only: bool
    has_failed: bool = False
    producer_expiration_ms: int = 86_400_000
    is_live: bool = False
    compacted: frozenset[TopicPartition] = frozenset()
    publishing: frozenset[int] = frozenset()
    salvages: bool = False
    unflushed: Mapping[TopicPartition, TableEntry] | None = None
    resumed: "Resumption[LineWriter] | None" = None
    leftovers: dict[TopicPartition, list[str]] = field(default_factory=dict)
    configs: dict[frozenset[tuple[str, str]], TopicConfig] = field(default_factory=dict)
    preloaded: Preloaded | None = None
    usages: TopicUsages = field(default_factory=TopicUsages)

    def take_preloaded(self, directory: str) -> PreloadedPartition:
        """Return what was read of a partition before; nothing the second time."""
        return PreloadedPartition() if self.preloaded is None else self.preloaded.take(directory)

    def must_recover(self, topic_partition: TopicPartition, following: int | None) -> bool:
        """Whether the segment before the one with this base offset may have lost bytes.

        None: it is the last segment. A start cuts the log at what it cannot use there.
        """
        if self.is_clean:
            return False
        return following is None or following > self.recovery_points.get(topic_partition, 0)

    def config(self, properties: Mapping[str, str] | None) -> TopicConfig:
        """Return the configuration of a topic; partitions with the same settings share it."""
        key = frozenset((properties or {}).items())
        config = self.configs.get(key)
        if config is None:
            config = self.configs[key] = effective_config(self.defaults, properties)
        return config


@dataclass(slots=True)
class Loader:
    """The state of one partition while it is loaded.

    Attributes:
        kinds: The files of each segment, by base offset.
        swapped: Those that still have the suffix ``.swap``.
        preloaded: The files of the partition that were read before its last owner stopped.
        segments: The segments loaded so far.
        has_changed: The segment table must be rewritten.
        has_truncated: Records that readers may have seen are gone.
        has_junk: Bytes that are no batch remain at the end of the last segment.
        unsynced_indexes: The last segment, if its indexes were rebuilt without a sync.
        recovered: Base offsets of the segments that were recovered.
        counters: Receives how much was scanned.
        produced: Batches with a producer id in the scanned segments, by base offset.
        leader_epochs: Leader epochs in the scanned segments, each with its first offset.
        deferred: The work that must precede the first append, because the disk is full now. None:
            none.
        has_lost_table: There was a segment table, so positions that were shown are used again.
        has_no_mark: There is no room to mark a first start, which has to precede text indexes.
        scans_all: No segment is trusted: the leader epochs are known from the batches alone.
        tier: The tiered segments, which are neither scanned nor changed; None: there are none.
        is_mirror: The log is a copy of another one, which has again what is missing here.
    """

    context: LoadContext
    topic_partition: TopicPartition
    config: TopicConfig
    losses: LossFile
    kinds: dict[int, set[FileKind]]
    swapped: dict[int, set[FileKind]] = field(default_factory=dict)
    preloaded: PreloadedPartition = field(default_factory=PreloadedPartition)
    table: SegmentTable | None = None
    segments: list[Segment] = field(default_factory=list)
    has_changed: bool = False
    has_truncated: bool = False
    has_junk: bool = False
    unsynced_indexes: Segment | None = None
    recovered: set[int] = field(default_factory=set)
    produced: dict[int, list[ProducedBatch]] = field(default_factory=dict)
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    counters: LogCounters = field(default_factory=LogCounters)
    deferred: list[Callable[[], None]] | None = None
    has_lost_table: bool = False
    has_no_mark: bool = False
    scans_all: bool = False
    tier: "TieredPartition | None" = None
    is_mirror: bool = False

    @contextlib.contextmanager
    def deferring(self, later: Callable[[], None] | None = None) -> Iterator[None]:
        """End the block early if the disk is full, and call ``later`` before the first append."""
        try:
            yield
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            logger.warning("%s: %s; it is done once there is room", self.topic_partition, error)
            self.deferred = [*(self.deferred or ()), *([] if later is None else [later])]

    @property
    def directory(self) -> str:
        """The name of the partition directory."""
        return self.topic_partition.directory

    @property
    def bases(self) -> list[int]:
        """Base offsets of the ``.log`` files."""
        return sorted(log_bases(self.kinds))

    @property
    def start_offset(self) -> int:
        """The log start offset in the checkpoint file; 0 if it has none."""
        return self.context.start_offsets.get(self.topic_partition, 0)

    @property
    def entries(self) -> dict[int, TableEntry]:
        """The entries of the segment table, by base offset; of the last one, the unflushed one.

        Those of tiered segments are the ones that the store has.
        """
        entries = {} if self.table is None else self.table.entries
        last = self.unflushed_entry
        if last is not None:
            entries = {**entries, last.base_offset: last}
        if self.tier is not None and self.tier.entries:
            tiered = {base: row.entry for base, row in self.tier.entries.items()}
            entries = {**entries, **tiered}
        return entries

    def is_tiered(self, base_offset: int) -> bool:
        """Whether the store has a segment."""
        return self.tier is not None and base_offset in self.tier.entries

    @property
    def unflushed_entry(self) -> TableEntry | None:
        """The last segment after a clean stop without a flush; None after any other stop."""
        unflushed = self.context.unflushed or {}
        return None if self.table is None else unflushed.get(self.topic_partition)

    @property
    def cache_mark(self) -> bytes:
        """The mark of an open entry in the segment table; see ``host.cache_mark``."""
        return cache_mark(self.context.host, self.context.disk)

    @property
    def boots(self) -> set[bytes]:
        """Marks of all page caches that were appended through since the last clean stop."""
        return set() if self.table is None else self.table.state.boots

    @property
    def shown(self) -> Positions:
        """Positions that no file size shown to a reader has exceeded."""
        return Positions() if self.table is None else self.table.state.reserved

    def recovery_point(self, end_offset: int) -> int:
        """Return the first offset that may not be durable in a log with this end offset."""
        if self.context.is_clean and self.unflushed_entry is None:
            return end_offset
        return min(self.context.recovery_points.get(self.topic_partition, 0), end_offset)

    def must_recover(self, following: int | None) -> bool:
        """Return the answer of the context for this partition."""
        return self.context.must_recover(self.topic_partition, following)

    def ends_at_recovery_point(self, entry: TableEntry) -> bool:
        """Whether the indexes of a sealed segment may not be durable although its records are.

        A flush syncs only the ``.log`` of the active segment, which may be sealed after it.
        """
        if self.context.is_clean:
            return False
        return entry.next_offset == self.context.recovery_points.get(self.topic_partition, 0)

    def segment(self, base_offset: int, bases: Positions) -> Segment:
        """Describe a segment."""
        segment = Segment(self.context.opened, self.directory, base_offset, bases)
        return self._in_place(segment)

    def known_segment(self, entry: TableEntry) -> Segment:
        """Describe a segment from its entry in the segment table."""
        segment = self.preloaded.segment(entry)
        if segment is None:
            segment = Segment.from_entry(self.context.opened, self.directory, entry)
        return self._in_place(segment)

    def _in_place(self, segment: Segment) -> Segment:
        if self.swapped:
            segment.swapped = frozenset(self.swapped.get(segment.base_offset, ()))
        return segment

    def lose(
        self,
        kind: str,
        file: str,
        position: int,
        size: int,
        detail: str,
        offset: int | None = None,
    ) -> None:
        """Report a loss in the daemon's log and in the partition's ``logfs.losses``."""
        if offset is None and self.segments:
            offset = self.segments[-1].next_offset
        loss = Loss(self.context.now_ms, kind, file, position, size, offset, detail)
        log_loss(self.topic_partition, loss)
        self.losses.add(loss)
