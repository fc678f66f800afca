"""The batches of a ``.log``, read a piece at a time.

The verdict on a batch has one home, ``judge`` in ``logfs/records/_verdict.pxi``. A batch is used if
all of it is there, its header makes sense, and its offsets are not below the end of the batch
before it. Its checksum and its records are checked where they are read. One that is not used
although its checksum is right is *refused*. It is no torn write, so it stays, in a place of its
size in each view. A read of that place is an error, and a look-up passes it over. A batch that is
too far from the base offset of its segment for an index entry is used without; a store that may
write splits the segment.

Two kinds of callers ask for the verdict. ``Window`` holds whole batches that are used, and
``BatchWalk`` goes through a file window by window. Look-ups, renderings and everything that
searches read the log in this way. ``Chunks`` holds plain bytes, and ``read_pieces`` hands them to a
function that says how many it has used. Recovery, followers, verify, compaction and packing read in
this way, since their native loops have to see damaged batches, too. The cursor of
``reading/_cursor.h`` leaves all that is not plain to the other readers.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError
from logfs.log.segments.segment import Segment
from logfs.records._indexing import IndexBuilder
from logfs.records._reading import (
    aborted_ranges,
    has_right_checksum,
    header_last_offset,
    header_ok,
    measure,
    whole_batches,
)
from logfs.records._rendering import BatchMarks
from logfs.records.batch import BatchHeader, decode_header, decode_records
from logfs.records.compression import Buffer, decompress
from logfs.records.layout import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_OFFSET,
    SHORTEST_BATCH_BYTES,
    UP_TO_MAGIC_BYTES,
    size_of,
)
from logfs.records.record import Record
from logfs.types import Positions

SEQUENTIAL_BYTES = 512 * 1024
"""Window of a reader that continues: large enough to amortise the call, small enough for caches."""
LOOKUP_BYTES = 16 * 1024
"""Window of a look-up: an index interval and the batch that crosses its end."""
_MOST_KEPT_BYTES = 4 * 1024 * 1024
"""A larger buffer is freed once its batch was read, unless the next one is as large."""
INCOMPLETE = "incomplete"
"""Problem of an ``IndexBuilder``: the bytes end inside a batch."""
CHUNK_BYTES = 1024 * 1024
"""Chunk of a scan over a whole file."""


class RefusedBatchError(CorruptRecordError):
    """A batch is refused although its checksum is right."""


class Window:
    """A buffer that holds the bytes ``[file_position, file_position + stop)`` of a log.

    Or a part of the records of one batch, as a batch; see ``load_part``.

    Attributes:
        buffer: The bytes; those after ``stop`` mean nothing.
        file_position: Where in the ``.log`` the buffer begins.
        stop: Number of bytes, whole batches only.
        after: The offset after the last of them.
    """

    __slots__ = ("_begin", "_inode", "_part", "after", "buffer", "file_position", "stop")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.file_position = self.stop = self.after = 0
        self._inode = -1  # a window does not keep the file open
        self._begin = 0, 0
        self._part: tuple[BatchMarks, int, int] | None = None

    @property
    def file_end(self) -> int:
        """File position after the last batch."""
        if self._part is None:
            return self.file_position + self.stop
        marks = self._part[0]
        return self.file_position + marks.at(marks.last)

    def file_place(self, at: int) -> int:
        """Return the file position of a batch at a position of the buffer, or of its end."""
        if self._part is None or not at:
            return self.file_position + at
        return self.file_position if self.is_cut else self.file_end

    @property
    def passed(self) -> int:
        """Length of the rendering of the records of the first batch that are not held."""
        return 0 if self._part is None else self._part[0].before(self._part[1])

    @property
    def is_cut(self) -> bool:
        """Whether the batch has records after those that are held."""
        return self._part is not None and self._part[2] < self._part[0].last

    def load(
        self,
        log: File,
        position: int,
        file_end: int,
        chunk: int,
        may_block: bool,
        after: int = 0,
    ) -> bool:
        """Read whole batches from ``position`` on, at least one and about ``chunk`` bytes.

        Args:
            chunk: Bytes to read at least, if there are as many.
            may_block: False: read only what is in the page cache.
            after: The offset after the batches before, if they were read elsewhere.

        Returns:
            False if the bytes are not in the page cache and the call may not block; the window is
            unchanged then.

        Raises:
            RefusedBatchError: A batch is at ``position`` that is refused there.
            CorruptRecordError: No whole batch is at ``position``. One after it that is damaged
                or refused ends the window.
        """
        begin = position, after
        inode = log.inode()
        if inode == self._inode and position >= self.file_end:
            begin, after = self._begin, max(after, self.after)
        _check_begins(position, file_end)
        size = min(chunk, file_end - position)
        buffer = self._room(size)
        found, damage = _fill_up_to_damage(log, buffer, size, position, may_block)
        if not found:
            return False
        size = found
        stop, end, problem = whole_batches(buffer, 0, size, after)
        if stop == 0 and problem is None:
            if damage is not None:
                raise damage
            size = _first_batch_bytes(buffer, found, position, file_end)
            buffer = _with_room(buffer, found, size)
            if size > found and not _fill(log, buffer, found, size, position, may_block):
                return False
            stop, end, problem = whole_batches(buffer, 0, size, after)
        if stop == 0 and whole_batches(buffer, 0, size, 0)[0]:
            # It goes back, but perhaps only below what a damaged batch claims.
            if not may_block:
                return False
            after = end_of_sound(log, *begin, position)
            stop, end, problem = whole_batches(buffer, 0, size, after)
        if stop == 0:
            raise _unusable(buffer, size, position, problem)
        if len(buffer) > _MOST_KEPT_BYTES >= max(size, stop):
            buffer = buffer[: max(size, stop)]  # gives back the memory of a large batch before it
        self.buffer, self.file_position, self.stop = buffer, position, stop
        self._inode, self.after, self._part, self._begin = inode, end, None, begin
        return True

    def load_part(
        self, log: File, position: int, part: tuple[BatchMarks, int, int], may_block: bool
    ) -> bool:
        """Read the records between two marks of the batch at ``position``.

        Args:
            part: The marks of the batch, and the numbers of the two.
            may_block: See ``load``.

        Returns:
            See ``load``.

        Raises:
            CorruptRecordError: They are not the bytes that were marked.
        """
        marks, first, last = part
        begin, end = marks.at(first), marks.at(last)
        size = HEADER_BYTES + end - begin
        buffer = self._room(size)
        if not _fill(log, buffer, HEADER_BYTES, size, position + begin - HEADER_BYTES, may_block):
            return False
        if not marks.make_batch(buffer, first, last):
            raise CorruptRecordError(f"the batch at byte {position} has changed", position)
        self.buffer, self.file_position, self.stop = buffer, position, size
        self._inode, self._part, self._begin = log.inode(), part, (position, 0)
        self.after = header_last_offset(buffer, 0) + 1
        return True

    def take_buffer(self) -> bytearray:
        """Return the buffer; the next load uses another one."""
        taken, self.buffer = self.buffer, bytearray(len(self.buffer))
        return taken

    def _room(self, size: int) -> bytearray:
        return self.buffer if len(self.buffer) >= size else bytearray(size)


class BatchWalk(Window):
    """The batches of a ``.log`` from a file position on: ``for window in walk``.

    The window is the walk itself, valid until the next one is read. To pass over damage set
    ``position`` and walk on: the walk continues there, also after an error.

    Args:
        chunk: Bytes of the first window, about.
        next_chunk: Bytes of the windows after it; None: as many.
        segment: Whose file it is; errors name it.
        after: The offset after the batches before ``position``; 0 if it is not known.
        ends_at_refused: Raise RefusedBatchError for a batch that is refused, instead of passing it
            over.
    """

    __slots__ = (
        "_chunk",
        "_ends_at_refused",
        "_file",
        "_file_end",
        "_next_chunk",
        "_segment",
        "position",
    )

    def __init__(  # noqa: PLR0913 - most of them are rarely given
        self,
        log: File,
        position: int,
        file_end: int,
        chunk: int = SEQUENTIAL_BYTES,
        *,
        next_chunk: int | None = None,
        segment: Segment | None = None,
        after: int = 0,
        ends_at_refused: bool = False,
    ) -> None:
        super().__init__()
        self._file = log
        self._file_end = file_end
        self._chunk = chunk
        self._next_chunk = chunk if next_chunk is None else next_chunk
        self._segment = segment
        self._ends_at_refused = ends_at_refused
        self.position = position
        self.after = after
        if segment is not None and position == 0:
            self.after = segment.base_offset

    def __iter__(self) -> Iterator[Window]:
        """Read window after window; raise CorruptRecordError without a whole batch."""
        return self

    def __next__(self) -> Window:
        """Read the next window; see ``__iter__``."""
        while self.position < self._file_end:
            try:
                self.load(self._file, self.position, self._file_end, self._chunk, True, self.after)
            except CorruptRecordError as error:
                if isinstance(error, RefusedBatchError) and not self._ends_at_refused:
                    self.position += error.size_bytes
                    continue
                if self._segment is not None:
                    error.name_file(self._segment.name)
                raise
            self.position += self.stop
            self._chunk = self._next_chunk
            return self
        raise StopIteration


class FoundBatch(NamedTuple):
    """A batch in a buffer, which the next one overwrites."""

    header: BatchHeader
    buffer: Buffer
    start: int

    def records(self) -> list[Record]:
        """Decode its records, a control record included; raise CorruptRecordError."""
        return decode_records(self.buffer, self.start)

    def is_seen(self, aborted: bytes) -> bool:
        """Whether consumers see its records: no control batch, and not in ``transaction_table``."""
        header = self.header
        if header.is_control or not aborted:
            return not header.is_control
        return not aborted_ranges(self.buffer, self.start, self.start + header.size_bytes, aborted)


def batches_from(walk: BatchWalk) -> Iterator[FoundBatch]:
    """Read batches one by one, for rare look-ups of headers; raise CorruptRecordError."""
    for window in walk:
        at = 0
        while at < window.stop:
            header = decode_header(window.buffer, at)
            yield FoundBatch(header, window.buffer, at)
            at += header.size_bytes


def read_exactly(log: File, size: int, position: int) -> bytes:
    """Return bytes of a ``.log``; raise CorruptRecordError if the file ends before."""
    data = log.pread(size, position)
    if len(data) < size:
        raise _too_short(position + len(data), position + size)
    return data


class Chunks:
    """The bytes of a file in chunks; each begins where the reader says.

    Every byte is read once: bytes that were not used up, since the end of a chunk cuts a batch,
    move to the start of the next chunk.

    Args:
        chunk_bytes: How many bytes to read at once; more only for a batch that is larger.

    Attributes:
        data: The bytes of the present chunk begin at 0.
        is_cut: It is shorter than it should be: the file was made shorter meanwhile.
    """

    def __init__(self, log: File, stop: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._log = log
        self._stop = stop
        self._chunk_bytes = chunk_bytes
        self.data = bytearray(max(0, min(chunk_bytes, stop)))
        self.is_cut = False
        self._start = self._size = 0

    def read(self, position: int, wanted: int = 0) -> int:
        """Take the chunk at a file position, with room for ``wanted`` bytes; return its size."""
        kept = self._start + self._size - position
        if position < self._start or kept < 0:
            kept = 0
        old = memoryview(self.data)[self._size - kept : self._size]
        if wanted > len(self.data):
            self.data = bytearray(-(-wanted // self._chunk_bytes) * self._chunk_bytes)
        with memoryview(self.data) as room:
            room[:kept] = old
            end = max(kept, min(len(room), self._stop - position))
            got = self._log.pread_into(room[kept:end], position + kept)
        self.is_cut = kept + got < end
        self._start, self._size = position, kept + got
        return self._size


class BatchFeed:
    """Feeds a ``.log`` to an ``IndexBuilder``, chunk by chunk, from where the builder is.

    Args:
        builder: Its ``file_position`` may be moved between two chunks, to pass over damage.

    Attributes:
        chunks: The bytes fed last.
        problem: Why the builder cannot continue; None if it can.
    """

    def __init__(self, log: File, builder: IndexBuilder, stop: int) -> None:
        self.chunks = Chunks(log, stop)
        self.problem: str | None = None
        self._builder = builder
        self._stop = stop
        self._wanted = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to feed."""
        return self._builder.file_position >= self._stop

    def feed(self) -> int:
        """Feed the next chunk; returns how many of its bytes the builder has used."""
        builder, chunks = self._builder, self.chunks
        try:
            size = chunks.read(builder.file_position, self._wanted)
        except CorruptRecordError as error:  # the bytes themselves cannot be read
            self.problem = error.message
            return 0
        used = builder.feed(chunks.data, 0, size, True)
        self.problem = builder.problem
        if self.problem == INCOMPLETE and not chunks.is_cut:
            self._wanted = max(builder.wanted, UP_TO_MAGIC_BYTES + 1)
            if builder.file_position + self._wanted <= self._stop:
                self.problem = None
        return used


