"""The largest size of a topic, when retention or compaction removes as fast as records arrive.

Retention deletes whole segments, at the next run of its task, and files stay for
``file.delete.delay.ms``. So the disk contains more than retention requires: up to a segment per
partition (the *granularity*), and deleted files that wait to be removed.
"""

import math
from dataclasses import dataclass

from logfs.config import CleanupPolicy, StoreConfig, TopicConfig
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.segments.segment import SEGMENT_FILE_KINDS
from logfs.log.segments.table import ENTRY_BYTES
from logfs.records._compaction import OffsetMap
from logfs.records.layout import HEADER_BYTES
from logfs.services.packing.packer import is_packing
from logfs.services.planning.footprint import (
    BatchShape,
    SegmentShape,
    Workload,
    batch_shape,
    segment_shape,
)

BLOCK_BYTES = 4096
"""The block of the file system: on average a file uses half a block more than its size."""
_FILES_OF_SEGMENT = 5
"""Its log, three indexes, and the producer snapshot at its base offset."""
_SMALL_FILES = 5
"""Those of a partition: metadata, leader epochs, configuration, segment table, directory."""
_ACTIVE_DESCRIPTORS = 5
"""Its log, three indexes, the segment table."""
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What a topic needs. Sizes are in bytes, of all partitions together.

    Attributes:
        is_endless: Neither retention nor compaction limits it; all sizes are those of one day.
        kept: Records that retention or compaction keeps.
        dirty: Records to be compacted, and the space that compaction needs.
        granularity: Expired records in segments that also have newer ones.
        waiting: Deleted files that are not removed yet.
        offset_index, time_index, text_index: The indexes of all of these.
        small: All other files, and unused ends of blocks.
        descriptors: Largest number of open files.
        recovery: Bytes to read after a crash.
        cleaner_rounds: How often a log is read for one compaction: 1 if all keys fit into memory;
            0 if it is not compacted.
    """

    batch: BatchShape
    segment: SegmentShape
    log_bytes_per_s: float
    is_endless: bool
    kept: int
    dirty: int
    granularity: int
    waiting: int
    offset_index: int
    time_index: int
    text_index: int
    small: int
    segments: int
    files: int
    descriptors: int
    recovery: int
    cleaner_rounds: int

    @property
    def log(self) -> int:
        """Size of all ``.log`` files."""
        return self.kept + self.dirty + self.granularity + self.waiting

    @property
    def indexes(self) -> int:
        """Size of all indexes."""
        return self.offset_index + self.time_index + self.text_index

    @property
    def disk(self) -> int:
        """Size of all files: what the disk must have."""
        return self.log + self.indexes + self.small


def plan_topic(
    workload: Workload, config: TopicConfig, store: StoreConfig, open_segments: int
) -> CapacityPlan:
    """Calculate what a topic needs."""
    batch = batch_shape(workload, config)
    batches_per_s = workload.partition_records_per_s / batch.records
    segment = segment_shape(batch, batches_per_s, config)
    rate = batches_per_s * batch.size_bytes
    check_s = store.log_retention_check_interval_ms / _MS_PER_S
    partition = _Partition(workload, config, batch, segment, rate)
    kept, is_endless = partition.kept()
    dirty = partition.dirty(kept) if config.is_compacted else 0
    waiting = partition.waiting(is_endless=is_endless and not config.is_compacted)
    granularity = 0 if is_endless or config.is_compacted else segment.size_bytes
    granularity += math.ceil(rate * check_s) if granularity else 0
    number = workload.partitions
    total = kept + dirty + granularity + waiting
    segments = max(math.ceil(total / segment.size_bytes), 1)
    share = total / segment.size_bytes
    text = share * segment.text_index_bytes
    if config.is_compacted:
        text += 2 * TEXT_INDEX.entry_bytes * (workload.keys or 0) / number
    sealed = min((segments - 1) * number, open_segments)
    per_segment = _FILES_OF_SEGMENT * BLOCK_BYTES // 2 + ENTRY_BYTES * 2
    return CapacityPlan(
        batch,
        segment,
        rate * number,
        is_endless,
        kept * number,
        dirty * number,
        granularity * number,
        waiting * number,
        math.ceil(share * segment.offset_index_bytes) * number,
        math.ceil(share * segment.time_index_bytes) * number,
        math.ceil(text) * number,
        (segments * per_segment + _SMALL_FILES * BLOCK_BYTES) * number,
        segments * number,
        (segments * _FILES_OF_SEGMENT + _SMALL_FILES) * number,
        number * _ACTIVE_DESCRIPTORS + sealed * (len(SEGMENT_FILE_KINDS) - 1),
        segment.size_bytes * number,
        partition.cleaner_rounds(store) if config.is_compacted else 0,
    )


@dataclass(frozen=True, slots=True)
class _Partition:
    """The arithmetic of one partition."""

    workload: Workload
    config: TopicConfig
    batch: BatchShape
    segment: SegmentShape
    bytes_per_s: float

    def kept(self) -> tuple[int, bool]:
        """Return the size to keep, and whether it is unlimited; then the size is that of a day."""
        config, limits = self.config, []
        if config.is_compacted:
            limits.append(self._of_keys())
        if config.is_expiring:
            limits.append(self._packed(self.bytes_per_s * config.retention_ms / _MS_PER_S))
        if CleanupPolicy.DELETE in config.cleanup_policy and config.retention_bytes >= 0:
            limits.append(config.retention_bytes)
        if not limits:
            return self._packed(self.bytes_per_s * 86_400), True
        return min(limits), False

    def _packed(self, size_bytes: float) -> int:
        """Return what packing leaves of a log; the active segment is not packed."""
        if not is_packing(self.config):
            return math.ceil(size_bytes)
        active = min(size_bytes, self.segment.size_bytes)
        return math.ceil(active + (size_bytes - active) * self.workload.packed_ratio)

    def _of_keys(self) -> int:
        """Return the size of the last record of each key, each in its own batch at worst."""
        batch, keys = self.batch, (self.workload.keys or 0) / self.workload.partitions
        record = (batch.size_bytes - HEADER_BYTES) / batch.records
        return math.ceil(keys * (record + HEADER_BYTES))

    def dirty(self, kept: int) -> int:
        """Return the size of new records since a compaction, and of the space for the next one."""
        ratio = min(self.config.min_cleanable_dirty_ratio, 0.99)
        new = max(math.ceil(kept * ratio / (1 - ratio)), self.segment.size_bytes)
        lag_ms = self.config.min_compaction_lag_ms
        new += math.ceil(self.bytes_per_s * lag_ms / _MS_PER_S)
        active = self.segment.size_bytes
        copy = min(self.config.effective_segment_bytes, kept + new)
        return new + active + copy

    def waiting(self, *, is_endless: bool) -> int:
        """Return the size of the segments that are deleted within ``file.delete.delay.ms``.

        Those that were packed are among them, so there are some even if the log has no limit.
        """
        if is_endless and not is_packing(self.config):
            return 0
        gone = self.bytes_per_s * self.config.file_delete_delay_ms / _MS_PER_S
        return (1 + int(gone / self.segment.size_bytes)) * self.segment.size_bytes

    def cleaner_rounds(self, store: StoreConfig) -> int:
        """Return the number of rounds to compact the partition once."""
        keys = (self.workload.keys or 0) / self.workload.partitions
        memory = store.log_cleaner_dedupe_buffer_size // max(store.log_cleaner_threads, 1)
        share = store.log_cleaner_io_buffer_load_factor
        return max(math.ceil(keys / OffsetMap(memory, share, bytes(16)).limit), 1)
