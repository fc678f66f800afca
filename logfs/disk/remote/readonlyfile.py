"""The common part of all files of an object store: they never change, and are durable."""

import errno
from typing import NoReturn

from logfs.disk.vfs import ReadableBuffer, Sync, Syncs


class ReadOnlyFile:
    """A ``vfs.File`` that is in an object store; a subclass has its size, its inode and its bytes.

    Args:
        name: For errors.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def size(self) -> int:
        """See ``vfs.File``."""
        raise NotImplementedError

    def inode(self) -> int:
        """See ``vfs.File``."""
        raise NotImplementedError

    def fileno(self) -> int:
        """See ``vfs.File``; the kernel cannot read a store."""
        return -1

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``."""
        raise NotImplementedError

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``."""
        raise NotImplementedError

    def pread(self, size: int, position: int) -> bytes:
        """See ``pread_into``."""
        data = bytearray(max(min(size, self.size() - position), 0))
        return bytes(data[: self.pread_into(memoryview(data), position)])

    def next_data(self, position: int) -> int:
        """See ``vfs.File``; there are no holes."""
        return min(position, self.size())

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """See ``vfs.File``; EROFS."""
        self._refuse()

    def make_room(self, position: int, length: int) -> bool:
        """See ``vfs.File``; it is not possible."""
        return False

    def truncate(self, size: int) -> None:
        """See ``vfs.File``; EROFS."""
        self._refuse()

    def sync(self) -> None:
        """See ``vfs.File``; an object is durable."""

    def drop_cached(self) -> None:
        """See ``vfs.File``."""

    def has_name(self) -> bool:
        """See ``vfs.File``."""
        return True

    def begin_sync(self, syncs: Syncs) -> Sync | None:
        """See ``vfs.File``."""
        return None

    def close(self) -> None:
        """See ``vfs.File``."""

    def _refuse(self) -> NoReturn:
        text = "the file is in the object store: it is read-only"
        raise OSError(errno.EROFS, text, self._name)


class ConstantFile(ReadOnlyFile):
    """A file of bytes in memory, which takes no request."""

    __slots__ = ("_data", "_inode")

    def __init__(self, name: str, data: bytes, inode: int) -> None:
        super().__init__(name)
        self._data = memoryview(data)
        self._inode = inode

    def size(self) -> int:
        """See ``vfs.File``."""
        return len(self._data)

    def inode(self) -> int:
        """See ``vfs.File``."""
        return self._inode

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``."""
        part = self._data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``."""
        return self.pread_into(buffer, position)
