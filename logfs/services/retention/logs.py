"""Retention: which segments a log deletes by itself, and deleting them.

Three rules, in this order. Each deletes segments from the oldest on, up to the first that it keeps:

    log start offset   the next segment starts at or below it; under every cleanup.policy
    retention.bytes    without the segment the log still has that many bytes
    retention.ms       the segment's latest record is older than that

The last two apply if ``cleanup.policy`` contains delete and their value is not negative. The age of
a segment is that of its records. A timestamp in the future therefore keeps its segment and all
later ones. A segment without timestamps is as old as its file. The active segment is deleted like
any other, unless it is empty; a new one is started first. Nothing at or beyond the high watermark
is deleted, nor anything that waits to be forwarded to a cluster: see ``holds``.

The limits of a whole data directory are in ``directoryretention``.

Source: Kafka UnifiedLog.deleteOldSegments, deletableSegments; LogSegment.largestTimestamp.
"""

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from logfs.config import CleanupPolicy, TopicConfig
from logfs.disk.vfs import DISK_FULL
from logfs.log.partition import PartitionLog
from logfs.log.segments.snapshot import Snapshot
from logfs.services.retention.holds import held_offset, note_not_forwarded

logger = logging.getLogger(__name__)

SEGMENTS_AT_ONCE = 64
"""Deleted under one hold of the partition's lock, so that appends wait for no more than these."""


class Rule(StrEnum):
    """Why a segment is deleted."""

    START_OFFSET = "log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"
    TOTAL = "log.retention.total.bytes"
    FREE = "log.retention.keep.free.bytes"


class SegmentFacts(NamedTuple):
    """The properties of a segment that the rules use.

    Attributes:
        next_base: Base offset of the next segment; the log end offset for the active one.
        latest: Its largest timestamp; -1 if its records have none.
    """

    next_base: int
    size_bytes: int
    latest: int


_TOLERANCE_MS = 1000
"""How far the clock of a writer may be ahead without a word."""


class RetentionPlan(NamedTuple):
    """The rule for each segment to delete, and the one that a timestamp in the future keeps."""

    rules: tuple[Rule, ...] = ()
    future: int | None = None


class Deletion(NamedTuple):
    """What retention deleted from a partition.

    Attributes:
        start: The log start offset before and after.
        future: Base offset and latest timestamp of a segment that a timestamp in the future keeps.
    """

    segments: int
    size_bytes: int
    start: tuple[int, int]
    rules: tuple[Rule, ...]
    future: tuple[int, int] | None = None


def plan_retention(
    segments: Sequence[SegmentFacts],
    config: TopicConfig,
    offsets: tuple[int, int],
    now_ms: int,
    modified_ms: Callable[[int], int],
) -> RetentionPlan:
    """Decide which segments to delete.

    Args:
        segments: All of them, the last one active.
        offsets: The log start offset and the high watermark.
        modified_ms: Returns the modification time of the file of the segment with an index; called
            for segments without timestamps only.
    """
    start, watermark = offsets
    candidates = _candidates(segments, watermark)
    rules: list[Rule] = []
    while (
        len(rules) < min(candidates, len(segments) - 1) and segments[len(rules)].next_base <= start
    ):
        rules.append(Rule.START_OFFSET)
    if CleanupPolicy.DELETE not in config.cleanup_policy:
        return RetentionPlan(tuple(rules))
    excess = sum(s.size_bytes for s in segments[len(rules) :]) - config.retention_bytes
    while config.retention_bytes >= 0 and len(rules) < candidates:
        excess -= segments[len(rules)].size_bytes
        if excess < 0:
            break
        rules.append(Rule.SIZE)
    while config.retention_ms >= 0 and len(rules) < candidates:
        latest = segments[len(rules)].latest
        latest = modified_ms(len(rules)) if latest < 0 else latest
        if now_ms - latest <= config.retention_ms:
            is_future = latest > now_ms + _TOLERANCE_MS
            return RetentionPlan(tuple(rules), len(rules) if is_future else None)
        rules.append(Rule.TIME)
    return RetentionPlan(tuple(rules))


