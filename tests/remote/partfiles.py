"""The simplest file of a part of an object: every read is a request."""

import errno
from collections.abc import Callable

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import RemotePart
from logfs.disk.vfs import File, ReadableBuffer, Sync, Syncs


class PartFile:
    """A read-only ``File`` of a part of an object. Keeps nothing."""

    def __init__(self, store: ObjectStore, name: str, part: RemotePart) -> None:
        self._store = store
        self._name = name
        self._part = part

    def size(self) -> int:
        return self._part.size

    def inode(self) -> int:
        return self._part.inode

    def fileno(self) -> int:
        return -1

    def pread_into(self, buffer: memoryview, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        return 0 if position >= self._part.size else None

    def pread(self, size: int, position: int) -> bytes:
        length = max(0, min(size, self._part.size - position))
        if not length:
            return b""
        return bytes(self._store.get_range(self._part.key, self._part.start + position, length))

    def next_data(self, position: int) -> int:
        return min(position, self._part.size)

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        raise OSError(errno.EROFS, "a file of the store", self._name)

    def make_room(self, position: int, length: int) -> bool:
        return False

    def truncate(self, size: int) -> None:
        raise OSError(errno.EROFS, "a file of the store", self._name)

    def sync(self) -> None:
        raise OSError(errno.EROFS, "a file of the store", self._name)

    def drop_cached(self) -> None:
        return

    def has_name(self) -> bool:
        return True

    def begin_sync(self, syncs: Syncs) -> Sync | None:
        raise OSError(errno.EROFS, "a file of the store", self._name)

    def close(self) -> None:
        return


def parts_of(store: ObjectStore) -> Callable[[str, RemotePart], File]:
    """Return what opens files of a store, for an ``OverlayDisk``."""
    return lambda name, part: PartFile(store, name, part)
