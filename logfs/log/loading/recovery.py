"""Recovering the segments of a partition: trusted, scanned, truncated or set aside.

After a clean stop the segment table describes every segment, and none is opened. After an unclean
stop every segment from the recovery point on is scanned. The log is truncated at the start of its
first bad batch, after a copy of the truncated tail is durable. Other segments are scanned only if
their indexes or table entries are missing. What is corrupt in them stays and is reported.

Recovery itself may be stopped at any moment. So segments after the truncated tail go first, from
the last one on. Each loss is reported before it happens. Before positions that were shown go, the
segment table says so.

Source: Kafka LogLoader.recoverLog, LogSegment.recover.
"""

import logging
import resource
from collections.abc import Sequence

from logfs.disk.vfs import DISK_FULL, TEMPORARY_SUFFIX, Disk, File, copy_range, write_again
from logfs.errors import LogfsError
from logfs.log import names
from logfs.log.loading.context import Loader
from logfs.log.loading.offsetrepair import repair_base_offset
from logfs.log.loading.split import SpansTooMuchError, check_span, split_segment
from logfs.log.segments.batches import INCOMPLETE
from logfs.log.segments.scan import (
    MemoryFiles,
    SegmentScan,
    begins_batch,
    claims_more,
    end_of_data,
    pass_over_unreadable,
    rebuild_indexes,
    scan_segment,
)
from logfs.log.segments.segment import INDEX_KINDS, Segment
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.log.writing.active import remove_segment_files
from logfs.log.writing.reservation import ALL_SHOWN, FAILED, NO_BOOT
from logfs.types import Positions

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1024 * 1024
PAGE_BYTES = resource.getpagesize()
_MOST_REPAIRS = 16
"""Base offsets that are repaired in one segment, each with another scan."""


def write_doubtful_again(loader: Loader) -> None:
    """Bring to the disk what a failed write or fsync may have kept from it, before it is scanned.

    That is every file that is appended to and synced: the ``.log`` of each segment that must be
    recovered, the segment table, and the unfinished lines. The others are written as new files.

    Raises:
        OSError: The disk still fails, or has no room for a copy.
    """
    context, disk = loader.context, loader.context.disk
    if context.read_only or not (context.has_failed or loader.boots & {FAILED, NO_BOOT}):
        return
    bases = loader.bases
    paths = [
        loader.segment(base, Positions()).name
        for number, base in enumerate(bases)
        if loader.must_recover(_after(bases, number)) and not loader.is_tiered(base)
    ]
    left = [names.SEGMENT_TABLE, *context.leftovers.get(loader.topic_partition, ())]
    paths += [f"{loader.directory}/{name}" for name in left]
    try:
        for path in paths:
            if disk.exists(path):
                write_again(disk, path)
    except OSError as error:
        # NO_BOOT alone is also left by a stop while the log was being cut, and that is no failure.
        if error.errno not in DISK_FULL or context.has_failed or FAILED in loader.boots:
            raise


def load_segments(loader: Loader) -> None:
    """Fill ``loader.segments`` with the segments of the log, recovered where that is needed."""
    bases = _without_deleted(loader)
    entries = loader.entries
    takes_sealed = _takes_sealed(loader)
    ends, next_offset = _end_of_known(loader, bases, takes_sealed=takes_sealed)
    while len(bases) > len(loader.segments):
        number = len(loader.segments)
        base_offset = bases[number]
        entry = entries.get(base_offset)
        if (
            takes_sealed
            and number + 1 < len(bases)
            and entry is not None
            and _is_whole(loader, entry)
        ):
            segment = loader.known_segment(entry)
            loader.segments.append(segment)
            ends, next_offset = segment.ends, segment.next_offset
            continue
        is_next = base_offset == next_offset or loader.table is None
        if entry is None and not is_next and loader.must_recover(_after(bases, number)):
            _set_aside_later(loader, bases[number:], "the segment before it is lost")
            loader.has_truncated = True
            break
        try:
            segment = _load_segment(loader, bases, number, entry, ends)
        except SpansTooMuchError as error:
            bases[number : number + 1] = split_segment(loader.context.disk, error, loader.kinds)
            continue
        loader.segments.append(segment)
        if loader.is_mirror and not loader.has_truncated:
            _end_before_hole(loader, segment, bases[number + 1 :])
        if loader.has_truncated:
            break
        ends, next_offset = segment.ends, segment.next_offset
        if entry is not None and entry.next_offset is not None:
            ends, next_offset = ends.at_least(entry.ends), max(next_offset, entry.next_offset)


