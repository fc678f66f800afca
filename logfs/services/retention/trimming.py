"""Trim: delete the records before a point, on request. Kafka: DeleteRecords.

The point is the FROM of an address, ``orders/0@FROM``. The records that a name with this selector
shows are kept. As in Kafka only topics whose ``cleanup.policy`` contains delete can be trimmed, and
a point beyond the end is refused. A time in the future is refused too: it would delete the whole
log, and is more likely a typing mistake.

The log start offset may be inside a batch afterwards. The records of the batch before it are not
shown any more, but stay in the file as long as the batch does.

Source: Kafka Partition.deleteRecordsOnLeader.
"""

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Sequence
from datetime import tzinfo
from typing import NamedTuple

from logfs.config import CleanupPolicy
from logfs.disk.vfs import DISK_FULL
from logfs.errors import (
    BadSelectorError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownNameError,
)
from logfs.log.partition import PartitionLog
from logfs.log.reading.address import (
    AtByte,
    AtOffset,
    Earliest,
    Latest,
    PartitionAddress,
    Time,
    parse_partition_name,
    parse_topic_name,
    point_alone,
)
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.segments.snapshot import Snapshot
from logfs.services.retention.holds import refuse_held
from logfs.services.views.resolve import VIEWS
from logfs.types import View

logger = logging.getLogger(__name__)

TRIM = "trim"
"""The reason for these deletions; the others are the rules of retention."""


class Trimmed(NamedTuple):
    """What trimming did to a partition.

    Attributes:
        held_bytes: Bytes that are still on the disk: for file.delete.delay.ms, or until the last
            reader has closed them.
        kept_offsets: How many offsets were kept although they were to be deleted, because the disk
            has no room to save the new log start.
    """

    partition: int
    log_start_offset: int
    offsets: int
    segments: int
    removed_bytes: int
    held_bytes: int
    kept_offsets: int = 0


class TrimAddress(NamedTuple):
    """What to trim.

    Attributes:
        partition: Number of the partition; None for all of the topic.
        keep: Its FROM is the first record to keep; its partition is not used.
    """

    topic: str
    partition: int | None
    keep: PartitionAddress


def parse_trim_address(
    names: Sequence[str], time_zone: tzinfo, meaning: str = "records before FROM are deleted"
) -> TrimAddress:
    """Parse ``orders/0@FROM``, or ``orders@FROM`` for all partitions; raise a LogfsError."""
    topic, at, selector = (names[0] if names else "").partition("@")
    if len(names) == 1 and at:
        return TrimAddress(
            parse_topic_name(topic), None, parse_partition_name(f"0@{selector}", time_zone)
        )
    if len(names) != 2:
        raise UnknownNameError(
            f"expected a partition, TOPIC/PARTITION@FROM, or all of a topic, TOPIC@FROM; {meaning}"
        )
    keep = parse_partition_name(names[1], time_zone)
    return TrimAddress(parse_topic_name(names[0]), keep.partition, keep)


def check_trimmable(log: PartitionLog) -> None:
    """Refuse a log that must not be trimmed.

    Raises:
        PolicyViolationError: ``cleanup.policy`` does not contain delete.
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
    """
    log.check_writable()
    policy = log.config.get("cleanup.policy")
    if CleanupPolicy.DELETE not in log.config.cleanup_policy:
        both = f"{policy},delete" if policy else "delete"
        raise PolicyViolationError(
            f"{log.topic_partition}: its cleanup.policy is {policy or 'empty'}, so records are not "
            f"given up from the start on; 'logfs topic alter TOPIC --config cleanup.policy={both}' "
            "allows that"
        )


