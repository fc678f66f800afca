"""When the active segment is closed and the next one begins: Kafka's five conditions.

Source: Kafka LogSegment.shouldRoll and RollParams; kafka-log-format 4.1 behaviour for the first
timestamp (the first batch's maximum).
"""

from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.records.layout import MAX_RELATIVE_OFFSET


class SegmentFill(NamedTuple):
    """What the active segment holds, as far as rolling is concerned."""

    base_offset: int
    size_bytes: int
    first_timestamp: int
    created_ms: int
    is_index_full: bool


def should_roll(
    fill: SegmentFill | tuple[int, int, int, int, bool],
    config: TopicConfig,
    jitter_ms: int,
    batch: tuple[int, int, int],
    now_ms: int,
) -> bool:
    """Decide whether a batch begins a new segment; an empty segment always takes it (KAFKA-6388).

    Args:
        fill: The active segment; every append asks, and a plain tuple is made in no time.
        config: The topic's configuration.
        jitter_ms: Taken off ``segment.ms``, so that the segments of many partitions do not roll at
            the same moment; drawn once per segment.
        batch: Its size in bytes, its last offset and its max timestamp.
        now_ms: The clock, for segments whose records have no timestamps.
    """
    size_bytes, last_offset, max_timestamp = batch
    base_offset, filled_bytes, first_timestamp, created_ms, is_index_full = fill
    if filled_bytes == 0:
        return False
    if filled_bytes > config.effective_segment_bytes - size_bytes:
        return True
    waited_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - created_ms
    if waited_ms > config.max_segment_ms - jitter_ms:
        return True
    return is_index_full or not 0 <= last_offset - base_offset <= MAX_RELATIVE_OFFSET
