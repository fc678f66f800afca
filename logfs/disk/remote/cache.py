"""Blocks of objects in a directory, so that a restart and memory that is too small cost less.

    DIR/<32 hex digits>     one object: a sparse file of its size, blocks at their places

The name is a hash of the object's address. What a file contains is checked before it is used, like
what the store returns: a block that is a hole, half written before a crash, or damaged, is fetched.
So nothing is synced, and no list of blocks can be wrong. Objects whose checksums are not known are
not kept.

When the directory or its file system is full, the files that were used least recently go. What
is open is read from the store then. Several processes may use one directory; each has its own sum
of what it has seen.

Errors of the directory are counted, and cost a request to the store. The first one is logged. The
directory is tried again each time: when the fault is over it is used again. One that was deleted is
made again, and one that another file system has taken the place of is listed again.

A file whose blocks were all checked in this process, that has no hole and was not changed since, is
read like any file of the disk; see ``cachedfile``. Processes write only blocks that they have
checked.
"""

import errno
import hashlib
import logging
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from logfs.disk.posixfile import PosixFile
from logfs.disk.remote.blocks import BLOCK_BYTES
from logfs.disk.remote.cachedfile import CachedFile, Stamp, stamp_of
from logfs.disk.remote.counters import BlockCounters
from logfs.disk.vfs import File, ReadableBuffer, is_full

