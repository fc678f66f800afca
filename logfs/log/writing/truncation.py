"""Removing the end of a log at run time.

Truncation removes whole batches. Their positions were shown, so what comes next is after them,
in its own segment: bases are a property of segments.

Source: Kafka UnifiedLog.truncateTo, LocalLog.truncateTo.
"""

from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import TEMPORARY_SUFFIX, Disk, copy_range
from logfs.log.checkpoints import lower_recovery_point
from logfs.log.cleanercheckpoint import lower_cleaner_offset
from logfs.log.indexes import textindex
from logfs.log.indexes.txnindex import write_txn_index
from logfs.log.names import FileKind, unused_cut_file
from logfs.log.producers.replay import Replay, locate_transactions, rewind_producers
from logfs.log.segments.batches import BatchWalk
from logfs.log.segments.scan import rebuild_indexes, scan_segment
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogEnd, LogPoint, Snapshot
from logfs.log.segments.table import SegmentState
from logfs.log.writing.active import ActiveSegment, remove_segment_files
from logfs.log.writing.flusher import Flusher
from logfs.log.writing.state import PartitionState
from logfs.records._reading import find_offset, measure
from logfs.records.checksum import crc32c
from logfs.records.compression import decompress
from logfs.records.layout import HEADER_BYTES, NO_OFFSET, base_offset_of
from logfs.types import Positions


def truncate(state: PartitionState, flusher: Flusher, offset: int, now_ms: int) -> None:
    """Remove every batch that reaches an offset, and begin a segment there.

    The caller holds the lock, has let go of the active segment, flushed the log and paused the
    flusher. The offset is not below the end of the tiered segments.

    Raises:
        CorruptRecordError: The place of the cut cannot be found; nothing was removed.
        OSError: It was not truncated, or not as a whole; recovery completes it.
    """
    old = state.snapshot
    # First: what is appended at these offsets is not what the recovery point speaks of.
    flusher.lower(offset)
    lower_recovery_point(state.disk, state.topic_partition, offset)
    lower_cleaner_offset(state.disk, state.topic_partition, offset)
    state.cleaning.unsaved_offset = None
    # Until the entry of the new segment is there: a stop must not give a position twice.
    state.reservation.invalidate(old.active)
    kept = cut_segments(state, old, offset)
    segment = state.new_segment(offset, old.end.positions)
    sealed = [s.entry(SegmentState.SEALED) for s in kept]
    state.table.rewrite([*sealed, state.reservation.open_entry(segment)])
    ActiveSegment.create(state.disk, segment, state.config, now_ms).close_empty()
    state.disk.sync_directory(state.directory)
    end = LogEnd(offset, segment.bases, 0, -1)
    start = old.start if kept else LogPoint(offset, segment.bases)
    rows = [(part, part.size_bytes) for part in (*kept, segment)]
    replay = Replay(
        state.disk,
        state.directory,
        rows,
        state.snapshot.start.offset,
        now_ms,
        state.producer_expiration_ms,
        # A job may be inside a batch; what has expired is forgotten at the next check.
        retained=frozenset(state.producers.entries),
    )
    state.producers, state.snapshot_offset = rewind_producers(replay, offset, state.producers)
    snapshot = old.changed((*kept, segment), start, end, old.truncations + 1)
    locate_transactions(state.producers, snapshot)
    aborted = tuple(entry for entry in old.aborted if entry.last_offset < offset)
    state.snapshot = snapshot.with_transactions(aborted, state.producers.unstable)
    state.fit_epochs()
    flusher.truncated(offset)


