"""An object that is in the cache directory as a whole, as a file.

The cache directory may be lost, damaged or changed at any time, also while the file is open. So
each read looks whether the file is still the one that was checked. If it is not, or cannot be read,
the store is read from then on. For the same reason the kernel does not read it by itself.
"""

import os
import threading
from collections.abc import Callable
from typing import NamedTuple

from logfs.disk.posixfile import PosixFile
from logfs.disk.remote.counters import BlockCounters
from logfs.disk.remote.readonlyfile import ReadOnlyFile
from logfs.disk.vfs import File


class Stamp(NamedTuple):
    """What is another one after each change of a file.

    Attributes:
        inode: The inode of the file.
        names: Its links; 0: it was removed.
        size: In bytes.
        mtime_ns: When it was written.
    """

    inode: int
    names: int
    size: int
    mtime_ns: int


def stamp_of(descriptor: int) -> Stamp:
    """Return the stamp of an open file; OSError: the disk failed."""
    found = os.fstat(descriptor)
    return Stamp(found.st_ino, found.st_nlink, found.st_size, found.st_mtime_ns)


class CachedFile(ReadOnlyFile):
    """The file; ``vfs.File`` describes the methods.

    Args:
        name: For errors.
        local: The file in the cache directory.
        stamp: When it was checked.
        inode: That of the file that it is read as.
        counters: Bytes that are read are counted there.
        fall_back: Notes why the file cannot be used, and returns the file of the store. Called
            once.
    """

    __slots__ = (
        "__weakref__", "_counters", "_fall_back", "_guard",
        "_inode", "_local", "_remote", "_stamp",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        local: PosixFile,
        stamp: Stamp,
        inode: int,
        counters: BlockCounters,
        fall_back: Callable[[OSError | None], File],
    ) -> None:
        super().__init__(name)
        self._local: PosixFile | None = local
        self._stamp = stamp
        self._inode = inode
        self._counters = counters
        self._fall_back = fall_back
        self._guard = threading.Lock()
        self._remote: File | None = None

    def size(self) -> int:
        """See ``vfs.File``."""
        return self._stamp.size

    def inode(self) -> int:
        """See ``vfs.File``."""
        return self._inode

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``."""
        wanted = max(min(len(buffer), self._stamp.size - position), 0)
        error: OSError | None = None
        local = self._local
        if local is not None:
            try:
                done = local.pread_into(buffer[:wanted], position)
                if done == wanted and self._is_same(local):
                    self._counters.loaded_bytes += done
                    return done
            except OSError as failure:
                error = _without_frames(failure)
        return self._instead(error).pread_into(buffer, position)

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``."""
        error: OSError | None = None
        local = self._local
        if local is not None:
            try:
                done = local.pread_nowait_into(buffer, position)
                if done is None or self._is_same(local):
                    self._counters.loaded_bytes += done or 0
                    return done
            except OSError as failure:
                error = _without_frames(failure)
        return self._instead(error).pread_nowait_into(buffer, position)

    def release(self) -> None:
        """Give the file in the cache directory up, so that its room is free; the store is read."""
        self._local = None  # closed when no thread reads it any more

    def close(self) -> None:
        """See ``vfs.File``."""
        self._local = None
        if self._remote is not None:
            self._remote.close()

    def _is_same(self, local: PosixFile) -> bool:
        return stamp_of(local.fileno()) == self._stamp

    def _instead(self, error: OSError | None) -> File:
        """Return the file of the store, which is read from now on."""
        with self._guard:
            if self._remote is None:
                self._remote = self._fall_back(error)
                self._local = None
            return self._remote


def _without_frames(error: OSError) -> OSError:
    """Return an error that says the same. The error itself has frames, which keep the file open."""
    return OSError(error.errno, error.strerror, error.filename)