def _takes_sealed(loader: Loader) -> bool:
    """Whether sealed segments but the last are as the table says, if their indexes are there.

    It is what ``_is_trusted`` would say of each, and takes a third of the time.
    """
    context = loader.context
    return (
        context.is_clean
        and loader.tier is None
        and not loader.scans_all
        and not loader.is_mirror
        and loader.topic_partition not in context.compacted
    )


def _is_whole(loader: Loader, entry: TableEntry) -> bool:
    """Whether a segment is sealed and has its indexes."""
    return entry.state is SegmentState.SEALED and loader.kinds[entry.base_offset] >= INDEX_KINDS


def _end_of_known(
    loader: Loader, bases: Sequence[int], *, takes_sealed: bool
) -> tuple[Positions, int]:
    """Take the first segments of the log that were preloaded; return where the next one begins.

    Its positions, and its base offset; -1 if that is not known.
    """
    if loader.table is None or not bases:
        return Positions(), -1
    if bases[0] not in loader.entries:
        # Segments before it are lost, and their positions were shown; or they were removed: then
        # it is durable.
        is_durable = bases[0] <= max(loader.recovery_point(bases[0]), loader.start_offset)
        return loader.shown, bases[0] if is_durable else -1
    if takes_sealed:
        limit = loader.table.known_below
        loader.segments += loader.preloaded.first_segments(bases, loader.kinds, limit)
    if not loader.segments:
        return Positions(), -1
    return loader.segments[-1].ends, loader.segments[-1].next_offset


def _end_before_hole(loader: Loader, segment: Segment, following: Sequence[int]) -> None:
    """Let a mirror end where records are missing that were not durable when the machine stopped.

    It is a prefix of its source, which has them still. An ordinary log continues after such a hole,
    since its later records are nowhere else.
    """
    after = next(iter(following), None)
    if after is None or segment.next_offset >= after or not loader.must_recover(after):
        return
    entry = loader.entries.get(after)
    if entry is not None and entry.is_after_gap:
        return
    loader.has_truncated = True

    def remove() -> None:
        if not loader.context.read_only:
            _mark_positions_used(loader, segment, NO_BOOT)
        _set_aside(loader, following, "records before it are lost, and the source has both")

    with loader.deferring(remove):
        remove()


def _load_segment(
    loader: Loader, bases: Sequence[int], number: int, entry: TableEntry | None, ends: Positions
) -> Segment:
    """Describe a segment from its table entry, or scan it; positions continue at ``ends``."""
    after = _after(bases, number)
    must_recover = loader.must_recover(after)
    if entry is not None and (
        loader.is_tiered(entry.base_offset) or _is_trusted(loader, entry, must_recover, after)
    ):
        return loader.known_segment(entry)
    following = bases[number + 1 :]
    segment = loader.segment(bases[number], ends if entry is None else entry.bases)
    segment.is_after_gap = entry is not None and entry.is_after_gap
    return _scan(loader, segment, entry, following)


def _after(bases: Sequence[int], number: int) -> int | None:
    """Return the base offset of the next segment; None after the last one."""
    return bases[number + 1] if number + 1 < len(bases) else None


def _without_deleted(loader: Loader) -> list[int]:
    """Return the base offsets of all segments but deleted ones, whose files are removed."""
    bases = loader.bases
    dropped = set() if loader.table is None else loader.table.state.dropped
    known = loader.entries if loader.table is None else loader.table.entries
    first = max(min(known, default=0), max(dropped, default=-1) + 1)
    if loader.tier is not None:
        loader.tier.rows.forget_below(first)
    for base_offset in bases:
        if base_offset < first and not loader.context.read_only:
            remove_segment_files(loader.context.disk, loader.segment(base_offset, Positions()))
    return [base_offset for base_offset in bases if base_offset >= first]


