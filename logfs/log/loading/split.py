"""Splitting segments that span more offsets than an index entry can hold.

An index entry holds an offset of 31 bits, relative to the segment's base offset. Brokers before 2.0
could write segments that reach further (KAFKA-6264), and so can one record with a wrong offset.
Such a segment is replaced by several, each named after its first batch; the batches do not change.
A segment whose name is lower than its first batch is renamed first, so that the first new segment
has the name of the old one.

The new files replace the old one as ``swaps`` describes: a stop at any moment leaves either, for a
broker too. They have no indexes until they are loaded.

Source: Kafka LocalLog.splitOverflowedSegment.
"""

import contextlib
import logging
from collections.abc import Iterator

from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError
from logfs.log.loading.swaps import put_in_place, take_suffix_off
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, format_segment_file
from logfs.log.segments.batches import BatchWalk, batches_from, decodes
from logfs.log.segments.scan import SegmentScan
from logfs.log.segments.segment import Segment
from logfs.log.writing.active import remove_segment_files
from logfs.records._reading import first_offset
from logfs.records.layout import MAX_RELATIVE_OFFSET

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1024 * 1024


class SpansTooMuchError(Exception):
    """A segment spans more offsets than its indexes can hold.

    Attributes:
        segment: The segment.
        valid_bytes: File position of the first batch that is too far from the base offset.
    """

    def __init__(self, segment: Segment, valid_bytes: int) -> None:
        super().__init__(segment.name)
        self.segment = segment
        self.valid_bytes = valid_bytes


def check_span(scan: SegmentScan, segment: Segment) -> None:
    """Raise SpansTooMuchError if a scan has found that a segment must be split."""
    if scan.builder.far_position >= 0:
        raise SpansTooMuchError(segment, scan.builder.far_position)


def split_segment(
    disk: Disk, error: SpansTooMuchError, kinds: dict[int, set[FileKind]]
) -> list[int]:
    """Split a segment that spans too many offsets.

    Args:
        disk: The data directory.
        error: Names the segment, whose ``.log`` is open nowhere else.
        kinds: The files of each segment, by base offset; updated.

    Returns:
        Base offsets of the segments that replace it, ascending.

    Raises:
        OSError: The disk failed. The segment is unchanged, or the next start completes the
            replacement.
    """
    bases = _replace(disk, error.segment, error.valid_bytes)
    base_offset = error.segment.base_offset
    kinds[base_offset] = kinds.pop(base_offset) & {FileKind.SNAPSHOT}
    for base in bases:
        kinds.setdefault(base, set()).add(FileKind.LOG)
    return bases


def _replace(disk: Disk, segment: Segment, valid_bytes: int) -> list[int]:
    log = disk.open(segment.name)
    pieces = list(_pieces(log, segment))
    first_base = pieces[0][0]
    if first_base != segment.base_offset:
        _rename(disk, segment, first_base)
        return [first_base]
    logger.warning(
        "%s spans too many offsets for its indexes (the batch at byte %d is too far from its first "
        "offset): it is split into segments at %s", segment.name, valid_bytes,
        ", ".join(str(base) for base, _, _ in pieces),
    )  # fmt: skip
    mtime_ms = disk.stat(segment.name).mtime_ms
    files = [SegmentFileName(base, FileKind.LOG, FileSuffix.CLEANED) for base, _, _ in pieces]
    try:
        for file, (_, start, stop) in zip(files, pieces, strict=True):
            name = f"{segment.directory}/{format_segment_file(*file)}"
            _copy(disk, log, name, start, stop)
            disk.touch_times(name, mtime_ms)
    except OSError:
        for file in files:
            name = f"{segment.directory}/{format_segment_file(*file)}"
            if disk.exists(name):
                disk.remove(name)
        raise
    finally:
        log.close()
    disk.sync_directory(segment.directory)
    put_in_place(disk, segment.directory, files)
    remove_segment_files(disk, segment)
    swaps = [file._replace(suffix=FileSuffix.SWAP) for file in files]
    take_suffix_off(disk, segment.directory, swaps)
    return [base for base, _, _ in pieces]


def _pieces(log: File, segment: Segment) -> Iterator[tuple[int, int, int]]:
    """Return the pieces of a segment: (base offset, first byte, end) of each.

    Bytes that are no batch belong to the last piece.
    """
    base, start, position = -1, 0, 0
    for position, first, last in _batches(log, segment):
        if base < 0:
            base = first
        elif last - base > MAX_RELATIVE_OFFSET:
            yield base, start, position
            base, start = first, position
    yield base, start, log.size()


def _batches(log: File, segment: Segment) -> Iterator[tuple[int, int, int]]:
    """Return file position, first and last offset of each batch that is used."""
    walk = BatchWalk(log, 0, log.size(), segment=segment)
    with contextlib.suppress(CorruptRecordError):
        for batch in batches_from(walk):
            if not decodes(batch.buffer, batch.start, batch.header.size_bytes):
                continue
            first = first_offset(batch.buffer, batch.start, walk.stop)
            yield walk.file_position + batch.start, first, batch.header.last_offset


def _rename(disk: Disk, segment: Segment, base_offset: int) -> None:
    """Rename a segment to the offset of its first batch, and remove its indexes."""
    name = f"{segment.directory}/{format_segment_file(base_offset, FileKind.LOG)}"
    logger.info("%s must be split and begins at a later offset: it is now %s", segment.name, name)
    disk.rename(segment.name, name)
    remove_segment_files(disk, segment)
    disk.sync_directory(segment.directory)


def _copy(disk: Disk, log: File, name: str, start: int, stop: int) -> None:
    file = disk.open(name, write=True, create=True)
    try:
        file.truncate(0)
        for position in range(start, stop, _CHUNK_BYTES):
            data = log.pread(min(_CHUNK_BYTES, stop - position), position)
            file.pwrite(data, position - start)
        file.sync()
    finally:
        file.close()
