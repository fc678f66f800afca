"""One round of compaction over one log: keys, then group by group, each put in place at once.

A round covers the dirty part of a log as far as the memory for keys goes. It may end anywhere: what
was put in place before stays, and nothing else has changed.

Source: Kafka Cleaner.doClean.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logfs.errors import CleaningAbortedError
from logfs.log.compaction.dirtyrange import DirtyRange
from logfs.log.compaction.offsetmap import FindKeys, Keys, find_keys
from logfs.log.compaction.rewriting import CleanedSegment, Round, sizes_of
from logfs.log.compaction.tools import CleanerStats, CleaningTools
from logfs.log.compaction.transactions import CleanedTransactions
from logfs.log.partition import PartitionLog
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.records.layout import MAX_RELATIVE_OFFSET

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Cleaned:
    """What a round has done.

    Attributes:
        end_offset: Where the next one begins.
        segments: How many segments there were and are, of those that were looked at.
    """

    end_offset: int
    segments: tuple[int, int] = (0, 0)
    stats: CleanerStats = field(default_factory=CleanerStats)


def clean(
    log: PartitionLog,
    dirt: DirtyRange,
    now_ms: int,
    tools: CleaningTools,
    find: FindKeys = find_keys,
) -> Cleaned:
    """Clean a log once.

    Args:
        log: The log; others may read it and append to it meanwhile.
        dirt: What of it is to be cleaned.
        now_ms: The clock.
        tools: What to work with.
        find: Finds the last offset of each key.

    Raises:
        CleaningAbortedError: It was told to end, or the log was truncated or trimmed meanwhile.
        CorruptRecordError: A batch is damaged: the log cannot be cleaned.
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
        OSError: The disk failed.
    """
    log.check_writable()
    log.maintain()  # segments that were just sealed become durable
    stats, begin_s = CleanerStats(), tools.clock_s()
    snapshot = log.snapshot
    logger.info(
        "%s: compacting, dirty from offset %d to %d, %d of %d bytes",
        log.topic_partition, dirt.first_dirty, dirt.first_uncleanable, dirt.cleanable_bytes,
        dirt.clean_bytes + dirt.cleanable_bytes,
    )  # fmt: skip
    segments = [s for s in snapshot.segments[:-1] if s.base_offset < dirt.first_uncleanable]
    with _pinned(log, segments):
        keys = find(snapshot, dirt, tools, stats)
        stats.index_s = tools.clock_s() - begin_s
        end_offset = keys.offsets.latest_offset + 1
        segments = [s for s in segments if s.base_offset < end_offset]
        round_ = _round(log, snapshot, dirt, keys, now_ms)
        count = _clean_groups(log, round_, segments, tools, stats)
    stats.elapsed_s = tools.clock_s() - begin_s
    done = Cleaned(max(end_offset, dirt.first_dirty), (len(segments), count), stats)
    _remember(log, done, now_ms)
    _report(log, dirt, done)
    return done


@contextlib.contextmanager
def _pinned(log: PartitionLog, segments: Sequence[Segment]) -> Iterator[None]:
    """Keep the files of segments that may be deleted meanwhile; a truncation takes them away."""
    log.pin(segments)
    try:
        yield
    except FileNotFoundError as error:
        raise CleaningAbortedError(f"{error.filename} has gone meanwhile") from error
    finally:
        log.unpin(segments)


def _round(
    log: PartitionLog, snapshot: Snapshot, dirt: DirtyRange, keys: Keys, now_ms: int
) -> Round:
    clean = [s for s in snapshot.segments[:-1] if s.base_offset < dirt.first_dirty]
    horizon_ms = 0
    if clean:
        horizon_ms = log.disk.stat(clean[-1].name).mtime_ms - log.config.delete_retention_ms
    last = log.last_records_of_producers()
    return Round(
        log.disk,
        snapshot,
        log.config,
        keys,
        dirt.first_uncleanable,
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
    round_: Round,
    segments: list[Segment],
    tools: CleaningTools,
    stats: CleanerStats,
) -> int:
    """Clean segments group by group; returns how many are left."""
    config, transactions = log.config, CleanedTransactions()
    groups = group_segments(
        [Sizes(*row) for row in sizes_of(log.disk, segments)],
        config.effective_segment_bytes,
        config.segment_index_bytes,
        round_.first_uncleanable,
    )
    for group in groups:
        old = segments[group.start : group.stop]
        cleaned = CleanedSegment(round_, old, transactions, tools)
        try:
            _fill(cleaned, round_.snapshot, old)
            if not cleaned.has_changed:
                cleaned.discard(stats)
                continue
            entry = cleaned.finish(old[-1], stats)
            log.replace_segments(round_.snapshot, old, entry, cleaned.aborted, round_.now_ms)
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


def _report(log: PartitionLog, dirt: DirtyRange, done: Cleaned) -> None:
    stats = done.stats
    per_second = stats.bytes_read / max(stats.elapsed_s, 1e-9) / 1e6
    logger.info(
        "%s: compacted up to offset %d: %d bytes became %d, %d records %d, %d segments %d, in "
        "%.1f s (%.0f MB/s); the map of keys was filled to %.0f %%%s",
        log.topic_partition, done.end_offset, stats.bytes_read, stats.bytes_written,
        stats.messages_read, stats.messages_written, *done.segments, stats.elapsed_s, per_second,
        100 * stats.utilization,
        "" if done.end_offset >= dirt.first_uncleanable else "; the rest follows in another round",
        extra={"fields": {
            "event": "compaction", "offset": done.end_offset, "bytes": stats.bytes_read,
            "bytes_left": stats.bytes_written, "seconds": round(stats.elapsed_s, 3),
        }},
    )  # fmt: skip
    if stats.invalid_messages:
        logger.warning(
            "%s: %d records without a key were removed: a compacted topic has no place for them",
            log.topic_partition, stats.invalid_messages,
        )  # fmt: skip


class Sizes(NamedTuple):
    """What the rule knows of a segment; sizes in bytes."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int


def group_segments(
    segments: Sequence[Sizes], max_bytes: int, max_index_bytes: int, first_uncleanable: int
) -> list[range]:
    """Divide segments into groups, each to become one segment.

    Args:
        segments: In offset order.
        max_bytes: Of the logs of a group, ``segment.bytes``.
        max_index_bytes: Of the offset indexes of a group, and of its time indexes.
        first_uncleanable: Offset after the last of them.

    Returns:
        The indexes of the segments of each group, in order; none is empty.
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
