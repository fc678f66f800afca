"""The records of several partitions as one file, merged by time: what ``orders@-1h`` reads.

A record is merged as if it had the largest timestamp of those before it in the range, so the order
of each partition is kept. Among equal times the lower partition is first. So the bytes depend on
the range alone, and the file is as long as the files of its partitions together.

The file is made from its start to its end, a round at a time: what is certainly next in a window of
records of each partition. A read continues where the last one ended without any search. One before
that begins again at the nearest *mark*, a place whose offsets were noted; one after it makes what
is between. So ``tail`` works, but takes as long as ``cat``.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import NamedTuple

from logfs.disk.waiting import WouldWaitError
from logfs.errors import CorruptRecordError
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.records import RecordReader
from logfs.records.record import Record
from logfs.services.views.buffers import Buffers
from logfs.services.views.rendering import rendered
from logfs.services.views.resolve import Resolved
from logfs.types import View

MERGED_BYTES = 16 << 20
"""How much memory an open file that is read takes, unless it merges thousands of partitions."""
_SMALLEST_PIECE, _LARGEST_PIECE = 4 << 10, 1 << 20
_LARGEST_WINDOW = 256 << 10
_LINE_BYTES = 128
"""The memory of a line beside its bytes: its offset, its time and three references."""
PART_BYTES = 512
"""The memory that an open file keeps for a partition in any case."""
MARK_BYTES = 8 << 20
"""How far the first marks are from each other."""
MARKS = 64
"""The most marks of a file; then every other one is dropped, and they are twice as far apart."""
_ALL_MARKS_BYTES = 1 << 20

_offset, _timestamp = itemgetter(0), itemgetter(1)


class MergedPart(NamedTuple):
    """The part of a merged file in one partition; see ``resolve_records``."""

    resolved: Resolved
    offsets: range


class _Mark(NamedTuple):
    """A place in the file: where it is, and offset and highest time before it of each part."""

    begin: int
    places: Sequence[int]


class MergedFile:
    """One open merged file. One read at a time; its segments stay readable until it is closed.

    A read returns fewer bytes than asked for only at the end or before damage.

    Args:
        parts: The part in each partition, in the order of their numbers.
        buffers: Limits the memory of all readers; None: nothing does.

    Attributes:
        buffer_bytes: How much memory it takes until ``drop_buffers``.
        may_block: Whether a read may wait for the disk.
        would_block: The last read may have to wait: set ``may_block`` and read again.
        damaged: The log whose damage the last read met; None: it met none.
        ended_by: See ``TextReader``.

    Raises:
        DeletedError: The files of a segment are gone.
        OSError: ENOMEM, see ``Buffers.reserve``.
    """

    def __init__(
        self, parts: Sequence[MergedPart], view: View, buffers: Buffers | None = None
    ) -> None:
        self._parts = [part for part in parts if part.offsets]
        self._view = view
        self._buffers = buffers
        self._size = sum(part.resolved.size for part in self._parts)
        count = max(len(self._parts), 1)
        # One half is for windows of the logs, the other one for lines.
        self._piece_bytes = min(_LARGEST_PIECE, max(_SMALLEST_PIECE, MERGED_BYTES // (2 * count)))
        self._most_marks = max(2, min(MARKS, _ALL_MARKS_BYTES // (16 * count)))
        self._text = b""
        self._begin = 0
        self._spacing = MARK_BYTES
        starts = ((part.offsets.start, -1) for part in self._parts)
        self._next = _Mark(0, array("q", chain.from_iterable(starts)))
        self._marks = [self._next]
        self._sources: list[_Source] = []
        self._pinned: list[Resolved] = []
        self.buffer_bytes = 0
        self.may_block = True
        self.would_block = False
        self.ended_by: OSError | None = None
        self.damaged: ReadableLog | None = None
        if buffers is not None and self._parts:
            topic = self._parts[0].resolved.log.topic_partition.topic
            buffers.reserve(self, PART_BYTES * len(self._parts), f"{topic}@…")
        try:
            for part in self._parts:
                part.resolved.log.pin(part.resolved.segments)
                self._pinned.append(part.resolved)
        except BaseException:
            self.close()
            raise

    def size(self) -> int:
        """Return the length of the file."""
        return self._size

    def read_into(self, out: memoryview, offset: int) -> int:
        """Fill ``out`` from an offset.

        Returns:
            The number of bytes, 0 at the end; fewer than there are if ``would_block``.

        Raises:
            CorruptRecordError: The next record of a partition cannot be decoded.
            OSError: The disk failed.
        """
        buffers = self._buffers
        if buffers is None:
            return self._read_into(out, offset)
        buffers.begin(self)
        try:
            return self._read_into(out, offset)
        finally:
            buffers.end(self)

    def _read_into(self, out: memoryview, offset: int) -> int:
        done = 0
        self.would_block, self.ended_by = False, None
        while done < len(out) and offset + done < self._size:
            at = offset + done - self._begin
            part = self._text[at : at + len(out) - done] if at >= 0 else b""
            if part:
                out[done : done + len(part)] = part
                done += len(part)
                continue
            if not self.may_block:
                self.would_block = True
                break
            if at < 0:
                number = bisect_right(self._marks, offset + done, key=itemgetter(0)) - 1
                self._go_to(self._marks[number])
            try:
                if not self._advance():
                    break
            except WouldWaitError:
                self.would_block = True  # what was read before it stays read
                break
            except (CorruptRecordError, OSError) as error:
                if not done:
                    raise  # else the next read, which begins there, says so
                self.ended_by = error if isinstance(error, OSError) else None
                break
        return done

    def drop_buffers(self) -> None:
        """Free the memory; the next read that continues makes the same lines again."""
        if self._sources:
            self._go_to(_Mark(self._begin, self._places(is_before_text=bool(self._text))))
        del self._marks[1:]
        self.buffer_bytes = 0

    def close(self) -> None:
        """Let go of buffers and segments."""
        if self._buffers is not None:
            self._buffers.begin(self)
            self._buffers.reserve(self, 0)
        self._text, self._sources = b"", []
        while self._pinned:
            resolved = self._pinned.pop()
            resolved.log.unpin(resolved.segments)

    def _go_to(self, mark: _Mark) -> None:
        self._text, self._begin, self._sources, self._next = b"", mark.begin, [], mark

    def _advance(self) -> bool:
        """Make the next round; False at the end."""
        if not self._sources:
            places = self._next.places
            self._sources = [
                _Source(part, self._view, offset, highest, self._piece_bytes)
                for part, offset, highest in zip(
                    self._parts, places[::2], places[1::2], strict=True
                )
            ]
        self._begin += len(self._text)
        self._text = b""
        if self._begin - self._marks[-1].begin >= self._spacing:
            self._mark()
        ahead = [source for source in self._sources if self._filled(source)]
        self._text = b"".join(self._merged(ahead)) if ahead else b""
        held = sum(source.buffer_bytes for source in self._sources)
        marks = 16 * len(self._parts) * len(self._marks)
        self.buffer_bytes = len(self._text) + held + marks
        return bool(ahead)

    def _filled(self, source: "_Source") -> bool:
        self.damaged = source.log
        is_filled = source.fill()  # raises for a damaged record
        self.damaged = None
        return is_filled

    def _mark(self) -> None:
        self._marks.append(_Mark(self._begin, self._places()))
        if len(self._marks) > self._most_marks:
            self._marks = self._marks[::2]
            self._spacing *= 2

    def _places(self, *, is_before_text: bool = False) -> Sequence[int]:
        """Return the places of all parts at the end of what was made, or before the text."""
        places = (source.place(is_before_text=is_before_text) for source in self._sources)
        return array("q", chain.from_iterable(places))

    def _merged(self, sources: Sequence["_Source"]) -> list[bytes]:
        """Take the lines that are certainly next, in their order; at least one.

        Args:
            sources: Each has a line that was not taken.
        """
        # What a source has not read yet comes after its last time; at its end nothing comes.
        bounds = [(source.times[-1], n) for n, source in enumerate(sources) if not source.is_last]
        bound, bounding = min(bounds, default=(None, 0))
        ends = [source.end(bound, is_inclusive=n <= bounding) for n, source in enumerate(sources)]
        found = [
            (source, end) for source, end in zip(sources, ends, strict=True) if end > source.at
        ]
        if any(source.is_long for source, _ in found):
            found = _up_to_long(found)
        times: list[int] = []
        lines: list[bytes] = []
        for source, end in found:
            self.damaged = source.log
            times += source.times[source.at : end]
            lines += source.lines(end)  # raises for a damaged record: nothing was taken yet
        self.damaged = None
        for source, end in found:
            source.at = end
        if len(found) < 2:
            return lines
        order = sorted(
            range(len(times)), key=times.__getitem__
        )  # stable: the lower partition first
        return list(map(lines.__getitem__, order))


def _up_to_long(found: Sequence[tuple["_Source", int]]) -> list[tuple["_Source", int]]:
    """End a round with the first long line: no two of them are in memory."""
    lines = [
        (time, n) for n, (source, end) in enumerate(found) for time in source.times[source.at : end]
    ]
    taken: Counter[int] = Counter()
    for _, number in sorted(lines, key=itemgetter(0)):
        taken[number] += 1
        if found[number][0].is_long:
            break
    return [
        (found[number][0], found[number][0].at + count) for number, count in sorted(taken.items())
    ]


class _Source:
    """The next lines of one partition, with the times by which they are merged.

    Attributes:
        at: How many of the lines were taken.
        buffer_bytes: How much memory its lines take.
        is_last: No lines come after these.
        is_long: There is one line, which is made when it is taken, because it is longer than a
            piece.
    """

    def __init__(
        self, part: MergedPart, view: View, offset: int, highest: int, piece_bytes: int
    ) -> None:
        resolved, self._stop = part.resolved, part.offsets.stop
        snapshot = resolved.snapshot
        assert snapshot is not None  # it is a fixed name
        self.log = resolved.log
        self._view = view
        self._highest = highest
        window_bytes = min(piece_bytes, _LARGEST_WINDOW)

        def reader_at(offset: int) -> RecordReader:
            return RecordReader(lambda: snapshot, offset, resolved.level, window_bytes=window_bytes)

        self._reader_at = reader_at
        self._reader = reader_at(offset)
        self._piece_bytes = piece_bytes
        line_bytes = resolved.size // len(part.offsets) + _LINE_BYTES
        self._count = max(1, piece_bytes // line_bytes)
        self._before = self._highest
        self._is_over = False
        self._offsets: list[int] = []
        self._lines: list[bytes] = []
        self._first = 0
        self.at = 0
        self.times: list[int] = []
        self.is_last = False
        self.is_long = False
        self._lines_bytes = 0

    @property
    def buffer_bytes(self) -> int:
        """How much memory it takes."""
        return self._lines_bytes + self._reader.buffer_bytes

    def fill(self) -> bool:
        """Have at least one line; False at the end."""
        self._first = self.at
        if self.at < len(self.times):
            return True
        if self._is_over:
            return False
        records = self._read()
        self._before = self._highest
        lines = self._cut(records, rendered(records, self._view)) if records else []
        self._offsets = list(map(_offset, records))
        merged_times = accumulate(map(_timestamp, records), max, initial=self._highest)
        self.times = list(merged_times)[1:]
        self._highest = self.times[-1] if records else self._highest
        self.is_long = len(lines) == 1 and len(lines[0]) > self._piece_bytes
        self._lines = [] if self.is_long else lines
        self._first = self.at = 0
        if self._reader.buffer_bytes > self._piece_bytes:
            self._reader.drop_buffers()
        self.is_last = self._reader.offset >= self._stop
        self._is_over = not records
        return bool(records)

    def _read(self) -> list[Record]:
        """Read records that are probably one piece."""
        reader, records, before = self._reader, list[Record](), -2
        while not records and before != reader.offset < self._stop:
            before = reader.offset
            records = reader.read(min(self._stop, max(before, 0) + self._count))
            if not records:
                self._count *= 2  # they were compacted away
        return records

    def _cut(self, records: list[Record], lines: list[bytes]) -> list[bytes]:
        """Leave what is more than a piece to the next ``fill``."""
        total = sum(map(len, lines)) + _LINE_BYTES * len(lines)
        if total > self._piece_bytes and len(lines) > 1:
            ends = list(accumulate(len(line) + _LINE_BYTES for line in lines))
            count = max(1, bisect_right(ends, self._piece_bytes))
            self._reader.go_back(records[count].offset)
            del records[count:], lines[count:]
            self._count, total = count, ends[count - 1]
        elif total < self._piece_bytes // 2:
            self._count *= 2
        self._lines_bytes = min(total, self._piece_bytes)
        return lines

    def end(self, bound: int | None, *, is_inclusive: bool) -> int:
        """Return the number of lines up to a time (None: all)."""
        if bound is None:
            return len(self.times)
        if is_inclusive:
            return bisect_right(self.times, bound, self.at)
        return bisect_left(self.times, bound, self.at)

    def lines(self, end: int) -> list[bytes]:
        """Return the lines from ``at`` to an end."""
        if not self.is_long:
            return self._lines[self.at : end]
        return rendered(self._reader_at(self._offsets[0]).read(self._offsets[0] + 1), self._view)

    def place(self, *, is_before_text: bool) -> tuple[int, int]:
        """Return the offset of the next line, or of the first of the last round.

        Returns:
            It, and the highest time before it.
        """
        at = self._first if is_before_text else self.at
        if at == len(self.times):
            return max(self._reader.offset, 0), self._highest
        return self._offsets[at], self.times[at - 1] if at else self._before
