"""Local retention: the local files of tiered segments go, and the log stays as it is.

Two rules. Each drops local files from the oldest segment on, up to the first that it keeps:

    local.retention.bytes   without the files, the local ones still have that many bytes
    local.retention.ms      the segment's latest record is older than that

-2 means the value of ``retention.bytes`` or ``retention.ms``; any other negative value is no
limit. Only files of tiered segments go. So without a store that takes copies, nothing goes.

Source: Kafka UnifiedLog.deleteRetentionSizeBreachedSegments, deleteRetentionMsBreachedSegments,
localRetentionSize, localRetentionMs.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.log.partition import PartitionLog
from logfs.log.segments.segment import Segment
from logfs.services.retention.logs import SEGMENTS_AT_ONCE

logger = logging.getLogger(__name__)


class LocalSegment(NamedTuple):
    """The properties of a segment with local files that the rules use.

    Attributes:
        size_bytes: Bytes of its ``.log``.
        latest: Its largest timestamp; the modification time of its file if it has none.
        is_tiered: Whether the store has it.
    """

    size_bytes: int
    latest: int
    is_tiered: bool


class Dropped(NamedTuple):
    """How many segments have lost their local files, and the bytes of their ``.log``."""

    segments: int
    size_bytes: int


def plan_dropping(segments: Sequence[LocalSegment], config: TopicConfig, now_ms: int) -> int:
    """Return of how many segments, from the first on, the local files go.

    Args:
        segments: Those with local files, by base offset, the last one active.
        config: The configuration of the topic.
        now_ms: The clock.
    """
    candidates = next((n for n, s in enumerate(segments) if not s.is_tiered), len(segments))
    count = 0
    limit_bytes = config.effective_local_retention_bytes
    excess = sum(segment.size_bytes for segment in segments) - limit_bytes
    while limit_bytes >= 0 and count < candidates:
        excess -= segments[count].size_bytes
        if excess < 0:
            break
        count += 1
    limit_ms = config.effective_local_retention_ms
    while limit_ms >= 0 and count < candidates and now_ms - segments[count].latest > limit_ms:
        count += 1
    return count


def drop_local(
    log: PartitionLog,
    now_ms: int,
    secure: Callable[[Sequence[Segment]], object],
    changing: Callable[[], AbstractContextManager[object]],
) -> Dropped:
    """Drop the local files of a partition that local retention does not keep.

    Args:
        log: The partition.
        now_ms: The clock.
        secure: Called with segments before their files go; raises if the store lacks one.
        changing: Entered while their files go; raises if the directory may not be changed any more.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
        OSError: The disk failed.
    """
    count, size_bytes = 0, 0
    while part := local_segments_due(log, now_ms)[:SEGMENTS_AT_ONCE]:
        secure(part)
        with changing():
            log.removal.drop_local(part, now_ms)
        count += len(part)
        size_bytes += sum(segment.size_bytes for segment in part)
    if count:
        logger.info(
            "%s: the local files of %d segments of %d bytes go, the store has them",
            log.topic_partition, count, size_bytes,
            extra={"fields": {"event": "local-retention", "segments": count, "bytes": size_bytes}},
        )  # fmt: skip
    return Dropped(count, size_bytes)


def local_segments_due(log: PartitionLog, now_ms: int) -> list[Segment]:
    """Return the segments whose local files local retention does not keep."""
    tier, snapshot = log.tier, log.snapshot
    if tier is None:
        return []
    found, facts = [], []
    for number, segment in enumerate(snapshot.segments):
        row = tier.entries.get(segment.base_offset)
        if row is not None and segment.base_offset not in tier.local:
            continue
        latest = segment.max_timestamp
        if latest < 0:
            latest = now_ms if row is None else row.mtime_ms
        found.append(segment)
        facts.append(LocalSegment(snapshot.end_of(number)[2], latest, row is not None))
    return found[: plan_dropping(facts, log.config, now_ms)]
