"""Scanning a whole segment: checks every batch and collects the entries of its indexes.

Used after an unclean stop, for a segment without indexes, and for a directory that a broker wrote.
The scan is native and lets other threads run.

Source: Kafka LogSegment.recover.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError, OversizedBatchError
from logfs.log.indexes.index import Entries
from logfs.log.segments.batches import INCOMPLETE, BatchFeed
from logfs.log.segments.segment import Segment, SegmentFiles, sealed_indexes, write_indexes
from logfs.records._native import IndexBuilder, first_offset, header_ok
from logfs.records.checksum import crc32c
from logfs.records.compression import decompress
from logfs.records.layout import (
    CODEC_AT,
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    SHORTEST_BATCH_BYTES,
    base_offset_of,
    crc_of,
    is_message,
    last_offset_delta_of,
    size_of,
)
from logfs.types import Positions

_CHUNK_BYTES = 1024 * 1024
_ENDING_ZEROS = 16
"""A batch may end in zeros (at least the header count of its last record): at most so many."""
_MAX_RECORDS = 1 << 20
"""The largest number of records that is accepted from a corrupt header."""


@dataclass(slots=True)
class Scan:
    """What a scan found.

    Attributes:
        builder: The running state after the last good batch.
        offset_entries, time_entries, text_entries: The entries of the indexes.
        problem: Why the scan stopped before the end of the file; None if it did not.
        corrupt: Batches that were passed over: (file position, size, why).
        padding: Zeros at the end of the file that are ``preallocate``'s; ``file_size`` is less.
    """

    builder: IndexBuilder
    file_size: int
    offset_entries: bytearray = field(default_factory=bytearray)
    time_entries: bytearray = field(default_factory=bytearray)
    text_entries: bytearray = field(default_factory=bytearray)
    problem: str | None = None
    corrupt: list[tuple[int, int, str]] = field(default_factory=list)
    padding: int = 0

    @property
    def valid_bytes(self) -> int:
        """Bytes of the file up to the end of the last batch."""
        return int(self.builder.file_position)

    def leave_out_padding(self, log: File, config: TopicConfig, *, is_last: bool) -> None:
        """Exclude the zeros that ``preallocate`` left at the end of the file.

        A broker's topic may have that setting unknown to logfs: then its last segment has the
        maximum size.
        """
        is_full = is_last and self.file_size == config.effective_segment_bytes
        if config.preallocate or is_full:
            end = end_of_data(log, self.valid_bytes, self.file_size)
            self.file_size, self.padding = end, self.file_size - end

    def lengths_of_corrupt(self, whole: Positions) -> list[Positions]:
        """Return the lengths of the skipped batches, given the length of the whole segment.

        Exact for one batch. Of several, each but the first is assumed to have length 1.
        """
        count, builder = len(self.corrupt), self.builder
        nominal = sum(size for _, size, _ in self.corrupt)
        good = Positions(builder.text, builder.tsv, builder.jsonl)
        first = whole.minus(good).plus((nominal, nominal, nominal)).minus((count - 1,) * 3)
        if min(first) < 1:
            return []
        return [first, *[Positions(1, 1, 1)] * (count - 1)]

    def describe(self, segment: Segment) -> None:
        """Set the end, sizes and timestamps of a segment to those that were found."""
        fill_segment(segment, self.builder)


def scan_segment(
    log: File,
    segment: Segment,
    config: TopicConfig,
    *,
    pass_over_corrupt: bool = False,
    lengths_of_corrupt: Sequence[Positions] = (),
) -> Scan:
    """Read a ``.log`` from its first byte and check every batch.

    Args:
        pass_over_corrupt: Continue after a corrupt batch if its length leads to the next batch. A
            batch of which only the magic is unknown is always passed over.
        lengths_of_corrupt: Lengths of such batches in each rendering; by default as long as in the
            file, so that no other record gets their positions.

    Returns:
        The findings; the scan stops before the first batch that cannot be used.
    """
    scan = Scan(new_builder(segment, config), log.size())
    builder, feed = scan.builder, BatchFeed(log, scan.builder, scan.file_size)
    while not feed.is_done and scan.problem is None:
        used = feed.feed()
        _take(scan)
        if feed.problem in (None, INCOMPLETE):
            scan.problem = feed.problem
            continue
        may_pass = pass_over_corrupt or _is_sound(log, builder.file_position)
        if not (may_pass and (used or pass_over(scan, log, lengths_of_corrupt))):
            scan.problem = feed.problem
    scan.time_entries += builder.final_time_entry()
    return scan


def rebuild_indexes(
    disk: Disk, segment: Segment, scan: Scan, *, but_text: bool = False, is_durable: bool = True
) -> None:
    """Rewrite the index files of a segment, trimmed; with ``but_text`` all but the text index.

    They are new files, so that readers of the old ones are not disturbed. With ``is_durable`` their
    bytes are durable on return: an appender syncs an index only after it wrote to it.

    Raises:
        OSError: None of these files is left: the next start rebuilds them.
    """
    text = () if but_text else (scan.text_entries,)
    write_indexes(
        disk, segment, scan.offset_entries, scan.time_entries, *text, is_durable=is_durable
    )


def _take(scan: Scan) -> None:
    offset, time, text = scan.builder.take()
    scan.offset_entries += offset
    scan.time_entries += time
    scan.text_entries += text


def pass_over(scan: Scan, log: File, lengths: Sequence[Positions]) -> bool:
    """Skip a corrupt batch, if its length leads to the end of the file or to a batch."""
    builder = scan.builder
    position, base_offset = builder.file_position, builder.next_offset
    try:
        header = log.pread(HEADER_BYTES, position)
        if len(header) < SHORTEST_BATCH_BYTES:
            return False
        total = size_of(header)
        is_long = total >= SHORTEST_BATCH_BYTES
        follower = log.pread(HEADER_BYTES, position + total) if is_long else b""
    except CorruptRecordError:  # the bytes themselves cannot be read
        return False
    if header_ok(follower, 0, scan.file_size - position - total):
        last_offset = _first_offset(log, position + total, follower, base_offset) - 1
    elif total >= SHORTEST_BATCH_BYTES and position + total == scan.file_size:
        last_offset = base_offset + _records_claimed(header, base_offset) - 1
    else:
        return False
    if last_offset < base_offset:
        return False
    number = len(scan.corrupt)
    scan.corrupt.append((position, total, str(builder.problem)))
    length = lengths[number] if number < len(lengths) else Positions(total, total, total)
    builder.add(total, base_offset, last_offset, builder.max_timestamp, 0, *length)
    _take(scan)
    return True


def pass_over_unreadable(scan: Scan, log: File, following: int) -> bool:
    """Skip the rest of a segment if some of its bytes cannot be read at all.

    Args:
        following: The base offset of the next segment.
    """
    builder = scan.builder
    position, total = builder.file_position, scan.file_size - builder.file_position
    why = _why_unreadable(log, position, scan.file_size)
    if why is None or following <= builder.next_offset:
        return False
    scan.corrupt.append((position, total, why))
    scan.problem = None
    lengths = Positions(total, total, total)
    builder.add(total, builder.next_offset, following - 1, builder.max_timestamp, 0, *lengths)
    _take(scan)
    return True


def _why_unreadable(log: File, position: int, end: int) -> str | None:
    while position < end:
        try:
            data = log.pread(min(_CHUNK_BYTES, end - position), position)
        except CorruptRecordError as error:
            return error.message
        if not data:
            return None  # the file was cut
        position += len(data)
    return None


def begins_batch(tail: bytes, offset: int, padding: int = 0) -> bool:
    """Tell whether bytes at the end of a log are an incomplete batch that begins at an offset.

    A complete batch with only its length damaged is not one: its checksum fits, or other batches
    follow it.

    Args:
        offset: The end of the log before them.
        padding: Zeros of a preallocated file after them, of which some may belong to a batch.
    """
    if tail[:8] != offset.to_bytes(8, "big")[: len(tail)]:
        return False
    if len(tail) < HEADER_BYTES:
        return tail[MAGIC_AT : MAGIC_AT + 1] in (b"", b"\x02")
    zeros = min(padding, _ENDING_ZEROS)
    ends = (crc32c(tail[CRC_START:] + bytes(count)) for count in range(zeros + 1))
    if tail[MAGIC_AT] != MAGIC or crc_of(tail) in ends:
        return False
    tail += bytes(zeros)
    behind = offset + last_offset_delta_of(tail) + 1
    at = tail.find(behind.to_bytes(8, "big"), HEADER_BYTES) if behind < 1 << 63 else -1
    return at < 0 or not header_ok(tail, at, len(tail))


def claims_more(tail: bytes) -> bool:
    """Tell whether bytes begin with a batch that is longer than they are, or of unknown length."""
    return len(tail) < LOG_OVERHEAD_BYTES or size_of(tail) > len(tail)


def _is_sound(log: File, position: int) -> bool:
    """Tell whether an unusable batch has the right checksum, so that it must not be truncated.

    Its magic, which no CRC covers, may be unknown: a broker treats it as a v2 batch in recovery. Or
    its records are too large to be decompressed: another limit would allow them.
    """
    header = log.pread(HEADER_BYTES, position)
    if len(header) < HEADER_BYTES or not MAGIC <= header[MAGIC_AT] < 128:
        return False
    size = size_of(header)
    body = log.pread(max(0, size - CRC_START), position + CRC_START)
    if len(body) != size - CRC_START or crc32c(body) != crc_of(header):
        return False
    return header[MAGIC_AT] > MAGIC or _is_oversized(header, body[HEADER_BYTES - CRC_START :])


def _is_oversized(header: bytes, payload: bytes) -> bool:
    try:
        decompress(header[CODEC_AT] & COMPRESSION_MASK, payload)
    except OversizedBatchError:
        return True
    except CorruptRecordError:
        return False
    return False


def _first_offset(log: File, position: int, header: bytes, behind: int) -> int:
    """Return the base offset of a batch, or its smallest possible one if it cannot be read."""
    size = size_of(header)
    if not is_message(header):
        return base_offset_of(header)
    try:
        return first_offset(log.pread(size, position), 0, size)
    except CorruptRecordError:
        return behind + 1


def _records_claimed(header: bytes, base_offset: int) -> int:
    """Return the number of offsets in the header of the last batch, at most ``_MAX_RECORDS``."""
    last_delta = last_offset_delta_of(header)
    if is_message(header):
        last_delta = base_offset_of(header) - base_offset
    return 1 + min(max(last_delta, 0), _MAX_RECORDS)


def end_of_data(log: File, start: int, stop: int) -> int:
    """Return the position after the last nonzero byte of a range; its start if all are zero."""
    end = start
    while (start := log.next_data(start)) < stop:
        data = log.pread(min(_CHUNK_BYTES, stop - start), start)
        if not data:
            break
        if data.count(0) != len(data):
            end = start + len(data.rstrip(b"\0"))
        start += len(data)
    return end


def new_builder(segment: Segment, config: TopicConfig) -> IndexBuilder:
    """Return a builder of index entries for a segment without records."""
    return IndexBuilder(segment.base_offset, config.index_interval_bytes, decompress)


class SegmentEnd(Protocol):
    """What is in a segment; see ``IndexBuilder``, which is one."""

    @property
    def next_offset(self) -> int:
        """Last offset + 1."""

    @property
    def file_position(self) -> int:
        """Bytes of the ``.log``."""

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp, -1 if none."""

    @property
    def first_timestamp(self) -> int:
        """Max timestamp of the first batch, -1 if none."""

    @property
    def text(self) -> int:
        """Length of the rendering as text."""

    @property
    def tsv(self) -> int:
        """Length of the rendering as tsv."""

    @property
    def jsonl(self) -> int:
        """Length of the rendering as jsonl."""


