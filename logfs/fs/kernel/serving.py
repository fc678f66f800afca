"""Requests that the hooks answer natively: which, and of which files and names.

See ``native/serving.h``; the headers that are named there say what each function does.
"""

import ctypes
from typing import NamedTuple

from logfs.fs.kernel.library import declare
from logfs.fs.kernel.permissions import FileAttributes
from logfs.log.reading.places import PlainPlace

_NAMED_MOST = 4096
_Place = ctypes.c_int64 * 4
_Facts = ctypes.c_uint64 * 4
_Numbers = ctypes.c_uint64 * _NAMED_MOST

_TYPES: dict[str, tuple[object, ...]] = {
    "want_serving": (None, ctypes.c_void_p, ctypes.c_int),
    "serving_work": (ctypes.c_int, ctypes.c_uint),
    "use_clock": (None, ctypes.c_void_p),
    "serving_open": (None, ctypes.c_uint64, ctypes.c_void_p),
    "serving_begin": (None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64),
    "serving_close": (None, ctypes.c_uint64),
    "serving_know": (
        None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int64,
        ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64,
    ),
    "serving_know_directory": (
        None, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32,
        ctypes.c_int64, ctypes.c_uint32,
    ),
    "naming_know": (
        ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t,
        ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int,
    ),
    "naming_take": (ctypes.c_uint64, ctypes.c_uint64),
    "naming_take_all": (ctypes.c_size_t, _Numbers, _Numbers),
    "opening_allow": (None, ctypes.c_uint32),
    "opening_find": (ctypes.c_int, ctypes.c_uint64, _Facts),
    "opening_take": (ctypes.c_int64, ctypes.c_uint64),
    "opening_list": (ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
    "opening_count": (ctypes.c_size_t,),
    "reading_give": (
        ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64,
        ctypes.c_int, _Place, ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_int,
    ),
    "reading_return": (None, ctypes.c_void_p, ctypes.c_int),
    "reading_take": (ctypes.c_int64, ctypes.c_uint64, _Place),
}  # fmt: skip
"""What a function returns and takes."""


class OpenedFile(NamedTuple):
    """A file that was opened natively; see ``native/opening.h``.

    Attributes:
        ino: The inode number.
        flags: The flags of open(2).
        uid: The user that has opened it.
    """

    ino: int
    flags: int
    uid: int


class Serving:
    """What the hooks answer natively. Event loop only.

    Args:
        library: The hooks.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        declare(library, _TYPES)

    def want(self, functions: int, *, on_loop: bool = False) -> None:
        """Have a thread for the next mount, which uses the functions at an address.

        Args:
            functions: See ``_end.functions_address``.
            on_loop: The event loop does what the threads do otherwise; see ``work``.
        """
        self._library.logfs_want_serving(functions, int(on_loop))

    def work(self, choice: int) -> bool:
        """Do some of the work of a partition that threads would do, where there are none.

        Args:
            choice: Which of those that have any, by its number modulo how many there are.

        Returns:
            False if there is no work.
        """
        return bool(self._library.logfs_serving_work(choice))

    def use_clock(self, function: int) -> None:
        """Read other clocks than those of the machine; before the mount. See ``_clock.h``."""
        self._library.logfs_use_clock(function)

    @property
    def is_running(self) -> bool:
        """Whether the mount has the thread."""
        return bool(self._library.logfs_has_serving())

    def stop(self) -> None:
        """End the thread, before pyfuse3 is closed."""
        self._library.logfs_serving_stop()

    def open(self, handle: int, partition: int) -> None:
        """Note an open file that appends, and the address of its partition."""
        self._library.logfs_serving_open(handle, partition)

    def begin(self, handle: int, writer: int, key: int) -> None:
        """Apply the writes of that file in the thread; see ``serving.h``."""
        self._library.logfs_serving_begin(handle, writer, key)

    def close(self, handle: int) -> None:
        """Leave the writes of that file to Python, and forget it."""
        self._library.logfs_serving_close(handle)

    @property
    def changes(self) -> int:
        """The descriptor that can be read after an append for which readers wait; -1: none."""
        return int(self._library.logfs_serving_changes())

    def serve_attributes(
        self,
        numbers: tuple[int, int],
        partition: int,
        mark: tuple[int, int],
        view: int,
        attributes: FileAttributes,
        append_key: int,
    ) -> None:
        """Answer stats of an inode natively from now on; see ``serving.h``.

        Args:
            numbers: The inode, as the kernel and as programs know it.
            partition: The address of its partition.
            mark: What ``PartitionLock.mark`` said while the attributes were these.
            view: The view of the inode.
            attributes: The attributes of the inode.
            append_key: The number of the partition if files of the inode may be opened to append
                natively, too; else 0.
        """
        (ino, shown), (changes, length) = numbers, mark
        mode, uid, gid, size, _ = attributes
        self._library.logfs_serving_know(
            ino, partition, changes, view, size - length, mode, uid, gid, append_key, shown
        )

    def forget(self) -> None:
        """Leave stats to Python until it has answered them again."""
        self._library.logfs_serving_forget()

    def know_directory(self, ino: int, attributes: FileAttributes, timeout_s: float) -> None:
        """Answer stats of a directory natively from now on; see ``serving.h``."""
        mode, uid, gid, _, mtime_ms = attributes
        timeout_ms = int(timeout_s * 1000)
        self._library.logfs_serving_know_directory(ino, mode, uid, gid, mtime_ms, timeout_ms)

    def know_name(
        self, parent: int, name: bytes, ino: int, timeout_s: float, *, is_single: bool
    ) -> int:
        """Answer look-ups of a name natively from now on; see ``naming.h``.

        Args:
            parent: The directory.
            name: The name in it.
            ino: The inode.
            timeout_s: How long the kernel may keep the name.
            is_single: Each open file of the name has another inode, and one is about to be opened.

        Returns:
            0, or the inode that has to be taken before.
        """
        timeout_ms = int(timeout_s * 1000)
        return int(
            self._library.logfs_naming_know(parent, name, len(name), ino, timeout_ms, is_single)
        )

    def take_name(self, ino: int) -> int:
        """Leave look-ups of an inode to Python; returns how many were answered before."""
        return int(self._library.logfs_naming_take(ino))

    def take_names(self) -> list[tuple[int, int]]:
        """Leave all look-ups to Python; returns inodes, and how many were answered of each."""
        inodes, lookups = _Numbers(), _Numbers()
        count = self._library.logfs_naming_take_all(inodes, lookups)
        return list(zip(inodes[:count], lookups[:count], strict=True))

    def allow(self, uid: int) -> None:
        """Let a user open files natively."""
        self._library.logfs_opening_allow(uid)

    def find_opened(self, handle: int) -> OpenedFile | None:
        """Return an open file that was opened natively; None: there is none."""
        facts = _Facts()
        if not self._library.logfs_opening_find(handle, facts):
            return None
        return OpenedFile(facts[0], facts[1], facts[2])

    def take_opened(self, handle: int) -> int | None:
        """Continue with such a file in Python.

        Returns:
            How many of its writes were applied; None: it has been closed.
        """
        writes = int(self._library.logfs_opening_take(handle))
        return None if writes < 0 else writes

    def opened_of(self, partition: int) -> list[int]:
        """Return the handles of such files of the partition at an address."""
        handles = (ctypes.c_uint64 * self.opened)()
        count = self._library.logfs_opening_list(partition, handles, len(handles))
        return list(handles[:count])

    @property
    def opened(self) -> int:
        """How many such files are open."""
        return int(self._library.logfs_opening_count())

    def give_reads(
        self,
        handle: int,
        offset: int,
        partition: tuple[int, int],
        place: PlainPlace,
        *,
        may_wait: bool,
    ) -> bool:
        """Answer reads of a handle natively from an offset on; see ``native/reading.h``.

        Args:
            handle: The number of the open file.
            offset: The offset of the next byte.
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

    def take_reads(self, handle: int) -> tuple[int, tuple[int, int, int, int]]:
        """Leave the reads of a handle to Python; returns how many bytes were read, and where."""
        place = _Place()
        size = int(self._library.logfs_reading_take(handle, place))
        return size, (place[0], place[1], place[2], place[3])

    def return_reads(self, partition: int, *, has_all: bool) -> None:
        """Have reads that wait natively come to Python, as requests.

        Args:
            partition: The address of their partition.
            has_all: All of them, not only those before which Python has changed the partition.
        """
        self._library.logfs_reading_return(partition, int(has_all))

    def end_reads(self) -> None:
        """End the reads that wait natively with ENOTCONN."""
        self._library.logfs_reading_end()

    @property
    def waiting_reads(self) -> int:
        """How many reads wait natively."""
        return int(self._library.logfs_reading_waiting())
