"""A read-only file whose contents are in memory."""

import errno

from logfs.disk.vfs import ReadableBuffer, Sync, Syncs


class ConstantFile:
    """A ``vfs.File`` of bytes that never change; every write is refused with EROFS."""

    __slots__ = ("_data", "_inode", "_name")

    def __init__(self, name: str, data: bytes, inode: int) -> None:
        self._name = name
        self._data = memoryview(data)
        self._inode = inode

    def size(self) -> int:
        """See ``vfs.File``."""
        return len(self._data)

    def inode(self) -> int:
        """See ``vfs.File``."""
        return self._inode

    def fileno(self) -> int:
        """See ``vfs.File``: there is no descriptor."""
        return -1

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``."""
        part = self._data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``."""
        return self.pread_into(buffer, position)

    def pread(self, size: int, position: int) -> bytes:
        """See ``vfs.File``."""
        return bytes(self._data[position : position + size])

    def next_data(self, position: int) -> int:
        """See ``vfs.File``."""
        return min(position, len(self._data))

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """Raise OSError (EROFS)."""
        raise OSError(errno.EROFS, "the file is read-only", self._name)

    def make_room(self, position: int, length: int) -> bool:
        """See ``vfs.File``."""
        return False

    def truncate(self, size: int) -> None:
        """Raise OSError (EROFS)."""
        raise OSError(errno.EROFS, "the file is read-only", self._name)

    def sync(self) -> None:
        """Do nothing: nothing can be written."""

    def drop_cached(self) -> None:
        """See ``vfs.File``."""

    def has_name(self) -> bool:
        """See ``vfs.File``."""
        return True

    def begin_sync(self, syncs: Syncs) -> Sync | None:
        """See ``vfs.File``."""
        return None

    def close(self) -> None:
        """Do nothing: there is no descriptor."""
