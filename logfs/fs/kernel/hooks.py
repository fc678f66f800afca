"""The hooks: a small C library of ours between pyfuse3 and libfuse; see ``native/hooks.h``.

It is optional: it is built where the headers of libfuse are installed, and everything works without
it. It has to be loaded before pyfuse3, which then uses its functions instead of libfuse's. No
pyfuse3.
"""

import ctypes
import errno
import logging
import os
import struct
import sys
from collections.abc import Callable
from enum import IntEnum
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

from logfs.fs.kernel.library import declare
from logfs.fs.kernel.serving import Serving
from logfs.fs.kernel.suspects import SuspectTable

logger = logging.getLogger(__name__)

_VERSION = 17
_HERE = Path(__file__).parent
_loaded: "list[Hooks]" = []
_WATCHED_MOST = 4096


class Answered(IntEnum):
    """Kinds of requests that are answered natively; the numbers of ``native/requests.h``."""

    AHEAD = 0
    LOOKUP = 1
    GETATTR = 3
    OPEN = 14
    READ = 15
    WRITE = 16
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25


class WatchedRow(NamedTuple):
    """What a thread did with an open file; see ``native/watching.h``.

    Attributes:
        handle: The number of the open file.
        opcode: FUSE's number of the request.
        name: The name of the process; empty if it is not known.
        bytes: The bytes of writes and of the replies to reads.
    """

    handle: int
    opcode: int
    uid: int
    pid: int
    name: str
    requests: int
    bytes: int


_WATCHED_ROW = struct.Struct("=QIIIIQQ16s")
"""``struct watched``: handle, opcode, uid, thread, pid, requests, bytes, name."""

_TYPES: dict[str, tuple[object, ...]] = {
    "request": (ctypes.c_uint64,),
    "request_thread": (ctypes.c_uint32,),
    "listing_room": (ctypes.c_uint32,),
    "answered": (ctypes.c_uint64, ctypes.c_uint),
    "ahead_put": (
        ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t,
    ),
    "ahead_take": (ctypes.c_size_t, ctypes.c_uint64),
    "notify_poll": (None, ctypes.c_uint64),
    "notify_apart": (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t),
    "poll_handle": (ctypes.c_uint64,),
    "knows_node": (ctypes.c_int, ctypes.c_uint64),
    "reply": (ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t),
    "watched": (ctypes.c_size_t, ctypes.c_void_p),
    "watched_missed": (ctypes.c_uint64,),
}  # fmt: skip
"""What a function returns and takes."""