def _is_trusted(
    loader: Loader, entry: TableEntry, must_recover: bool, following: int | None
) -> bool:
    # A start cuts a log after a power cut, and may then find no room for the table.
    was_cut = following is not None and (entry.next_offset or 0) > following
    is_doubtful = must_recover and entry.state is not SegmentState.CLOSED
    if was_cut or is_doubtful or loader.scans_all:
        return False
    if entry.state is SegmentState.OPEN:
        return False
    if entry.state is SegmentState.SEALED and loader.ends_at_recovery_point(entry):
        return False
    if not loader.kinds[entry.base_offset] >= INDEX_KINDS:
        return False
    # A broker may have appended to the segment that was active, and compacted the others.
    is_closed = entry.state is SegmentState.CLOSED
    is_compacted = loader.topic_partition in loader.context.compacted
    if not (following is None or must_recover or is_closed or is_compacted):
        return True
    name = loader.known_segment(entry).name
    return loader.context.disk.stat(name).size == entry.size_bytes


def _scan(
    loader: Loader, segment: Segment, entry: TableEntry | None, following: Sequence[int]
) -> Segment:
    """Scan a segment and store its indexes; truncate it at a bad batch if it must be recovered."""
    context, must_recover = loader.context, loader.must_recover(next(iter(following), None))
    may_grow = context.is_live and not following
    log = context.disk.open(segment.name, write=not context.read_only)
    pass_over = not (must_recover or may_grow)
    scan = _scan_log(loader, segment, log, entry, following, pass_over_corrupt=pass_over)
    scan.describe(segment)
    _note_producers(loader, segment, scan, is_recovered=must_recover)
    for one in scan.corrupt:
        loader.lose("corrupt", segment.name, one.position, one.size,
                    f"{segment.name}: the batch at byte {one.position} ({one.size} bytes) cannot "
                    f"be read: {one.why}; it stays where it is", one.next_offset)  # fmt: skip
    if not may_grow:
        _end_at_last_batch(loader, segment, scan, log, entry, following)
    loader.has_changed = True
    is_gapped = _keeps_its_gaps(loader, scan, entry)
    if is_gapped and entry is not None:
        segment = loader.known_segment(entry)
    if context.read_only:
        segment.pinned_files = None if is_gapped else MemoryFiles(context.disk, segment, scan)
        return segment
    if must_recover and following:
        log.sync()

    # A start scans the last segment again, unless a clean stop has made its indexes durable.
    is_durable = bool(following) or not must_recover
    loader.unsynced_indexes = None if is_durable else segment

    def store_indexes() -> None:
        if not segment.is_deleted:
            rebuild_indexes(context.disk, segment, scan, but_text=is_gapped, is_durable=is_durable)
            segment.close_files()

    segment.pinned_files = MemoryFiles(context.disk, segment, scan, but_text=is_gapped)
    if loader.has_no_mark and loader.deferred is not None:
        loader.deferred.append(store_indexes)
        return segment
    with loader.deferring(store_indexes):
        store_indexes()
    return segment


def _scan_log(
    loader: Loader,
    segment: Segment,
    log: File,
    entry: TableEntry | None,
    following: Sequence[int],
    *,
    pass_over_corrupt: bool,
) -> SegmentScan:
    def scan_again(
        lengths: Sequence[Positions] = (), *, passes: bool = pass_over_corrupt, stops: bool = False
    ) -> SegmentScan:
        return scan_segment(
            log,
            segment,
            loader.config,
            pass_over_corrupt=passes,
            lengths_of_corrupt=lengths,
            is_last=not following,
            # A mirror has its source to read them from again.
            stops_at_refused=stops or loader.is_mirror,
        )

    scan = scan_again()
    if scan.problem is not None and pass_over_corrupt and following:
        pass_over_unreadable(scan, log, following[0])
    for _ in range(0 if loader.context.read_only else _MOST_REPAIRS):
        stopped = scan_again(passes=False, stops=True) if scan.corrupt else scan
        if not repair_base_offset(log, segment, stopped, following):
            break
        scan = scan_again()
    if entry is None and not loader.context.read_only:
        check_span(scan, segment)
    elif entry is not None and entry.size_bytes == scan.file_size:
        lengths = scan.lengths_of_corrupt(entry.lengths)
        return scan_again(lengths, passes=True) if lengths else scan
    return scan


