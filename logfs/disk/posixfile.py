"""One open file of the operating system: ``vfs.File`` done with system calls on a descriptor."""

import contextlib
import errno
import os

from logfs.disk import vfs
from logfs.disk.vfs import ReadableBuffer
from logfs.disk.waiting import check_disk

_WOULD_WAIT = frozenset((errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS))
"""Answers to RWF_NOWAIT: not in the page cache; not offered by this file system or kernel."""


class PosixFile:
    """One descriptor, closed with it. See ``vfs.File`` for what its methods promise."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._descriptor = descriptor
        self._path = path

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PosixFile({self._path!r})"

    def size(self) -> int:
        """See ``vfs.File``."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._named(error) from None

    def inode(self) -> int:
        """See ``vfs.File``."""
        try:
            return os.fstat(self._descriptor).st_ino
        except OSError as error:
            raise self._named(error) from None

    def fileno(self) -> int:
        """See ``vfs.File``."""
        return self._descriptor

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``."""
        check_disk(self._path)
        size = len(buffer)
        try:
            done = os.preadv(self._descriptor, (buffer,), position)
            # One preadv moves at most 2 GiB and may stop at a signal: only 0 means the end.
            while 0 < done < size:
                count = os.preadv(self._descriptor, (buffer[done:],), position + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise self._named(error, size, position) from None
        return done

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``."""
        try:
            return os.preadv(self._descriptor, (buffer,), position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _WOULD_WAIT:
                return None
            raise self._named(error, len(buffer), position) from None

    def pread(self, size: int, position: int) -> bytes:
        """See ``vfs.File``."""
        check_disk(self._path)
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            done = len(data)
            while done < size and parts[-1]:
                parts.append(os.pread(self._descriptor, size - done, position + done))
                done += len(parts[-1])
            return b"".join(parts)
        except OSError as error:
            raise self._named(error, size, position) from None

    def next_data(self, position: int) -> int:
        """See ``vfs.File``."""
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return max(position, self.size())
            if error.errno == errno.EINVAL:  # this file system cannot tell
                return position
            raise self._named(error) from None

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """See ``vfs.File``."""
        try:
            done = os.pwrite(self._descriptor, data, position)
            size = memoryview(data).nbytes
            if done == size:
                return
            rest = memoryview(data).cast("B")
            while done < size:
                done += os.pwrite(self._descriptor, rest[done:], position + done)
        except OSError as error:
            raise self._named(error) from None

    def make_room(self, position: int, length: int) -> bool:
        """See ``vfs.File``."""
        from logfs.disk import preallocate  # ctypes: imported on demand

        return preallocate.set_aside(self._descriptor, position, length)

    def truncate(self, size: int) -> None:
        """See ``vfs.File``."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._named(error) from None

    def sync(self) -> None:
        """See ``vfs.File``."""
        if self._descriptor < 0:  # fsync alone answers ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._named(error) from None

    def drop_cached(self) -> None:
        """See ``vfs.File``."""
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def has_name(self) -> bool:
        """See ``vfs.File``."""
        try:
            return os.fstat(self._descriptor).st_nlink > 0
        except OSError as error:
            raise self._named(error) from None

    def begin_sync(self, syncs: vfs.Syncs) -> vfs.Sync | None:
        """See ``vfs.File``."""
        if self._descriptor < 0:
            return None
        try:
            return syncs.start(self._descriptor, self, self._path)
        except OSError:  # no more threads: that is nothing about the disk
            return None

    def close(self) -> None:
        """See ``vfs.File``."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _named(self, error: OSError, size: int = 0, position: int = 0) -> OSError:
        """Put the path, and where it read, into an error of a call that knows the descriptor."""
        text = str(error.strerror)
        if size and error.errno == errno.EIO:
            text += f" (reading {size} bytes from byte {position})"
        return OSError(error.errno, text, self._path)
