"""A read-only disk whose files are parts of objects, or bytes that were made from objects.

A ``FileTree`` says which directories and files there are; it may ask the store. Reading a part that
the store does not have any more asks the tree whether the file was removed. If it was not, an
object that should be there is missing, and that is an EIO.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn, Protocol

from logfs.disk.remote.blocks import MissingObjectError
from logfs.disk.remote.chunkedfile import ChunkedFile, ChunkedPart
from logfs.disk.remote.counters import BlockCounters
from logfs.disk.remote.overlay import CountersOf, OpenPart, RemotePart
from logfs.disk.remote.readonlyfile import ConstantFile, ReadOnlyFile
from logfs.disk.vfs import (
    SMALL_FILE_BYTES,
    Contents,
    File,
    FileStat,
    Lock,
    ReadableBuffer,
    check_size,
)

_BLOCK_BYTES = 4096
_MOST_NAME_BYTES = 255


class MadeFile(NamedTuple):
    """A file whose contents were made from objects."""

    data: bytes
    mtime_ms: int
    inode: int


FoundFile = RemotePart | ChunkedPart | MadeFile


class Directory(Protocol):
    """One directory of files at one moment; it never changes."""

    @property
    def mtime_ms(self) -> int:
        """Differs from that of another moment with other files."""
        ...

    @property
    def inode(self) -> int:
        """Which directory it is."""
        ...

    def find(self, name: str) -> FoundFile | None:
        """Return a file; None if there is none of this name."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all files."""
        ...


class FileTree(Protocol):
    """Directories of files, one level deep. Any thread. Everything may raise OSError."""

    def root(self) -> Directory:
        """Return the files of the root; its time differs when the directories do."""
        ...

    def directories(self) -> Sequence[tuple[str, int]]:
        """Return the names and inodes of all directories."""
        ...

    def directory(self, name: str) -> Directory | None:
        """Return a directory as it is known now; None if there is none."""
        ...

    def is_removed(self, directory: str, name: str, part: RemotePart) -> bool:
        """Ask the store whether a file is gone from its directory, after its object was missing."""
        ...


