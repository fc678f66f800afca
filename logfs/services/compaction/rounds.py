"""One round of compaction over one log: find the keys, then rewrite and replace group by group.

A round covers as much of the dirty part as the memory for keys allows. If it is interrupted, the
groups that were replaced before stay, and nothing else has changed.

Source: Kafka Cleaner.doClean.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.errors import CleaningAbortedError
from logfs.log.names import FileKind
from logfs.log.partition import PartitionLog
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.records.layout import MAX_RELATIVE_OFFSET
from logfs.services.compaction.dirtyrange import DirtyRange
from logfs.services.compaction.offsetmap import FindKeys, Keys, find_keys
from logfs.services.compaction.rewriting import CleanedSegment, CleaningRound
from logfs.services.compaction.tools import CleanerStats, CleaningTools
from logfs.services.compaction.transactions import CleanedTransactions

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Cleaned:
    """The result of a round: where the next one starts, segments before and after."""

    end_offset: int
    segments: tuple[int, int] = (0, 0)
    stats: CleanerStats = field(default_factory=CleanerStats)


def clean(
    log: PartitionLog,
    dirty: DirtyRange,
    now_ms: int,
    tools: CleaningTools,
    find: FindKeys = find_keys,
    *,
    is_preview: bool = False,
) -> Cleaned:
    """Compact the dirty part of a log, as far as the memory for keys allows.

    Args:
        log: The log. Other threads may read it and append to it meanwhile.
        is_preview: Write the new segments, count them and remove them; the log does not change.

    Raises:
        CleaningAbortedError: ``tools`` ended it, or the log was truncated or trimmed meanwhile.
        CorruptRecordError: A batch is damaged: the log cannot be cleaned.
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
    """
    log.check_writable()
    log.maintain()  # makes segments that were just sealed durable
    stats, begin_s = CleanerStats(), tools.clock_s()
    snapshot = log.snapshot
    logger.info(
        "%s: %s, dirty from offset %d to %d, %d of %d bytes",
        log.topic_partition, "previewing a compaction" if is_preview else "compacting",
        dirty.first_dirty, dirty.first_uncleanable, dirty.cleanable_bytes,
        dirty.clean_bytes + dirty.cleanable_bytes,
    )  # fmt: skip
    segments = [s for s in snapshot.segments[:-1] if s.base_offset < dirty.first_uncleanable]
    with pinned(log, segments):
        keys = find(snapshot, dirty, tools, stats)
        stats.index_s = tools.clock_s() - begin_s
        end_offset = keys.offsets.latest_offset + 1
        segments = [s for s in segments if s.base_offset < end_offset]
        round_ = _round(log, snapshot, dirty, keys, now_ms)
        count = _clean_groups(log, round_, segments, tools, stats, is_preview=is_preview)
    stats.elapsed_s = tools.clock_s() - begin_s
    done = Cleaned(max(end_offset, dirty.first_dirty), (len(segments), count), stats)
    if not is_preview:
        _remember(log, done, now_ms)
        _report(log, dirty, done)
    return done


@contextlib.contextmanager
def pinned(log: PartitionLog, segments: Sequence[Segment]) -> Iterator[None]:
    """Keep the files of segments that are deleted meanwhile; a truncation removes them anyway."""
    log.pin(segments)
    try:
        yield
    except FileNotFoundError as error:
        raise CleaningAbortedError(f"{error.filename} was removed meanwhile") from error
    finally:
        log.unpin(segments)


def _round(
    log: PartitionLog, snapshot: Snapshot, dirty: DirtyRange, keys: Keys, now_ms: int
) -> CleaningRound:
    clean = [s for s in snapshot.segments[:-1] if s.base_offset < dirty.first_dirty]
    horizon_ms = 0
    if clean:
        horizon_ms = log.disk.stat(clean[-1].name).mtime_ms - log.config.delete_retention_ms
    last = log.appender.last_records_of_producers()
    return CleaningRound(
        log.disk,
        snapshot,
        log.config,
        keys,
        dirty.first_uncleanable,
        {
            record.last_data_offset: producer_id
            for producer_id, record in last.items()
            if record.last_data_offset is not None
        },
        {
            producer_id: record.epoch
            for producer_id, record in last.items()
            if record.last_data_offset is None
        },
        horizon_ms,
        now_ms,
    )


def _clean_groups(
    log: PartitionLog,
    round_: CleaningRound,
    segments: list[Segment],
    tools: CleaningTools,
    stats: CleanerStats,
    *,
    is_preview: bool,
) -> int:
    """Rewrite segments group by group; returns the number of groups."""
    config, transactions = log.config, CleanedTransactions()
    groups = group_segments(
        [_sizes_of(log.disk, segment) for segment in segments],
        config.effective_segment_bytes,
        config.segment_index_bytes,
        round_.first_uncleanable,
    )
    for group in groups:
        old = segments[group.start : group.stop]
        cleaned = CleanedSegment(round_, old, transactions, tools)
        try:
            _fill(cleaned, round_.snapshot, old)
            if is_preview or not cleaned.has_changed:
                cleaned.discard(stats)
                continue
            entry = cleaned.finish(old[-1], stats)
            log.replacement.replace(round_.snapshot, old, entry, cleaned.aborted, round_.now_ms)
        except BaseException:
            if log.offline is None:
                cleaned.discard()
            raise
    return len(groups)


def _fill(cleaned: CleanedSegment, snapshot: Snapshot, group: Sequence[Segment]) -> None:
    following = snapshot.segments[snapshot.index_of_offset(group[-1].base_offset) + 1]
    next_bases = [*(s.base_offset for s in group[1:]), following.base_offset]
    for segment, next_base in zip(group, next_bases, strict=True):
        cleaned.add(segment, next_base)


def _remember(log: PartitionLog, done: Cleaned, now_ms: int) -> None:
    facts = log.cleaning
    facts.cleaned_ms, facts.end_offset = now_ms, done.end_offset
    facts.read_bytes, facts.written_bytes = done.stats.bytes_read, done.stats.bytes_written
    counters = log.counters
    counters.compactions += 1
    counters.compacted_bytes_in += done.stats.bytes_read
    counters.compacted_bytes_out += done.stats.bytes_written
    counters.compaction_s += done.stats.elapsed_s


def _report(log: PartitionLog, dirty: DirtyRange, done: Cleaned) -> None:
    stats = done.stats
    per_second = stats.bytes_read / max(stats.elapsed_s, 1e-9) / 1e6
    logger.info(
        "%s: compacted up to offset %d: %d bytes became %d, %d records %d, %d segments %d, in "
        "%.1f s (%.0f MB/s); the map of keys was filled to %.0f %%%s",
        log.topic_partition, done.end_offset, stats.bytes_read, stats.bytes_written,
        stats.messages_read, stats.messages_written, *done.segments, stats.elapsed_s, per_second,
        100 * stats.utilization,
        "" if done.end_offset >= dirty.first_uncleanable else "; the rest follows in another round",
        extra={"fields": {
            "event": "compaction", "offset": done.end_offset, "bytes": stats.bytes_read,
            "bytes_left": stats.bytes_written, "seconds": round(stats.elapsed_s, 3),
        }},
    )  # fmt: skip
    if stats.invalid_messages:
        logger.warning(
            "%s: %d records without a key were removed: a compacted topic must not contain any",
            log.topic_partition, stats.invalid_messages,
        )  # fmt: skip


class Sizes(NamedTuple):
    """The sizes of a segment's files, in bytes."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int


