"""A disk of local files and of files that are in an object store alone.

A name that is there locally is that file. If it is not there, the catalog is asked: it knows which
part of which object has the contents of the name. Such a file is read-only: it cannot be written,
renamed or removed, and it is not synced, for it is durable. The catalog alone adds and removes it.

So everything that reads logs through a ``vfs.Disk`` reads tiered segments too, with no code for it.
"""

import errno
import os
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from logfs.disk.remote.counters import BlockCounters
from logfs.disk.vfs import (
    SMALL_FILE_BYTES,
    Contents,
    Disk,
    File,
    FileStat,
    Lock,
    ReadableBuffer,
    check_size,
)


class Checks(NamedTuple):
    """How the bytes of an object are checked.

    Attributes:
        whole: CRC-32C of the object, which is fetched as a whole; None: not checked so.
        blocks: The place of the CRC-32C of each MiB of the object (4 bytes, big endian): another
            object, its size, its own CRC-32C or None, first byte of the list; None: not checked so.
    """

    whole: int | None = None
    blocks: tuple[str, int, int | None, int] | None = None


UNCHECKED = Checks()


class RemotePart(NamedTuple):
    """Where the contents of one file are.

    Attributes:
        key: The object.
        start: First byte of the contents in the object.
        size: Bytes of the contents.
        object_size: Bytes of the whole object.
        mtime_ms: Modification time of the file, epoch milliseconds.
        inode: Which file it is; never 0.
        following: Object that a sequential reader needs next: its key and size; None if not known.
        checks: How the object is checked.
    """

    key: str
    start: int
    size: int
    object_size: int
    mtime_ms: int
    inode: int
    following: tuple[str, int] | None = None
    checks: Checks = UNCHECKED


class RemoteCatalog(Protocol):
    """Which names of which directories are in the store. Any thread; asks no store."""

    def find(self, name: str) -> RemotePart | None:
        """Return where the contents of a file are; None if the store does not have it."""
        ...

    def names(self, directory: str) -> Iterable[str]:
        """Return the names of the files of a directory that are in the store."""
        ...


CountersOf = Callable[[], BlockCounters | None]
"""Returns what reads have cost; None before the store was used."""

CachedBytes = Callable[[Iterable[str]], int]
"""Returns how many bytes of some objects, by their keys, are in the cache directory."""

OpenPart = Callable[[str, RemotePart], File]
"""Makes a file of a part of an object; takes its name on the disk. Sends no request."""


