"""Which part of a log is dirty, and whether the log is due for compaction.

    |---- clean ----|---- dirty, cleanable ----|---- dirty, not cleanable yet ----|
    log start       first dirty                first uncleanable                  end

The *first dirty* offset is where the last compaction ended (``cleaner-offset-checkpoint``). The
*first uncleanable* offset is the base of the first segment that

* is active,
* contains the start of an open transaction, or the high watermark, or
* has a record younger than ``min.compaction.lag.ms``.

A log is due if more than ``min.cleanable.dirty.ratio`` of its clean and cleanable bytes are
cleanable. It is also due if any are and its oldest dirty record is older than
``max.compaction.lag.ms``.

Pure. Source: Kafka LogCleanerManager.cleanableOffsets, calculateCleanableBytes, maxCompactionDelay;
LogToClean.
"""

from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.types import IsolationLevel


class DirtyRange(NamedTuple):
    """The dirty part of a log.

    Attributes:
        first_dirty: Offset at which it starts.
        first_uncleanable: Offset at which its cleanable part ends; base of a segment.
        clean_bytes: Size of the segments that start below ``first_dirty``.
        cleanable_bytes: Size of the segments up to ``first_uncleanable``. The segment that contains
            ``first_dirty`` is included in both sizes.
        delay_ms: For how long it has been overdue under ``max.compaction.lag.ms``; 0 if it is not.
        is_checkpoint_wrong: The offset in the checkpoint is outside the log.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    is_checkpoint_wrong: bool

    @property
    def ratio(self) -> float:
        """Cleanable share of the bytes, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        """Tell whether the log is due for compaction."""
        if self.delay_ms > 0 and self.cleanable_bytes > 0:
            return True
        return self.ratio > config.min_cleanable_dirty_ratio


def find_dirty_range(
    snapshot: Snapshot, config: TopicConfig, checkpoint: int | None, now_ms: int
) -> DirtyRange:
    """Find the dirty part of a log, whose last compaction ended at ``checkpoint``."""
    start = snapshot.start.offset
    first_dirty = start if checkpoint is None else checkpoint
    is_wrong = not start <= first_dirty <= snapshot.end.offset
    if is_wrong:
        first_dirty = start
    sealed = snapshot.segments[:-1]
    dirty = sealed[max(snapshot.index_of_offset(first_dirty), 0) :]
    stable = snapshot.visible_end(IsolationLevel.READ_COMMITTED).offset
    if snapshot.watermark is not None:
        stable = min(stable, snapshot.watermark.offset)
    limits = [stable, snapshot.active.base_offset]
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        limits += [s.base_offset for s in dirty if s.max_timestamp > youngest][:1]
    first_uncleanable = _round_down(snapshot, max(first_dirty, min(limits)))
    begin = _round_down(snapshot, min(first_dirty, first_uncleanable))
    return DirtyRange(
        first_dirty,
        first_uncleanable,
        sum(s.size_bytes for s in sealed if s.base_offset < first_dirty),
        sum(s.size_bytes for s in sealed if begin <= s.base_offset < first_uncleanable),
        _delay_ms(dirty, config, now_ms),
        is_wrong,
    )


def _round_down(snapshot: Snapshot, offset: int) -> int:
    return snapshot.segments[max(snapshot.index_of_offset(offset), 0)].base_offset


def _delay_ms(dirty: tuple[Segment, ...], config: TopicConfig, now_ms: int) -> int:
    times = [s.first_timestamp for s in dirty if s.first_timestamp > 0]
    return max(now_ms - config.max_compaction_lag_ms - min(times), 0) if times else 0