CACHE_BYTES = 10 << 30
_NAME_DIGITS = 32
_DISK_BLOCK_BYTES = 512
"""The unit of ``st_blocks``."""
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Not blocking: a FIFO may have the name of a file."""
_GOOD_WRITES = 16
"""Writes without an error after which a fault of the directory is over."""
_TRIES = 8
"""To make a file."""

logger = logging.getLogger(__name__)


class _Entry:
    """One file.

    Attributes:
        disk_bytes: The size on the disk.
        checked: Blocks that were checked in this process.
        bad: Blocks that are not what they should be.
        files: Open ones.
        lock: Held while its stamp and its file change together.
        stamp: The stamp of the file when the last one of ``checked`` was checked.
    """

    __slots__ = ("bad", "checked", "disk_bytes", "files", "lock", "stamp")

    def __init__(self, disk_bytes: int) -> None:
        self.disk_bytes = disk_bytes
        self.files: WeakSet[CachedFile] = WeakSet()
        self.lock = threading.Lock()
        self.stamp: Stamp | None = None
        self.checked: set[int] = set()
        self.bad: set[int] = set()


class _Written(NamedTuple):
    """A file after a write: what it takes on the disk, its stamps before and after."""

    disk_bytes: int
    before: Stamp
    after: Stamp


class CacheDirectory:
    """A ``BlockCache`` in a directory. Any thread.

    Args:
        path: The directory; made if it is missing, for this user alone.
        url: The address of the store.
        limit_bytes: The most that all files take on the disk.
        now_ns: The clock, nanoseconds since the epoch: when a file was used.

    Attributes:
        counters: Errors are counted there.
    """

    def __init__(
        self, path: str, url: str, limit_bytes: int = CACHE_BYTES, *, now_ns: Callable[[], int]
    ) -> None:
        self.counters = BlockCounters()
        self._path = Path(path)
        self._url = url
        self._limit_bytes = limit_bytes
        self._now_ns = now_ns
        self._guard = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._used_bytes = 0
        self._listed: tuple[int, int] | None = None
        self._good_writes = _GOOD_WRITES
        try:
            self._prepare()
        except OSError as error:
            self._note(error)

    @property
    def used_bytes(self) -> int:
        """The size of the files on the disk."""
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
            return self._read(name, entry, size, first * BLOCK_BYTES, count * BLOCK_BYTES)
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
        name, blocks = self._name(key), range(first, first + -(-len(data) // BLOCK_BYTES))
        try:
            self._look()
            with self._guard:
                entry = self._entries.setdefault(name, _Entry(0))
            with entry.lock:
                written = self._put(name, size, first * BLOCK_BYTES, data)
                self._note_written(name, entry, blocks, written)
        except OSError as error:
            self._note(error)
            if is_full(error):
                self._remove(name)
            return
        self._good_writes += 1
        if self._good_writes == _GOOD_WRITES:
            logger.info("the cache of the store is used again: %s", self._path)
        self._make_room(name)

    def forget(self, key: str, size: int, first: int) -> None:
        """See ``BlockCache``."""
        self.counters.cache_corrupt += 1
        name = self._name(key)
        self._warn(f"{self._path / name}: the MiB from byte {first * BLOCK_BYTES} on is damaged")
        with self._guard:
            entry = self._entries.get(name)
            if entry is not None:
                entry.bad.add(first)
                entry.checked.discard(first)

    def whole(self, key: str, size: int, inode: int, instead: Callable[[], File]) -> File | None:
        """See ``BlockCache``."""
        name = self._name(key)
        with self._guard:
            entry = self._entries.get(name)
            if entry is None or len(entry.checked) * BLOCK_BYTES < size:
                return None
            self._entries.move_to_end(name)
        path = str(self._path / name)
        try:
            file = PosixFile(path, os.open(path, os.O_RDONLY | _FLAGS))
        except FileNotFoundError:
            self._remove(name)
            return None
        except OSError as error:
            self._note(error)
            return None

        def fall_back(error: OSError | None) -> File:
            if error is not None:
                self._note(error)
            with self._guard:
                entry.checked.clear()
            return instead()

        try:
            stamp, hole = stamp_of(file.fileno()), os.lseek(file.fileno(), 0, os.SEEK_HOLE)
            # Another process may have changed the file that was checked, or made this one.
            if stamp == entry.stamp and hole == stamp.size == size:
                opened = CachedFile(path, file, stamp, inode, self.counters, fall_back)
                with self._guard:
                    entry.files.add(opened)
                return opened
        except OSError as error:
            self._note(error)
        file.close()
        with self._guard:
            entry.checked.clear()
        return None

    def _name(self, key: str) -> str:
        return hashlib.sha256(f"{self._url}/{key}".encode()).hexdigest()[:_NAME_DIGITS]

    def _note_written(self, name: str, entry: _Entry, blocks: range, written: _Written) -> None:
        """Note blocks that were written; the lock of the entry is held."""
        with self._guard:
            before = self._entries.pop(name, None)
            known_bytes = 0 if before is None else before.disk_bytes
            self._used_bytes += written.disk_bytes - known_bytes
            entry.disk_bytes = written.disk_bytes
            self._entries[name] = entry
            if written.before != entry.stamp:
                entry.checked.clear()  # another process has changed it
            entry.stamp = written.after
            entry.checked.update(blocks)
            entry.bad.difference_update(blocks)

    def _look(self) -> None:
        """List the directory again if it is gone, or another one; OSError: it cannot be used."""
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            facts = None
        if facts is None or (facts.st_dev, facts.st_ino) != self._listed:
            self._prepare()

    def _prepare(self) -> None:
        """Make the directory if it is missing, and note the files that are there.

        Raises:
            OSError: It cannot be made or listed.
        """
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts_of_directory = self._path.stat()
        found = []
        with os.scandir(self._path) as entries:
            for entry in entries:
                if len(entry.name) == _NAME_DIGITS and entry.is_file(follow_symlinks=False):
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # another process has removed it
                    used_ns = max(facts.st_atime_ns, facts.st_mtime_ns)
                    found.append((used_ns, entry.name, facts.st_blocks * _DISK_BLOCK_BYTES))
        with self._guard:
            for known in self._entries.values():
                known.disk_bytes = 0
            self._entries.clear()
            for _, name, disk_bytes in sorted(found):
                self._entries[name] = _Entry(disk_bytes)
            self._used_bytes = sum(disk_bytes for *_, disk_bytes in found)
            self._listed = facts_of_directory.st_dev, facts_of_directory.st_ino
        self._make_room(None)

    def _read(self, name: str, entry: _Entry, size: int, start: int, length: int) -> bytes | None:
        """Return bytes of a file up to its first hole; None if they begin with one."""
        descriptor = os.open(self._path / name, os.O_RDONLY | _FLAGS)
        try:
            with entry.lock:
                stamp = stamp_of(descriptor)
                if stamp != entry.stamp:
                    with self._guard:
                        entry.checked.clear()
                    entry.stamp = stamp
            if stamp.size != size:
                return None
            try:
                if os.lseek(descriptor, start, os.SEEK_DATA) != start:
                    return None
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return None  # only a hole is left
            stop = os.lseek(descriptor, start, os.SEEK_HOLE)
            with suppress(OSError):  # a file system that is read-only, or of another user
                os.utime(descriptor, ns=(self._now_ns(), stamp.mtime_ns))
            return os.pread(descriptor, min(length, stop - start), start)
        finally:
            os.close(descriptor)

    def _put(self, name: str, size: int, start: int, data: ReadableBuffer) -> _Written:
        """Write bytes of a file; see ``_write``. Makes the directory if it was deleted."""
        for _ in range(_TRIES):
            try:
                return self._write(name, size, start, data)
            except FileNotFoundError:
                self._prepare()
            except OSError as error:  # no room for a name
                if not is_full(error) or not self._evict(name):
                    raise
        return self._write(name, size, start, data)

    def _write(self, name: str, size: int, start: int, data: ReadableBuffer) -> _Written:
        """Write bytes of a file; makes room if the file system is full."""
        flags = os.O_RDWR | os.O_CREAT | _FLAGS
        descriptor = os.open(self._path / name, flags, 0o600)
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", str(self._path / name))
            before = stamp_of(descriptor)
            if before.size != size:
                os.ftruncate(descriptor, size)
            view = memoryview(data)
            done = 0
            while done < len(view):
                try:
                    done += os.pwrite(descriptor, view[done:], start + done)
                except OSError as error:
                    if not is_full(error) or not self._evict(name):
                        raise
            blocks = os.fstat(descriptor).st_blocks
            return _Written(blocks * _DISK_BLOCK_BYTES, before, stamp_of(descriptor))
        finally:
            os.close(descriptor)

    def _make_room(self, but: str | None) -> None:
        """Remove the files that were used least recently, but not this one, until the rest fits."""
        while True:
            with self._guard:
                if self._used_bytes <= self._limit_bytes:
                    return
            if not self._evict(but):
                return

    def _evict(self, but: str | None) -> bool:
        """Remove the file that was used least recently, but not this one; False: there is none."""
        with self._guard:
            name = next((name for name in self._entries if name != but), None)
        if name is None:
            return False
        self._remove(name)
        return True

    def _remove(self, name: str) -> None:
        with self._guard:
            entry = self._entries.pop(name, None)
            if entry is not None:
                self._used_bytes -= entry.disk_bytes
                entry.disk_bytes = 0
                for file in entry.files:
                    file.release()
                entry.files.clear()
        try:
            os.unlink(self._path / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(error)

    def _note(self, error: OSError) -> None:
        """Count an error, and log it, once until the fault is over."""
        self.counters.cache_errors += 1
        self._warn(str(error))

    def _warn(self, text: str) -> None:
        is_new, self._good_writes = self._good_writes >= _GOOD_WRITES, 0
        if is_new:
            logger.warning("the cache of the store: %s; the store is read instead", text)
