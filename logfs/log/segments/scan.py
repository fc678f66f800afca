"""Scanning a whole segment: checks every batch and collects the entries of its indexes.

Used after an unclean stop, for a segment without indexes, and for a directory that a broker wrote.
The scan is native and lets other threads run.

Source: Kafka LogSegment.recover.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError, OversizedBatchError
from logfs.log.indexes.index import Entries
from logfs.log.segments.batches import (
    INCOMPLETE,
    BatchFeed,
    batch_after,
    decodes,
    is_refused,
)
from logfs.log.segments.segment import Segment, SegmentFiles, sealed_indexes, write_indexes
from logfs.records._indexing import IndexBuilder
from logfs.records._reading import first_offset, header_ok, whole_batches
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


class Skipped(NamedTuple):
    """Bytes that a scan has passed over.

    Attributes:
        next_offset: At which reading continues after them.
        is_refused: They are a whole batch with the right checksum.
    """

    position: int
    size: int
    why: str
    next_offset: int
    is_refused: bool = False


@dataclass(slots=True)
class SegmentScan:
    """What a scan found.

    Attributes:
        builder: The running state after the last good batch.
        offset_entries, time_entries, text_entries: The entries of the indexes.
        problem: Why the scan stopped before the end of the file; None if it did not.
        corrupt: What was passed over.
        padding: Zeros at the end of the file that are ``preallocate``'s; ``file_size`` is less.
    """

    builder: IndexBuilder
    file_size: int
    offset_entries: bytearray = field(default_factory=bytearray)
    time_entries: bytearray = field(default_factory=bytearray)
    text_entries: bytearray = field(default_factory=bytearray)
    problem: str | None = None
    corrupt: list[Skipped] = field(default_factory=list)
    padding: int = 0

    @property
    def valid_bytes(self) -> int:
        """Bytes of the file up to the end of the last batch."""
        return int(self.builder.file_position)

    def leave_out_padding(
        self, log: File, config: TopicConfig, *, is_last: bool, is_foreign: bool
    ) -> None:
        """Exclude the zeros that ``preallocate`` left at the end of the file.

        A broker may have that setting for all topics, unknown to logfs. Then the last segment has
        the maximum size, or in a directory that logfs has never written nothing but zeros follow.
        """
        is_full = is_last and self.file_size == config.effective_segment_bytes
        is_padded = config.preallocate or is_full
        if is_padded or (is_last and is_foreign):
            end = end_of_data(log, self.valid_bytes, self.file_size)
            if is_padded or end == self.valid_bytes:
                self.file_size, self.padding = end, self.file_size - end

    def lengths_of_corrupt(self, whole: Positions) -> list[Positions]:
        """Return the lengths of the skipped batches, given the length of the whole segment.

        Those of refused ones are known. Each of the others but the first is assumed to have
        length 1: exact for one batch.
        """
        builder = self.builder
        others = [one.size for one in self.corrupt if not one.is_refused]
        good = Positions(builder.text, builder.tsv, builder.jsonl).minus((sum(others),) * 3)
        count = len(others)
        first = whole.minus(good).minus((count - 1,) * 3)
        if count and min(first) < 1:
            return []
        return [first, *[Positions(1, 1, 1)] * (count - 1)] if count else []

    def describe(self, segment: Segment) -> None:
        """Set the end, sizes and timestamps of a segment to those that were found."""
        fill_segment(segment, self.builder)


def scan_segment(  # noqa: PLR0913 - what is known, and what is passed over
    log: File,
    segment: Segment,
    config: TopicConfig,
    *,
    pass_over_corrupt: bool = False,
    lengths_of_corrupt: Sequence[Positions] = (),
    is_last: bool = True,
    stops_at_refused: bool = False,
) -> SegmentScan:
    """Read a ``.log`` from its first byte and check every batch.

    Args:
        pass_over_corrupt: Continue after a corrupt batch if its length leads to the next batch. One
            that is refused is always passed over, if batches follow it.
        lengths_of_corrupt: Lengths of the others in each rendering; by default as long as in the
            file, so that no other record gets their positions.
        is_last: No segment follows this one.
        stops_at_refused: Stop at such batches, too.

    Returns:
        The findings; the scan stops before the first batch that cannot be used.
    """
    scan = SegmentScan(new_builder(segment, config), log.size())
    builder, feed = scan.builder, BatchFeed(log, scan.builder, scan.file_size)
    while not feed.is_done and scan.problem is None:
        used = feed.feed()
        _take(scan)
        if feed.problem in (None, INCOMPLETE):
            scan.problem = feed.problem
            continue
        if used:
            continue
        may_pass = pass_over_corrupt or (
            not stops_at_refused and must_stay(log, builder, is_last=is_last)
        )
        if not (may_pass and pass_over(scan, log, lengths_of_corrupt)):
            scan.problem = feed.problem
    scan.time_entries += builder.final_time_entry()
    return scan


def rebuild_indexes(
    disk: Disk,
    segment: Segment,
    scan: SegmentScan,
    *,
    but_text: bool = False,
    is_durable: bool = True,
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


def _take(scan: SegmentScan) -> None:
    offset, time, text = scan.builder.take()
    scan.offset_entries += offset
    scan.time_entries += time
    scan.text_entries += text


def pass_over(scan: SegmentScan, log: File, lengths: Sequence[Positions]) -> bool:
    """Skip a corrupt batch, if it is known where it ends (``batch_after``).

    A refused batch takes the offsets that it has, if they are its own. Those of another one end
    where the next batch begins.
    """
    builder = scan.builder
    position, base_offset = builder.file_position, builder.next_offset
    try:
        header = log.pread(HEADER_BYTES, position)
    except CorruptRecordError:  # the bytes themselves cannot be read
        return False
    is_sound = is_refused(log, position)
    after = position + size_of(header) if is_sound else batch_after(log, position, scan.file_size)
    if after is None:
        return False
    total = after - position
    length = Positions(total, total, total)
    if is_sound:
        _, next_offset, _ = whole_batches(log.pread(total, position), 0, total, base_offset)
    elif after < scan.file_size:
        following = first_offset_at(log, after)
        next_offset = base_offset + 1 if following is None else following
    else:
        next_offset = base_offset + _records_claimed(header, base_offset)
    number = sum(not one.is_refused for one in scan.corrupt)
    if not is_sound and number < len(lengths):
        length = lengths[number]
    builder.pass_over(total, max(next_offset, base_offset), *length)
    why = str(builder.problem)
    scan.corrupt.append(Skipped(position, total, why, builder.next_offset, is_sound))
    return True


def pass_over_unreadable(scan: SegmentScan, log: File, following: int) -> bool:
    """Skip the rest of a segment if some of its bytes cannot be read at all.

    Args:
        following: The base offset of the next segment.
    """
    builder = scan.builder
    position, total = builder.file_position, scan.file_size - builder.file_position
    why = _why_unreadable(log, position, scan.file_size)
    if why is None or following <= builder.next_offset:
        return False
    scan.corrupt.append(Skipped(position, total, why, following))
    scan.problem = None
    builder.pass_over(total, following, total, total, total)
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


def must_stay(log: File, builder: IndexBuilder, *, is_last: bool) -> bool:
    """Whether recovery may not cut a log before a batch that cannot be used.

    It is no torn write if its checksum is right. Where no batch that is used follows it, its base
    offset may be torn, which no checksum covers: then it stays only if another version or limit
    could read it.
    """
    position = int(builder.file_position)
    header = log.pread(HEADER_BYTES, position)
    if len(header) == HEADER_BYTES and header[MAGIC_AT] > MAGIC:
        body = log.pread(max(0, size_of(header) - CRC_START), position + CRC_START)
        is_known = header[MAGIC_AT] >= 128 or len(body) != size_of(header) - CRC_START
        return not is_known and crc32c(body) == crc_of(header)
    if not is_refused(log, position):
        return False
    size, end, follower = size_of(header), log.size(), position
    while is_last and (follower := batch_after(log, follower, end) or end) < end:
        data = log.pread(size_of(log.pread(LOG_OVERHEAD_BYTES, follower)), follower)
        whole = whole_batches(data, 0, len(data), int(builder.next_offset))[0]
        is_last = whole < len(data) or not decodes(data, 0, whole)
    if not is_last:
        return True
    payload = log.pread(max(0, size - HEADER_BYTES), position + HEADER_BYTES)
    return not is_message(header) and _is_oversized(header, payload)


def _is_oversized(header: bytes, payload: bytes) -> bool:
    try:
        decompress(header[CODEC_AT] & COMPRESSION_MASK, payload)
    except OversizedBatchError:
        return True
    except CorruptRecordError:
        return False
    return False


def first_offset_at(log: File, position: int) -> int | None:
    """Return the offset of the first record of a batch; None if it cannot be read."""
    try:
        header = log.pread(HEADER_BYTES, position)
        if len(header) < SHORTEST_BATCH_BYTES:
            return None
        if not is_message(header):
            return base_offset_of(header)
        data = log.pread(max(0, size_of(header)), position)
        return first_offset(data, 0, len(data))
    except CorruptRecordError:
        return None


def _records_claimed(header: bytes, base_offset: int) -> int:
    """Return the number of offsets in the header of the last batch, at most ``_MAX_RECORDS``."""
    last_delta = last_offset_delta_of(header)
    if is_message(header):
        last_delta = base_offset_of(header) - base_offset
    return 1 + min(max(last_delta, 0), _MAX_RECORDS)


def end_of_data(log: File, start: int, stop: int) -> int:
    """Return the position after the last nonzero byte of a range; its start if all are zero.

    What an object store has damaged is no padding: then it is the end of the range.
    """
    end = start
    while (start := log.next_data(start)) < stop:
        try:
            data = log.pread(min(_CHUNK_BYTES, stop - start), start)
        except CorruptRecordError:
            return stop
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
        self, disk: Disk, segment: Segment, scan: SegmentScan | None, *, but_text: bool = False
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
