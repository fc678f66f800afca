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
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

from logfs.fs.kernel.permissions import FileAttributes
from logfs.fs.kernel.suspects import SuspectTable
from logfs.log.reading.places import PlainPlace

logger = logging.getLogger(__name__)

_VERSION = 14
_HERE = Path(__file__).parent
_loaded: "list[Hooks]" = []
_Place = ctypes.c_int64 * 4
_Facts = ctypes.c_uint64 * 4


_WATCHED_MOST = 4096
_NAMED_MOST = 4096
_Numbers = ctypes.c_uint64 * _NAMED_MOST


class OpenedFile(NamedTuple):
    """A file that was opened without Python; see ``native/opening.h``.

    Attributes:
        ino: The inode number.
        flags: Of open(2).
        uid: The user that has opened it.
    """

    ino: int
    flags: int
    uid: int


class WatchedRow(NamedTuple):
    """What a thread did with an open file; see ``native/watching.h``.

    Attributes:
        handle: The number of the open file.
        opcode: FUSE's number of the request.
        name: The name of the process; empty if it is not known.
        bytes: Of writes and of the replies to reads.
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


def _declare(library: ctypes.CDLL) -> None:
    """Set the types of what the functions take and return."""
    library.logfs_request.restype = ctypes.c_uint64
    library.logfs_request_thread.restype = ctypes.c_uint32
    library.logfs_listing_room.restype = ctypes.c_uint32
    library.logfs_ahead_reads.restype = ctypes.c_uint64
    library.logfs_ahead_put.argtypes = (
        *(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t),
    )
    library.logfs_ahead_take.argtypes = (ctypes.c_uint64,)
    library.logfs_ahead_take.restype = ctypes.c_size_t
    library.logfs_state_bytes.restype = ctypes.c_uint64
    library.logfs_notify_poll.argtypes = (ctypes.c_uint64,)
    library.logfs_notify_apart.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
    library.logfs_poll_handle.restype = ctypes.c_uint64
    library.logfs_knows_node.argtypes = (ctypes.c_uint64,)


def _declare_serving(library: ctypes.CDLL) -> None:
    """Set those of the functions that answer requests without Python."""
    library.logfs_want_serving.argtypes = (ctypes.c_void_p,)
    library.logfs_serving_open.argtypes = (ctypes.c_uint64, ctypes.c_void_p)
    library.logfs_serving_begin.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
    library.logfs_serving_close.argtypes = (ctypes.c_uint64,)
    library.logfs_serving_writes.restype = ctypes.c_uint64
    library.logfs_serving_syncs.restype = ctypes.c_uint64
    library.logfs_serving_flushes.restype = ctypes.c_uint64
    library.logfs_serving_stats.restype = ctypes.c_uint64
    library.logfs_serving_know.argtypes = (
        *(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int64),
        *(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64),
    )
    library.logfs_serving_know_directory.argtypes = (
        *(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int64),
        ctypes.c_uint32,
    )
    library.logfs_serving_lookups.restype = ctypes.c_uint64
    library.logfs_naming_know.argtypes = (
        *(ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint32),
    )
    library.logfs_naming_know.restype = ctypes.c_uint64
    library.logfs_naming_take.argtypes = (ctypes.c_uint64,)
    library.logfs_naming_take.restype = ctypes.c_uint64
    library.logfs_naming_take_all.argtypes = (_Numbers, _Numbers)
    library.logfs_naming_take_all.restype = ctypes.c_size_t
    library.logfs_opening_allow.argtypes = (ctypes.c_uint32,)
    library.logfs_opening_find.argtypes = (ctypes.c_uint64, _Facts)
    library.logfs_opening_take.argtypes = (ctypes.c_uint64,)
    library.logfs_opening_take.restype = ctypes.c_int64
    library.logfs_opening_list.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    library.logfs_opening_list.restype = ctypes.c_size_t
    library.logfs_opening_count.restype = ctypes.c_size_t
    library.logfs_serving_opens.restype = ctypes.c_uint64
    library.logfs_serving_releases.restype = ctypes.c_uint64
    library.logfs_reading_give.argtypes = (
        *(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int),
        *(_Place, ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    )
    library.logfs_reading_return.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.logfs_reading_take.argtypes = (ctypes.c_uint64, _Place)
    library.logfs_reading_take.restype = ctypes.c_int64
    library.logfs_serving_reads.restype = ctypes.c_uint64
    library.logfs_serving_queued.restype = ctypes.c_uint64
    library.logfs_reply.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
    library.logfs_watched.argtypes = (ctypes.c_void_p,)
    library.logfs_watched.restype = ctypes.c_size_t
    library.logfs_watched_missed.restype = ctypes.c_uint64


class Hooks:
    """The library. Event loop only.

    Args:
        library: It, loaded.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        _declare(library)
        _declare_serving(library)
        self.suspects = SuspectTable(library)
        self._on_interrupt: object = None
        self._on_reply: object = None

    @property
    def is_active(self) -> bool:
        """Whether the mount goes through the hooks."""
        return int(self._library.logfs_session()) >= 0

    @property
    def has_passthrough(self) -> bool | None:
        """Whether the kernel supports passthrough; None if that is not known."""
        return {1: True, -1: False}.get(self._library.logfs_has_passthrough())

    @property
    def uses_own_way(self) -> bool:
        """Whether libfuse itself supports passthrough."""
        return bool(self._library.logfs_uses_own_way())

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
        """Close a backing file; open files go on.

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

    @property
    def ahead_reads(self) -> int:
        """How many reads were answered from memory."""
        return int(self._library.logfs_ahead_reads())

    def on_reply(self, replied: Callable[[], None]) -> None:
        """Set a function that is called after the reply that follows ``expect_reply``."""
        callback = ctypes.CFUNCTYPE(None)(replied)
        self._library.logfs_on_reply(callback)
        self._on_reply = callback  # as long as the library may call it

    def expect_reply(self) -> None:
        """Have that function called once, after the next reply."""
        self._library.logfs_expect_reply()

    def reply(self, request: int, data: memoryview) -> bool:
        """Answer a waiting read or a listing, from writable memory; see ``hooks.h``.

        Returns:
            False if the handler has to reply.
        """
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        return bool(self._library.logfs_reply(request, address, len(data)))

    # The thread that applies writes; see ``native/serving.h``.

    def want_serving(self, functions: int) -> None:
        """Have a thread for the next mount, which uses the functions at an address."""
        self._library.logfs_want_serving(functions)

    @property
    def has_serving(self) -> bool:
        """Whether the mount has the thread."""
        return bool(self._library.logfs_has_serving())

    def serving_open(self, handle: int, partition: int) -> None:
        """Note an open file that appends, and the address of its partition."""
        self._library.logfs_serving_open(handle, partition)

    def serving_begin(self, handle: int, writer: int, key: int) -> None:
        """Apply the writes of that file in the thread; see ``serving.h``."""
        self._library.logfs_serving_begin(handle, writer, key)

    def serving_close(self, handle: int) -> None:
        """Leave the writes of that file to Python, and forget it."""
        self._library.logfs_serving_close(handle)

    @property
    def serving_changes(self) -> int:
        """The descriptor that can be read after an append for which readers wait; -1: none."""
        return int(self._library.logfs_serving_changes())

    @property
    def serving_writes(self) -> int:
        """How many writes the thread has applied."""
        return int(self._library.logfs_serving_writes())

    @property
    def serving_syncs(self) -> int:
        """How many fsyncs were answered without Python."""
        return int(self._library.logfs_serving_syncs())

    @property
    def serving_flushes(self) -> int:
        """How many closes were answered without Python."""
        return int(self._library.logfs_serving_flushes())

    @property
    def serving_stats(self) -> int:
        """How many stats were answered without Python."""
        return int(self._library.logfs_serving_stats())

    def serving_know(
        self,
        ino: int,
        partition: int,
        mark: tuple[int, int],
        view: int,
        attributes: FileAttributes,
        append_key: int,
    ) -> None:
        """Answer stats of an inode without Python from now on; see ``serving.h``.

        Args:
            ino: The inode.
            partition: The address of its partition.
            mark: What ``PartitionLock.mark`` said while the attributes were these.
            view: Of the inode.
            attributes: Of the inode.
            append_key: The number of the partition if files of the inode may be opened to append
                without Python, too; else 0.
        """
        changes, length = mark
        mode, uid, gid, size, _ = attributes
        self._library.logfs_serving_know(
            ino, partition, changes, view, size - length, mode, uid, gid, append_key
        )

    def serving_forget(self) -> None:
        """Leave stats to Python until it has answered them again."""
        self._library.logfs_serving_forget()

    def serving_know_directory(
        self, ino: int, attributes: FileAttributes, timeout_s: float
    ) -> None:
        """Answer stats of a directory without Python from now on; see ``serving.h``."""
        mode, uid, gid, _, mtime_ms = attributes
        timeout_ms = int(timeout_s * 1000)
        self._library.logfs_serving_know_directory(ino, mode, uid, gid, mtime_ms, timeout_ms)

    def naming_know(self, parent: int, name: bytes, ino: int, timeout_s: float) -> int:
        """Answer look-ups of a name without Python from now on; see ``serving.h``.

        Returns:
            0, or the inode that has to be taken before.
        """
        timeout_ms = int(timeout_s * 1000)
        return int(self._library.logfs_naming_know(parent, name, len(name), ino, timeout_ms))

    def naming_take(self, ino: int) -> int:
        """Leave look-ups of an inode to Python; returns how many were answered before."""
        return int(self._library.logfs_naming_take(ino))

    def naming_take_all(self) -> list[tuple[int, int]]:
        """Leave all look-ups to Python; returns inodes, and how many were answered of each."""
        inodes, lookups = _Numbers(), _Numbers()
        count = self._library.logfs_naming_take_all(inodes, lookups)
        return list(zip(inodes[:count], lookups[:count], strict=True))

    @property
    def serving_lookups(self) -> int:
        """How many look-ups were answered without Python."""
        return int(self._library.logfs_serving_lookups())

    def opening_allow(self, uid: int) -> None:
        """Let a user open files without Python."""
        self._library.logfs_opening_allow(uid)

    def opening_find(self, handle: int) -> OpenedFile | None:
        """Return an open file that was opened without Python; None: there is none."""
        facts = _Facts()
        if not self._library.logfs_opening_find(handle, facts):
            return None
        return OpenedFile(facts[0], facts[1], facts[2])

    def opening_take(self, handle: int) -> int | None:
        """Go on with such a file in Python.

        Returns:
            How many of its writes were applied; None: it has been closed.
        """
        writes = int(self._library.logfs_opening_take(handle))
        return None if writes < 0 else writes

    def opening_list(self, partition: int) -> list[int]:
        """Return the handles of such files of the partition at an address."""
        handles = (ctypes.c_uint64 * self.opening_count)()
        count = self._library.logfs_opening_list(partition, handles, len(handles))
        return list(handles[:count])

    @property
    def opening_count(self) -> int:
        """How many such files are open."""
        return int(self._library.logfs_opening_count())

    @property
    def serving_opens(self) -> int:
        """How many files were opened without Python."""
        return int(self._library.logfs_serving_opens())

    @property
    def serving_releases(self) -> int:
        """How many files were closed for the last time without Python."""
        return int(self._library.logfs_serving_releases())

    def reading_give(
        self,
        handle: int,
        offset: int,
        partition: tuple[int, int],
        place: PlainPlace,
        *,
        may_wait: bool,
    ) -> bool:
        """Answer reads of a handle without Python from an offset on; see ``native/reading.h``.

        Args:
            handle: The number of the open file.
            offset: Of the next byte.
            partition: Its address, and the number that ``PartitionLock.mark`` said while this was
                the place.
            place: Where that byte is.
            may_wait: A read that has nothing waits.

        Returns:
            False if there is no room for it now.
        """
        return bool(
            self._library.logfs_reading_give(
                *(handle, offset, *partition, place.log.fileno(), _Place(*place.numbers)),
                *(place.file_end, int(place.view), int(place.is_active), int(may_wait)),
            )
        )

    def reading_take(self, handle: int) -> tuple[int, tuple[int, int, int, int]]:
        """Leave the reads of a handle to Python; returns how many bytes were read, and where."""
        place = _Place()
        size = int(self._library.logfs_reading_take(handle, place))
        return size, (place[0], place[1], place[2], place[3])

    def reading_return(self, partition: int | None, *, has_all: bool) -> None:
        """Have reads that wait without Python come to Python, as requests.

        Args:
            partition: The address of their partition; None: of any.
            has_all: All of them, not only those before which Python has changed the partition.
        """
        self._library.logfs_reading_return(partition, int(has_all))

    def reading_end(self) -> None:
        """End the reads that wait without Python with ENOTCONN."""
        self._library.logfs_reading_end()

    @property
    def reading_waiting(self) -> int:
        """How many reads wait without Python."""
        return int(self._library.logfs_reading_waiting())

    @property
    def serving_reads(self) -> int:
        """How many reads were rendered without Python."""
        return int(self._library.logfs_serving_reads())

    @property
    def serving_queued(self) -> int:
        """How many requests the thread has left to Python."""
        return int(self._library.logfs_serving_queued())

    def stop_serving(self) -> None:
        """End the thread, before pyfuse3 is closed."""
        self._library.logfs_serving_stop()

    # The hand-over to another daemon; see ``native/handover.h``.

    @property
    def session(self) -> int:
        """The descriptor of the connection to the kernel; -1: nothing is mounted."""
        return int(self._library.logfs_session())

    @property
    def state_bytes(self) -> int:
        """The size of a memory file for the state."""
        return int(self._library.logfs_state_bytes())

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
        """Send notifications from a process of their own, which may wait; returns its number.

        Raises:
            OSError: It cannot be started.
        """
        child = int(self._library.logfs_notify_apart(messages, len(messages)))
        if child < 0:
            raise OSError(-child, os.strerror(-child))
        return child

    @property
    def keeps_requests(self) -> bool:
        """Whether this kernel does not send requests again, so that the state has them."""
        return bool(self._library.logfs_keeps_requests())

    def poll_handle(self) -> int:
        """Return the poll handle of the request, before the first await of its handler."""
        return int(self._library.logfs_poll_handle())

    def knows_node(self, node: int) -> bool:
        """Return whether the kernel knows an inode; it then asks for its attributes again."""
        return bool(self._library.logfs_knows_node(node))

    def without_resend(self) -> None:
        """Do as on a kernel that does not send requests again; before the mount, for tests."""
        self._library.logfs_without_resend()


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
