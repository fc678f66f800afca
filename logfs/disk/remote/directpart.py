"""A read-only file of a part of an object that keeps nothing in memory."""

from logfs.disk.constantfile import ConstantFile
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import RemotePart


class DirectPart(ConstantFile):
    """A part of an object; each read is one request. For stores that are as near as a disk."""

    __slots__ = ("_part", "_store")

    def __init__(self, store: ObjectStore, name: str, part: RemotePart) -> None:
        super().__init__(name, b"", part.inode)
        self._store = store
        self._part = part

    def size(self) -> int:
        """See ``vfs.File``."""
        return self._part.size

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``."""
        size = min(len(buffer), self._part.size - position)
        if size <= 0:
            return 0
        buffer[:size] = self._store.get_range(self._part.key, self._part.start + position, size)
        return size

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``: whether it would wait is not known."""
        return None

    def pread(self, size: int, position: int) -> bytes:
        """See ``vfs.File``."""
        data = bytearray(max(min(size, self._part.size - position), 0))
        self.pread_into(memoryview(data), position)
        return bytes(data)

    def next_data(self, position: int) -> int:
        """See ``vfs.File``."""
        return min(position, self._part.size)
