"""Who acts on a data directory: the daemon that owns it, or this process under its lock.

Nobody needs to know which. The daemon is asked through its control socket; a socket that nobody
answers at was left by a daemon that died, and the lock decides.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from logfs.client import Daemon
from logfs.errors import ControlError, LockedError, ReadOnlyError
from logfs.library.places import Place, noted_daemon, served_at
from logfs.machine.host import current_host, system_clock
from logfs.types import IsolationLevel

if TYPE_CHECKING:
    from logfs.log.store import LogStore, Progress

T = TypeVar("T")

PATIENCE_S = 60.0
_TRY_AGAIN_S = 0.1
_DATA = "user.logfs.data"
_LEVEL = "user.logfs.isolation_level"


def data_directory(place: Place) -> str:
    """Return the data directory, of a mount too; OSError if that does not answer."""
    return os.getxattr(place.root, _DATA).decode() if place.is_mount else place.root


def shown_level(place: Place) -> IsolationLevel:
    """Return what is shown of a directory by default: what its mount shows, else everything."""
    point = place.root if place.is_mount else served_at(place.root)
    if point is None:
        return IsolationLevel.READ_UNCOMMITTED
    return IsolationLevel(os.getxattr(point, _LEVEL).decode())


def daemon_of(place: Place) -> Daemon | None:
    """Connect to the daemon that owns a data directory; None if there is none.

    Raises:
        PermissionError: It is another user's.
        OSError: The mount or the socket cannot be reached.
    """
    return Daemon.connect(data_directory(place))


def mount_to_use(place: Place) -> str | None:
    """Return the mount point to use because the control socket is another user's.

    None if the socket may be used, or there is no daemon.

    Raises:
        PermissionError: It is another user's, and its mount cannot be used either.
        OSError: The mount or the socket cannot be reached.
    """
    try:
        daemon = daemon_of(place)
    except PermissionError:
        point = place.root if place.is_mount else served_at(place.root)
        if point is None:
            raise
        return point
    if daemon is not None:
        daemon.close()
    return None


def act(
    place: Place,
    ask: Callable[[Daemon], T],
    do: "Callable[[LogStore], T]",
    progress: "Progress | None" = None,
    *,
    is_durable: bool = True,
) -> T:
    """Have something done by the daemon, or do it.

    Args:
        place: The data directory or mount point.
        ask: What to ask a daemon for.
        do: What to do with the store if there is none.
        progress: Told how loading the store goes on, where that takes its time.
        is_durable: What is done without a daemon is flushed at the end.

    Raises:
        LockedError: Somebody else owns the directory.
        ReadOnlyError: It is mounted read-only.
        LogfsError, OSError: What was met.
    """
    found = _asked(place, ask)
    if found is None:
        if place.is_mount:
            raise ReadOnlyError("the mount is read-only, its daemon changes nothing")
        try:
            with opened_store(place.root, progress, is_durable=is_durable) as store:
                return do(store)
        except LockedError as error:
            found = _asked(place, ask)  # a daemon may have started meanwhile
            if found is None:
                raise owned(place.root, error) from error
    return found[0]


def act_patiently(
    place: Place, ask: Callable[[Daemon], T], do: "Callable[[LogStore], T]", *, is_durable: bool
) -> T:
    """Have something done that may be done twice, whoever comes to own the directory; see ``act``.

    Tries again if a daemon has gone before it answered, and while somebody else has the lock: one
    who does something short, or a daemon that is starting. Gives up after ``PATIENCE_S``.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act(place, ask, do, is_durable=is_durable)
        except (ControlError, LockedError) as error:
            is_answer = isinstance(error, ControlError) and error.__cause__ is None
            if is_answer or time.monotonic() > deadline_s:
                raise
        time.sleep(_TRY_AGAIN_S)


def _asked(place: Place, ask: Callable[[Daemon], T]) -> tuple[T] | None:
    daemon = daemon_of(place)
    if daemon is None:
        return None
    with daemon:
        return (ask(daemon),)


@contextmanager
def opened_store(
    data: str, progress: "Progress | None" = None, *, is_durable: bool = True
) -> "Iterator[LogStore]":
    """Open a data directory to change it, recovering it if need be; closes it cleanly.

    Without ``is_durable`` nothing is flushed then.

    Raises:
        LockedError: Somebody else owns it.
        OSError: It cannot be written.
    """
    # Whoever finds a daemon needs none of this, which takes longer than asking.
    from logfs.config import StoreConfig
    from logfs.disk.posix import PosixDisk
    from logfs.log.store import LogStore

    clock = system_clock()
    store = LogStore.open(
        PosixDisk(data),
        StoreConfig.from_properties({}),
        current_host(),
        now_ms=clock.now_ms(),
        progress=progress,
    )
    try:
        yield store
    finally:
        store.close(clock.now_ms(), is_durable=is_durable)


def owned(data: str, error: LockedError) -> LockedError:
    """Return what to say of a directory whose owner cannot be asked."""
    daemon = noted_daemon(data)
    if daemon is None:
        return error
    if served_at(data) is not None:
        return LockedError(
            f"process {daemon.pid} serves it at {daemon.mount_point}: 'logfs umount "
            f"{daemon.mount_point}' first"
        )
    return LockedError(
        f"{error}; its last daemon, process {daemon.pid}, was mounted at {daemon.mount_point}, "
        "which cannot be used from here"
    )
