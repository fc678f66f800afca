"""Segments whose offsets span more than an index entry can say are split.

An index entry holds 31 bits of offset, counted from the segment's base. Brokers before 2.0 could
write segments that reach further (KAFKA-6264), and one record with a wild offset does it too. Such
a segment becomes several, each named after its first batch; the batches stay what they are. One
whose own name is lower than that is renamed first, so that what replaces a segment has its name.

The new files replace the old one as ``swaps`` says, so a stop at any moment leaves the one or the
others, for a broker as well. They come without indexes: what loads them makes those.

Source: Kafka LocalLog.splitOverflowedSegment.
"""

import logging
from collections.abc import Iterator

from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError, UnsupportedFormatError
from logfs.log.loading.suffixes import put_in_place, take_suffix_off
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, format_segment_file
from logfs.log.reading.window import SEQUENTIAL_BYTES, Window
from logfs.log.segments.scan import Scan
from logfs.log.segments.segment import Segment
from logfs.log.writing.active import remove_segment_files
from logfs.log.writing.roll import MAX_RELATIVE_OFFSET
from logfs.records._native import first_offset, next_batch
from logfs.records.batch import decode_header

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1024 * 1024


class SpansTooMuchError(Exception):
    """A segment spans more offsets than its indexes can say.

    Attributes:
        segment: Which.
        valid_bytes: Where in its ``.log`` the batch begins that is too far from the base.
    """

    def __init__(self, segment: Segment, valid_bytes: int) -> None:
        super().__init__(segment.name)
        self.segment = segment
        self.valid_bytes = valid_bytes


def check_span(scan: Scan, segment: Segment, *, read_only: bool) -> None:
    """Raise SpansTooMuchError if a scan has found that a segment has to be split.

    Raises:
        UnsupportedFormatError: It has to, and the store is read-only.
    """
    if scan.builder.spans_too_much and read_only:
        raise UnsupportedFormatError(
            f"{segment.name}: the batch at byte {scan.valid_bytes} is too far from the segment's "
            "first offset for an index: mount the directory once without --read-only, which splits "
            "the segment"
        )
    if scan.builder.spans_too_much:
        raise SpansTooMuchError(segment, scan.valid_bytes)


def split_segment(
    disk: Disk, error: SpansTooMuchError, kinds: dict[int, set[FileKind]]
) -> list[int]:
    """Split a segment that spans too many offsets.

    Args:
        disk: Where it lies.
        error: Names the segment, whose ``.log`` nobody else has open.
        kinds: The files of each segment, by base offset; brought up to date.

    Returns:
        Base offsets of what stands in its place, ascending.

    Raises:
        OSError: The disk failed; the segment is as it was, or the replacement is finished by the
            next start.
    """
    bases = _replace(disk, error.segment, error.valid_bytes)
    base_offset = error.segment.base_offset
    kinds[base_offset] = kinds.pop(base_offset) & {FileKind.SNAPSHOT}
    for base in bases:
        kinds.setdefault(base, set()).add(FileKind.LOG)
    return bases


def _replace(disk: Disk, segment: Segment, valid_bytes: int) -> list[int]:
    log = disk.open(segment.name)
    pieces = list(_pieces(log))
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


def _pieces(log: File) -> Iterator[tuple[int, int, int]]:
    """Say where the segment has to be cut: (base offset, start, stop) of each piece, in bytes.

    What is no batch any more goes to the last piece.
    """
    base, start, position = -1, 0, 0
    for position, first, last in _batches(log):
        if base < 0:
            base = first
        elif last - base > MAX_RELATIVE_OFFSET:
            yield base, start, position
            base, start = first, position
    yield base, start, log.size()


def _batches(log: File) -> Iterator[tuple[int, int, int]]:
    """Walk over the whole batches: file position, first and last offset."""
    window, position, size = Window(), 0, log.size()
    while position < size:
        try:
            window.load(log, position, size, SEQUENTIAL_BYTES, True)
            at = 0
            while at < window.stop:
                first = first_offset(window.buffer, at, window.stop)
                yield position + at, first, decode_header(window.buffer, at).last_offset
                at += next_batch(window.buffer, at, window.stop)
        except CorruptRecordError:
            return
        position = window.file_end


def _rename(disk: Disk, segment: Segment, base_offset: int) -> None:
    """Give a segment the offset of its first batch for a name; its indexes go."""
    name = f"{segment.directory}/{format_segment_file(base_offset, FileKind.LOG)}"
    logger.info("%s is to be split and begins at a later offset: it is now %s", segment.name, name)
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