def _end_at_last_batch(
    loader: Loader,
    segment: Segment,
    scan: SegmentScan,
    log: File,
    entry: TableEntry | None,
    following: Sequence[int],
) -> None:
    """Let the file end where its batches end, and report what is missing."""
    if scan.valid_bytes < scan.file_size:
        scan.leave_out_padding(
            log, loader.config, is_last=not following, is_foreign=loader.table is None
        )
    if scan.valid_bytes < scan.file_size:
        if entry is None or entry.size_bytes != scan.valid_bytes:
            _truncate_tail(loader, segment, scan, log, following)
            return
        # a failed write left these bytes, they were never part of the log
    elif entry is not None and entry.size_bytes not in (None, scan.file_size):
        _note_other_size(loader, segment, scan, entry)
    if not loader.context.read_only and log.size() > scan.valid_bytes:
        log.truncate(scan.valid_bytes)
        log.sync()


def _note_other_size(
    loader: Loader, segment: Segment, scan: SegmentScan, entry: TableEntry
) -> None:
    """Report that a segment of whole batches has another size than in the segment table."""
    missing = (entry.size_bytes or 0) - scan.file_size
    if loader.context.is_clean and entry.state is SegmentState.SEALED:
        # _keeps_its_gaps reports on segments with gaps.
        if not entry.has_gaps:
            loader.lose("positions", segment.name, 0, 0,
                        f"{segment.name} has {scan.file_size} bytes, logfs left it with "
                        f"{entry.size_bytes}: another process, perhaps a broker, has compacted it; "
                        "its positions restart at the start of the segment")  # fmt: skip
    elif missing > 0:
        loader.lose("cut", segment.name, scan.file_size, missing,
                    f"{segment.name}: its last {missing} bytes are gone; they were not durable "
                    "when the machine stopped")  # fmt: skip


def _note_producers(
    loader: Loader, segment: Segment, scan: SegmentScan, *, is_recovered: bool
) -> None:
    loader.produced[segment.base_offset] = scan.builder.produced
    loader.leader_epochs += scan.builder.leader_epochs
    if is_recovered:
        loader.recovered.add(segment.base_offset)
        loader.counters.recovered_segments += 1
        loader.counters.recovered_bytes += scan.file_size


def _keeps_its_gaps(loader: Loader, scan: SegmentScan, entry: TableEntry | None) -> bool:
    """Whether the text index of a compacted segment, which no scan can rebuild, is still valid."""
    if entry is None or not entry.has_gaps:
        return False
    old = loader.known_segment(entry)
    try:
        old.files().text_entries()
        is_whole = scan.valid_bytes == scan.file_size == entry.size_bytes and not scan.corrupt
    except (LogfsError, FileNotFoundError):
        is_whole = False
    if not is_whole:
        loader.lose("positions", old.name, 0, 0,
                    f"{old.name}: the positions in this compacted segment are lost and restart at "
                    "its start")  # fmt: skip
    return is_whole


def _truncate_tail(
    loader: Loader, segment: Segment, scan: SegmentScan, log: File, following: Sequence[int]
) -> None:
    """Truncate what is no whole batch at the end of a segment, if the segment must be recovered."""
    position, size = scan.valid_bytes, scan.file_size - scan.valid_bytes
    what = f"{segment.name}: {size} bytes from byte {position} on are no whole batch"
    what = f"{what} ({scan.problem})"
    if not loader.must_recover(next(iter(following), None)) and (following or position):
        loader.lose("corrupt", segment.name, position, size, f"{what}; they stay")
        loader.has_junk = not following
        return
    is_half = not following and _is_half_written(loader, scan, log)
    loader.has_truncated = not is_half or not _ends_as_a_kill_leaves_it(scan)
    if loader.context.read_only:
        _set_aside(loader, following, "the log was cut before it")
        if not is_half:
            loader.lose("cut", segment.name, position, size, f"{what}; recovery would cut them")
        return

    def truncate() -> None:
        if segment.is_deleted:
            return
        if loader.has_truncated:
            _mark_positions_used(loader, segment, ALL_SHOWN if is_half else NO_BOOT)
        _set_aside(loader, following, "the log was cut before it")
        copy = _save_tail(loader.context.disk, segment, log, position, scan.file_size)
        where = f"a copy is in {copy}" if copy else "all of them were zero"
        if is_half:
            logger.info("%s and were cut: their append was not complete; %s", what, where)
        else:
            loader.lose("cut", segment.name, position, size, f"{what} and were cut; {where}")
            loader.losses.save()  # a disk too full for that may have room when this is repeated
        log.truncate(position)
        log.sync()

    with loader.deferring(truncate):
        truncate()


