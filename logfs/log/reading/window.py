"""A piece of a ``.log`` in memory: whole batches, beginning at a batch.

Everything that reads records (rendering, look-ups, recovery) reads the log through windows, so the
rule that a batch is only used when all of it is there is once.
"""

from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError
from logfs.records._native import find_offset
from logfs.records.layout import NO_OFFSET, SHORTEST_BATCH_BYTES, UP_TO_MAGIC_BYTES, size_of

SEQUENTIAL_BYTES = 512 * 1024
"""Window of a reader that goes on: large enough to amortise the call, small enough for caches."""
LOOKUP_BYTES = 16 * 1024
"""Window of a look-up: an index interval and the batch that crosses its end."""


class Window:
    """A buffer that holds the bytes ``[file_position, file_position + stop)`` of a log.

    Attributes:
        buffer: The bytes; those after ``stop`` mean nothing.
        file_position: Where in the ``.log`` the buffer begins.
        stop: Number of bytes, whole batches only.
    """

    __slots__ = ("buffer", "file_position", "stop")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.file_position = 0
        self.stop = 0

    @property
    def file_end(self) -> int:
        """File position after the last batch."""
        return self.file_position + self.stop

    def load(self, log: File, position: int, file_end: int, chunk: int, may_block: bool) -> bool:
        """Read whole batches from ``position`` on, at least one and about ``chunk`` bytes.

        Args:
            log: The ``.log`` file.
            position: File position of a batch.
            file_end: End of the bytes that belong to the log.
            chunk: Bytes to read at least, if there are as many.
            may_block: False: read only what is in the page cache.

        Returns:
            False if the bytes are not in the page cache and the call may not block; the window is
            unchanged then.

        Raises:
            CorruptRecordError: No whole batch is at ``position``. One after it that is damaged
                ends the window.
        """
        if not 0 <= position < file_end:
            raise CorruptRecordError(
                f"no batch begins at byte {position}: the log ends at byte {file_end}", position
            )
        size = min(chunk, file_end - position)
        buffer = self._room(size)
        if not _fill(log, buffer, 0, size, position, may_block):
            return False
        stop = _whole_batches(buffer, size, position)
        if stop == 0:
            stop = _first_batch_bytes(buffer, size, position, file_end)
            if stop > size:
                if stop > len(buffer):
                    whole = bytearray(stop)
                    whole[:size] = memoryview(buffer)[:size]
                    buffer = whole
                if not _fill(log, buffer, size, stop, position, may_block):
                    return False
        self.buffer, self.file_position, self.stop = buffer, position, stop
        return True

    def _room(self, size: int) -> bytearray:
        return self.buffer if len(self.buffer) >= size else bytearray(size)


def read_exactly(log: File, size: int, position: int) -> bytes:
    """Return bytes of a ``.log``.

    Raises:
        CorruptRecordError: The file ends before.
    """
    data = log.pread(size, position)
    if len(data) < size:
        raise _too_short(position + len(data), position + size)
    return data


def _fill(
    log: File, buffer: bytearray, start: int, stop: int, position: int, may_block: bool
) -> bool:
    view = memoryview(buffer)
    if not may_block:
        got = log.pread_nowait_into(view[start:stop], position + start)
        return got is not None and got == stop - start
    got = log.pread_into(view[start:stop], position + start)
    if got < stop - start:
        raise _too_short(position + start + got, position + stop)
    return True


def _too_short(end: int, expected: int) -> CorruptRecordError:
    return CorruptRecordError(f"the log ends at byte {end}, expected {expected}", end)


def _whole_batches(buffer: bytearray, size: int, position: int) -> int:
    try:
        return find_offset(buffer, 0, size, NO_OFFSET)
    except CorruptRecordError as error:
        if error.position:
            return error.position
        raise CorruptRecordError(f"no batch begins at byte {position}: {error}", position) from None


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
