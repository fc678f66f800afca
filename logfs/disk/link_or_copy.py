"""Files of one directory in another one: linked where both are on one file system, else copied.

A hard link costs nothing, but later writes in place would change both files. So only files that do
not change any more are linked, and ``PosixDisk.open`` replaces a linked file by a copy before it
opens the file to write. A copy is whole and durable under its name, or it is missing: it is written
to ``NAME.tmp``, synced, given the time of the original, and renamed. Copies share their blocks with
the original where the file system can (copy_file_range).
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable

from logfs.disk.beneath import Beneath, open_regular
from logfs.disk.vfs import TEMPORARY_SUFFIX

Count = Callable[[int], None]
"""Told of bytes as they are copied."""

_CHUNK_BYTES = 16 * 1024 * 1024
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
_CANNOT_COPY_INSIDE = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF, errno.EIO}
)
"""With EIO, reads and writes of this process show which of the two files is damaged."""


class FileTransfer:
    """Puts files of a source directory into a target directory. One thread at a time.

    Args:
        may_link: Use hard links where the file system allows it.
        count: Told of the bytes that are copied.

    Attributes:
        linked: Files that were linked.
        copied_bytes: Bytes that were copied.
    """

    def __init__(
        self, source: str, target: str, *, may_link: bool, count: Count | None = None
    ) -> None:
        self.source = source
        self.target = target
        self._may_link = may_link
        self._count = count
        self.linked = 0
        self.copied_bytes = 0

    def take(self, name: str, inode: int) -> None:
        """Have a file that does not change any more in the target, by a link or a copy.

        Args:
            inode: Which file it has to be.

        Raises:
            FileNotFoundError: It is gone, or another one has its name by now.
        """
        if not self._link(name, inode):
            self.copy(name, inode=inode)

    def copy(
        self, name: str, *, to: str | None = None, inode: int | None = None, size: int | None = None
    ) -> None:
        """Copy a file, or its first ``size`` bytes; whole and durable when this returns.

        Args:
            to: Below the target; the same name by default.
            inode: Which file it has to be.

        Raises:
            FileNotFoundError: It is gone, another one has its name, or it has become shorter.
        """
        path = f"{self.source}/{name}"
        with Beneath(self.source, name) as (directory, leaf):
            source = open_regular(directory, leaf, os.O_RDONLY, path)
        try:
            found = os.fstat(source)
            length = found.st_size if size is None else size
            if inode not in (None, found.st_ino) or found.st_size < length:
                raise _gone(path)
            with Beneath(self.target, to or name) as (directory, leaf):
                self._copy_to(directory, leaf, source, length)
        finally:
            os.close(source)

    def is_copy(self, name: str, root: str) -> bool:
        """Whether a file below ``root`` is the file or a copy of it: size and time are the same."""
        copy, source = _found(root, name), _found(self.source, name)
        if copy is None or source is None:
            return False
        return (copy.st_size, copy.st_mtime_ns) == (source.st_size, source.st_mtime_ns)

    def begins_alike(self, name: str, root: str, size: int) -> bool:
        """Whether the first bytes of a file and of the one below ``root`` are the same."""
        heads = []
        for top in (self.source, root):
            try:
                with Beneath(top, name) as (directory, leaf):
                    descriptor = open_regular(directory, leaf, os.O_RDONLY, f"{top}/{name}")
            except FileNotFoundError:
                return False
            try:
                heads.append(os.pread(descriptor, size, 0))
            finally:
                os.close(descriptor)
        return heads[0] == heads[1]

    def reuse(self, name: str, root: str) -> bool:
        """Link a copy below ``root`` into the target; False if that cannot be done."""
        return root == self.target or self._put_link(root, name)

    def _copy_to(self, directory: int, leaf: str, source: int, length: int) -> None:
        """Copy an open file to a name in a directory; nothing of it is left after an error."""
        found, temporary = os.fstat(source), leaf + TEMPORARY_SUFFIX
        copy = _new_file(directory, temporary, found.st_mode & 0o777)
        try:
            try:
                if copy_bytes(source, copy, length, self._counted) < length:
                    raise _gone(leaf)
                os.fsync(copy)
                os.utime(copy, ns=(found.st_mtime_ns, found.st_mtime_ns))
            finally:
                os.close(copy)
            os.replace(temporary, leaf, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise

    def _link(self, name: str, inode: int) -> bool:
        if not self._may_link or not self._put_link(self.source, name):
            return False
        found = _found(self.target, name)
        if found is None or found.st_ino != inode:
            with Beneath(self.target, name) as (directory, leaf):
                os.unlink(leaf, dir_fd=directory)
            raise _gone(f"{self.source}/{name}")
        return True

    def _put_link(self, root: str, name: str) -> bool:
        """Give a file below ``root`` the same name below the target, in place of what is there."""
        there, here = _found(self.target, name), _found(root, name)
        with (
            Beneath(self.target, name) as (target, target_leaf),
            Beneath(root, name) as (directory, leaf),
        ):
            if there is not None:
                if here is not None and there.st_ino == here.st_ino:
                    return True
                os.unlink(target_leaf, dir_fd=target)
            try:
                os.link(
                    leaf,
                    target_leaf,
                    src_dir_fd=directory,
                    dst_dir_fd=target,
                    follow_symlinks=False,
                )
            except OSError as error:
                if error.errno in _CANNOT_LINK:
                    return False
                raise
        self.linked += 1
        return True

    def _counted(self, size: int) -> None:
        self.copied_bytes += size
        if self._count is not None:
            self._count(size)


def copy_bytes(source: int, target: int, size: int, count: Count | None = None) -> int:
    """Copy ``size`` bytes from start to start; return how many, fewer if the source is shorter.

    Raises:
        OSError: It names the source if that cannot be read.
    """
    done, inside = 0, True
    while done < size:
        length = min(_CHUNK_BYTES, size - done)
        if inside:
            try:
                moved = os.copy_file_range(source, target, length, done, done)
            except OSError as error:
                if error.errno not in _CANNOT_COPY_INSIDE:
                    raise
                inside = False
                continue
        else:
            data = _read(source, length, done)
            moved = len(data)
            rest, at = memoryview(data), done
            while rest:
                written = os.pwrite(target, rest, at)
                rest, at = rest[written:], at + written
        if moved == 0:
            break
        done += moved
        if count is not None:
            count(moved)
    return done


def _read(source: int, length: int, position: int) -> bytes:
    try:
        return os.pread(source, length, position)
    except OSError as error:
        name = os.readlink(f"/proc/self/fd/{source}")
        raise OSError(error.errno, error.strerror, name) from None


def unshare(directory: int, leaf: str, path: str) -> None:
    """Give a name that shares its file its own file; after an OSError nothing has changed."""
    temporary = leaf + TEMPORARY_SUFFIX
    source = open_regular(directory, leaf, os.O_RDONLY, path)
    try:
        found = os.fstat(source)
        copy = _new_file(directory, temporary, found.st_mode & 0o7777)
        try:
            copy_bytes(source, copy, found.st_size)
            with contextlib.suppress(PermissionError):
                os.fchown(copy, found.st_uid, found.st_gid)
            os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
            os.fsync(copy)
        finally:
            os.close(copy)
        os.replace(temporary, leaf, src_dir_fd=directory, dst_dir_fd=directory)
        _sync_directory(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(source)


def give_away(paths: Iterable[str], like: str) -> None:
    """Give what root has made below some paths to the owner of a file or directory.

    Does nothing for users other than root, which cannot change owners. Files that root does not own
    keep their owner. Links are not followed.
    """
    if os.geteuid() != 0:
        return
    owner = os.stat(like)
    for path in paths:
        root, _, name = path.rstrip("/").rpartition("/")
        with Beneath(root or "/", name) as (directory, leaf):
            if _give(directory, leaf, owner):
                for _, folders, files, inside in os.fwalk(leaf, dir_fd=directory):
                    for found in (*folders, *files):
                        _give(inside, found, owner)


def _give(directory: int, leaf: str, owner: os.stat_result) -> bool:
    """Give one name away if it is root's; returns whether it is a directory."""
    found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
    if found.st_uid == 0:
        os.chown(leaf, owner.st_uid, owner.st_gid, dir_fd=directory, follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode)


def _new_file(directory: int, leaf: str, mode: int) -> int:
    """Make a file in place of what has the name, which may be another user's link."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(leaf, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(leaf, flags, mode, dir_fd=directory)


def _found(root: str, name: str) -> os.stat_result | None:
    """Describe a name without following a link; None if there is none."""
    try:
        with Beneath(root, name) as (directory, leaf):
            return os.stat(leaf, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _sync_directory(directory: int) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(".", flags, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _gone(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "another file has its name by now", path)
