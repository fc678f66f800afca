"""The common part of all files of an object store: they never change, and are durable."""

import errno
from typing import NoReturn

from logfs.disk.vfs import ReadableBuffer, Sync, Syncs


class ReadOnlyFile:
    """The methods of ``vfs.File`` that change a file, for one that is in an object store.

    Args:
        name: For errors.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def size(self) -> int:
        """See ``vfs.File``."""
        raise NotImplementedError

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

    def _refuse(self) -> NoReturn:
        text = "the file is in the object store: it is read-only"
        raise OSError(errno.EROFS, text, self._name)