class KeptConnection:
    """The connection to the kernel, which outlives the daemon; see ``native/handover.h``.

    Event loop only.

    Args:
        library: The hooks.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @property
    def descriptor(self) -> int:
        """Of ``/dev/fuse``; -1: nothing is mounted."""
        return int(self._library.logfs_session())

    def keep(self, state: int) -> None:
        """Keep the state of the session in a memory file; before the mount.

        Raises:
            OSError: It cannot be mapped.
        """
        status = int(self._library.logfs_keep(state))
        if status:
            raise OSError(-status, os.strerror(-status))

    def adopt(self, connection: int) -> None:
        """Have the next mount take over a connection, after ``keep``."""
        self._library.logfs_adopt(connection)

    @property
    def is_adopted(self) -> bool:
        """Whether the connection was taken over."""
        return int(self._library.logfs_is_adopted()) == 1

    def stop_reading(self) -> None:
        """Leave all further requests in the kernel."""
        self._library.logfs_stop_reading()

    @property
    def in_flight(self) -> int:
        """How many requests have been read and not been answered."""
        return int(self._library.logfs_in_flight())

    @property
    def keeps_requests(self) -> bool:
        """Whether this kernel does not send requests again, so that the state has them."""
        return bool(self._library.logfs_keeps_requests())

    def without_resend(self) -> None:
        """Do as on a kernel that does not send requests again; before the mount, for tests."""
        self._library.logfs_without_resend()


class Hooks:
    """The library. Event loop only.

    Args:
        library: It, loaded.

    Attributes:
        serving: What it answers natively.
        connection: The connection to the kernel, which outlives this process.
        suspects: Requests that may end each daemon.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        declare(library, _TYPES)
        self.serving = Serving(library)
        self.connection = KeptConnection(library)
        self.suspects = SuspectTable(library)
        self._on_interrupt: object = None

    @property
    def is_active(self) -> bool:
        """Whether the mount goes through the hooks."""
        return self.connection.descriptor >= 0

    def answered(self, kind: Answered) -> int:
        """Return how many requests of a kind were answered natively."""
        return int(self._library.logfs_answered(kind))

    @property
    def has_passthrough(self) -> bool | None:
        """Whether the kernel supports passthrough; None if that is not known."""
        return {1: True, -1: False}.get(self._library.logfs_has_passthrough())

    def want_passthrough(self, *, wanted: bool) -> None:
        """Set whether passthrough is wanted; before the mount."""
        self._library.logfs_want_passthrough(int(wanted))

    def backing_open(self, descriptor: int) -> int:
        """Register an open file as a backing file; returns its number.

        Raises:
            OSError: It does not: EPERM without CAP_SYS_ADMIN, ELOOP on a stacked file system.
        """
        number = int(self._library.logfs_backing_open(descriptor))
        if number <= 0:
            raise OSError(-number or errno.EIO, os.strerror(-number or errno.EIO))
        return number

    def backing_close(self, number: int) -> None:
        """Close a backing file; open files continue.

        Raises:
            OSError: It does not know it.
        """
        status = int(self._library.logfs_backing_close(number))
        if status:
            raise OSError(-status, os.strerror(-status))

    def pass_through(self, handle: int, number: int) -> None:
        """Let a handle read from a backing file; directly before the handler of OPEN returns."""
        self._library.logfs_pass_through(ctypes.c_uint64(handle), number)

    def request(self) -> int:
        """Return the number of the request, before the first await of its handler."""
        return int(self._library.logfs_request())

    def request_thread(self) -> int:
        """Return the thread that waits for its reply, as ``request``; 0: it is not known."""
        return int(self._library.logfs_request_thread())

    def listing_room(self) -> int:
        """Return the bytes that a reply may have, in the handler of a listing, as ``request``."""
        return int(self._library.logfs_listing_room())

    def drop_buffer(self) -> None:
        """Free the buffer of a small request that may wait, wherever ``request`` may be called."""
        self._library.logfs_drop_buffer()

    def on_interrupt(self, interrupted: Callable[[int], None]) -> None:
        """Set a function that is called with the number of each interrupted request."""
        callback = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(interrupted)
        self._library.logfs_on_interrupt(callback)
        self._on_interrupt = callback  # as long as the library may call it

    def ahead_put(self, handle: int, offset: int, address: int, size: int) -> bool:
        """Answer reads of a handle from memory, from an offset on; see ``hooks.h``.

        The memory has to stay where it is, unchanged, until ``ahead_take``.
        """
        return bool(self._library.logfs_ahead_put(handle, offset, address, size))

    def ahead_take(self, handle: int) -> int:
        """Take back the bytes of a handle; returns how many of them have not been read."""
        return int(self._library.logfs_ahead_take(handle))

    def reply(self, request: int, data: memoryview) -> bool:
        """Answer a listing, from writable memory, directly before its handler returns.

        Returns:
            False if the handler has to reply.
        """
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        return bool(self._library.logfs_reply(request, address, len(data)))

    def watch(self, *, is_watched: bool) -> None:
        """Count what programs do with open files from now on, from nothing; or count no more."""
        self._library.logfs_watch(int(is_watched))

    def watched(self) -> list[WatchedRow]:
        """Return what was counted since then."""
        data = bytearray(_WATCHED_MOST * _WATCHED_ROW.size)
        count = self._library.logfs_watched((ctypes.c_char * len(data)).from_buffer(data))
        rows = _WATCHED_ROW.iter_unpack(memoryview(data)[: count * _WATCHED_ROW.size])
        return [
            WatchedRow(handle, opcode, uid, pid, _text_of(name), requests, size)
            for handle, opcode, uid, _, pid, requests, size, name in rows
        ]

    @property
    def watched_missed(self) -> int:
        """How many requests there was no room for."""
        return int(self._library.logfs_watched_missed())

    def notify_poll(self, poll_handle: int) -> None:
        """Wake programs that poll; handles that the kernel does not know are ignored."""
        self._library.logfs_notify_poll(poll_handle)

    def notify_apart(self, messages: bytes) -> int:
        """Send notifications from their own process, which may wait; returns its number.

        Raises:
            OSError: It cannot be started.
        """
        child = int(self._library.logfs_notify_apart(messages, len(messages)))
        if child < 0:
            raise OSError(-child, os.strerror(-child))
        return child

    def poll_handle(self) -> int:
        """Return the poll handle of the request, before the first await of its handler."""
        return int(self._library.logfs_poll_handle())

    def knows_node(self, node: int) -> bool:
        """Return whether the kernel knows an inode; it then asks for its attributes again."""
        return bool(self._library.logfs_knows_node(node))


def _text_of(name: bytes) -> str:
    return name.partition(b"\0")[0].decode(errors="replace")


def load() -> None:
    """Load the library, if it exists. It has to be before the first import of pyfuse3."""
    if _loaded or "pyfuse3" in sys.modules:
        return
    for suffix in EXTENSION_SUFFIXES:
        path = _HERE / f"_hooks{suffix}"
        if not path.exists():
            continue
        try:
            # PyDLL: its calls are shorter than giving up the interpreter's lock would take.
            library = ctypes.PyDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            logger.warning("%s cannot be loaded: %s", path, error)
            return
        if library.logfs_version() == _VERSION:
            _loaded.append(Hooks(library))
        else:
            logger.warning("%s is of another version of logfs, and not used", path)
        return


def loaded() -> Hooks | None:
    """Return the library if it is loaded."""
    return _loaded[0] if _loaded else None
