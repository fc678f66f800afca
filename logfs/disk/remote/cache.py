"""Blocks of objects in a directory, so that a restart and memory that is too small cost less.

    DIR/<32 hex digits>     one object: a sparse file of its size, blocks at their places

The name is a hash of the object's address. What a file contains is checked before it is used, like
what the store returns: a block that is a hole, half written before a crash, or damaged, is fetched.
So nothing is synced, and no list of blocks can be wrong. Objects whose checksums are not known are
not kept.

When the directory is full, the file that was used least recently goes. Open files stay readable.
Errors of the directory are logged, and cost a request to the store. Several processes may use one
directory; each has its own sum of what it has seen.

A file whose blocks were all checked in this process, and that has no hole, is opened like any file
of the disk: the kernel can serve it by itself. Processes write only blocks that they have checked.
"""

import errno
import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from logfs.disk.posixfile import PosixFile
from logfs.disk.remote.blocks import BLOCK_BYTES
from logfs.disk.vfs import File, ReadableBuffer

CACHE_BYTES = 10 << 30
_NAME_DIGITS = 32
_DISK_BLOCK_BYTES = 512
"""The unit of ``st_blocks``."""
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW

logger = logging.getLogger(__name__)


class _Entry:
    """One file.

    Attributes:
        disk_bytes: What it takes on the disk.
        checked: Blocks that were checked in this process.
        bad: Blocks that are not what they should be.
    """

    __slots__ = ("bad", "checked", "disk_bytes")

    def __init__(self, disk_bytes: int) -> None:
        self.disk_bytes = disk_bytes
        self.checked: set[int] = set()
        self.bad: set[int] = set()


class _WholeFile(PosixFile):
    """A file of the cache that has the inode of the file that it is read as."""

    __slots__ = ("_shown_inode",)

    def __init__(self, path: str, descriptor: int, inode: int) -> None:
        super().__init__(path, descriptor)
        self._shown_inode = inode

    def inode(self) -> int:
        """See ``vfs.File``."""
        return self._shown_inode


