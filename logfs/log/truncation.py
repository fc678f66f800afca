"""Removing the end of a log at run time, and segments from its front.

Truncation removes whole batches. Their positions were shown, so what comes next stands behind them,
in a segment of its own: bases are a property of segments.
"""

from typing import TYPE_CHECKING

from logfs.disk.vfs import Disk
from logfs.log.active import ActiveSegment, remove_segment_files
from logfs.log.names import FileKind
from logfs.log.scan import rebuild_indexes, scan_segment
from logfs.log.segment import SEGMENT_FILE_KINDS, Segment
from logfs.log.snapshot import LogEnd, Snapshot
from logfs.log.table import SegmentState
from logfs.log.window import LOOKUP_BYTES, Window
from logfs.records._native import find_offset

if TYPE_CHECKING:
    from logfs.log.partition import PartitionLog


def truncate(log: "PartitionLog", offset: int, now_ms: int) -> Snapshot:
    """Cut a log at an offset inside it and begin an empty segment there.

    The caller holds the lock of the partition and has let go of the active segment.

    Returns:
        The snapshot to publish.
    """
    disk, old = log.disk, log.snapshot
    kept = tuple(s for s in old.segments if s.base_offset < offset)
    for segment in reversed(old.segments[len(kept) :]):
        remove_segment_files(disk, segment)
        log.table.put(segment.entry(SegmentState.DROPPED))
    if kept:
        last = kept[-1]
        _cut_segment(log, last, old.end_of(len(kept) - 1)[2], offset)
        log.table.put(last.entry(SegmentState.SEALED))
    bases = old.end.positions
    segment = log.new_segment(offset, bases)
    active = ActiveSegment.create(disk, segment, log.config, now_ms)
    log.table.put(log.lease.open_entry(segment))
    log.table.sync()
    active.segment.close_files()
    start = old.start
    return Snapshot.of((*kept, segment), start, LogEnd(offset, bases, 0, -1), old.cuts + 1)


def rename_deleted(disk: Disk, segment: Segment) -> None:
    """Give the files of a segment the suffix under which they wait for their removal."""
    segment.close_files()
    for kind in SEGMENT_FILE_KINDS:
        old = segment.file_name(kind)
        if disk.exists(old):
            segment.is_deleted = True
            disk.rename(old, segment.file_name(kind))
            segment.is_deleted = False
    segment.is_deleted = True


def _cut_segment(log: "PartitionLog", segment: Segment, file_end: int, offset: int) -> None:
    """Cut the ``.log`` in front of the first batch that reaches an offset, and index it anew."""
    position = _first_batch_reaching(segment, file_end, offset)
    segment.close_files()
    file = log.disk.open(segment.file_name(FileKind.LOG), write=True)
    file.truncate(position)
    scan = scan_segment(file, segment, log.config)
    scan.describe(segment)
    rebuild_indexes(log.disk, segment, scan, durable=False)
    file.sync()


def _first_batch_reaching(segment: Segment, file_end: int, offset: int) -> int:
    window, position = Window(), 0
    while position < file_end:
        window.load(segment.files().log, position, file_end, LOOKUP_BYTES, True)
        at = find_offset(window.buffer, 0, window.stop, offset)
        if at < window.stop:
            return position + at
        position = window.file_end
    return file_end