def cut_segments(state: PartitionState, snapshot: Snapshot, offset: int) -> tuple[Segment, ...]:
    """Remove the segments that begin at an offset or after it, and cut the one that holds it.

    The caller holds the lock of the partition and has let go of the active segment.

    Returns:
        The segments that are left, all sealed; they and the names are durable.

    Raises:
        CorruptRecordError: The place of the cut cannot be found; nothing was removed.
    """
    disk = state.disk
    kept = tuple(s for s in snapshot.segments if s.base_offset < offset)
    position = 0
    # A tiered segment ends at the offset or before it: it is durable, and stays as it is.
    changes = bool(kept) and (state.tier is None or kept[-1].base_offset not in state.tier.entries)
    if changes:
        if kept[-1].has_gaps:
            kept[-1].gap_numbers(kept[-1].files().text_entries())  # raises if it is damaged
        position = _first_batch_reaching(kept[-1], snapshot.end_of(len(kept) - 1)[2], offset)
    for segment in reversed(snapshot.segments[len(kept) :]):
        remove_segment_files(disk, segment)
    if changes:
        _cut_segment(disk, state.config, kept[-1], position)
        aborted = [a for a in snapshot.aborted if a.last_offset < offset]
        ours = [a for a in aborted if a.last_offset >= kept[-1].base_offset]
        # Also if it stays the same: what was appended to it may not be durable.
        if ours or len(aborted) != len(snapshot.aborted):
            write_txn_index(disk, kept[-1].file_name(FileKind.TXN_INDEX), ours)
    disk.sync_directory(snapshot.active.directory)
    return kept


class TailCopy(NamedTuple):
    """A copy of the end of a ``.log``: its name, what it is a copy of, its first offset."""

    name: str
    file: str
    position: int
    size: int
    base_offset: int


def copy_tail(state: PartitionState, offset: int) -> list[TailCopy]:
    """Copy every batch that reaches an offset into plain files of the partition, durably.

    The caller holds the lock and truncates the log next.

    Raises:
        CorruptRecordError: The place of the cut cannot be found.
        OSError: Not everything is copied.
    """
    snapshot, copies = state.snapshot, list[TailCopy]()
    first = max(snapshot.index_of_offset(offset), 0)
    for number in range(first, len(snapshot.segments)):
        segment, (_, _, end) = snapshot.segments[number], snapshot.end_of(number)
        position = _first_batch_reaching(segment, end, offset) if number == first else 0
        if position < end:
            copies.append(_copy(state, segment, position, end))
    state.disk.sync_directory(state.directory)
    return copies


def _copy(state: PartitionState, segment: Segment, position: int, end: int) -> TailCopy:
    disk, directory, log = state.disk, state.directory, segment.files().log
    name = unused_cut_file(disk.exists, directory, segment.base_offset, position)
    temporary = f"{directory}/{name}{TEMPORARY_SUFFIX}"
    copy_range(log, position, end, disk, temporary)
    disk.rename(temporary, f"{directory}/{name}")
    base_offset = base_offset_of(log.pread(HEADER_BYTES, position))
    file_name = segment.name.rpartition("/")[2]
    return TailCopy(name, file_name, position, end - position, base_offset)


def _cut_segment(disk: Disk, config: TopicConfig, segment: Segment, position: int) -> None:
    """Cut a ``.log`` at the start of a batch, and index it again; durable when this returns."""
    gapped = _gapped_text_index(segment, position) if segment.has_gaps else None
    segment.close_files()
    file = disk.open(segment.file_name(FileKind.LOG), write=True)
    file.truncate(position)
    scan = scan_segment(file, segment, config)
    scan.describe(segment)
    if gapped is not None:
        scan.text_entries, lengths = gapped
        segment.ends = segment.bases.plus(lengths)
    rebuild_indexes(disk, segment, scan)
    if gapped is not None:
        segment.text_crc = crc32c(scan.text_entries)
    segment.close_files()  # a reader may have opened the old ones in between
    file.sync()


def _gapped_text_index(segment: Segment, position: int) -> tuple[bytearray, Positions]:
    """Return the entries before a file position that no scan can rebuild, and the lengths there."""
    entries = segment.files().text_entries()
    count = textindex.count_text_entries_before(entries, position)
    last = textindex.decode_text_entry(entries, count - 1) if count else textindex.ZERO
    data = segment.files().log.pread(position - last.file_position, last.file_position)
    before = segment.base_offset + last.relative_offset if last.relative_offset else 0
    behind = measure(data, 0, len(data), NO_OFFSET, decompress)
    in_front = measure(data, 0, len(data), before, decompress)
    left = bytearray(entries[: count * textindex.TEXT_INDEX.entry_bytes])
    return left, last.lengths.plus(behind).minus(in_front)


def _first_batch_reaching(segment: Segment, file_end: int, offset: int) -> int:
    for window in BatchWalk(segment.files().log, 0, file_end):
        at = find_offset(window.buffer, 0, window.stop, offset)
        if at < window.stop:
            return window.file_position + at
    return file_end