def group_segments(
    segments: Sequence[Sizes], max_bytes: int, max_index_bytes: int, first_uncleanable: int
) -> list[range]:
    """Divide segments into groups of neighbours; each group becomes one segment.

    Pure. Source: Kafka Cleaner.groupSegmentsBySize.

    Args:
        max_bytes: Limit for the logs of a group together, ``segment.bytes``.
        max_index_bytes: Limit for the offset indexes of a group together, and for its time indexes.
        first_uncleanable: End offset of the last segment.

    Returns:
        The indexes of the segments of each group, in order. No group is empty.
    """
    ends = [s.base_offset for s in segments[1:]] + [first_uncleanable]
    groups: list[range] = []
    start = 0
    while start < len(segments):
        stop, total = start + 1, segments[start]
        while stop < len(segments):
            following = segments[stop]
            total = Sizes(
                total.base_offset,
                total.log + following.log,
                total.offset_index + following.offset_index,
                total.time_index + following.time_index,
            )
            spans = ends[stop] - 1 - total.base_offset
            if (
                total.log > max_bytes
                or max(total.offset_index, total.time_index) > max_index_bytes
                or (following.log and spans > MAX_RELATIVE_OFFSET)
            ):
                break
            stop += 1
        groups.append(range(start, stop))
        start = stop
    return groups


def _sizes_of(disk: Disk, segment: Segment) -> Sizes:
    return Sizes(
        segment.base_offset,
        segment.size_bytes,
        disk.stat(segment.file_name(FileKind.OFFSET_INDEX)).size,
        disk.stat(segment.file_name(FileKind.TIME_INDEX)).size,
    )
