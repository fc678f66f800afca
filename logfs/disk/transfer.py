"""Files of one directory in another one: linked where both are on one file system, else copied.

A hard link costs nothing and shares every later write in place, so only files that nobody changes
any more are linked; ``PosixDisk.open`` gives whoever does so after all a file of his own first. A
copy is whole and durable under its name or not there: it is written to ``NAME.tmp``, synced, given
the time of what it was made from, and renamed. Copies share their blocks with the original where
the file system can (copy_file_range).
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator

from logfs.disk.vfs import TEMPORARY_SUFFIX

Count = Callable[[int], None]
"""Told of bytes as they are copied."""

_CHUNK_BYTES = 16 * 1024 * 1024
_CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
_CANNOT_COPY_INSIDE = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF}
)


class FileTransfer:
    """Puts files of a source directory into a target directory. One thread at a time.

    Args:
        source: The directory with the files.
        target: Where they go.
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
            name: Below both directories.
            inode: Which file it has to be.

        Raises:
            FileNotFoundError: It is gone, or another one has its name by now.
            OSError: It cannot be read or written.
        """
        if not self._link(name, inode):
            self.copy(name, inode=inode)

    def copy(
        self, name: str, *, to: str | None = None, inode: int | None = None, size: int | None = None
    ) -> None:
        """Copy a file, or its first ``size`` bytes; whole and durable when this returns.

        Args:
            name: Below the source.
            to: Below the target; the same name by default.
            inode: Which file it has to be.
            size: How much of it is wanted.

        Raises:
            FileNotFoundError: It is gone, another one has its name, or it has become shorter.
            OSError: It cannot be read or written.
        """
        path, target = f"{self.source}/{name}", f"{self.target}/{to or name}"
        temporary = target + TEMPORARY_SUFFIX
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(source)
            length = found.st_size if size is None else size
            if inode not in (None, found.st_ino) or found.st_size < length:
                raise _gone(path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)  # it may be shared
            copy = os.open(temporary, flags, found.st_mode & 0o777)
            try:
                if copy_bytes(source, copy, length, self._counted) < length:
                    raise _gone(path)
                os.fsync(copy)
                os.utime(copy, ns=(found.st_mtime_ns, found.st_mtime_ns))
            finally:
                os.close(copy)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            if error.filename is None:
                raise OSError(error.errno, error.strerror, target) from None
            raise
        finally:
            os.close(source)
        os.replace(temporary, target)

    def is_copy(self, name: str, root: str) -> bool:
        """Whether a file below ``root`` is the file or a copy of it: size and time are the same."""
        try:
            copy, source = os.stat(f"{root}/{name}"), os.stat(f"{self.source}/{name}")
        except FileNotFoundError:
            return False
        return (copy.st_size, copy.st_mtime_ns) == (source.st_size, source.st_mtime_ns)

    def begins_alike(self, name: str, root: str, size: int) -> bool:
        """Whether the first bytes of a file and of the one below ``root`` are the same."""
        heads = []
        for directory in (self.source, root):
            try:
                descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                heads.append(os.pread(descriptor, size, 0))
            finally:
                os.close(descriptor)
        return heads[0] == heads[1]

    def reuse(self, name: str, root: str) -> bool:
        """Link a copy below ``root`` into the target; False if that cannot be done."""
        return root == self.target or self._put_link(f"{root}/{name}", f"{self.target}/{name}")

    def _link(self, name: str, inode: int) -> bool:
        if not self._may_link:
            return False
        path, target = f"{self.source}/{name}", f"{self.target}/{name}"
        if not self._put_link(path, target):
            return False
        if os.stat(target).st_ino != inode:
            os.unlink(target)
            raise _gone(path)
        return True

    def _put_link(self, path: str, target: str) -> bool:
        try:
            if os.stat(target).st_ino == os.stat(path).st_ino:
                return True
            os.unlink(target)
        except FileNotFoundError:
            pass
        try:
            os.link(path, target)
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
    """Copy up to ``size`` bytes from the begin of one descriptor to that of another.

    Returns:
        How many were copied: fewer only if the source is shorter.

    Raises:
        OSError: The disk failed.
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
            data = os.pread(source, length, done)
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


def unshare(path: str) -> None:
    """Give a name that shares its file with others a file of its own, of the same bytes.

    Raises:
        OSError: There is no room for it; nothing has changed.
    """
    temporary = path + TEMPORARY_SUFFIX
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(source)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        copy = os.open(temporary, flags, found.st_mode & 0o7777)
        try:
            copy_bytes(source, copy, found.st_size)
            with contextlib.suppress(PermissionError):
                os.fchown(copy, found.st_uid, found.st_gid)
            os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
            os.fsync(copy)
        finally:
            os.close(copy)
        os.replace(temporary, path)
        _sync_directory(os.path.dirname(path))
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(source)


def give_away(paths: Iterable[str], like: str) -> None:
    """Give what root has made below some paths to the owner of a file or directory.

    Does nothing for anybody but root, whose files are his own. What has another owner than root
    keeps it.

    Raises:
        OSError: That cannot be done.
    """
    if os.geteuid() != 0:
        return
    owner = os.stat(like)
    for path in paths:
        for found in (path, *_below(path)):
            if os.lstat(found).st_uid == 0:
                os.chown(found, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _below(path: str) -> Iterator[str]:
    for directory, directories, files in os.walk(path):
        yield from (f"{directory}/{name}" for name in (*directories, *files))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _gone(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "another file has its name by now", path)