class OverlayDisk:
    """A local disk, and files of an object store in its directories. See ``vfs.Disk``."""

    __slots__ = ("_cached", "_catalog", "_counters", "_local", "_open_part")
    has_store = True

    def __init__(
        self,
        local: Disk,
        catalog: RemoteCatalog,
        open_part: OpenPart,
        counters: CountersOf = lambda: None,
        cached: CachedBytes = lambda _: 0,
    ) -> None:
        self._cached = cached
        self._counters = counters
        self._local = local
        self._catalog = catalog
        self._open_part = open_part

    def __repr__(self) -> str:
        return f"OverlayDisk({self._local!r})"

    @property
    def root(self) -> str:
        """The local directory; "" where the local disk is in none."""
        return str(getattr(self._local, "root", ""))

    @property
    def block_counters(self) -> BlockCounters | None:
        """The cost of reads from the store; None before it was used."""
        return self._counters()

    def object_cache_bytes(self, keys: Iterable[str]) -> int:
        """Return how many bytes of some objects are in the cache directory; 0 before it is used."""
        return self._cached(keys)

    @property
    def local(self) -> Disk:
        """The local files alone."""
        return self._local

    @property
    def catalog(self) -> RemoteCatalog:
        """The names that are in the store."""
        return self._catalog

    def open(
        self, name: str, *, write: bool = False, create: bool = False, uncached: bool = False
    ) -> File:
        """See ``vfs.Disk``; EROFS for a file of the store that is to be written."""
        try:
            if not create:
                return self._local.open(name, write=write, uncached=uncached)
        except FileNotFoundError:
            part = self._catalog.find(name)
            if part is None:
                raise
            if not write:
                return self._open_part(name, part)
        else:
            if self._part(name) is None:
                return self._local.open(name, write=write, create=create, uncached=uncached)
        raise _read_only(name)

    def list(self, name: str) -> "list[tuple[str, bool]]":
        """See ``vfs.Disk``."""
        found = self._local.list(name)
        here = {entry for entry, _ in found}
        added = [(entry, False) for entry in self._catalog.names(name) if entry not in here]
        return sorted([*found, *added]) if added else found

    def contents(self, name: str) -> Contents:
        """See ``vfs.Disk``."""
        found = self._local.contents(name)
        remote = list(self._catalog.names(name))
        if not remote:
            return found
        here = {*found.files, *found.directories, *(entry for entry, _ in found.irregular)}
        added = [entry for entry in remote if entry not in here]
        return Contents([*found.files, *added], found.directories, found.irregular)

    def inodes(self, name: str) -> dict[str, int]:
        """See ``vfs.Disk``."""
        found = self._local.inodes(name)
        for entry in self._catalog.names(name):
            if entry not in found:
                part = self._catalog.find(f"{name}/{entry}" if name else entry)
                if part is not None:
                    found[entry] = part.inode
        return found

    def stat(self, name: str) -> FileStat:
        """See ``vfs.Disk``."""
        try:
            return self._local.stat(name)
        except FileNotFoundError:
            part = self._catalog.find(name)
            if part is None:
                raise
            return FileStat(part.size, part.mtime_ms, is_directory=False, inode=part.inode)

    def exists(self, name: str) -> bool:
        """See ``vfs.Disk``."""
        return self._local.exists(name) or self._catalog.find(name) is not None

    def make_directory(self, name: str) -> None:
        """See ``vfs.Disk``."""
        self._local.make_directory(name)

    def rename(self, old: str, new: str) -> None:
        """See ``vfs.Disk``; EROFS for a file of the store."""
        if self._part(old) is not None:
            raise _read_only(old)
        self._local.rename(old, new)

    def remove(self, name: str) -> None:
        """See ``vfs.Disk``; EROFS for a file of the store."""
        if self._part(name) is not None:
            raise _read_only(name)
        self._local.remove(name)

    def remove_tree(self, name: str) -> None:
        """See ``vfs.Disk``; removes local files only."""
        self._local.remove_tree(name)

    def sync_directory(self, name: str) -> None:
        """See ``vfs.Disk``."""
        self._local.sync_directory(name)

    def read(self, name: str, most: int | None = SMALL_FILE_BYTES) -> bytes:
        """See ``vfs.Disk``."""
        try:
            return self._local.read(name, most)
        except FileNotFoundError:
            part = self._catalog.find(name)
            if part is None:
                raise
        check_size(part.size, most, name)
        file = self._open_part(name, part)
        try:
            return file.pread(part.size, 0)
        finally:
            file.close()

    def replace(self, name: str, data: ReadableBuffer) -> None:
        """See ``vfs.Disk``; EROFS for a file of the store."""
        if self._part(name) is not None:
            raise _read_only(name)
        self._local.replace(name, data)

    def touch_times(self, name: str, mtime_ms: int) -> None:
        """See ``vfs.Disk``; EROFS for a file of the store."""
        if self._part(name) is not None:
            raise _read_only(name)
        self._local.touch_times(name, mtime_ms)

    def lock(self, name: str) -> Lock:
        """See ``vfs.Disk``."""
        return self._local.lock(name)

    def is_locked(self, name: str) -> bool:
        """See ``vfs.Disk``."""
        return self._local.is_locked(name)

    def cached_bytes(self, name: str) -> int | None:
        """See ``vfs.Disk``; None for a file of the store."""
        return None if self._part(name) is not None else self._local.cached_bytes(name)

    def mount_id(self) -> str | None:
        """See ``vfs.Disk``."""
        return self._local.mount_id()

    def free(self) -> os.statvfs_result:
        """See ``vfs.Disk``; the room of the local file system."""
        return self._local.free()

    def is_stored(self, name: str) -> bool:
        """Return whether a file is in the store alone."""
        return self._part(name) is not None

    def _part(self, name: str) -> RemotePart | None:
        """Return where a file is that is in the store alone."""
        part = self._catalog.find(name)
        return None if part is None or self._local.exists(name) else part


def has_store(disk: Disk) -> bool:
    """Return whether some files of a disk are in an object store, so that a read may wait."""
    return bool(getattr(disk, "has_store", False))


def counters_of(disk: Disk) -> BlockCounters | None:
    """Return what reads from the store of a disk have cost; None if it has none, or none yet."""
    found: BlockCounters | None = getattr(disk, "block_counters", None)
    return found


def is_stored(disk: Disk, name: str) -> bool:
    """Return whether a file is in the object store alone: an error says nothing about the file."""
    return disk.is_stored(name) if isinstance(disk, OverlayDisk) else has_store(disk)


def local_part(disk: Disk) -> Disk:
    """Return the local files of a disk: what a removal or a rename of a file can concern."""
    return disk.local if isinstance(disk, OverlayDisk) else disk


def _read_only(name: str) -> OSError:
    return OSError(errno.EROFS, "the file is in the object store: it is read-only", name)
