"""A disk of the operating system: ``vfs`` done with system calls on one directory."""

import errno
import mmap
import os
import shutil
import stat
import sys

from logfs.disk.locks import is_locked, take_lock
from logfs.disk.transfer import unshare
from logfs.disk.vfs import File, FileStat, Lock, ReadableBuffer, replace_file

_WOULD_WAIT = frozenset((errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS))
"""Answers to RWF_NOWAIT: not in the page cache; not offered by this file system or kernel."""


class PosixFile:
    """One descriptor. See ``vfs.File`` for what its methods promise."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, flags: int) -> None:
        self._descriptor = -1
        self._path = path
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)

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
            raise self._named(error) from None
        return done

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``."""
        try:
            return os.preadv(self._descriptor, (buffer,), position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _WOULD_WAIT:
                return None
            raise self._named(error) from None

    def pread(self, size: int, position: int) -> bytes:
        """See ``vfs.File``."""
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
            raise self._named(error) from None

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

    def map(self) -> memoryview:
        """See ``vfs.File``."""
        size = self.size()
        if size == 0:
            return memoryview(b"")  # mmap refuses length 0
        try:
            return memoryview(_map(self._descriptor, size))
        except OSError as error:
            raise self._named(error) from None

    def close(self) -> None:
        """See ``vfs.File``."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _named(self, error: OSError) -> OSError:
        """Put the path into an error of a call that knows only the descriptor."""
        return OSError(error.errno, error.strerror, self._path)


class PosixDisk:
    """The directory ``root`` of the operating system. See ``vfs.Disk`` for its promises."""

    __slots__ = ("_root",)

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)

    @property
    def root(self) -> str:
        """The directory, as an absolute path."""
        return self._root

    def __repr__(self) -> str:
        return f"PosixDisk({self._root!r})"

    def open(
        self, name: str, *, write: bool = False, create: bool = False, in_passing: bool = False
    ) -> File:
        """See ``vfs.Disk``."""
        if create and not write:
            raise ValueError("create needs write")
        flags = os.O_RDWR if write else os.O_RDONLY
        path = self._path(name)
        if not write and os.path.isdir(path):  # the kernel opens a directory for reading
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if write and _is_shared(path):
            unshare(path)
        if in_passing and not write:
            from logfs.disk.passing import PassingFile  # it is a ``PosixFile``

            return PassingFile(path, flags)
        return PosixFile(path, flags | (os.O_CREAT if create else 0))

    def list(self, name: str) -> list[tuple[str, bool]]:
        """See ``vfs.Disk``."""
        with os.scandir(self._path(name)) as entries:
            return sorted((entry.name, entry.is_dir()) for entry in entries)

    def inodes(self, name: str) -> dict[str, int]:
        """See ``vfs.Disk``."""
        with os.scandir(self._path(name)) as entries:
            return {entry.name: entry.inode() for entry in entries}

    def stat(self, name: str) -> FileStat:
        """See ``vfs.Disk``."""
        path = self._path(name)
        found = os.stat(path)
        return FileStat(
            size=found.st_size,
            mtime_ms=found.st_mtime_ns // 1_000_000,
            is_directory=stat.S_ISDIR(found.st_mode),
            inode=found.st_ino,
        )

    def exists(self, name: str) -> bool:
        """See ``vfs.Disk``."""
        return os.path.exists(self._path(name))

    def make_directory(self, name: str) -> None:
        """See ``vfs.Disk``."""
        os.mkdir(self._path(name))

    def rename(self, old: str, new: str) -> None:
        """See ``vfs.Disk``."""
        os.replace(self._path(old), self._path(new))

    def remove(self, name: str) -> None:
        """See ``vfs.Disk``."""
        os.unlink(self._path(name))

    def remove_tree(self, name: str) -> None:
        """See ``vfs.Disk``."""
        shutil.rmtree(self._path(name))

    def sync_directory(self, name: str) -> None:
        """See ``vfs.Disk``."""
        file = PosixFile(self._path(name), os.O_RDONLY | os.O_DIRECTORY)
        try:
            file.sync()
        finally:
            file.close()

    def read(self, name: str) -> bytes:
        """See ``vfs.Disk``."""
        file = self.open(name)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def replace(self, name: str, data: ReadableBuffer) -> None:
        """See ``vfs.Disk``."""
        replace_file(self, name, data)

    def touch_times(self, name: str, mtime_ms: int) -> None:
        """See ``vfs.Disk``."""
        os.utime(self._path(name), ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def lock(self, name: str) -> Lock:
        """See ``vfs.Disk``."""
        return take_lock(self._path(name))

    def is_locked(self, name: str) -> bool:
        """See ``vfs.Disk``."""
        return is_locked(self._path(name))

    def free(self) -> os.statvfs_result:
        """See ``vfs.Disk``."""
        return os.statvfs(self._root)

    def cached_bytes(self, name: str) -> int | None:
        """See ``vfs.Disk``."""
        from logfs.disk import residency  # ctypes: only for those who ask

        path = self._path(name)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return residency.cached_bytes(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, name: str) -> str:
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"the name {name!r} leads out of {self._root}")
        return f"{self._root}/{name}" if name else self._root


def _is_shared(path: str) -> bool:
    """Whether a file has another name as well: a backup, or what it was made from, has it too."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    return found.st_nlink > 1 and stat.S_ISREG(found.st_mode)


def _map(descriptor: int, size: int) -> mmap.mmap:
    """Map without a descriptor of its own where Python offers it (there it would keep one)."""
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False)
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