def offset_to_keep(log: PartitionLog, address: PartitionAddress, now_ms: int) -> int:
    """Return the offset of the first record that an address keeps.

    Raises:
        BadSelectorError: The address has no FROM, has a TO, or a FROM in the future.
        OffsetOutOfRangeError: An offset beyond the high watermark.
    """
    snapshot = log.snapshot
    end = log.high_watermark
    if address.start is None or address.end is not None:
        raise BadSelectorError("expected one @FROM, the first record to keep, as in orders/0@-7d")
    match start := point_alone(address.start):
        case Earliest():
            return snapshot.start.offset
        case Latest():
            return end
        case AtOffset(n):
            if n > end:
                raise OffsetOutOfRangeError(n, snapshot.start.offset, end)
            return max(n if n >= 0 else end + n, snapshot.start.offset)
        case AtByte(n):
            return _offset_at_byte(snapshot, VIEWS[address.view], n)
    found = offset_for_time(snapshot, _timestamp(start, now_ms))
    return end if found is None else min(found, end)


def _timestamp(point: Time, now_ms: int) -> int:
    timestamp_ms = point.at(now_ms)
    if timestamp_ms > now_ms:
        raise BadSelectorError(
            f"{timestamp_ms} ms after the epoch has not come yet, so every record lies "
            "before it; to give up all of them say @latest"
        )
    return timestamp_ms


class TrimPlan(NamedTuple):
    """What a trim deletes from a partition.

    Attributes:
        log_start_offset: The new one.
        offsets: How many offsets are deleted.
        segments: How many segments are deleted, from the oldest on.
        size_bytes: Bytes of their ``.log`` files.
    """

    log_start_offset: int
    offsets: int
    segments: int
    size_bytes: int


def plan_trim(snapshot: Snapshot, offset: int) -> TrimPlan:
    """Return what a trim up to an offset deletes. Pure.

    A segment is deleted if all its records are; the active one too, unless it is empty.
    """
    start = max(offset, snapshot.start.offset)
    if offset == snapshot.end.offset and snapshot.end.file_size:
        gone = len(snapshot.segments)
    else:
        gone = max(snapshot.index_of_offset(start), 0)
    size_bytes = sum(snapshot.end_of(number)[2] for number in range(gone))
    return TrimPlan(start, start - snapshot.start.offset, gone, size_bytes)


def preview_trim(
    log: PartitionLog, offset: int, *, at_once: bool = False, even_if_held: bool = False
) -> Trimmed:
    """Return what ``trim`` would do, without doing it; see there.

    A disk that is too full to save the new log start is not foreseen.
    """
    check_trimmable(log)
    if not even_if_held:
        refuse_held(log, offset)
    with log.exclusive():
        snapshot = log.snapshot
        plan = plan_trim(snapshot, offset)
        removed, held = 0, plan.size_bytes
        if at_once:
            waiting = [(s.size_bytes, s.pins) for s in log.removal.deleted.segments]
            waiting += [
                (snapshot.end_of(number)[2], snapshot.segments[number].pins)
                for number in range(plan.segments)
            ]
            removed = sum(size for size, pins in waiting if not pins)
            held = sum(size for size, pins in waiting if pins)
    return Trimmed(
        log.topic_partition.partition,
        plan.log_start_offset,
        plan.offsets,
        plan.segments,
        removed,
        held,
    )


def trim(
    log: PartitionLog,
    offset: int,
    now_ms: int,
    *,
    at_once: bool = False,
    even_if_held: bool = False,
) -> Trimmed:
    """Delete the records of a partition below an offset; durable on return, and logged.

    On a full disk the whole segments below the offset are deleted first. If that makes no room to
    save the new log start, the other records are kept.

    Args:
        at_once: Remove the files of all its deleted segments now instead of after
            file.delete.delay.ms. Files that an open fixed name reads are removed when it is closed.
        even_if_held: Also what waits to be forwarded to a cluster, see ``holds``.

    Raises:
        HeldError: Records below ``offset`` wait to be forwarded.
        OffsetOutOfRangeError: ``offset`` is above the high watermark.
        LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing could be deleted.
    """
    check_trimmable(log)
    if not even_if_held:
        refuse_held(log, offset)
    try:
        # Or a power cut could leave the end below the start, and publishing append records again.
        log.flush()
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
    # First, since what was deleted before may be the room that this needs.
    removed, held = _remove_now(log, now_ms) if at_once else (0, 0)
    with log.exclusive():
        check_trimmable(log)
        before = log.snapshot
        kept = _advance(log, offset, now_ms)
    if at_once:
        more, held = _remove_now(log, now_ms)
        removed += more
        if kept:
            with contextlib.suppress(OSError), log.exclusive():
                kept = _advance(log, offset, now_ms)
            more, held = _remove_now(log, now_ms)
            removed += more
    gone = _deleted(before, log.snapshot)
    if gone[0]:
        log.counters.count_deleted(TRIM, *gone)
    if not at_once:
        held = gone[1]
    start, offsets = log.log_start_offset, log.log_start_offset - before.start.offset
    if offsets:
        logger.info(
            "%s: trimmed: %d offsets given up, %d segments of %d bytes deleted; the log starts at "
            "offset %d, it started at %d",
            log.topic_partition, offsets, *gone, start, before.start.offset,
            extra={"fields": {
                "event": "trim", "segments": gone[0], "bytes": gone[1], "offset": start,
            }},
        )  # fmt: skip
    return Trimmed(log.topic_partition.partition, start, offsets, gone[0], removed, held, kept)


