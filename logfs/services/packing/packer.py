"""Which segments are packed, and packing them one by one.

A segment is due once it is sealed and durable, as long as its table entry does not say that it was
packed. One that would not become smaller gets that note, too. A segment that is damaged is left
alone until the next start; the daemon's log says so.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

from logfs.config import SealedCompression, TopicConfig
from logfs.errors import PolicyViolationError
from logfs.log.counters import RewritingStatus
from logfs.log.partition import PartitionLog
from logfs.log.segments.segment import Segment
from logfs.services.compaction.rewriter import ChosenLog, LogRewriter
from logfs.services.compaction.rounds import pinned
from logfs.services.compaction.tools import CleaningTools
from logfs.services.packing.rewriting import PackedSegment, PackingResult

logger = logging.getLogger(__name__)


class Packed(NamedTuple):
    """What packing did to a partition.

    Attributes:
        segments: Sealed segments that were read.
        packed: How many of them became smaller; the others stay as they were.
        read_bytes, written_bytes: Bytes of the ``.log`` files that became smaller, before and
            after.
        read_batches: Batches of all segments that were read.
    """

    partition: int
    segments: int
    packed: int
    read_bytes: int
    written_bytes: int
    read_batches: int
    elapsed_s: float


def is_packing(config: TopicConfig) -> bool:
    """Whether the sealed segments of a topic are packed."""
    is_wanted = config.logfs_sealed_compression_type is not SealedCompression.UNCOMPRESSED
    return is_wanted and not config.is_compacted


def check_packable(log: PartitionLog) -> None:
    """Refuse a log that must not be packed.

    Raises:
        PolicyViolationError: No codec is set, or ``cleanup.policy`` contains compact.
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
    """
    log.check_writable()
    if log.config.is_compacted:
        raise PolicyViolationError(
            f"{log.topic_partition}: cleanup.policy={log.config.get('cleanup.policy')}: compaction "
            "rewrites its segments, they are not packed; set compression.type to store new "
            "records compressed"
        )
    if not is_packing(log.config):
        raise PolicyViolationError(
            f"{log.topic_partition}: logfs.sealed.compression.type=uncompressed: choose a codec: "
            "'logfs topic alter TOPIC --config logfs.sealed.compression.type=zstd'"
        )


def due_segments(log: PartitionLog) -> list[Segment]:
    """Return the segments of a log that are to be packed, the oldest first."""
    if not is_packing(log.config) or log.mirror is not None:
        return []  # a mirror has the bytes of its source
    failed = log.packing.failed
    tiered = () if log.tier is None else log.tier.entries
    return [
        segment
        for segment in log.snapshot.segments[:-1]
        if segment.size_bytes
        and segment.base_offset not in tiered
        and not (segment.is_packed or segment.has_gaps or segment.base_offset in failed)
        and segment.next_offset <= log.recovery_point
    ]


def pack_segment(log: PartitionLog, segment: Segment, now_ms: int, tools: CleaningTools) -> Packed:
    """Pack one segment, or note that it would not become smaller.

    Args:
        log: Other threads may read it and append to it meanwhile. The caller holds
            ``log.cleaning.lock``.
        segment: One of ``due_segments``.

    Raises:
        CleaningAbortedError: ``tools`` ended it, or the log was truncated or trimmed meanwhile.
        CorruptRecordError: A batch is damaged; the segment stays as it is.
        LogfsError, OSError: See ``SegmentReplacement.replace``.
    """
    begin_s, snapshot = tools.clock_s(), log.snapshot
    aborted = [
        a for a in snapshot.aborted if segment.base_offset <= a.last_offset < segment.next_offset
    ]
    with pinned(log, [segment]):
        packed = PackedSegment(log.disk, log.config, segment, aborted, tools)
        try:
            result = packed.write()
            if result.entry is None:
                packed.discard()
                log.replacement.note_packed(segment)
            else:
                log.replacement.replace(snapshot, [segment], result.entry, aborted, now_ms)
        except BaseException:
            if log.offline is None:
                packed.discard()
            raise
    return _count(log, result, tools.clock_s() - begin_s)


def pack_now(log: PartitionLog, now_ms: int, tools: CleaningTools, *, roll: bool = False) -> Packed:
    """Pack all sealed segments of a log that were not packed yet.

    Args:
        roll: Start a new segment first, so that the records of the active one can be packed.

    Raises:
        PolicyViolationError: See ``check_packable``.
        CorruptRecordError: A batch is damaged; the segments before it are packed.
        LogfsError, OSError: See ``pack_segment``.
    """
    check_packable(log)
    done = Packed(log.topic_partition.partition, 0, 0, 0, 0, 0, 0.0)
    with log.cleaning.lock:
        if roll:
            log.roll(now_ms)
        log.maintain()  # makes segments that were just sealed durable
        log.packing.failed.clear()
        for segment in due_segments(log):
            done = _sum(done, pack_segment(log, segment, now_ms, tools))
    return done


class SegmentPacker(LogRewriter[Segment]):
    """Packs the segments of a store, one by one, the oldest of a log first."""

    name = "packing"

    def _is_wanted(self, config: TopicConfig) -> bool:
        return is_packing(config)

    def _status(self, log: PartitionLog) -> RewritingStatus:
        return log.packing

    def _due(self, now_ms: int) -> Iterator[tuple[PartitionLog, Segment]]:
        for log in self._candidates(now_ms):
            yield from ((log, segment) for segment in due_segments(log)[:1])

    def _rewrite(
        self, chosen: ChosenLog[Segment], now_ms: int, tools: CleaningTools, _thread: object
    ) -> None:
        log, segment = chosen
        if any(due is segment for due in due_segments(log)):  # else it was packed meanwhile
            _report(log, segment, pack_segment(log, segment, now_ms, tools))

    def _give_up(self, chosen: ChosenLog[Segment], error: Exception) -> None:
        log, segment = chosen
        log.packing.failed[segment.base_offset] = str(error)
        logger.warning(
            "%s: its segment %d is not packed until the next start: %s",
            log.topic_partition, segment.base_offset, error,
        )  # fmt: skip


def _count(log: PartitionLog, result: PackingResult, elapsed_s: float) -> Packed:
    counters, has_changed = log.counters, result.entry is not None
    counters.packed_segments += has_changed
    counters.packed_bytes_in += result.read_bytes
    counters.packed_bytes_out += result.written_bytes if has_changed else result.read_bytes
    counters.packing_s += elapsed_s
    return Packed(
        log.topic_partition.partition,
        1,
        int(has_changed),
        result.read_bytes if has_changed else 0,
        result.written_bytes if has_changed else 0,
        result.read_batches,
        elapsed_s,
    )


def _sum(done: Packed, more: Packed) -> Packed:
    numbers = (a + b for a, b in zip(done[1:], more[1:], strict=True))
    return Packed(done.partition, *numbers)  # type: ignore[arg-type] # in the order of the fields


def _report(log: PartitionLog, segment: Segment, done: Packed) -> None:
    if not done.packed:
        logger.info(
            "%s: segment %d would not become smaller; it stays as it is",
            log.topic_partition, segment.base_offset,
        )  # fmt: skip
        return
    logger.info(
        "%s: packed segment %d: %d bytes became %d (%.1f %%) in %.1f s",
        log.topic_partition, segment.base_offset, done.read_bytes, done.written_bytes,
        100 * done.written_bytes / done.read_bytes, done.elapsed_s,
        extra={"fields": {
            "event": "packing", "offset": segment.base_offset, "bytes": done.read_bytes,
            "bytes_left": done.written_bytes, "seconds": round(done.elapsed_s, 3),
        }},
    )  # fmt: skip
