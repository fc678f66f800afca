"""Retention of a whole data directory: one busy topic cannot fill the disk.

Two limits, of which the stricter one applies:

    log.retention.total.bytes       the logs of all topics together have at most that many bytes
    log.retention.keep.free.bytes   the disk has at least that many bytes free

Beyond a limit, the largest topic gives up its oldest segment, and so on until the limit is met. The
oldest segment of a topic is that of its partitions' first ones whose latest record is the oldest.
The sizes are those of the ``.log`` files on this disk. Deleted files that wait for their removal
are counted as free: no more records are deleted because of them. But while the disk really has less
than ``log.retention.keep.free.bytes`` free, those of deleted segments do not wait any longer. Those
of deleted topics do: until then ``logfs topic undelete`` restores the topic.

An active segment is not deleted. Therefore one that is larger than an eighth of the allowed bytes
is sealed first, as journald limits a file to an eighth of all. Everything else that retention keeps
stays too: topics without their own configuration or without ``delete`` in ``cleanup.policy``,
offsets from the high watermark on, and records that wait to be forwarded. Tiered topics stay as
well: a deletion would remove their objects from the store. They have their own limits,
``local.retention.bytes`` and ``.ms``.

Source: systemd's journald.conf(5), SystemMaxUse, SystemKeepFree, SystemMaxFileSize.
"""

import heapq
import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from logfs.config import CleanupPolicy, StoreConfig
from logfs.log.catalog import Catalog
from logfs.log.partition import PartitionLog
from logfs.log.segments.segment import Segment
from logfs.services.retention.holds import held_offset, note_not_forwarded
from logfs.services.retention.logs import SEGMENTS_AT_ONCE, Deletion, Rule

logger = logging.getLogger(__name__)

_ACTIVE_PART = 8
_SMALLEST_ROLLED_BYTES = 1 << 20


class Usage(NamedTuple):
    """How much of a directory's limits is used.

    Attributes:
        rule: The limit that is the stricter one.
        used_bytes: Bytes of the logs of all topics.
        allowed_bytes: How many they may have; negative if the disk lacks more than they have.
    """

    rule: Rule
    used_bytes: int
    allowed_bytes: int

    @property
    def excess(self) -> int:
        """By how many bytes the limit is exceeded; negative if there is room."""
        return self.used_bytes - self.allowed_bytes


class OldSegment(NamedTuple):
    """A segment that may be deleted.

    Attributes:
        latest: Its largest timestamp; -1 if its records have none.
        end_offset: Base offset of the next segment.
    """

    latest: int
    size_bytes: int
    end_offset: int


class LogSegments(NamedTuple):
    """The facts of a log that the order of deletion is made from.

    Attributes:
        size_bytes: The size of all its segments on this disk, those that must stay included.
        segments: The segments that may be deleted, the oldest first.
    """

    topic: str
    size_bytes: int
    segments: Sequence[OldSegment]


class SegmentShare(NamedTuple):
    """The first segments of a log, which it gives up."""

    segments: int
    size_bytes: int
    end_offset: int


def has_limits(config: StoreConfig) -> bool:
    """Return whether a directory has limits."""
    return config.log_retention_total_bytes >= 0 or config.log_retention_keep_free_bytes >= 0


def usage(store: Catalog[PartitionLog], leaving_bytes: int = 0) -> Usage | None:
    """Return the use of the stricter limit of a directory; None if it has no limit.

    Args:
        leaving_bytes: Bytes of deleted topics that are still on the disk.

    Raises:
        OSError: The disk does not tell how much is free.
    """
    config, logs = store.config, store.all_partitions()
    used = sum(log.local_bytes for log in logs)
    found = []
    if config.log_retention_total_bytes >= 0:
        found.append(Usage(Rule.TOTAL, used, config.log_retention_total_bytes))
    if config.log_retention_keep_free_bytes >= 0:
        disk = store.disk.free()
        free = disk.f_bavail * disk.f_frsize + leaving_bytes
        free += sum(s.size_bytes for log in logs for s in log.removal.deleted.segments)
        found.append(Usage(Rule.FREE, used, used + free - config.log_retention_keep_free_bytes))
    return min(found, key=lambda row: row.allowed_bytes, default=None)


def lacks_room(store: Catalog[PartitionLog]) -> bool:
    """Return whether less is free now than ``log.retention.keep.free.bytes``, if that is set.

    Raises:
        OSError: The disk does not tell how much is free.
    """
    if store.config.log_retention_keep_free_bytes < 0:
        return False
    disk = store.disk.free()
    return disk.f_bavail * disk.f_frsize < store.config.log_retention_keep_free_bytes


def remove_waiting_files(log: PartitionLog, now_ms: int) -> None:
    """Remove the files of deleted segments now, and not after ``file.delete.delay.ms``; logged.

    Files that an open fixed name reads are removed when it is closed.

    Raises:
        OSError: The disk failed; some files may have been removed.
    """
    size_bytes, _ = log.removal.expedite(now_ms)
    log.remove_due_files(now_ms)
    if size_bytes:
        logger.info(
            "%s: removed the files of deleted segments, %d bytes, before their time because of %s",
            log.topic_partition, size_bytes, Rule.FREE,
        )  # fmt: skip