def _is_half_written(loader: Loader, scan: SegmentScan, log: File) -> bool:
    """Whether a tail is the start of a batch whose append was not complete when the process died.

    Such a batch was never acknowledged, so it is no loss. This is certain only if the machine has
    run since then with the same page cache: then every acknowledged batch is complete.
    """
    context = loader.context
    is_same_run = loader.boots - {ALL_SHOWN} == {loader.cache_mark} and not context.has_failed
    durable = context.recovery_points.get(loader.topic_partition, 0)
    offset = int(scan.builder.next_offset)
    size = scan.file_size - scan.valid_bytes
    if not is_same_run or offset < durable or size >= loader.config.max_message_bytes:
        return False
    tail = log.pread(size, scan.valid_bytes)
    # In a preallocated file the scan finds zeros where nothing was written.
    is_cut_short = scan.problem == INCOMPLETE or (scan.padding and claims_more(tail))
    return bool(is_cut_short) and begins_batch(tail, offset, scan.padding)


def _ends_as_a_kill_leaves_it(scan: SegmentScan) -> bool:
    """Whether the file ends between two pages, where a kill ends a pwrite: readers saw none of it.

    Anything else that makes a file shorter, or leaves zeros in it, may have taken records that
    were shown. Source: Linux generic_perform_write, which checks for a fatal signal between pages.
    """
    return scan.padding == 0 and scan.file_size % PAGE_BYTES == 0


def _mark_positions_used(loader: Loader, segment: Segment, boot: bytes) -> None:
    """Mark all reserved positions as used in the segment table, before any record goes."""
    if loader.table is not None:
        entry = TableEntry(
            segment.base_offset,
            SegmentState.OPEN,
            segment.bases,
            loader.shown,
            has_gaps=segment.has_gaps,
            is_after_gap=segment.is_after_gap,
            boot=boot,
        )
        loader.table.put(entry)
        loader.table.sync()


def _set_aside(loader: Loader, bases: Sequence[int], why: str) -> None:
    """Rename the ``.log`` of segments that cannot be kept, from the last one on."""
    disk = loader.context.disk
    for base_offset in reversed(bases):
        segment = loader.segment(base_offset, Positions())
        if not disk.exists(segment.name):
            continue  # an earlier attempt renamed it before the disk was full
        size = disk.stat(segment.name).size
        if loader.context.read_only:
            loader.lose("cut", segment.name, 0, size,
                        f"{segment.name}: {why}; recovery would set it aside")  # fmt: skip
            continue
        if size:
            name = names.unused_cut_file(disk.exists, segment.directory, base_offset, 0)
            loader.lose("cut", segment.name, 0, size,
                        f"{segment.name}: {why}, so it was set aside as {name}")  # fmt: skip
            loader.losses.save()
            disk.rename(segment.name, f"{segment.directory}/{name}")
        remove_segment_files(disk, segment)
        disk.sync_directory(segment.directory)
        loader.has_changed = True


def _set_aside_later(loader: Loader, bases: Sequence[int], why: str) -> None:
    """Set segments aside as soon as there is room to say so."""

    def remove() -> None:
        _set_aside(loader, bases, why)

    with loader.deferring(remove):
        remove()


def _save_tail(
    disk: Disk, segment: Segment, log: File, position: int, file_size: int
) -> str | None:
    """Copy the truncated tail of a ``.log``; the copy is durable when this returns.

    Returns:
        The name of the copy in the partition directory, or of an earlier copy with the same bytes;
        None if all bytes are zero, as after ``preallocate`` or a power cut.
    """
    if end_of_data(log, position, file_size) == position:
        return None
    copy = 0
    while True:
        name = names.format_cut_file(segment.base_offset, position, copy)
        path = f"{segment.directory}/{name}"
        if not disk.exists(path):
            break
        if _is_copy(disk.open(path), log, position, file_size):
            return name
        copy += 1
    copy_range(log, position, file_size, disk, path + TEMPORARY_SUFFIX)
    disk.rename(path + TEMPORARY_SUFFIX, path)
    disk.sync_directory(segment.directory)
    return name


def _is_copy(copy: File, log: File, position: int, file_size: int) -> bool:
    if copy.size() != file_size - position:
        return False
    return all(
        copy.pread(_CHUNK_BYTES, start - position)
        == log.pread(min(_CHUNK_BYTES, file_size - start), start)
        for start in range(position, file_size, _CHUNK_BYTES)
    )
