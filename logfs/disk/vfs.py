"""What the log needs of a disk: two protocols, and what they promise.

Durability. A finished ``pwrite`` survives the death of this process, not a power cut. ``File.sync``
makes the bytes and the length of one file survive a power cut. A name that was made, renamed or
removed survives one only after ``sync_directory`` of the folder that holds it. A power cut before
that keeps any prefix of what was not synced, or garbage of the same length, and any subset of the
changed names.

A failed ``sync`` is final: the kernel has marked the dirty pages clean or dropped them, so a later
``sync`` that succeeds proves nothing about them. Nor does one after the same bytes were written to
the same place: ext4 may have forgotten that the blocks there are not marked as written, and shows
zeros after a power cut. ``write_again`` brings such a file to the disk.

Concurrency. Any number of threads may read one ``File`` while one thread writes, syncs or truncates
it. ``close`` must be the last call. Two threads must not change the same name at the same time.

Errors. Everything raises ``OSError`` with the path in ``filename``. Names are relative to the root
of the disk, "/" between their parts, "" is the root itself; one that leads out of it is a
``ValueError``. Nothing here is async; every call may block.

The owner of the directory may be another user. This user must not lead this process elsewhere or
make it wait. So a symbolic link below the root is never followed: it is an ``OSError`` (ELOOP)
wherever a file or a directory is needed. So is a FIFO, a socket or a device (ENXIO).
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

ReadableBuffer = bytes | bytearray | memoryview
"""Contiguous bytes to write. (``collections.abc.Buffer`` needs Python 3.12.)"""

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that say that there is no room. No bytes were lost by them, other than by EIO."""

TEMPORARY_SUFFIX = ".tmp"
"""After the name of a file that ``Disk.replace`` is writing. Source: Kafka CheckpointFile."""

REFUSED = frozenset({errno.ELOOP, errno.ENXIO, errno.EFBIG})
"""Errors that say nothing about the disk: the file itself is a link, not regular, or too large."""
SMALL_FILE_BYTES = 8 << 20
"""Largest size of a file that is read whole: the checkpoint of 30,000 partitions with the longest
names, 400,000 leader epochs."""
LARGER_FILE_BYTES = 64 << 20
"""The same for files of binary entries: a million producers, 300,000 segments."""
_PIECE_BYTES = 1 << 20


class FileStat(NamedTuple):
    """The facts that a directory has about a name."""

    size: int
    """In bytes; for a directory the number of the file system."""
    mtime_ms: int
    """Last modification, epoch milliseconds, rounded down."""
    is_directory: bool
    inode: int = 0
    """Which file it is: a file put in its place has another number."""


class Sync(Protocol):
    """A ``File.sync`` that was begun and runs by itself. Any thread."""

    @property
    def has_failed(self) -> bool:
        """Whether the sync ended with an error; asked once it is done. Never waits."""
        ...

    def wait(self) -> None:
        """Return once it is done, however often it is asked.

        Raises:
            OSError: See ``File.sync``.
        """
        ...


class Syncs(Protocol):
    """The syncs that were begun and not taken yet. See ``_syncs.ThreadSyncs``."""

    @property
    def threads(self) -> int:
        """How many threads it has, which Python does not know."""
        ...

    def fileno(self) -> int:
        """Return the descriptor that can be read when something is done and was not taken."""
        ...

    def start(self, descriptor: int, file: "File", path: str) -> Sync:
        """Start the fsync of a descriptor; see ``_syncs.ThreadSyncs``.

        Raises:
            OSError: It cannot be started, which says nothing about the disk.
        """
        ...

    def take(self) -> Sequence[Sync]:
        """Return what was done since the last call, in that order."""
        ...