def too_large(log: PartitionLog, limit: Usage) -> bool:
    """Return whether the active segment of a log has to be sealed, so that it can be deleted."""
    largest = max(_SMALLEST_ROLLED_BYTES, limit.allowed_bytes // _ACTIVE_PART)
    return _may_delete(log) and log.snapshot.end.file_size > largest


def segments_of(store: Catalog[PartitionLog]) -> list[tuple[PartitionLog, LogSegments]]:
    """Return the logs of a store and their segments that may be deleted.

    Raises:
        LogfsError: A topic was deleted meanwhile.
        OSError: A directory cannot be read.
    """
    found = []
    for topic in store.topics():
        is_ours = store.has_config(topic)
        for number in store.partitions(topic):
            log = store.partition(topic, number)
            segments = tuple(_old_segments(log)) if is_ours and _may_delete(log) else ()
            found.append((log, LogSegments(topic, log.local_bytes, segments)))
    return found


def plan_deletion(logs: Sequence[LogSegments], excess: int) -> list[SegmentShare]:
    """Decide which segments to delete so that a directory has so many bytes less.

    Pure. Returns a share for each log, in the same order.
    """
    by_topic: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for number, log in enumerate(logs):
        by_topic.setdefault(log.topic, []).append(number)
        sizes[log.topic] = sizes.get(log.topic, 0) + log.size_bytes
    deleted = [0] * len(logs)  # segments, by log
    oldest = {
        topic: [(logs[n].segments[0].latest, n) for n in numbers if logs[n].segments]
        for topic, numbers in by_topic.items()
    }
    for rows in oldest.values():
        heapq.heapify(rows)
    largest = [(-sizes[topic], topic) for topic, rows in oldest.items() if rows]
    heapq.heapify(largest)
    while excess > 0 and largest:
        size, topic = heapq.heappop(largest)
        _, number = heapq.heappop(oldest[topic])
        segments = logs[number].segments
        size_bytes = segments[deleted[number]].size_bytes
        deleted[number] += 1
        excess -= size_bytes
        if deleted[number] < len(segments):
            heapq.heappush(oldest[topic], (segments[deleted[number]].latest, number))
        if oldest[topic]:
            heapq.heappush(largest, (size + size_bytes, topic))
    return [_share(log.segments[:count]) for log, count in zip(logs, deleted, strict=True)]


def delete_share(log: PartitionLog, share: SegmentShare, limit: Usage, now_ms: int) -> Deletion:
    """Delete the share of a log; durable on return, and logged.

    The disk's own limit also removes the files at once, except those that open fixed names read.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
        OSError: The disk failed; segments may have been deleted before.
    """
    before, count, size_bytes = log.log_start_offset, 0, 0
    for end_offset in _steps(log, share.end_offset):
        with log.exclusive():
            log.check_writable()
            gone = [s for s, end in _sealed(log) if end <= end_offset]
            log.advance_log_start_offset(end_offset, now_ms)
        size = sum(segment.size_bytes for segment in gone)
        log.counters.count_deleted(limit.rule, len(gone), size)
        count, size_bytes = count + len(gone), size_bytes + size
    if limit.rule is Rule.FREE:
        log.removal.expedite(now_ms)
        log.remove_due_files(now_ms)
    note_not_forwarded(log, before, now_ms)
    done = Deletion(count, size_bytes, (before, log.log_start_offset), (limit.rule,))
    logger.info(
        "%s: deleted %d segments of %d bytes because of %s: all logs have %d bytes, and may have "
        "%d; the log starts at offset %d, it started at %d",
        log.topic_partition, count, size_bytes, limit.rule, limit.used_bytes,
        max(limit.allowed_bytes, 0), done.start[1], before,
        extra={"fields": {
            "event": "retention", "segments": count, "bytes": size_bytes, "offset": done.start[1],
        }},
    )  # fmt: skip
    return done


def _may_delete(log: PartitionLog) -> bool:
    return (
        log.offline is None
        and not log.is_deleted
        and not log.is_unreadable
        and log.tier is None
        and not log.config.remote_storage_enable
        and CleanupPolicy.DELETE in log.config.cleanup_policy
    )


def _old_segments(log: PartitionLog) -> Iterator[OldSegment]:
    """Yield the segments of a log that may be deleted, the oldest first."""
    limit, held = log.high_watermark, held_offset(log)
    if held is not None:
        limit = min(limit, held)
    for segment, end_offset in _sealed(log):
        if end_offset > limit:
            return
        yield OldSegment(segment.max_timestamp, segment.size_bytes, end_offset)


def _sealed(log: PartitionLog) -> list[tuple[Segment, int]]:
    """Return all segments but the active one, each with the base offset of the next one."""
    return [(a, b.base_offset) for a, b in pairwise(log.snapshot.segments)]


def _share(segments: Sequence[OldSegment]) -> SegmentShare:
    end_offset = segments[-1].end_offset if segments else 0
    return SegmentShare(len(segments), sum(s.size_bytes for s in segments), end_offset)


def _steps(log: PartitionLog, end_offset: int) -> Iterator[int]:
    """Yield the ends of the steps, so that appends wait for no more than one of them."""
    ends = [end for _, end in _sealed(log) if end <= end_offset]
    yield from ends[SEGMENTS_AT_ONCE - 1 :: SEGMENTS_AT_ONCE]
    if len(ends) % SEGMENTS_AT_ONCE:
        yield ends[-1]