def _remove_now(log: PartitionLog, now_ms: int) -> tuple[int, int]:
    """Remove the files of all deleted segments; returns removed bytes, and bytes still in use."""
    found = log.removal.expedite(now_ms)
    log.remove_due_files(now_ms)
    return found


def _advance(log: PartitionLog, offset: int, now_ms: int) -> int:
    """Advance the log start; returns by how many offsets too few, because the disk is full."""
    try:
        if offset == log.log_end_offset and log.snapshot.end.file_size:
            log.roll(now_ms)  # so that the active segment is deleted too, like by retention
        log.advance_log_start_offset(offset, now_ms)
    except OSError as error:
        snapshot = log.snapshot
        begin = snapshot.segments[max(snapshot.index_of_offset(offset), 0)].base_offset
        if error.errno not in DISK_FULL or begin <= snapshot.start.offset or log.offline:
            raise
        log.advance_log_start_offset(begin, now_ms)
    return offset - log.log_start_offset if offset > log.log_start_offset else 0


def trim_all(
    logs: Sequence[PartitionLog],
    keep: PartitionAddress,
    now_ms: int,
    *,
    at_once: bool = False,
    even_if_held: bool = False,
    is_preview: bool = False,
) -> list[Trimmed]:
    """Trim partitions: all of them, or none if one must not be trimmed.

    Args:
        is_preview: Return what would be done, and change nothing.

    Raises:
        See ``check_trimmable``, ``offset_to_keep``, ``trim``.
    """
    for log in logs:
        check_trimmable(log)
    offsets = [offset_to_keep(log, keep, now_ms) for log in logs]
    if not even_if_held:
        for log, offset in zip(logs, offsets, strict=True):
            refuse_held(log, offset)
    if is_preview:
        return [
            preview_trim(log, offset, at_once=at_once, even_if_held=even_if_held)
            for log, offset in zip(logs, offsets, strict=True)
        ]
    return [
        trim(log, offset, now_ms, at_once=at_once, even_if_held=even_if_held)
        for log, offset in zip(logs, offsets, strict=True)
    ]


def _deleted(before: Snapshot, after: Snapshot) -> tuple[int, int]:
    """Return how many segments were deleted between two snapshots, and their bytes."""
    first = after.segments[0].base_offset
    gone = [n for n, segment in enumerate(before.segments) if segment.base_offset < first]
    return len(gone), sum(before.end_of(n)[2] for n in gone)


def _offset_at_byte(snapshot: Snapshot, view: View, n: int) -> int:
    """Return the offset of the record that contains a byte; in a hole that of the next record."""
    start, end = snapshot.start.offset, snapshot.end.offset
    size = snapshot.end.positions[view]
    if n > size:
        raise BadSelectorError(f"byte {n} lies beyond the end, which is byte {size}")
    position = max(n if n >= 0 else size + n, snapshot.start.positions[view])
    if position >= size:
        return end
    offsets: Sequence[int] = range(start, end)
    after = bisect_right(offsets, position, key=lambda o: positions_of_offset(snapshot, o)[view])
    return max(start, start + after - 1)