def apply_retention(log: PartitionLog, now_ms: int) -> Deletion:
    """Delete the segments of a partition that the rules name; durable on return, and logged.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
        OSError: The disk failed; segments may have been deleted before.

    Source: Kafka UnifiedLog.deleteOldSegments.
    """
    count, size_bytes, before = 0, 0, log.log_start_offset
    rules: dict[Rule, None] = {}
    while True:
        with log.exclusive():
            log.check_writable()
            snapshot = log.snapshot
            plan = _without_held(log, snapshot, _plan(log, snapshot, now_ms))
            part = plan.rules[:SEGMENTS_AT_ONCE]
            done_now = _delete_first(log, len(part), now_ms)
            is_over = len(part) == len(plan.rules) or done_now < len(part)
            part = part[:done_now]
        count += len(part)
        for number, rule in enumerate(part):
            size = snapshot.end_of(number)[2]
            size_bytes += size
            log.counters.count_deleted(rule, 1, size)
        rules |= dict.fromkeys(part)
        if is_over:
            break
    if count:
        note_not_forwarded(log, before, now_ms)
    log.counters.retention_ms = now_ms
    future = None
    if plan.future is not None:
        future = snapshot.segments[plan.future].base_offset, _latest(snapshot, plan.future)
    done = Deletion(count, size_bytes, (before, log.log_start_offset), tuple(rules), future)
    if count:
        logger.info(
            "%s: deleted %d segments of %d bytes because of %s; the log starts at offset %d, "
            "it started at %d",
            log.topic_partition, count, size_bytes, " and ".join(rules), done.start[1], before,
            extra={"fields": {
                "event": "retention", "segments": count, "bytes": size_bytes,
                "offset": done.start[1],
            }},
        )  # fmt: skip
    return done


def _candidates(segments: Sequence[SegmentFacts], watermark: int) -> int:
    """Return how many segments, from the oldest on, may be deleted at all."""
    last = len(segments) - (segments[-1].size_bytes == 0)
    return next((n for n in range(last) if segments[n].next_base > watermark), last)


def _plan(log: PartitionLog, snapshot: Snapshot, now_ms: int) -> RetentionPlan:
    segments = snapshot.segments
    next_bases = [*(s.base_offset for s in segments[1:]), snapshot.end.offset]
    facts = [
        SegmentFacts(next_bases[n], snapshot.end_of(n)[2], _latest(snapshot, n))
        for n in range(len(segments))
    ]

    def modified_ms(number: int) -> int:
        return log.disk.stat(segments[number].name).mtime_ms

    offsets = snapshot.start.offset, log.high_watermark
    return plan_retention(facts, log.config, offsets, now_ms, modified_ms)


def _without_held(log: PartitionLog, snapshot: Snapshot, plan: RetentionPlan) -> RetentionPlan:
    """Leave out of a plan what waits to be forwarded; the directory is read only if need be."""
    held = held_offset(log) if plan.rules else None
    if held is None:
        return plan
    rules = [
        rule
        for number, rule in enumerate(plan.rules)
        if rule is Rule.START_OFFSET or snapshot.end_of(number)[1] <= held
    ]
    return plan._replace(rules=tuple(rules))


def _latest(snapshot: Snapshot, number: int) -> int:
    is_active = number == len(snapshot.segments) - 1
    return snapshot.end.max_timestamp if is_active else snapshot.segments[number].max_timestamp


def _delete_first(log: PartitionLog, count: int, now_ms: int) -> int:
    """Delete the first segments; returns how many: one fewer if there is no room to roll."""
    if count == len(log.snapshot.segments):
        try:
            log.roll(now_ms)
        except OSError as error:
            if error.errno not in DISK_FULL or count == 1:
                raise
            count -= 1
    if count:
        log.advance_log_start_offset(log.snapshot.segments[count].base_offset, now_ms)
    return count