def read_pieces(
    log: File,
    name: str,
    size_bytes: int,
    piece_bytes: int,
    take: Callable[[bytearray, int], int | None],
) -> int:
    """Read the batches of a log and pass them on, piece by piece.

    Args:
        name: Its name, for messages.
        take: Called with a buffer that starts with a batch, and the number of valid bytes in it.
            Returns how many bytes it has processed, in whole batches; None to end.

    Returns:
        How many bytes were processed.

    Raises:
        CorruptRecordError: A batch is cut off, or ``take`` found it damaged; with file and
            position.
    """
    chunks, position, wanted = Chunks(log, size_bytes, piece_bytes), 0, 0
    while position < size_bytes:
        size = chunks.read(position, wanted)
        if chunks.is_cut:
            raise CorruptRecordError(
                f"{name}: it ends before byte {min(position + len(chunks.data), size_bytes)}",
                position,
            )
        try:
            used = take(chunks.data, size)
        except CorruptRecordError as error:
            at = position + (error.position or 0)
            raise CorruptRecordError(f"{name} at byte {at}: {error}", at, name) from error
        if used is None:
            break
        position += used
        if used:
            continue
        wanted = size_of(chunks.data)
        if wanted <= size or wanted > size_bytes - position:
            raise CorruptRecordError(
                f"{name} at byte {position}: a batch of {wanted} bytes is cut", position, name
            )
    return position


