"""Read-ahead for small reads of growing names, which are a request each.

``wc``, ``awk`` and their likes read 4 to 64 KiB at a time, and a request through Python costs more
than its bytes. So the third of such reads in a row renders what follows it, too, and leaves that to
the hooks, which answer the reads that follow without Python: each that begins where the last one
ended and lies in those bytes as a whole. Every other read comes here, with what is left over.

What is put ahead are records that the reader may see already; bytes at a position never change, so
they cannot be stale. To the program it is the same stream as without: the log's reader gives one
sequence of bytes, in larger pieces, and what is taken back is given out before it goes on. After a
seek what is left is dropped, and the reader told (``GrowingFile.begin_anew``). No pyfuse3.
"""

import ctypes
from collections.abc import Callable
from typing import Protocol

from logfs.errors import CorruptRecordError
from logfs.log.reading.files import GrowingFile

WINDOW_BYTES = 1024 * 1024
"""What one open file may have ahead; ``LOGFS_AHEAD_FILES`` in ``hooks.h`` bounds how many do."""
LARGEST_BYTES = 64 * 1024
"""Larger reads are worth their request."""
_IN_A_ROW = 2
_AFTER_COLD = 64
"""How many reads later it is tried again after something was not in the page cache."""


class Kernel(Protocol):
    """What it takes; see ``hooks.Hooks``."""

    def ahead_put(self, handle: int, offset: int, address: int, size: int) -> bool:
        """Have reads answered from memory."""

    def ahead_take(self, handle: int) -> int:
        """Take back what was put; returns how many bytes nobody has read."""


class ReadAhead:
    """The read-ahead of one open file. Event loop only, one read at a time.

    Args:
        kernel: The hooks, through which the file system is mounted.
        handle: The number of the open file.
        reader: Reads the file.
        given: Called with how many bytes were read without Python.
        window_bytes: What it may have ahead.
    """

    __slots__ = (
        *("_buffer", "_end", "_given", "_handle", "_in_a_row", "_kernel"),
        *("_next", "_put", "_reader", "_size", "_view", "_window"),
    )

    def __init__(
        self,
        kernel: Kernel,
        handle: int,
        reader: GrowingFile,
        given: Callable[[int], None],
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._kernel = kernel
        self._handle = handle
        self._reader = reader
        self._given = given
        self._window = window_bytes
        self._next = 0  # where the last reply ended
        self._size = 0  # what it was asked for
        self._in_a_row = 0
        self._put = 0  # bytes that were put ahead, from _next on
        self._end = 0  # where they end in the buffer
        self._buffer: ctypes.Array[ctypes.c_char] | None = None
        self._view = memoryview(b"")

    def read(self, offset: int, size: int) -> memoryview | None:
        """Read a piece, good until the next call; None: to be read without, then ``note`` it.

        Raises:
            CorruptRecordError: The first byte does not decode.
        """
        left = self.take_back()
        if offset != self._next:
            if left:
                self._reader.begin_anew()
            self._in_a_row = 0
            return None
        if left:
            return self._go_on(offset, size, left)
        if self._in_a_row < _IN_A_ROW or size > min(LARGEST_BYTES, self._window):
            return None
        return self._read_ahead(offset, size)

    def note(self, offset: int, size: int, got: int) -> None:
        """Note a read that was made without."""
        is_next = offset == self._next and size == self._size and got == size
        self._in_a_row = self._in_a_row + 1 if is_next else min(self._in_a_row, 0)
        self._next, self._size = offset + got, size

    def take_back(self) -> int:
        """Take back what is ahead, also before the file is closed; returns what is left."""
        if not self._put:
            return 0
        left = self._kernel.ahead_take(self._handle)
        done = self._put - left
        self._next += done
        self._put = 0
        self._given(done)
        return left

    def _read_ahead(self, offset: int, size: int) -> memoryview | None:
        if self._buffer is None:
            self._buffer = ctypes.create_string_buffer(self._window)
            self._view = memoryview(self._buffer).cast("B")
        if not self._kernel.ahead_put(self._handle, 0, 0, 0):
            return None  # as many files as may have something ahead
        got = self._reader.read_into(self._view[: self._window // size * size], offset)
        if self._reader.would_block:
            self._kernel.ahead_take(self._handle)
            self._in_a_row = -_AFTER_COLD
            return None
        return self._give(offset, size, got)

    def _give(self, offset: int, size: int, got: int) -> memoryview:
        """Return the first bytes of the buffer, and put the rest ahead."""
        self._next = offset + min(size, got)
        self._put, self._end = max(got - size, 0), got
        if self._put:
            address = ctypes.addressof(self._buffer) + size if self._buffer else 0
            self._kernel.ahead_put(self._handle, self._next, address, self._put)
        else:
            self._kernel.ahead_take(self._handle)
        return self._view[: min(size, got)]

    def _go_on(self, offset: int, size: int, left: int) -> memoryview:
        """Give out what is left, and fill up: the log's reader stands behind it."""
        self._view[:left] = bytes(self._view[self._end - left : self._end])
        if size <= left:
            return self._give(offset, size, left)
        out = self._view if size <= self._window else memoryview(bytearray(size))
        out[:left] = self._view[:left]
        try:
            got = self._reader.read_into(out[left:size], offset + left)
        except CorruptRecordError:
            got = 0  # the next read, which begins there, says so
        if self._reader.would_block:
            got = 0
        self._next = offset + left + got
        return out[: left + got]
