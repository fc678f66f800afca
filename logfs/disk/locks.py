"""The lock on a data directory: a POSIX record lock on the whole file, as Java's FileChannel takes.

Source: Kafka LogManager.lockLogDirs, FileLock. Unlike Kafka the file is kept when the lock goes.
"""

import fcntl
import os
import struct
import threading

from logfs.disk.beneath import open_regular
from logfs.errors import LockedError

_FLOCK = struct.Struct("hhqqi4x")
"""Linux struct flock on 64 bit: type, whence, start, length, pid."""

_guard = threading.RLock()  # the collector may close one lock while another is taken
_held: set[tuple[int, int]] = set()
"""(device, inode) of the files this process has locked: a record lock does not keep out its own
process, and closing any descriptor of the file would drop it."""


class PosixLock:
    """A lock that is held. See ``vfs.Lock``."""

    __slots__ = ("_descriptor", "_identity")

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._descriptor = descriptor
        self._identity = identity

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the lock."""
        with _guard:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
                _held.discard(self._identity)


def take_lock(directory: int, leaf: str, path: str) -> PosixLock:
    """Lock a file of a directory, made if missing. See ``vfs.Disk.lock``."""
    with _guard:
        while True:
            found = _identity(directory, leaf)
            if found in _held:  # before opening: the close after a refusal would drop the lock
                raise LockedError(f"{path} is locked by this process already (pid {os.getpid()})")
            descriptor = open_regular(directory, leaf, os.O_RDWR | os.O_CREAT, path)
            try:
                _lock_descriptor(descriptor, path)
                locked = os.fstat(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            identity = locked.st_dev, locked.st_ino
            if identity == _identity(directory, leaf):
                _held.add(identity)
                return PosixLock(descriptor, identity)
            os.close(descriptor)  # its name was removed meanwhile, as Kafka does at shutdown


def is_locked(directory: int, leaf: str, path: str) -> bool:
    """Tell whether a file of a directory is locked. See ``vfs.Disk.is_locked``."""
    with _guard:
        if _identity(directory, leaf) in _held:
            return True  # and to open it would be to drop the lock
        try:
            descriptor = open_regular(directory, leaf, os.O_RDONLY, path)
        except FileNotFoundError:
            return False
        try:
            answer = fcntl.fcntl(
                descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            )
        finally:
            os.close(descriptor)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _identity(directory: int, leaf: str) -> tuple[int, int] | None:
    """Return device and inode of a name; None if there is none."""
    try:
        found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _lock_descriptor(descriptor: int, path: str) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = _holder(descriptor)
        by = f"process {holder}" if holder is not None else "another process"
        raise LockedError(f"{path} is locked by {by}: stop it, or use another directory") from None


def _holder(descriptor: int) -> int | None:
    """Return the process that holds the lock; None in another pid namespace, or if released."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
    except OSError:
        return None
    kind, _whence, _start, _length, pid = _FLOCK.unpack(answer)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None
