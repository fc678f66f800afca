"""What one open file reads: the rule around holes, and files that never change.

A *growing* file has positions for ever, so it may have holes. The rule, per open file: a read that
starts where the last reply ended (or at 0 after open) fills its buffer across holes; a read after a
seek returns only what is kept inside [offset, offset + size) or, if nothing is, begins the next
kept record: up to its newline and no further, so that a program that reads lines backwards (tail)
does not count them again in every window of a hole. So cat prints what is kept, and a program that
starts at the end never replays.

A *fixed* file is dense: the kept bytes of its range one after the other, from 0 to its size.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.disk.waiting import WouldWaitError
from logfs.errors import CorruptRecordError
from logfs.log.reading.address import AtByte, AtOffset, Moment
from logfs.log.reading.places import PlainPlace
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.reader import TextReader
from logfs.services.views.buffers import Buffers
from logfs.services.views.resolve import Limit, Resolved, growing_end
from logfs.types import IsolationLevel, View


class _RenderedFile:
    """What both kinds of file share: a reader, and whether it may wait for the disk.

    Attributes:
        would_block: The last read needs the disk: set ``may_block`` and read what is missing,
            after the bytes it returned.
        ended_by: See ``TextReader``.
    """

    def __init__(self, reader: TextReader, buffers: Buffers | None) -> None:
        self._reader = reader
        self._buffers = buffers
        self.would_block = False
        self.ended_by: OSError | None = None

    def read_into(self, out: memoryview, offset: int) -> int:
        """Read as the class says.

        Args:
            out: Its length is the size that is asked for.

        Returns:
            The number of bytes, 0 at the end; fewer than there are if ``would_block``.

        Raises:
            CorruptRecordError: The first byte to return cannot be decoded.
        """
        buffers, self.ended_by = self._buffers, None
        if buffers is None:
            return self._read_into(out, offset)
        buffers.begin(self._reader)
        try:
            return self._read_into(out, offset)
        finally:
            buffers.end(self._reader)

    def _read_into(self, out: memoryview, offset: int) -> int:
        raise NotImplementedError

    def _read_good(self, out: memoryview, done: int, end: int) -> int:
        """Read after what a reply holds already; what fails there is left to the next reply."""
        reader = self._reader
        try:
            got = reader.read_into(out[done:], end)
        except (CorruptRecordError, OSError) as error:
            if not done:
                raise
            self.ended_by = error if isinstance(error, OSError) else None
            return 0
        self.ended_by = reader.ended_by
        return got

    @property
    def may_block(self) -> bool:
        """Whether a read may wait for the disk."""
        return self._reader.may_block

    @may_block.setter
    def may_block(self, may_block: bool) -> None:
        self._reader.may_block = may_block

    def close(self) -> None:
        """Let go of files and buffers."""
        if self._buffers is not None:
            self._buffers.begin(self._reader)
        self._reader.close()


class Passage(NamedTuple):
    """A read of a growing file that passed a hole: from there on, byte and position differ more.

    Attributes:
        offset: The byte of the file where it began.
        position: The position that it was read from.
        end_offset: The byte after the last one that it returned.
        end_position: The position after it; the reads that follow continue there.
    """

    offset: int
    position: int
    end_offset: int
    end_position: int


class GrowingFile(_RenderedFile):
    """One open growing name. One read at a time.

    Args:
        start: Position at which the file begins.
        limit: The limit at which it ends once that is reached; None: none.
        level: The isolation level: up to where records are seen, and whether aborted records are.
        buffers: Limits the memory that it keeps between two reads; None: nothing does.

    Attributes:
        note_passage: Called when a read has passed a hole, or has gone back to where bytes and
            positions differ as they did at first; before its bytes are returned. None: it is not.
        notes_all: Call it for each read.
    """

    def __init__(
        self,
        log: ReadableLog,
        view: View,
        start: int,
        limit: Limit | None = None,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        buffers: Buffers | None = None,
    ) -> None:
        state = log.state
        super().__init__(TextReader(view, lambda: state.snapshot, level), buffers)
        self._log = log
        self._state = state
        self._view = view
        self._level = level
        self._start = start
        self._limit = limit
        self._next_offset = 0
        self._position = start
        self._before = (0, start)
        self._seen_start = state.snapshot.start.positions[view]
        self.note_passage: Callable[[Passage], None] | None = None
        self.notes_all = False
        self._noted_shift = start
        self._earlier: Sequence[Passage] = ()

    def end(self) -> int:
        """Return the position at which the file ends now."""
        snapshot = self._state.snapshot
        end = snapshot.end_position(self._level, self._view)
        if self._limit is None:
            return end
        found = growing_end(snapshot, self._view, self._limit, self._level)
        if found < end:
            # Reached: from now on it stays there, also if records are removed.
            self._limit = AtByte(found)
        return found

    def size(self) -> int:
        """Return the length of the file: positions, so holes count."""
        return max(self.end() - self._start, 0)

    def seen_end(self) -> int:
        """Return the position at which what is seen of the log ends, beyond a TO as well."""
        return self._state.snapshot.end_position(self._level, self._view)

    def is_over(self, now_ms: int) -> bool:
        """Whether nothing can come after the end: TO has been reached, or the log is deleted."""
        if self._state.is_deleted:
            return True
        match self._limit:
            case AtByte(n):
                return n <= self.seen_end()
            case AtOffset(n):
                return n <= self._state.snapshot.visible_end(self._level).offset
            case Moment(timestamp_ms):
                return timestamp_ms <= now_ms
        return False

    def is_over_at_ms(self) -> int | None:
        """Return the time at which it is over in any case; None if there is none."""
        return self._limit.timestamp_ms if isinstance(self._limit, Moment) else None

    def has_more(self) -> bool:
        """Whether a read that continues where the last one ended would find something."""
        try:
            return (
                self._reader.is_inside_record or self._reader.next_kept(self._position) < self.end()
            )
        except WouldWaitError:
            return True

    def _read_into(self, out: memoryview, offset: int) -> int:
        """Read as the rule above says."""
        end = self.end()
        self.would_block = False
        try:
            if self._earlier:
                self._go_on_from(offset, end)
            if offset == self._next_offset:
                position, done = self._fill(out, self._position, end)
                if position - self._position > done:
                    self._note_expired(position - self._position - done)
            else:
                position, done = self._fill_inside(out, self._start + offset, end)
                if self.would_block:
                    return 0  # what is kept inside the window is found again
        except WouldWaitError:
            self.would_block = True
            return 0
        self._before = self._next_offset, self._position
        self._next_offset, self._position = offset + done, position
        if position - offset - done != self._noted_shift or self.notes_all:
            self._note_passage(offset)
        if not done and not self.would_block:
            self._reader.rest()  # the next read may be a long time coming
        return done

    def unread_end(self, size: int) -> bool:
        """Take back the last bytes of the last read; False, and nothing, if that cannot be.

        It cannot if the read passed a hole, or where those bytes are not kept any more.
        """
        offset, position = self._before
        if self._next_offset - offset != self._position - position:
            return False
        if not size:
            return True
        reader = TextReader(self._view, lambda: self._state.snapshot, self._level, may_block=False)
        reader.position = self._position - size
        if not reader.enter():
            return False
        reader.drop_buffers()
        if self._buffers is not None:
            self._buffers.begin(self._reader)
        self._reader.close()
        self._reader = reader
        self._next_offset -= size
        self._position -= size
        return True

    @property
    def view(self) -> View:
        """The rendering."""
        return self._view

    def plain_place(self) -> PlainPlace | None:
        """Return where the next read continues, for a native reader; None: not possible."""
        if (
            self._limit is not None
            or (self._level is not IsolationLevel.READ_UNCOMMITTED or self.notes_all)
            or (self._earlier or self.would_block or self._next_offset < 0)
        ):
            return None
        return self._reader.plain_place(self._position)

    def leave_place(self, place: PlainPlace) -> None:
        """Leave the reads from ``plain_place`` on to another reader, until ``go_on``."""
        if self._buffers is not None:
            self._buffers.begin(self._reader)
        self._reader.leave_place(place, self._position)

    def go_on(self, size: int, numbers: tuple[int, int, int, int]) -> None:
        """Continue after what another reader has read; see ``TextReader.go_on``."""
        self._before = self._next_offset, self._position
        self._next_offset += size
        self._position += size
        self._reader.go_on(size, numbers)

    def resume(self, passages: Sequence[Passage]) -> None:
        """Continue for a program that had the file open in an earlier process.

        Args:
            passages: The last ones that were noted there, in their order.
        """
        if passages:
            self._earlier = passages
            self._next_offset, self._position = passages[-1][2:]
            self._noted_shift = self._position - self._next_offset

    def _go_on_from(self, offset: int, end: int) -> None:
        """Find the place of a byte that an earlier process may have returned, or was to return."""
        earlier = [passage for passage in self._earlier if passage.offset <= offset]
        if earlier:
            begin, position, end_offset, end_position = earlier[-1]
            if offset >= end_offset:
                begin, position = offset, end_position + offset - end_offset
            if position <= end:
                passed, left = position, offset - begin
                if left:
                    passed, left = self._pass(position, left, end)
                if not left:
                    self._next_offset, self._position = offset, passed
        self._earlier = ()

    def _pass(self, position: int, size: int, end: int) -> tuple[int, int]:
        """Pass over kept bytes; returns the position after them, and how many were missing.

        Raises:
            WouldWaitError: That has to wait for the disk.
        """
        scratch = memoryview(bytearray(size))
        position, done = self._fill(scratch, position, end)
        if self.would_block:
            raise WouldWaitError(f"position {position}")
        return position, size - done

    def begin_anew(self) -> None:
        """Take the next read as one after a seek, wherever it begins."""
        self._next_offset = -1

    def note_place(self) -> None:
        """Note where the next read continues, and where each one does from now on."""
        self.notes_all = True
        self._note_passage(-1)

    def _note_passage(self, offset: int) -> None:
        begin, end = self._before, (self._next_offset, self._position)
        self._noted_shift = self._position - self._next_offset
        if begin[0] != offset:
            begin = end  # it was after a seek: a read that is repeated finds the same again
        if self.note_passage is not None:
            self.note_passage(Passage(*begin, *end))

    def _note_expired(self, passed_over: int) -> None:
        """Note what of a hole was deleted since the file was opened: it would have been read."""
        start = self._state.snapshot.start.positions[self._view]
        missed = min(passed_over, start - max(self._position, self._seen_start))
        self._seen_start = start
        if missed > 0:
            self._log.note_expired(self._view, start - missed, missed)

    def _fill_inside(self, out: memoryview, position: int, end: int) -> tuple[int, int]:
        """Read what is kept inside the window a seek went to, or begin the next kept record."""
        kept = self._reader.next_kept(position)
        if kept >= position + len(out):
            return self._begin_record(out, kept, end)
        stop = min(position + len(out), end)
        position, done = self._fill(out, position, stop)
        # A record that cannot be read is kept, too: the next read begins there.
        if position < stop and not self.would_block and self._reader.next_kept(position) >= stop:
            position = stop
        return position, done

    def _begin_record(self, out: memoryview, kept: int, end: int) -> tuple[int, int]:
        """Read the next kept record up to its newline, or just that if it begins with it."""
        _, done = self._fill(out, kept, min(kept + len(out), end))
        newline = bytes(out[:done]).find(b"\n")
        if newline >= 0:
            done = max(newline, 1)
        return kept + done, done

    def _fill(self, out: memoryview, position: int, end: int) -> tuple[int, int]:
        """Fill a buffer with kept bytes of [position, end), across holes."""
        reader, done, room = self._reader, 0, len(out)
        if reader.position != position:
            reader.seek(position)
        try:
            while done < room and reader.position < end:
                got = self._read_good(out, done, end)
                done += got
                if reader.would_block:
                    self.would_block = True
                    break
                if self.ended_by is not None or (got == 0 and not self._skip_hole(end)):
                    break
        except WouldWaitError:
            self.would_block = True
        return reader.position, done

    def _skip_hole(self, end: int) -> bool:
        position = self._reader.position
        return position < self._reader.seek(position) < end


class FixedFile(_RenderedFile):
    """One open fixed name. One read at a time; pin its segments while it is open.

    A read returns fewer bytes than asked for only at the end or before damage. Args as those of
    ``GrowingFile``.
    """

    def __init__(self, resolved: Resolved, buffers: Buffers | None = None) -> None:
        snapshot = resolved.snapshot
        if snapshot is None:
            raise ValueError("a growing name is not a fixed file")
        super().__init__(TextReader(resolved.view, lambda: snapshot), buffers)
        self._runs = resolved.runs
        self._ends = list(accumulate(end - start for start, end in resolved.runs))

    def size(self) -> int:
        """Return the length of the file."""
        return self._ends[-1] if self._ends else 0

    def _read_into(self, out: memoryview, offset: int) -> int:
        done, reader = 0, self._reader
        self.would_block = False
        while done < len(out) and offset + done < self.size():
            start, position, end = self._place(offset + done)
            if reader.position != position or position == start:
                reader.seek(position)
            got = self._read_good(out, done, end)
            done += got
            if reader.would_block:
                self.would_block = True
                break
            if self.ended_by is not None or got == 0:
                break
        return done

    def begin_near(self, offset: int) -> int:
        """Return an offset at or before one, inside the file, at which reading begins at once."""
        start, position, _ = self._place(offset)
        return offset - position + max(start, self._reader.begin_near(position))

    def _place(self, offset: int) -> tuple[int, int, int]:
        """Return the position of a byte of the file, between begin and end of its run."""
        number = bisect_right(self._ends, offset)
        start, end = self._runs[number]
        return start, end - (self._ends[number] - offset), end


class RawFile:
    """One open file of a partition directory, byte for byte, as it lies on the disk."""

    def __init__(self, disk: Disk, name: str, *, uncached: bool = False) -> None:
        self._file = disk.open(name, uncached=uncached)
        self.may_block = True
        self.would_block = False
        self.ended_by: OSError | None = None

    def size(self) -> int:
        """Return its length now."""
        return self._file.size()

    def inode(self) -> int:
        """Return which file of the disk it is."""
        return self._file.inode()

    def fileno(self) -> int:
        """Return the descriptor, for the kernel to read it by itself; -1 if it has none."""
        return self._file.fileno()

    def read_into(self, out: memoryview, offset: int) -> int:
        """Read bytes from an offset; 0 at the end."""
        self.would_block = False
        if self.may_block:
            return self._file.pread_into(out, offset)
        wanted = min(len(out), self._file.size() - offset)
        if wanted <= 0:
            return 0
        got = self._file.pread_nowait_into(out[:wanted], offset)
        self.would_block = got is None or got < wanted
        return got or 0

    def close(self) -> None:
        """Close it."""
        self._file.close()
