"""The records of several partitions as one file, merged by time: what ``orders@-1h`` reads.

A record is merged as if it had the largest timestamp of those before it in the range, so the order
of each partition is kept. Among equal times the lower partition is first. So the bytes depend on
the range alone, and the file is as long as the files of its partitions together.

The file is made from its start to its end, a round at a time: what is certainly next in a window of
records of each partition. A read goes on where the last one ended without any search. One before
that begins again at the nearest *mark*, a place whose offsets were noted; one after it makes what
is between. So ``tail`` works, but takes as long as ``cat``.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from logfs.errors import CorruptRecordError
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.records import RecordReader
from logfs.log.reading.rendering import rendered
from logfs.log.reading.resolve import Resolved
from logfs.types import View

MERGED_BYTES = 16 << 20
"""How much of the logs is in memory for an open file, unless batches are larger."""
_SMALLEST_WINDOW, _LARGEST_WINDOW = 16 << 10, 256 << 10
MARK_BYTES = 8 << 20
"""How far the first marks are from each other."""
MARKS = 64
"""The most marks of a file; then every other one is dropped, and they are twice as far apart."""

_offset, _timestamp = itemgetter(0), itemgetter(1)


class MergedPart(NamedTuple):
    """What a merged file has of one partition; see ``resolve_records``."""

    resolved: Resolved
    offsets: range


class _Mark(NamedTuple):
    """A place in the file: where it is, and the (offset, highest time before it) of each part."""

    begin: int
    places: tuple[tuple[int, int], ...]


class MergedFile:
    """One open merged file. One read at a time; its segments stay readable until it is closed.

    A read returns fewer bytes than asked for only at the end or before damage.

    Args:
        parts: What it has of each partition, in the order of their numbers.

    Attributes:
        may_block: Whether a read may wait for the disk.
        would_block: The last read may have to wait: set ``may_block`` and read again.
        damaged: The log whose damage the last read met; None: it met none.
        ended_by: See ``TextReader``.

    Raises:
        DeletedError: The files of a segment are gone.
    """

    def __init__(self, parts: Sequence[MergedPart], view: View) -> None:
        self._parts = [part for part in parts if part.offsets]
        self._view = view
        self._size = sum(part.resolved.size for part in self._parts)
        fair = MERGED_BYTES // max(len(self._parts), 1)
        self._window_bytes = min(_LARGEST_WINDOW, max(_SMALLEST_WINDOW, fair))
        self._text = b""
        self._begin = 0
        self._spacing = MARK_BYTES
        start = tuple((part.offsets.start, -1) for part in self._parts)
        self._marks = [_Mark(0, start)]
        self._sources: list[_Source] = []
        self._pinned: list[Resolved] = []
        self.may_block = True
        self.would_block = False
        self.ended_by: OSError | None = None
        self.damaged: ReadableLog | None = None
        try:
            for part in self._parts:
                part.resolved.log.pin(part.resolved.segments)
                self._pinned.append(part.resolved)
        except BaseException:
            self.close()
            raise
        self._go_to(self._marks[0])

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
            except (CorruptRecordError, OSError) as error:
                if not done:
                    raise  # else the next read, which begins there, says so
                self.ended_by = error if isinstance(error, OSError) else None
                break
        return done

    def close(self) -> None:
        """Let go of buffers and segments."""
        self._text, self._sources = b"", []
        while self._pinned:
            resolved = self._pinned.pop()
            resolved.log.unpin(resolved.segments)

    def _go_to(self, mark: _Mark) -> None:
        self._text, self._begin = b"", mark.begin
        self._sources = [
            _Source(part, self._view, place, self._window_bytes)
            for part, place in zip(self._parts, mark.places, strict=True)
        ]

    def _advance(self) -> bool:
        """Make the next round; False at the end."""
        ahead = [source for source in self._sources if self._filled(source)]
        if not ahead:
            return False
        self._begin += len(self._text)
        self._text = b""
        if self._begin - self._marks[-1].begin >= self._spacing:
            self._mark()
        self._text = b"".join(_merged(ahead))
        return True

    def _filled(self, source: "_Source") -> bool:
        self.damaged = source.log
        is_filled = source.fill()  # raises for a damaged record
        self.damaged = None
        return is_filled

    def _mark(self) -> None:
        places = tuple(source.place() for source in self._sources)
        self._marks.append(_Mark(self._begin, places))
        if len(self._marks) > MARKS:
            self._marks = self._marks[::2]
            self._spacing *= 2


def _merged(sources: Sequence["_Source"]) -> list[bytes]:
    """Take the lines that are certainly next, in their order; at least one.

    Args:
        sources: Each has a line that was not taken.
    """
    # What a source has not read yet comes after its last time; at its end nothing comes.
    bounds = [(source.times[-1], n) for n, source in enumerate(sources) if not source.is_last]
    bound, bounding = min(bounds, default=(None, 0))
    times: list[int] = []
    lines: list[bytes] = []
    parts = 0
    for number, source in enumerate(sources):
        found = source.take(bound, is_inclusive=number <= bounding)
        if found is not None:
            times += found[0]
            lines += found[1]
            parts += 1
    if parts < 2:
        return lines
    order = sorted(range(len(times)), key=times.__getitem__)  # stable: the lower partition first
    return list(map(lines.__getitem__, order))


class _Source:
    """The next lines of one partition, with the times by which they are merged."""

    def __init__(
        self, part: MergedPart, view: View, place: tuple[int, int], window_bytes: int
    ) -> None:
        resolved, self._stop = part.resolved, part.offsets.stop
        snapshot = resolved.snapshot
        assert snapshot is not None  # it is a fixed name
        self.log = resolved.log
        self._view = view
        offset, self._highest = place
        self._reader = RecordReader(
            lambda: snapshot, offset, resolved.level, window_bytes=window_bytes
        )
        self._before = self._highest
        self._is_over = False
        self._at = 0
        self._offsets: list[int] = []
        self._lines: list[bytes] = []
        self.times: list[int] = []
        self.is_last = False

    def fill(self) -> bool:
        """Have at least one line; False at the end."""
        if self._at < len(self.times):
            return True
        if self._is_over:
            return False
        records = self._reader.read(self._stop)
        self._before = self._highest
        self._offsets = list(map(_offset, records))
        merged_times = accumulate(map(_timestamp, records), max, initial=self._highest)
        self.times = list(merged_times)[1:]
        self._highest = self.times[-1] if records else self._highest
        self._lines = rendered(records, self._view) if records else []
        self._at = 0
        self.is_last = self._reader.offset >= self._stop
        self._is_over = not records
        return bool(records)

    def take(
        self, bound: int | None, *, is_inclusive: bool
    ) -> tuple[list[int], list[bytes]] | None:
        """Return the times and lines up to a time (None: all) as taken; None without any."""
        begin = self._at
        if bound is None:
            self._at = len(self.times)
        elif is_inclusive:
            self._at = bisect_right(self.times, bound, begin)
        else:
            self._at = bisect_left(self.times, bound, begin)
        if begin == self._at:
            return None
        return self.times[begin : self._at], self._lines[begin : self._at]

    def place(self) -> tuple[int, int]:
        """Return the offset of the next line, and the highest time before it."""
        if self._at == len(self.times):
            return max(self._reader.offset, 0), self._highest
        return self._offsets[self._at], self.times[self._at - 1] if self._at else self._before