def _fill(
    log: File, buffer: bytearray, start: int, stop: int, position: int, may_block: bool
) -> bool:
    view = memoryview(buffer)
    if not may_block:
        got = log.pread_nowait_into(view[start:stop], position + start)
        return got is not None and got == stop - start
    got = log.pread_into(view[start:stop], position + start)
    if got < stop - start:
        log.pread(1, position + start + got)  # raises if the file continues and cannot be read
        raise _too_short(position + start + got, position + stop)
    return True


def _fill_up_to_damage(
    log: File, buffer: bytearray, size: int, position: int, may_block: bool
) -> tuple[int, CorruptRecordError | None]:
    """Fill a buffer, up to bytes that cannot be read; returns its bytes, and what is wrong then.

    Returns no bytes if the call would block.
    """
    try:
        is_full = _fill(log, buffer, 0, size, position, may_block)
    except CorruptRecordError as error:
        damaged = error.position or 0
        if not (error.size_bytes and position < damaged < position + size):
            raise
        return damaged - position, error
    return (size if is_full else 0), None


def _too_short(end: int, expected: int) -> CorruptRecordError:
    return CorruptRecordError(f"the log ends at byte {end}, expected {expected}", end)


def _check_begins(position: int, file_end: int) -> None:
    if not 0 <= position < file_end:
        raise CorruptRecordError(
            f"no batch begins at byte {position}: the log ends at byte {file_end}", position
        )


