"""The segment that another process appends to, read up to its last whole batch with a right CRC.

What does not decode at the end of it is not there yet: it is read again at the next look. So is the
zero tail of a preallocated file.

*Marks* are the first bytes of batches that were accounted for, up to their CRC. As long as the last
one is where it was, nothing before it has changed. If it does not, the log was cut, and
the last mark that still is says where.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from logfs.disk.vfs import File
from logfs.log.indexes import textindex
from logfs.log.indexes.index import (
    TIME_INDEX,
    Entries,
    count_offset_entries_below,
    count_time_entries_below,
    decode_time_entry,
)
from logfs.log.segments.batches import BatchFeed, measure_batches
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogEnd
from logfs.records._indexing import IndexBuilder
from logfs.records._reading import find_offset, has_right_checksum, header_ok, measure
from logfs.records.compression import decompress
from logfs.records.layout import (
    HEADER_BYTES,
    LENGTH_AT,
    base_offset_of,
    is_message,
    leader_epoch_of,
    next_offset_of,
    size_of,
)
from logfs.records.produced import ProducedBatch
from logfs.services.following.files import GrowingFiles
from logfs.services.following.tailcheckpoint import MARK_BYTES, TailCheckpoint, mark_of_epoch
from logfs.types import Positions

_CHUNK_BYTES = 1024 * 1024
_MARKED_RECORDS = 1024
_MAX_MARKS = 4096


class Mark(NamedTuple):
    """A batch that was accounted for: where it begins and ends, its first bytes."""

    position: int
    end: int
    head: bytes


class Boundary(NamedTuple):
    """A border between two batches of a ``.log``, and the lengths before it."""

    position: int
    offset: int
    lengths: Positions


class Tail:
    """The end of a log. Under the lock of its partition.

    Attributes:
        files: Its indexes; kept by the segment while it is the last one.
        builder: The running state.
        epoch_before: Leader epoch of what is before the segment; -1 if it is not known.
        produced: Batches of producers that were accounted for; the caller takes them.
        problem: Why the last ``grow`` ended before the end of the file, None if it did not.
    """

    def __init__(
        self, log: File, segment: Segment, files: GrowingFiles, interval_bytes: int
    ) -> None:
        self.log = log
        self.segment = segment
        self.files = files
        self.builder = IndexBuilder(segment.base_offset, interval_bytes, decompress)
        self.problem: str | None = None
        self.epoch_before = -1
        self.produced: list[ProducedBatch] = []
        self._marks: deque[Mark] = deque(maxlen=_MAX_MARKS)
        segment.pinned_files = files

    def go_on(self, file_end: int, offset: int, positions: Positions, max_timestamp: int) -> None:
        """Continue from a known end: bytes, offset, positions and largest timestamp there."""
        base_offset, lengths = self.segment.base_offset, positions.minus(self.segment.bases)
        times = self.files.time_entries()
        count = len(times) // TIME_INDEX.entry_bytes
        last = decode_time_entry(times, count - 1, base_offset).timestamp if count else -1
        self.builder.restore(
            file_position=file_end,
            next_offset=offset,
            max_timestamp=max_timestamp,
            offset_of_max_timestamp=max(offset - 1, base_offset),
            first_timestamp=self.segment.first_timestamp,
            last_time_entry=last,
            text=lengths.text,
            tsv=lengths.tsv,
            jsonl=lengths.jsonl,
        )
        self._mark_end()

    def resume(self, note: TailCheckpoint) -> bool:
        """Continue where a note says; False if the log is not what it was then."""
        self.segment.first_timestamp = note.first_timestamp
        self.builder.restore(
            file_position=note.file_end,
            next_offset=note.next_offset,
            max_timestamp=note.max_timestamp,
            offset_of_max_timestamp=note.offset_of_max_timestamp,
            first_timestamp=note.first_timestamp,
            last_time_entry=note.last_time_entry,
            text=note.lengths.text,
            tsv=note.lengths.tsv,
            jsonl=note.lengths.jsonl,
        )
        if note.mark_position >= 0:
            self._marks.append(Mark(note.mark_position, note.file_end, note.mark))
        if not self.is_intact:
            return False
        self._marks.clear()
        self._mark_end()
        return True

    @property
    def end(self) -> LogEnd:
        """The place of the next record."""
        builder = self.builder
        lengths = (builder.text, builder.tsv, builder.jsonl)
        return LogEnd(
            builder.next_offset,
            self.segment.bases.plus(lengths),
            builder.file_position,
            builder.max_timestamp,
        )

    @property
    def is_intact(self) -> bool:
        """Whether everything that was accounted for still is where it was."""
        if self.log.size() < self.builder.file_position:
            return False
        return not self._marks or self._stands(self._marks[-1])

    def grow(self, limit_bytes: int) -> bytes:
        """Account for batches that are new; return the new entries of the text index."""
        builder, added = self.builder, b""
        self.problem = None
        stop = builder.file_position + limit_bytes
        feed = BatchFeed(self.log, builder, self.log.size())
        while self.problem is None and builder.file_position < stop and not feed.is_done:
            position = builder.file_position
            used = feed.feed()
            self.problem = feed.problem
            entries = builder.take()
            self.files.append(entries)
            self.produced += builder.produced
            builder.produced.clear()
            added += entries[2]
            self._mark(feed.chunks.data, used, position)
        return added

    def find_cut(self) -> Boundary:
        """Find how far the log still is what it was.

        That is up to a mark that is, and on from there over batches of a leader epoch that was
        seen before: what is appended after a cut has a later one.
        """
        end = min(self.log.size(), self.builder.file_position)
        epoch, text = self.leader_epoch, self.files.text_entries()
        while self._marks and not (self._marks[-1].end <= end and self._stands(self._marks[-1])):
            self._marks.pop()
        if not self._marks:
            return find_boundary(self.log, self.segment, text, end, epoch)
        position = walk_on(self.log, self._marks[-1].end, end, epoch)
        return boundary_at(self.log, text, self.segment, position)

    def find_skip(self) -> Boundary | None:
        """Find the end of a cut log whose next batch has skipped offsets; None if none has.

        A compacted log may continue with any offset. The gap after a cut has to name it.
        """
        entries, end = self.files.text_entries(), self.builder.file_position
        count = len(entries) // textindex.TEXT_INDEX.entry_bytes
        if count < 2:
            return None
        gap = textindex.decode_text_entry(entries, count - 1)
        head = self.log.pread(HEADER_BYTES, end) if gap.file_position == end else b""
        if not header_ok(head, 0, self.log.size() - end) or is_message(head):
            return None
        offset, size = base_offset_of(head), size_of(head)
        if offset <= self.segment.base_offset + gap.relative_offset:
            return None
        if not has_right_checksum(self.log.pread(size, end), 0, size):
            return None
        return Boundary(end, offset, textindex.decode_text_entry(entries, count - 2).lengths)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if it is not known or has none."""
        return leader_epoch_of(self._marks[-1].head) if self._marks else self.epoch_before

    def checkpoint(self) -> TailCheckpoint:
        """Return what is to be remembered."""
        builder = self.builder
        mark = self._marks[-1] if self._marks else Mark(-1, 0, mark_of_epoch(self.epoch_before))
        return TailCheckpoint(
            self.segment.base_offset,
            builder.file_position,
            builder.next_offset,
            builder.max_timestamp,
            builder.offset_of_max_timestamp,
            builder.first_timestamp,
            builder.last_time_entry,
            self.segment.bases,
            Positions(builder.text, builder.tsv, builder.jsonl),
            len(self.files.text) // textindex.TEXT_INDEX.entry_bytes,
            self.segment.has_gaps,
            mark.position,
            mark.head,
        )

    def final_time_entry(self) -> None:
        """Add the entry that a roll adds to the time index."""
        self.files.append((b"", self.builder.final_time_entry(), b""))

    def _stands(self, mark: Mark) -> bool:
        return self.log.pread(MARK_BYTES, mark.position) == mark.head

    def _mark(self, data: bytes | bytearray, used: int, position: int) -> None:
        """Mark the last batches in data that begins at a file position."""
        at = find_offset(data, 0, used, self.builder.next_offset - _MARKED_RECORDS)
        while at < used:
            end = at + size_of(data, at)
            head = bytes(data[at : at + MARK_BYTES])
            self._marks.append(Mark(position + at, position + end, head))
            at = end

    def _mark_end(self) -> None:
        """Mark the last batches of a segment that was not read by this object."""
        entries, end = self.files.text_entries(), self.builder.file_position
        count = textindex.count_text_entries_before(entries, end)
        start = textindex.decode_text_entry(entries, count - 1).file_position if count else 0
        if count or end <= _CHUNK_BYTES:
            data = self.log.pread(end - start, start)
            self._mark(data, len(data), start)


