"""A disk of the operating system: ``vfs`` done with system calls on one directory."""

import errno
import os
import shutil
import stat

from logfs.disk.locks import is_locked, take_lock
from logfs.disk.passing import PassingFile
from logfs.disk.posixfile import PosixFile
from logfs.disk.transfer import unshare
from logfs.disk.vfs import File, FileStat, Lock, ReadableBuffer, replace_file


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