def _with_room(buffer: bytearray, kept: int, size: int) -> bytearray:
    """Return a buffer with room for a number of bytes that begins with those of another one."""
    if size <= len(buffer):
        return buffer
    larger = bytearray(size)
    larger[:kept] = memoryview(buffer)[:kept]
    return larger


def _unusable(
    buffer: bytearray, size: int, position: int, problem: str | None
) -> CorruptRecordError:
    """Return why a batch at the start of a buffer, which is at a file position, is not used."""
    text = f"the batch at byte {position} cannot be used: {problem}"
    total = size_of(buffer)
    if has_right_checksum(buffer, 0, size):
        return RefusedBatchError(text, position, None, total)
    return CorruptRecordError(text, position, None, total if 0 < total <= size else 0)


def measure_batches(data: Buffer, after: int) -> tuple[Positions, int]:
    """Return the lengths of the renderings of whole batches; a refused one has its own size.

    Args:
        data: Begins with a batch.
        after: The offset after the batches before; 0 if it is not known.

    Returns:
        The lengths, and where the first damaged batch begins; the end if none is.
    """
    lengths, at = Positions(), 0
    while at < len(data):
        stop, after, _ = whole_batches(data, at, len(data), after)
        try:
            lengths = lengths.plus(measure(data, at, stop, NO_OFFSET, decompress))
            at = stop
        except CorruptRecordError as error:
            stop = error.position or 0
            lengths = lengths.plus(measure(data, at, stop, NO_OFFSET, decompress))
            at, after = stop, header_last_offset(data, stop) + 1
        if at < len(data):
            size = size_of(data, at)
            if not has_right_checksum(data, at, len(data)):
                break
            lengths, at = lengths.plus((size,) * 3), at + size
    return lengths, at