def find_boundary(log: File, segment: Segment, text: Entries, limit: int, epoch: int) -> Boundary:
    """Find how far a log that was cut is what it was, by its text index and its leader epochs.

    Args:
        text: The entries of its text index.
        limit: How far it was known.
        epoch: The leader epoch it had there.
    """
    position, size = 0, min(log.size(), limit)
    for number in range(len(text) // textindex.TEXT_INDEX.entry_bytes - 1, -1, -1):
        entry = textindex.decode_text_entry(text, number)
        if entry.file_position + HEADER_BYTES > size:
            continue
        base_offset = base_offset_of(log.pread(LENGTH_AT, entry.file_position))
        if base_offset == segment.base_offset + entry.relative_offset:
            position = entry.file_position
            break
    return boundary_at(log, text, segment, walk_on(log, position, size, epoch))


def walk_on(log: File, position: int, limit: int, epoch: int) -> int:
    """Return where the whole batches of a leader epoch, or an older one, end."""
    for end, head in heads(log, position, limit):
        if leader_epoch_of(head) > epoch:
            break
        position = end
    return position


def heads(log: File, position: int, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield where each whole batch from a position on ends, and its first bytes."""
    while position < limit:
        head = log.pread(HEADER_BYTES, position)
        if not header_ok(head, 0, limit - position):
            return
        position += size_of(head)
        yield position, head


def boundary_at(log: File, entries: Entries, segment: Segment, position: int) -> Boundary:
    """Describe a border between batches of a ``.log`` that is whole up to there."""
    count = textindex.count_text_entries_before(entries, position)
    last = textindex.decode_text_entry(entries, count - 1) if count else textindex.ZERO
    data = log.pread(position - last.file_position, last.file_position)
    before = segment.base_offset + last.relative_offset if last.relative_offset else 0
    behind, _ = measure_batches(data, 0)  # an entry may name a record inside the first batch
    in_front = measure(data, 0, len(data), before, decompress)
    offset, at = segment.base_offset + last.relative_offset, 0
    while at + HEADER_BYTES <= len(data):
        offset = next_offset_of(data, at)
        at += size_of(data, at)
    return Boundary(position, offset, last.lengths.plus(behind).minus(in_front))


def entries_before(
    files: tuple[Entries, Entries, Entries], segment: Segment, boundary: Boundary
) -> tuple[bytes, bytes, bytes]:
    """Return the index entries that stay when a log is cut at a boundary."""
    offset, time, text = files
    base = segment.base_offset
    texts = textindex.count_text_entries_before(text, boundary.position)
    return (
        bytes(offset[: 8 * count_offset_entries_below(offset, base, boundary.offset)]),
        bytes(time[: 12 * count_time_entries_below(time, base, boundary.offset)]),
        bytes(text[: 32 * texts]),
    )


def gap_pair(segment: Segment, boundary: Boundary, next_start: Positions) -> bytes:
    """Return the text index entries of a gap: what comes next at a boundary is further on."""
    relative = boundary.offset - segment.base_offset
    return textindex.encode_text_entry(
        relative, boundary.position, boundary.lengths
    ) + textindex.encode_text_entry(relative, boundary.position, next_start.minus(segment.bases))