class TreeDisk:
    """A ``vfs.Disk`` of a ``FileTree``; every change is refused with EROFS.

    Args:
        root: Its URL.
        tree: Its directories and files.
        open_part: Makes a file of a part of an object.
        counters: Returns what reads have cost.
    """

    __slots__ = ("_counters", "_open_part", "root", "tree")
    has_store = True

    def __init__(
        self,
        root: str,
        tree: FileTree,
        open_part: OpenPart,
        counters: CountersOf = lambda: None,
    ) -> None:
        self._counters = counters
        self.root = root
        self.tree = tree
        self._open_part = open_part

    def __repr__(self) -> str:
        return f"TreeDisk({self.root!r})"

    @property
    def block_counters(self) -> BlockCounters | None:
        """The cost of reads from the store."""
        return self._counters()

    def open(
        self, name: str, *, write: bool = False, create: bool = False, uncached: bool = False
    ) -> File:
        """See ``vfs.Disk``; sends no request for the file itself."""
        if write or create:
            self._refuse(name)
        found = self._find(name)
        if isinstance(found, MadeFile):
            return ConstantFile(name, found.data, found.inode)
        if not found.size:
            return ConstantFile(name, b"", found.inode)
        if isinstance(found, ChunkedPart):
            file = ChunkedFile(self._open_part(name, found.part), name, found)
            return PartFile(file, self, name, found.part)
        return PartFile(self._open_part(name, found), self, name, found)

    def list(self, name: str) -> "list[tuple[str, bool]]":
        """See ``vfs.Disk``."""
        found = self.contents(name)
        files = [(entry, False) for entry in found.files]
        return sorted([*files, *((entry, True) for entry in found.directories)])

    def contents(self, name: str) -> Contents:
        """See ``vfs.Disk``."""
        files = list(self._directory(name).names())
        directories = [] if name else [entry for entry, _ in self.tree.directories()]
        return Contents(files, directories, [])

    def inodes(self, name: str) -> dict[str, int]:
        """See ``vfs.Disk``."""
        directory = self._directory(name)
        found = {} if name else dict(self.tree.directories())
        for entry in directory.names():
            file = directory.find(entry)
            if file is not None:
                found[entry] = file.inode
        return found

    def stat(self, name: str) -> FileStat:
        """See ``vfs.Disk``."""
        directory = self._directory_or_none(name)
        if directory is not None:
            return FileStat(0, directory.mtime_ms, is_directory=True, inode=directory.inode)
        found = self._find(name)
        size = len(found.data) if isinstance(found, MadeFile) else found.size
        return FileStat(size, found.mtime_ms, is_directory=False, inode=found.inode)

    def exists(self, name: str) -> bool:
        """See ``vfs.Disk``."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def make_directory(self, name: str) -> None:
        """Raise OSError (EROFS)."""
        self._refuse(name)

    def rename(self, old: str, new: str) -> None:
        """Raise OSError (EROFS)."""
        self._refuse(old)

    def remove(self, name: str) -> None:
        """Raise OSError (EROFS)."""
        self._refuse(name)

    def remove_tree(self, name: str) -> None:
        """Raise OSError (EROFS)."""
        self._refuse(name)

    def sync_directory(self, name: str) -> None:
        """Do nothing: nothing can be changed."""

    def read(self, name: str, most: int | None = SMALL_FILE_BYTES) -> bytes:
        """See ``vfs.Disk``."""
        file = self.open(name)
        try:
            check_size(file.size(), most, self._address(name))
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def replace(self, name: str, data: ReadableBuffer) -> None:
        """Raise OSError (EROFS)."""
        self._refuse(name)

    def touch_times(self, name: str, mtime_ms: int) -> None:
        """Raise OSError (EROFS)."""
        self._refuse(name)

    def lock(self, name: str) -> Lock:
        """Raise OSError (EROFS)."""
        self._refuse(name)

    def is_locked(self, name: str) -> bool:
        """Return False: no process writes these files."""
        return False

    def cached_bytes(self, name: str) -> int | None:
        """Return None: the page cache has nothing of them."""
        return None

    def mount_id(self) -> str | None:
        """Return None: see ``vfs.Disk``."""
        return None

    def free(self) -> os.statvfs_result:
        """Return no size: a store has none, and a full disk would raise an alarm.

        df(1) leaves it out, unless it is named.
        """
        return os.statvfs_result(
            (_BLOCK_BYTES, _BLOCK_BYTES, 0, 0, 0, 0, 0, 0, os.ST_RDONLY, _MOST_NAME_BYTES)
        )

    def check_missing(self, name: str, part: RemotePart) -> None:
        """Raise OSError (EIO) if a file whose object is missing should be there."""
        directory, _, file = name.rpartition("/")
        if not self.tree.is_removed(directory, file, part):
            text = f"the store has no object {part.key}, which the head of the partition names"
            raise OSError(errno.EIO, text, self._address(name))

    def _find(self, name: str) -> FoundFile:
        parent, _, file = name.rpartition("/")
        directory = self._directory_or_none(parent)
        found = None if directory is None else directory.find(file)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", self._address(name))
        return found

    def _directory(self, name: str) -> Directory:
        directory = self._directory_or_none(name)
        if directory is not None:
            return directory
        self._find(name)  # raises FileNotFoundError unless it is a file
        raise NotADirectoryError(errno.ENOTDIR, "it is a file", self._address(name))

    def _directory_or_none(self, name: str) -> Directory | None:
        if ".." in name.split("/"):
            raise ValueError(f"{name} leads out of {self.root}")
        if not name:
            return self.tree.root()
        return None if "/" in name else self.tree.directory(name)

    def _address(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def _refuse(self, name: str) -> NoReturn:
        raise OSError(errno.EROFS, "an object store is open read-only", self._address(name))


class PartFile(ReadOnlyFile):
    """A file of a part of an object that may be removed from the store at any time.

    Attributes:
        when_removed: Called when a read has found out that the file was removed.
    """

    __slots__ = ("_disk", "_file", "_part", "when_removed")

    def __init__(self, file: File, disk: TreeDisk, name: str, part: RemotePart) -> None:
        super().__init__(name)
        self._file = file
        self._disk = disk
        self._part = part
        self.when_removed: Callable[[], object] | None = None

    def size(self) -> int:
        """See ``vfs.File``."""
        return self._file.size()

    def inode(self) -> int:
        """See ``vfs.File``."""
        return self._file.inode()

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``.

        Raises:
            FileNotFoundError: The file was removed.
            OSError: EIO: its object is missing, or the store failed.
        """
        try:
            return self._file.pread_into(buffer, position)
        except (FileNotFoundError, MissingObjectError):
            self._disk.check_missing(self._name, self._part)
            if self.when_removed is not None:
                self.when_removed()
            raise FileNotFoundError(errno.ENOENT, "the file was removed", self._name) from None

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``."""
        return self._file.pread_nowait_into(buffer, position)

    def close(self) -> None:
        """See ``vfs.File``."""
        self._file.close()
