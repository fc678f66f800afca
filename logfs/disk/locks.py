"""The lock on a data directory: a POSIX record lock on the whole file, as Java's FileChannel takes.

Source: Kafka LogManager.lockLogDirs, FileLock. Unlike Kafka the file is kept when the lock goes.
"""

import fcntl
import os
import struct
import threading

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


def take_lock(path: str) -> PosixLock:
    """Lock the file at ``path``, made if missing. See ``vfs.Disk.lock``."""
    with _guard:
        while True:
            _refuse_own(path)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                identity = _lock_descriptor(descriptor, path)
            except BaseException:
                os.close(descriptor)
                raise
            if identity is not None:
                _held.add(identity)
                return PosixLock(descriptor, identity)
            os.close(descriptor)


def is_locked(path: str) -> bool:
    """Tell whether the file at ``path`` is locked. See ``vfs.Disk.is_locked``."""
    with _guard:
        try:
            found = os.stat(path)
            if (found.st_dev, found.st_ino) in _held:
                return True  # and to open it would be to drop the lock
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            answer = fcntl.fcntl(
                descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            )
        finally:
            os.close(descriptor)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _refuse_own(path: str) -> None:
    """Look before opening: the close after a refusal would drop the lock."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    if (found.st_dev, found.st_ino) in _held:
        raise LockedError(f"{path} is locked by this process already (pid {os.getpid()})")


def _lock_descriptor(descriptor: int, path: str) -> tuple[int, int] | None:
    """Lock an open file; None if its name was removed meanwhile, as Kafka does at shutdown."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = _holder(descriptor)
        by = f"process {holder}" if holder is not None else "another process"
        raise LockedError(f"{path} is locked by {by}: stop it, or use another directory") from None
    locked = os.fstat(descriptor)
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return None
    identity = (locked.st_dev, locked.st_ino)
    return identity if identity == (named.st_dev, named.st_ino) else None


def _holder(descriptor: int) -> int | None:
    """Ask the kernel who holds the lock; None for another pid namespace or an unlock meanwhile."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
    except OSError:
        return None
    kind, _whence, _start, _length, pid = _FLOCK.unpack(answer)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None
