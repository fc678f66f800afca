"""Requests that were under way when two daemons in a row ended without a plan.

The kernel sends a request without a reply to the next daemon. If the request is what ends daemons,
it ends all of them. So the third daemon answers it with EIO, and the log names it. If several were
under way, that daemon begins one after the other, so that the fourth one knows which it was.

A request is under way from the first step of its handler to its reply. Where a handler waits for
records, its request is not under way. ``native/suspects.h`` has the tables.
"""

import ctypes
from collections.abc import Callable, Sequence

import trio

from logfs.fs.kernel.errnos import SuspectRequestError

_RESENT = 1 << 63
"""The bit of the numbers of requests that were sent again."""
_TURN_S = 10.0
"""How long a suspect waits for its turn: the one before it may wait for a disk."""
_Words = ctypes.c_uint64 * 5
_OF_HANDLE = frozenset({"read", "write", "flush", "release", "fsync", "readdir", "releasedir"})
"""Handlers whose first argument is the number of an open file or directory."""


class SuspectTable:
    """The functions of the library beside libfuse. Event loop only.

    Args:
        library: It, loaded.

    Attributes:
        on_waiting: Called with the number of each resent request that waits from now on.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.logfs_suspects.restype = ctypes.c_uint64
        library.logfs_is_suspect.argtypes = (ctypes.c_uint64,)
        library.logfs_hold.argtypes = library.logfs_resume.argtypes = (_Words,)
        library.logfs_note_begun.argtypes = (ctypes.c_uint64,)
        library.logfs_note_waiting.argtypes = (ctypes.c_uint64,)
        self.on_waiting: Callable[[int], None] = lambda _: None

    def __len__(self) -> int:
        return int(self._library.logfs_suspects())

    def __contains__(self, number: int) -> bool:
        return bool(number & _RESENT) and bool(self._library.logfs_is_suspect(number))

    def hold(self) -> "ctypes.Array[ctypes.c_uint64]":
        """Return what the library knows of the request whose handler has just begun."""
        words = _Words()
        self._library.logfs_hold(words)
        return words

    def resume(self, words: "ctypes.Array[ctypes.c_uint64]") -> None:
        """Note that one of several suspects begins, which has awaited its turn.

        Until the next await it is again the request whose handler has just begun.
        """
        self._library.logfs_resume(words)
        self._library.logfs_note_begun(words[0])

    def note_waiting(self, number: int) -> None:
        """Note that a request waits from now on, so that it is not under way."""
        if number & _RESENT:
            self._library.logfs_note_waiting(number)
            self.on_waiting(number)


class SuspectRequests:
    """Refuses such requests, or has them begin one after the other. Event loop only.

    Args:
        table: The requests.
        request: Returns the number of the request whose handler has just begun.
        name_of_inode, name_of_handle: Return what a request is about, for the log.
    """

    def __init__(
        self,
        table: SuspectTable,
        request: Callable[[], int],
        name_of_inode: Callable[[int], str],
        name_of_handle: Callable[[int], str],
    ) -> None:
        self._table = table
        self._request = request
        self._name_of_inode = name_of_inode
        self._name_of_handle = name_of_handle
        self._turn = trio.Semaphore(1)
        self._running = 0
        table.on_waiting = self.end

    async def begin(self, handler: str, arguments: Sequence[object]) -> int:
        """Let the request begin whose handler has just begun; suspects wait for their turn.

        Returns:
            What ``end`` needs when the request has been answered.

        Raises:
            SuspectRequestError: It is the only suspect, and is refused.
        """
        number = self._request()
        if number not in self._table:
            return 0
        if len(self._table) == 1:
            raise SuspectRequestError(self._describe(handler, arguments))
        words = self._table.hold()
        with trio.move_on_after(_TURN_S):
            await self._turn.acquire()
            self._running = number
        self._table.resume(words)
        return number

    def end(self, number: int) -> None:
        """Let the next suspect begin, if it was the turn of this request."""
        if number and number == self._running:
            self._running = 0
            self._turn.release()

    def _describe(self, handler: str, arguments: Sequence[object]) -> str:
        first = arguments[0] if arguments else None
        name = ""
        if isinstance(first, int):
            name = (self._name_of_handle if handler in _OF_HANDLE else self._name_of_inode)(first)
        pid = getattr(arguments[-1], "pid", 0) if arguments else 0
        sender = f"; process {pid} has sent it" if pid else ""
        return (
            f"{name or 'the mount'}: this request was under way when two daemons in a row ended "
            f"without a plan, so it is not tried again{sender}"
        )
