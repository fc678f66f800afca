"""Read-ahead for small reads of growing names, each of which is a request.

``wc``, ``awk`` and the like read 4 to 64 KiB at a time, and a request through Python costs more
than its bytes. So the third such read in a row also renders the bytes that follow it, and hands
them to the hooks. The hooks answer later reads natively: each read that begins where the last
one ended and is entirely within those bytes. Every other read comes here, with the bytes left over.

Only records that the reader may already see are put ahead. Bytes at a position never change, so
they cannot be stale. A program gets the same stream as without: the log's reader gives one sequence
of bytes, in larger pieces, and bytes that are taken back are returned before it continues. After a
seek the bytes left over are dropped, and the reader is told (``GrowingFile.begin_anew``). No
pyfuse3.

Its use is measured by the rows ``dd`` and ``wc`` of the benchmark ``cat``. Without read-ahead
each of these reads is a request through Python, like those of the column ``floor``. Names with
a TO, which have no native cursor, are read 3.7 times as fast with it.
"""

import ctypes
from collections.abc import Callable
from typing import NamedTuple, Protocol

from logfs.disk.waiting import WouldWaitError
from logfs.errors import CorruptRecordError
from logfs.fs.files.nativereads import NativeReads
from logfs.services.views.files import GrowingFile

WINDOW_BYTES = 1024 * 1024
"""The most bytes that one open file has ahead."""
PLACES = 32
"""The most open files with bytes ahead; ``LOGFS_AHEAD_FILES`` in ``hooks.h``."""
LARGEST_BYTES = 64 * 1024
"""Larger reads are worth their request."""
_IN_A_ROW = 2
_AT_THE_END = 4
"""As ``_IN_A_ROW``, for a read that ended early: most programs read once more, and close."""
_WORTH_GIVING = 4096
"""A place from which fewer bytes were read natively is not given again soon."""
_AFTER_USELESS = 16
"""How many reads later, or windows."""
_IDLE_S = 1.0
"""How long a window is kept for a file that is not read."""
_AFTER_COLD = 64
"""How many reads later it is tried again after data was not in the page cache."""


class ReadAheadHooks(Protocol):
    """The functions of ``hooks.Hooks`` that are needed here."""

    def ahead_put(self, handle: int, offset: int, address: int, size: int) -> bool:
        """Have reads answered from memory."""

    def ahead_take(self, handle: int) -> int:
        """Take back what was put; returns how many of its bytes have not been read."""


class _Window(NamedTuple):
    """Memory for the bytes ahead of one file, and its address."""

    view: memoryview
    address: int


class Windows:
    """The memory of the files that have bytes ahead. Event loop only.

    There are few windows, made when they are wanted and reused. If all are taken, a file that has
    not been read for a while gives up its window: its reader may have stopped for good.

    Args:
        monotonic_s: Seconds that only go forward.
        size_bytes: The size of each.
    """

    def __init__(self, monotonic_s: Callable[[], float], size_bytes: int = WINDOW_BYTES) -> None:
        self.size_bytes = size_bytes
        self._monotonic_s = monotonic_s
        self._spare: list[_Window] = []
        self._users: dict[ReadAhead, tuple[_Window, float]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._users) + len(self._spare)

    def take(self, user: "ReadAhead") -> _Window | None:
        """Return the window of a file, or a new one for it; None if all are in use."""
        now_s = self._monotonic_s()
        if user in self._users:
            window = self._users.pop(user)[0]
        else:
            if len(self._users) >= PLACES and not self._take_from_idle(now_s):
                return None
            window = self._spare.pop() if self._spare else self._make()
        self._users[user] = window, now_s
        return window

    def give_back(self, user: "ReadAhead") -> None:
        """Return the window of a file, if it has one, for use by others."""
        found = self._users.pop(user, None)
        if found is not None:
            self._spare.append(found[0])

    def _take_from_idle(self, now_s: float) -> bool:
        """Make a file that has not been read for a while give up its window; False if none can."""
        for user, (_, used_s) in self._users.items():
            if now_s - used_s < _IDLE_S:
                return False
            if user.leave():
                return True
        return False

    def _make(self) -> _Window:
        view = memoryview(bytearray(self.size_bytes))
        return _Window(view, ctypes.addressof(ctypes.c_char.from_buffer(view)))


