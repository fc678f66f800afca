"""Names below a directory: no part of a name may be a symbolic link, and only regular files open.

The owner of a data directory may be another user than the one that mounts it or runs a command on
it, and can replace any name at any time. So a path below the root is never given to the kernel as a
whole. The directory of a name is opened first, without following a link, and the name is used
relative to that descriptor. The path of the root itself may contain links.

Opening a FIFO would wait for its other end: files are opened with O_NONBLOCK, which makes no
difference for regular files, and anything else is closed again and refused.
"""

import errno
import os
import stat
from types import TracebackType

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MODE = 0o664
"""The mode of new files; with an umask of 0, too, only the owner and the group may write."""
_KINDS = {
    stat.S_IFLNK: "a symbolic link, which is not followed inside a data directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
}


class Beneath:
    """The directory that holds a name, open for the time of a ``with`` block.

    An OSError that leaves the block names the whole path, if it does not name another one.

        with Beneath(root, "orders-0/logfs.config") as (directory, leaf):
            os.unlink(leaf, dir_fd=directory)

    Args:
        root: The data directory; links in its path are followed.
        name: Relative to it, "/" between the parts; "" is the root itself.

    Raises:
        ValueError: The name leads out of the root.
        FileNotFoundError: One of the directories does not exist.
        OSError: One of the directories is a symbolic link (ELOOP), or not a directory.
    """

    __slots__ = ("_descriptor", "_name", "_root")

    def __init__(self, root: str, name: str) -> None:
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"the name {name!r} leads out of {root}")
        self._root = root
        self._name = name
        self._descriptor = -1

    def __enter__(self) -> tuple[int, str]:
        folder, _, leaf = self._name.rpartition("/")
        if not folder:
            self._descriptor = os.open(self._root, _DIRECTORY)
        else:
            self._descriptor = self._open_folder(folder)
        return self._descriptor, leaf or "."

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)
        if isinstance(error, OSError) and not str(error.filename).startswith("/"):
            path = f"{self._root}/{self._name}" if self._name else self._root
            raise OSError(error.errno, error.strerror, path) from None

    def _open_folder(self, folder: str) -> int:
        """Open the directories down to the last one, none of them through a link."""
        first, *inner = folder.split("/")
        path = f"{self._root}/{first}"
        descriptor = _open_part(path, path, None)
        for part in inner:
            path = f"{path}/{part}"
            try:
                descriptor, outer = _open_part(path, part, descriptor), descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(outer)
        return descriptor


def open_regular(directory: int, leaf: str, flags: int, path: str) -> int:
    """Open a regular file in a directory; returns its descriptor.

    Args:
        flags: Those of open(2): access mode, O_CREAT, O_EXCL.

    Raises:
        IsADirectoryError: It is a directory.
        OSError: ELOOP for a symbolic link, ENXIO for anything else that is no regular file.
    """
    try:
        descriptor = os.open(leaf, flags | _FILE, _MODE, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            check_kind(os.stat(leaf, dir_fd=directory, follow_symlinks=False), path)
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            check_kind(found, path)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def kind_of(mode: int) -> str | None:
    """Return what a name is that is neither a regular file nor a directory; None if it is one."""
    return _KINDS.get(stat.S_IFMT(mode))


def check_kind(found: os.stat_result, path: str | None = None) -> None:
    """Refuse what is neither a regular file nor a directory.

    Raises:
        OSError: ELOOP for a symbolic link, ENXIO for the rest; the message says what it is.
    """
    kind = kind_of(found.st_mode)
    if kind is not None:
        number = errno.ELOOP if stat.S_ISLNK(found.st_mode) else errno.ENXIO
        raise OSError(number, f"{kind}; expected a regular file or a directory", path)


def _open_part(path: str, name: str, directory: int | None) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    except NotADirectoryError:
        check_kind(os.stat(name, dir_fd=directory, follow_symlinks=False), path)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