class CacheDirectory:
    """A ``BlockCache`` in a directory. Any thread.

    Args:
        path: The directory; made if it is missing, for this user alone.
        url: The address of the store.
        limit_bytes: The most that all files take on the disk.

    Raises:
        OSError: The directory cannot be made or listed.
    """

    def __init__(self, path: str, url: str, limit_bytes: int = CACHE_BYTES) -> None:
        self._path = Path(path)
        self._url = url
        self._limit_bytes = limit_bytes
        self._guard = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._used_bytes = 0
        self._has_failed = False
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._list()

    @property
    def used_bytes(self) -> int:
        """What the files take on the disk."""
        return self._used_bytes

    def bytes_of(self, keys: Iterable[str]) -> int:
        """Return what the files of some objects take on the disk, as far as this process knows."""
        names = [self._name(key) for key in keys] if self._entries else []
        with self._guard:
            found = [self._entries.get(name) for name in names]
        return sum(entry.disk_bytes for entry in found if entry is not None)

    def load(self, key: str, size: int, first: int, count: int) -> ReadableBuffer | None:
        """See ``BlockCache``."""
        name = self._name(key)
        with self._guard:
            entry = self._entries.get(name)
            if entry is None:
                return None
            self._entries.move_to_end(name)
            count = next((n for n in range(count) if first + n in entry.bad), count)
        if not count:
            return None
        try:
            return self._read(name, size, first * BLOCK_BYTES, count * BLOCK_BYTES)
        except FileNotFoundError:
            self._remove(name)  # another process has
        except OSError as error:
            self._note(error)
        return None

    def note_checked(self, key: str, size: int, first: int, count: int) -> None:
        """See ``BlockCache``."""
        with self._guard:
            entry = self._entries.get(self._name(key))
            if entry is not None:
                entry.checked.update(range(first, first + count))

    def keep(self, key: str, size: int, first: int, data: ReadableBuffer) -> None:
        """See ``BlockCache``."""
        if size > self._limit_bytes:
            return
        name = self._name(key)
        try:
            disk_bytes = self._write(name, size, first * BLOCK_BYTES, data)
        except OSError as error:
            self._note(error)
            self._remove(name)
            return
        self._has_failed = False
        blocks = range(first, first + -(-len(data) // BLOCK_BYTES))
        with self._guard:
            entry = self._entries.setdefault(name, _Entry(0))
            self._entries.move_to_end(name)
            self._used_bytes += disk_bytes - entry.disk_bytes
            entry.disk_bytes = disk_bytes
            entry.checked.update(blocks)
            entry.bad.difference_update(blocks)
        self._make_room(name)

    def forget(self, key: str, size: int, first: int) -> None:
        """See ``BlockCache``."""
        with self._guard:
            entry = self._entries.get(self._name(key))
            if entry is not None:
                entry.bad.add(first)
                entry.checked.discard(first)

    def whole(self, key: str, size: int, inode: int) -> File | None:
        """See ``BlockCache``."""
        name = self._name(key)
        with self._guard:
            entry = self._entries.get(name)
            if entry is None or len(entry.checked) * BLOCK_BYTES < size:
                return None
            self._entries.move_to_end(name)
        path = str(self._path / name)
        try:
            descriptor = os.open(path, os.O_RDONLY | _FLAGS)
        except OSError:
            self._remove(name)
            return None
        file = _WholeFile(path, descriptor, inode)
        # Another process may have removed the file that was checked, and made this one.
        if file.size() != size or os.lseek(descriptor, 0, os.SEEK_HOLE) != size:
            file.close()
            with self._guard:
                entry.checked.clear()
            return None
        return file

    def _name(self, key: str) -> str:
        return hashlib.sha256(f"{self._url}/{key}".encode()).hexdigest()[:_NAME_DIGITS]

    def _list(self) -> None:
        """Note the files that earlier processes have left, the least recently used first."""
        found = []
        with os.scandir(self._path) as entries:
            for entry in entries:
                if len(entry.name) == _NAME_DIGITS and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    disk_bytes = stat.st_blocks * _DISK_BLOCK_BYTES
                    found.append((stat.st_mtime_ns, entry.name, disk_bytes))
        for _, name, disk_bytes in sorted(found):
            self._entries[name] = _Entry(disk_bytes)
            self._used_bytes += disk_bytes
        self._make_room(None)

    def _read(self, name: str, size: int, start: int, length: int) -> bytes | None:
        """Return bytes of a file up to its first hole; None if they begin with one."""
        descriptor = os.open(self._path / name, os.O_RDONLY | _FLAGS)
        try:
            if os.fstat(descriptor).st_size != size:
                return None
            try:
                if os.lseek(descriptor, start, os.SEEK_DATA) != start:
                    return None
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return None  # only a hole is left
            stop = os.lseek(descriptor, start, os.SEEK_HOLE)
            os.utime(descriptor)
            return os.pread(descriptor, min(length, stop - start), start)
        finally:
            os.close(descriptor)

    def _write(self, name: str, size: int, start: int, data: ReadableBuffer) -> int:
        """Write bytes of a file; returns what it takes on the disk."""
        flags = os.O_RDWR | os.O_CREAT | _FLAGS
        descriptor = os.open(self._path / name, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size != size:
                os.ftruncate(descriptor, size)
            view = memoryview(data)
            done = 0
            while done < len(view):
                done += os.pwrite(descriptor, view[done:], start + done)
            return os.fstat(descriptor).st_blocks * _DISK_BLOCK_BYTES
        finally:
            os.close(descriptor)

    def _make_room(self, but: str | None) -> None:
        """Remove the files that were used least recently, but not this one, until the rest fits."""
        while True:
            with self._guard:
                if self._used_bytes <= self._limit_bytes:
                    return
                name = next((name for name in self._entries if name != but), None)
            if name is None:
                return
            self._remove(name)

    def _remove(self, name: str) -> None:
        with self._guard:
            entry = self._entries.pop(name, None)
            if entry is not None:
                self._used_bytes -= entry.disk_bytes
        try:
            os.unlink(self._path / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(error)

    def _note(self, error: OSError) -> None:
        """Log an error, once until something is written again."""
        if not self._has_failed:
            self._has_failed = True
            logger.warning("the cache of the store: %s; the store is read instead", error)