class ReadAhead:
    """The read-ahead of one open file. Event loop only, one read at a time.

    Args:
        hooks: The hooks, through which the file system is mounted.
        handle: The number of the open file.
        reader: Reads the file.
        given: Called with how many bytes were read natively; with 0 when small reads are
            going to be.
        windows: The memory of all files.
        native: Reads natively where that is possible; None: nowhere.
    """

    __slots__ = (
        "_end", "_given", "_handle", "_hooks", "_in_a_row", "_in_order", "_kept", "_native",
        "_next", "_put", "_reader", "_size", "_window", "_windows",
    )  # fmt: skip

    def __init__(
        self,
        hooks: ReadAheadHooks,
        handle: int,
        reader: GrowingFile,
        given: Callable[[int], None],
        windows: Windows,
        native: NativeReads | None = None,
    ) -> None:
        self._hooks = hooks
        self._native = native
        self._handle = handle
        self._reader = reader
        self._given = given
        self._windows = windows
        self._next = 0  # where the last reply ended
        self._size = 0  # what it was asked for
        self._in_a_row = 0
        self._in_order = 0  # reads that began where the one before ended
        self._window: _Window | None = None  # in which bytes were put ahead
        self._put = 0  # how many, from _next on
        self._end = 0  # where they end in it
        self._kept = memoryview(b"")  # what was left when the kernel had no place

    def read(self, offset: int, size: int) -> memoryview | None:
        """Read a piece, valid until the next await; None: read it without, then call ``note``.

        A piece that is too short where the reader ``would_block`` is the start of the answer: the
        rest is to be read without, then the whole of it noted.

        Raises:
            CorruptRecordError: The first byte does not decode.
        """
        if self._native is not None and self._native.is_given:
            self._take_place(self._native)
        left = self._take_back()
        if offset == self._next and left:
            return self._go_on(offset, size, left)
        self._leave_window()
        if offset != self._next:
            if left:
                self._reader.begin_anew()
            self._in_a_row = 0
        elif self._in_a_row >= _IN_A_ROW and size <= min(LARGEST_BYTES, self._windows.size_bytes):
            if self._native is not None and self._in_order >= _IN_A_ROW:
                return None  # then the place is given
            return self._read_ahead(offset, size)
        return None

    def note(self, offset: int, size: int, got: int) -> None:
        """Note a read that was made without read-ahead."""
        is_next = offset == self._next and size == self._size and got == size
        self._in_a_row = self._in_a_row + 1 if is_next else min(self._in_a_row, 0)
        self._in_order = self._in_order + 1 if offset == self._next else min(self._in_order, 0)
        self._next, self._size = offset + got, size
        needed = _IN_A_ROW if got == size else _AT_THE_END
        native = self._native
        if native is None or self._in_order < needed:
            return
        if not native.give(self._next):
            self._in_order = -_AFTER_USELESS
        elif size <= LARGEST_BYTES:
            self._given(0)

    def leave(self) -> bool:
        """Give up the window; bytes that the program has not read are read again later.

        Returns:
            False if that is not possible, because there was a hole; then nothing has changed.
        """
        if self._window is None:
            return True
        left = len(self._take_back())
        if not self._reader.unread_end(left):
            self._put_ahead(self._window, left)
            return False
        self._leave_window()
        return True

    def close(self) -> None:
        """Give up everything, before the file is closed."""
        if self._native is not None and self._native.is_given:
            self._take_place(self._native)
        self._take_back()
        self._leave_window()

    def _take_place(self, native: NativeReads) -> None:
        size = native.take()
        self._next += size
        if size < _WORTH_GIVING:
            self._in_order = -_AFTER_USELESS

    def _read_ahead(self, offset: int, size: int) -> memoryview | None:
        window = self._windows.take(self)
        if window is None:
            return None
        self._window = window
        self._in_order += 1
        got = self._reader.read_into(window.view[: len(window.view) // size * size], offset)
        if self._reader.would_block:
            self._in_a_row = -_AFTER_COLD
            if got < size:
                self._leave_window()
                return window.view[:got]
        self._next, self._end = offset + min(size, got), got
        self._put_ahead(window, max(got - size, 0))
        return window.view[: min(size, got)]

    def _go_on(self, offset: int, size: int, left: memoryview) -> memoryview:
        """Give out what is left, or all of it and what follows: the log's reader is there."""
        if size <= len(left):
            self._next = offset + size
            if self._window is None:
                self._kept = left[size:]
            else:
                self._put_ahead(self._window, len(left) - size)
            return left[:size]
        done, out = len(left), memoryview(bytearray(size))
        out[:done] = left
        self._leave_window()
        try:
            got = self._reader.read_into(out[done:], offset + done)
        except (CorruptRecordError, WouldWaitError):
            got = 0  # the next read, which begins there, says so
        self._next = offset + done + got
        return out[: done + got]

    def _put_ahead(self, window: _Window, size: int) -> None:
        """Have the last bytes of what was rendered into the window read natively."""
        begin = self._end - size
        self._put = size
        if not size:
            self._leave_window()
        elif not self._hooks.ahead_put(self._handle, self._next, window.address + begin, size):
            self._put, self._kept = 0, memoryview(bytes(window.view[begin : self._end]))
            self._leave_window()

    def _take_back(self) -> memoryview:
        """Take back what is ahead; returns what is left of it."""
        if self._window is None:
            kept, self._kept = self._kept, memoryview(b"")
            return kept
        left = self._hooks.ahead_take(self._handle) if self._put else 0
        self._next += self._put - left
        if self._put > left:
            self._given(self._put - left)
        self._put = 0
        return self._window.view[self._end - left : self._end]

    def _leave_window(self) -> None:
        if self._window is not None:
            self._windows.give_back(self)
            self._window = None