def fill_segment(segment: Segment, found: SegmentEnd) -> None:
    """Set the end, sizes and timestamps of a segment to those that were found."""
    segment.next_offset = found.next_offset
    segment.size_bytes = found.file_position
    segment.max_timestamp = found.max_timestamp
    segment.first_timestamp = found.first_timestamp
    lengths = Positions(found.text, found.tsv, found.jsonl)
    segment.ends = segment.bases.plus(lengths)
    segment.lengths = lengths
    segment.text_crc = 0
    segment.is_packed = False


class MemoryFiles(SegmentFiles):
    """The files of a segment whose indexes exist only in memory.

    The directory must not be written, or the disk is full.

    Args:
        scan: Gives the indexes; None: the segment is empty.
        but_text: The text index is on the disk.
    """

    def __init__(
        self, disk: Disk, segment: Segment, scan: Scan | None, *, but_text: bool = False
    ) -> None:
        super().__init__(disk, segment, sealed_indexes(disk, segment))
        self._offset = bytes(scan.offset_entries) if scan else b""
        self._time = bytes(scan.time_entries) if scan else b""
        self._text = None if but_text else bytes(scan.text_entries) if scan else b""

    def offset_entries(self) -> Entries:
        """Entries of the offset index."""
        return self._offset

    def time_entries(self) -> Entries:
        """Entries of the time index."""
        return self._time

    def text_entries(self) -> Entries:
        """Entries of the text index."""
        return super().text_entries() if self._text is None else self._text
