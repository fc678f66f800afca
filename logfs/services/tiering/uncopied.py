"""Segments that retention deletes soon, although the store does not have them.

Retention deletes them all the same, as Kafka's does: a store that is away must not fill the disk.
So people are told when a segment has reached four fifths of a limit.
"""

from typing import NamedTuple

from logfs.config import CleanupPolicy
from logfs.log.partition import PartitionLog

NEAR = 0.8
"""Share of a limit from which on a segment is near its deletion."""


class NearDeletion(NamedTuple):
    """Sealed segments that are not in the store and near their deletion.

    Attributes:
        segments: How many.
        base_offset: The base offset of the oldest one.
        setting: The limit that it reaches first: "retention.ms" or "retention.bytes".
        share: How much of the limit it has reached; from 1 on it is due.
    """

    segments: int
    base_offset: int
    setting: str
    share: float


def near_deletion(log: PartitionLog, now_ms: int) -> NearDeletion | None:
    """Return the segments that retention deletes soon and that are to be copied; None without any.

    A segment has reached that share of ``retention.bytes`` that the records after it take.
    """
    config, tier, snapshot = log.config, log.tier, log.snapshot
    if CleanupPolicy.DELETE not in config.cleanup_policy or config.remote_log_copy_disable:
        return None
    done = -1 if tier is None else tier.next_offset or -1
    after_bytes = snapshot.end_of(len(snapshot.segments) - 1)[2]
    found: NearDeletion | None = None
    for segment in reversed(snapshot.segments[:-1]):
        if segment.base_offset < done:
            break
        limits = []
        if config.retention_ms > 0 and segment.max_timestamp >= 0:
            age_ms = now_ms - segment.max_timestamp
            limits.append((age_ms / config.retention_ms, "retention.ms"))
        if config.retention_bytes > 0:
            limits.append((after_bytes / config.retention_bytes, "retention.bytes"))
        share, setting = max(limits, default=(0.0, ""))
        if share >= NEAR:
            count = 1 if found is None else found.segments + 1
            found = NearDeletion(count, segment.base_offset, setting, share)
        after_bytes += segment.size_bytes
    return found