class File(Protocol):
    """One open data file. Closed, too, when the last reference to it goes."""

    def size(self) -> int:
        """Return the length in bytes as it is now."""
        ...

    def inode(self) -> int:
        """Return which file is open, as ``FileStat`` has it: another one may have the name now."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, for the kernel to read the file by itself; -1 if it has none."""
        ...

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer from a position.

        Args:
            buffer: Writable, contiguous bytes; an empty one reads nothing.
            position: Byte position in the file, >= 0; it may lie after the end.

        Returns:
            Bytes read: all of the buffer, less only where the file ends, 0 at or after its end.
        """
        ...

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """Fill a buffer only with what needs no wait for the device.

        Returns:
            Bytes read, perhaps fewer than asked even before the end of the file; 0 at its end; None
            if the first byte would have to wait, or if this file system cannot tell.
        """
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end of the file."""
        ...

    def next_data(self, position: int) -> int:
        """Return the first position from ``position`` on that may hold something else than zero.

        Passes over holes where the file system can tell; the size of the file if only a hole is
        left.
        """
        ...

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """Write all of ``data``; a position after the end leaves zeros in between.

        Visible to every reader of the file on return, durable only after ``sync``. Writing nothing
        does nothing.

        Raises:
            OSError: Some prefix of ``data`` may be in the file, and the file longer by it.
        """
        ...

    def make_room(self, position: int, length: int) -> bool:
        """Have the file system set blocks aside for what is going to be written, after the end.

        What is written there costs less. Nothing can be seen of it but that the disk has less
        room; ``truncate`` gives back what lies after the new end.

        Args:
            position: The position at which the blocks begin.
            length: Their bytes, > 0.

        Returns:
            Whether that was possible. It is a hint: nothing is raised.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with a hole of zeros; durable after ``sync``."""
        ...

    def sync(self) -> None:
        """Return once the bytes and the length survive a power cut (fsync).

        Two threads may sync at once, and one may sync while another writes; what was written before
        the call is covered. An empty file is synced as well, its name is not: see
        ``Disk.sync_directory``.

        Raises:
            OSError: Nothing written since the last good sync may be counted on, now or later.
        """
        ...

    def drop_cached(self) -> None:
        """Drop what is in the page cache and was synced: the next reads come from the disk.

        It is a hint, for what another process has mapped stays, and nothing is raised.
        """
        ...

    def has_name(self) -> bool:
        """Whether the file has a name; if not, it is gone once it is closed."""
        ...

    def begin_sync(self, syncs: Syncs) -> Sync | None:
        """Begin what ``sync`` does and do not wait for it; None if this file cannot.

        What was written before the call is covered. The file stays open until it is done, even if
        the last other reference to it goes; it must not be closed by ``close``.

        Args:
            syncs: Has it while it runs, and gives it back once it is done; of the same kind as
                the disk.
        """
        ...

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing. Syncs nothing."""
        ...


class Contents(NamedTuple):
    """The entries of a directory, by what they are.

    Attributes:
        files: Names of the regular files.
        directories: Names of the directories.
        irregular: Everything else, each with what it is: a symbolic link, a FIFO, a socket or a
            device.
    """

    files: Sequence[str]
    directories: Sequence[str]
    irregular: Sequence[tuple[str, str]]


class Lock(Protocol):
    """A lock that is held; the kernel drops it when the process ends."""

    def close(self) -> None:
        """Let go of the lock; the file stays. A second call does nothing."""
        ...


class Disk(Protocol):
    """The files below one data directory."""

    def open(
        self, name: str, *, write: bool = False, create: bool = False, uncached: bool = False
    ) -> File:
        """Open a file for reading, or for reading and writing.

        Args:
            name: A file, not a directory.
            write: Allow ``pwrite`` and ``truncate``.
            create: Make an empty file if there is none; needs ``write``. The new name is durable
                after ``sync_directory`` of its folder.
            uncached: The file is read through and not again soon. Where the system can do that,
                large reads leave in the page cache what was there before, and no more. Not with
                ``write``.

        A file that has another name elsewhere (a backup has it by a hard link) is copied before it
        is opened for writing: what is written is seen under this name alone.

        Raises:
            FileNotFoundError: No such file and not ``create``, or no such folder.
            IsADirectoryError: The name is a directory.
            OSError: It is no regular file; see above.
        """
        ...

    def list(self, name: str) -> "list[tuple[str, bool]]":
        """List a directory: (entry name, is it a directory), sorted by name.

        Only regular files and directories; see ``contents`` for the rest.

        Raises:
            FileNotFoundError: No such directory.
            NotADirectoryError: The name is a file.
        """
        ...

    def contents(self, name: str) -> Contents:
        """List a directory in one pass, in no order.

        Raises:
            FileNotFoundError: No such directory.
        """
        ...

    def inodes(self, name: str) -> dict[str, int]:
        """List a directory: entry name -> inode as in the directory. Opens and stats nothing.

        Raises:
            FileNotFoundError: No such directory.
        """
        ...

    def stat(self, name: str) -> FileStat:
        """Describe a regular file or a directory.

        Raises:
            FileNotFoundError: There is no such name.
            OSError: It is neither of them.
        """
        ...

    def exists(self, name: str) -> bool:
        """Tell whether the name is taken, by a file of any kind."""
        ...

    def make_directory(self, name: str) -> None:
        """Make one directory; FileExistsError if the name is taken, no parents are made."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, at once for every observer; an existing file is replaced.

        Open files continue under the new name. Durable after ``sync_directory`` of the
        folder, or of both folders.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file; open files stay usable. FileNotFoundError if none."""
        ...

    def remove_tree(self, name: str) -> None:
        """Remove a directory and everything in it; FileNotFoundError if none."""
        ...

    def sync_directory(self, name: str) -> None:
        """Return once the names made, renamed and removed in this directory survive a power cut."""
        ...

    def read(self, name: str, most: int | None = SMALL_FILE_BYTES) -> bytes:
        """Return the whole contents of a file.

        Args:
            name: The file.
            most: Its largest size in bytes; None for no limit. A file that is longer is damaged, or
                a trap: a sparse file of any size takes no room on the disk, but in memory.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: EFBIG: it is larger.
        """
        ...

    def replace(self, name: str, data: ReadableBuffer) -> None:
        """Put ``data`` in the place of a file, whole and durable on return.

        Every observer, before and after a crash, sees the old contents or the new, nothing between.
        One call per name at a time.

        Raises:
            OSError: The old or the new contents are in place; after a power cut, either.
        """
        ...

    def touch_times(self, name: str, mtime_ms: int) -> None:
        """Set the modification time, epoch milliseconds."""
        ...

    def lock(self, name: str) -> Lock:
        """Take the exclusive lock that Kafka takes on ``.lock``; makes the file if it is missing.

        No code may open that file in this process while the lock is held: closing any descriptor of
        it drops a POSIX record lock. A fork does not inherit it.

        Raises:
            LockedError: Another process holds it, named by its id if the kernel tells, or this one.
        """
        ...

    def is_locked(self, name: str) -> bool:
        """Tell whether a process holds the lock that ``lock`` takes; changes nothing."""
        ...

    def cached_bytes(self, name: str) -> int | None:
        """Return how many bytes of a file are in the page cache; None if that is unknown."""
        ...

    def mount_id(self) -> str | None:
        """Return what changes when the file system is mounted again; None if that is not known.

        As long as it is the same, on the same boot of the machine, what was written is in the page
        cache or on the disk. It is that of the first call.
        """
        ...

    def free(self) -> os.statvfs_result:
        """Return the room on the file system, as statvfs(2) tells it."""
        ...


class RootedDisk(Disk, Protocol):
    """A disk that knows where it is."""

    @property
    def root(self) -> str:
        """The directory, as an absolute path; or the URL of an object store."""
        ...


def check_size(size: int, most: int | None, path: str) -> None:
    """Refuse to read a file whole that is too large for what it should be.

    Raises:
        OSError: EFBIG.
    """
    if most is not None and size > most:
        text = f"{size} bytes; a file of this kind has at most {most}"
        raise OSError(errno.EFBIG, text, path)


def is_full(error: BaseException) -> bool:
    """Tell whether an error says that there is no room."""
    return isinstance(error, OSError) and error.errno in DISK_FULL


def parent_of(name: str) -> str:
    """Return the directory that holds a name; "" for a name in the root."""
    return name.rpartition("/")[0]


def copy_range(source: File, position: int, stop: int, disk: Disk, name: str) -> None:
    """Copy a range of a file into another file, which is replaced.

    Its bytes are durable on return, its name after ``sync_directory``.
    """
    file = disk.open(name, write=True, create=True)
    file.truncate(0)
    for start in range(position, stop, _PIECE_BYTES):
        file.pwrite(source.pread(min(_PIECE_BYTES, stop - start), start), start - position)
    file.sync()
    file.close()


def replace_file(disk: Disk, name: str, data: ReadableBuffer) -> None:
    """Carry out ``Disk.replace`` with the other operations of a disk.

    Writes ``NAME.tmp``, syncs it, renames it over ``NAME`` and syncs the directory. What has the
    name ``NAME.tmp`` before, a file left by a crash or another user's link, is removed first. A
    temporary file left by an error is removed, for the room it takes.

    Source: Kafka CheckpointFile.write.
    """

    def write(file: File) -> None:
        file.pwrite(data, 0)
        file.sync()

    _replace_by(disk, name, write)


def write_again(disk: Disk, name: str) -> None:
    """Bring a file to the disk although a write or ``sync`` of it failed; durable on return.

    Its bytes go into a new file, which is read back from the disk and compared before it takes the
    name. A kill leaves the old file, perhaps beside a ``NAME.tmp``. Open files continue with the
    old
    one: the caller closes them.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The old file is in place. EIO: the disk has other bytes than were written to it.
    """
    with contextlib.closing(disk.open(name)) as old:
        size = old.size()

        def write(file: File) -> None:
            file.truncate(size)
            for position, piece in _pieces(old, size):
                if piece.count(0) < len(piece):  # what was a hole stays one
                    file.pwrite(piece, position)
            file.sync()
            file.drop_cached()
            for position, piece in _pieces(old, size):
                if file.pread(len(piece), position) != piece:
                    text = f"the disk has other bytes from {position} on than were written to it"
                    raise OSError(errno.EIO, text, name)

        mtime_ms = disk.stat(name).mtime_ms
        _replace_by(disk, name, write)
    with contextlib.suppress(OSError):
        disk.touch_times(name, mtime_ms)


def _pieces(file: File, size: int) -> Iterator[tuple[int, bytes]]:
    for position in range(0, size, _PIECE_BYTES):
        yield position, file.pread(min(_PIECE_BYTES, size - position), position)


def _replace_by(disk: Disk, name: str, write: Callable[[File], None]) -> None:
    """Put a new file that ``write`` fills and syncs in the place of another, durably."""
    temporary = name + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.remove(temporary)
    try:
        with contextlib.closing(disk.open(temporary, write=True, create=True)) as file:
            file.truncate(0)
            write(file)
        disk.rename(temporary, name)
    except OSError:
        with contextlib.suppress(OSError):
            disk.remove(temporary)
        raise
    disk.sync_directory(parent_of(name))