def end_of_sound(log: File, position: int, after: int, stop: int) -> int:
    """Return the offset after those batches of a range of a log whose checksums are right."""
    while position < stop:
        data = log.pread(min(CHUNK_BYTES, stop - position), position)
        if size_of(data) > len(data):
            data = log.pread(min(size_of(data), stop - position), position)
        done, after, problem = whole_batches(data, 0, len(data), after, True)
        position += done
        if problem is not None or not done:
            position = batch_after(log, position, stop) or stop
    return after


def decodes(buffer: Buffer, start: int, size: int) -> bool:
    """Whether the checksum of a batch is right, and all of its records decode."""
    try:
        measure(buffer, start, start + size, NO_OFFSET, decompress)
    except CorruptRecordError:
        return False
    return True


def is_refused(log: File, position: int) -> bool:
    """Whether a whole batch with the right checksum is at a position where none is used."""
    try:
        size = size_of(log.pread(LOG_OVERHEAD_BYTES, position))
        data = log.pread(max(0, size), position)
    except CorruptRecordError:  # the bytes themselves cannot be read
        return False
    return has_right_checksum(data, 0, len(data))


def batch_after(log: File, position: int, stop: int) -> int | None:
    """Return where the batch after a damaged one begins, which its length has to lead to.

    Returns:
        ``stop`` if the damaged one ends there; None if that cannot be told.
    """
    try:
        head = log.pread(LOG_OVERHEAD_BYTES, position)
    except CorruptRecordError:  # the bytes themselves cannot be read
        return None
    follower = position + size_of(head) if len(head) == LOG_OVERHEAD_BYTES else -1
    is_possible = position + SHORTEST_BATCH_BYTES <= follower <= stop
    is_known = is_possible and (follower == stop or is_batch_at(log, follower, stop))
    return follower if is_known else None


def is_batch_at(log: File, position: int, stop: int) -> bool:
    """Whether a batch begins at a position, damaged or not, and ends at ``stop`` or before."""
    try:
        head = log.pread(HEADER_BYTES, position)
    except CorruptRecordError:  # the bytes themselves cannot be read
        return False
    return header_ok(head, 0, stop - position) or is_refused(log, position)


def _first_batch_bytes(buffer: bytearray, size: int, position: int, file_end: int) -> int:
    if size < UP_TO_MAGIC_BYTES:
        raise CorruptRecordError(f"a batch header is cut at byte {position}", position)
    total = size_of(buffer)
    if not SHORTEST_BATCH_BYTES <= total <= file_end - position:
        raise CorruptRecordError(
            f"batch at byte {position} claims {total} bytes, {file_end - position} are there",
            position,
        )
    return total
