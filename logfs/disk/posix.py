"""A disk of the operating system: ``vfs`` done with system calls on one directory."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from logfs.disk import mounts
from logfs.disk.beneath import Beneath, check_kind, kind_of, open_regular
from logfs.disk.link_or_copy import unshare
from logfs.disk.locks import is_locked, take_lock
from logfs.disk.posixfile import PosixFile
from logfs.disk.uncached_file import UncachedFile
from logfs.disk.vfs import (
    SMALL_FILE_BYTES,
    Contents,
    File,
    FileStat,
    Lock,
    ReadableBuffer,
    check_size,
    replace_file,
)
from logfs.disk.waiting import check_disk

_MODE = 0o775
"""The mode of new directories; with an umask of 0, too, only the owner and the group may write."""


class PosixDisk:
    """The directory ``root`` of the operating system. See ``vfs.Disk`` for its promises."""

    __slots__ = ("_mount_ids", "_root")

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)
        self._mount_ids: list[str | None] = []

    @property
    def root(self) -> str:
        """The directory, as an absolute path."""
        return self._root

    def __repr__(self) -> str:
        return f"PosixDisk({self._root!r})"

    def open(
        self, name: str, *, write: bool = False, create: bool = False, uncached: bool = False
    ) -> File:
        """See ``vfs.Disk``."""
        if create and not write:
            raise ValueError("create needs write")
        check_disk(name)
        path = self._path(name)
        with Beneath(self._root, name) as (directory, leaf):
            if not write:
                descriptor = open_regular(directory, leaf, os.O_RDONLY, path)
                return (UncachedFile if uncached else PosixFile)(path, descriptor)
            flags = os.O_RDWR | (os.O_CREAT if create else 0)
            file = PosixFile(path, open_regular(directory, leaf, flags, path))
            if os.fstat(file.fileno()).st_nlink > 1:  # a backup has it too, or made it
                file.close()
                unshare(directory, leaf, path)
                file = PosixFile(path, open_regular(directory, leaf, flags, path))
            return file

    def list(self, name: str) -> list[tuple[str, bool]]:
        """See ``vfs.Disk``."""
        return sorted((found, is_directory) for found, is_directory, _ in _scan(self._root, name))

    def inodes(self, name: str) -> dict[str, int]:
        """See ``vfs.Disk``."""
        return {found: inode for found, _, inode in _scan(self._root, name)}

    def contents(self, name: str) -> Contents:
        """See ``vfs.Disk``."""
        with _scanning(self._root, name) as entries:
            found = list(entries)
            files = [entry.name for entry in found if entry.is_file(follow_symlinks=False)]
            if len(files) == len(found):
                return Contents(files, (), ())
            folders = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
            kinds = [
                (entry.name, kind_of(entry.stat(follow_symlinks=False).st_mode))
                for entry in (found if len(files) + len(folders) < len(found) else ())
                if not _is_regular(entry)
            ]
        return Contents(files, folders, [(name, kind) for name, kind in kinds if kind is not None])

    def stat(self, name: str) -> FileStat:
        """See ``vfs.Disk``."""
        with Beneath(self._root, name) as (directory, leaf):
            found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                check_kind(found, self._path(name))
        return FileStat(
            size=found.st_size,
            mtime_ms=found.st_mtime_ns // 1_000_000,
            is_directory=stat.S_ISDIR(found.st_mode),
            inode=found.st_ino,
        )

    def exists(self, name: str) -> bool:
        """See ``vfs.Disk``."""
        try:
            with Beneath(self._root, name) as (directory, leaf):
                os.stat(leaf, dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                return False
            raise
        return True

    def make_directory(self, name: str) -> None:
        """See ``vfs.Disk``."""
        if not name:
            os.mkdir(self._root, _MODE)
            return
        with Beneath(self._root, name) as (directory, leaf):
            os.mkdir(leaf, _MODE, dir_fd=directory)

    def rename(self, old: str, new: str) -> None:
        """See ``vfs.Disk``."""
        with (
            Beneath(self._root, new) as (new_directory, new_leaf),
            Beneath(self._root, old) as (directory, leaf),
        ):
            os.replace(leaf, new_leaf, src_dir_fd=directory, dst_dir_fd=new_directory)

    def remove(self, name: str) -> None:
        """See ``vfs.Disk``."""
        with Beneath(self._root, name) as (directory, leaf):
            os.unlink(leaf, dir_fd=directory)

    def remove_tree(self, name: str) -> None:
        """See ``vfs.Disk``."""
        with Beneath(self._root, name) as (directory, leaf):
            found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                os.unlink(leaf, dir_fd=directory)  # the link alone
            else:
                from shutil import rmtree

                rmtree(leaf, dir_fd=directory)

    def sync_directory(self, name: str) -> None:
        """See ``vfs.Disk``."""
        with Beneath(self._root, name) as (directory, leaf):
            file = PosixFile(self._path(name), _open_listing(directory, leaf))
        try:
            file.sync()
        finally:
            file.close()

    def sync_all(self) -> None:
        """Have everything on the disk that was written to any file system, also without a sync."""
        os.sync()

    def read(self, name: str, most: int | None = SMALL_FILE_BYTES) -> bytes:
        """See ``vfs.Disk``."""
        file = self.open(name)
        try:
            size = file.size()
            check_size(size, most, self._path(name))
            return file.pread(size, 0)
        finally:
            file.close()

    def replace(self, name: str, data: ReadableBuffer) -> None:
        """See ``vfs.Disk``."""
        replace_file(self, name, data)

    def touch_times(self, name: str, mtime_ms: int) -> None:
        """See ``vfs.Disk``."""
        time_ns = mtime_ms * 1_000_000
        with Beneath(self._root, name) as (directory, leaf):
            os.utime(leaf, ns=(time_ns, time_ns), dir_fd=directory, follow_symlinks=False)

    def lock(self, name: str) -> Lock:
        """See ``vfs.Disk``."""
        with Beneath(self._root, name) as (directory, leaf):
            return take_lock(directory, leaf, self._path(name))

    def is_locked(self, name: str) -> bool:
        """See ``vfs.Disk``."""
        try:
            with Beneath(self._root, name) as (directory, leaf):
                return is_locked(directory, leaf, self._path(name))
        except FileNotFoundError:
            return False

    def mount_id(self) -> str | None:
        """See ``vfs.Disk``."""
        if not self._mount_ids:
            self._mount_ids.append(mounts.mount_id(self._root))
        return self._mount_ids[0]

    def free(self) -> os.statvfs_result:
        """See ``vfs.Disk``."""
        return os.statvfs(self._root)

    def cached_bytes(self, name: str) -> int | None:
        """See ``vfs.Disk``."""
        from logfs.disk import page_cache  # ctypes: imported on demand

        with Beneath(self._root, name) as (directory, leaf):
            descriptor = open_regular(directory, leaf, os.O_RDONLY, self._path(name))
        try:
            return page_cache.cached_bytes(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _scan(root: str, name: str) -> list[tuple[str, bool, int]]:
    """List regular files and directories: name, whether it is a directory, inode."""
    with _scanning(root, name) as entries:
        return [
            (entry.name, entry.is_dir(follow_symlinks=False), entry.inode())
            for entry in entries
            if _is_regular(entry)
        ]


@contextlib.contextmanager
def _scanning(root: str, name: str) -> "Iterator[Iterator[os.DirEntry[str]]]":
    with Beneath(root, name) as (directory, leaf):
        descriptor = _open_listing(directory, leaf)
        try:
            with os.scandir(descriptor) as entries:
                yield entries
        finally:
            os.close(descriptor)


def _is_regular(entry: "os.DirEntry[str]") -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def _open_listing(directory: int, leaf: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(leaf, flags, dir_fd=directory)
    except NotADirectoryError:
        check_kind(os.stat(leaf, dir_fd=directory, follow_symlinks=False))
        raise
