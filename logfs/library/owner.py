"""Acting on a data directory: through the daemon that owns it, or in this process under its lock.

The daemon is asked through its control socket. If no daemon answers at the socket, the daemon has
died, and the lock decides.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from logfs.errors import ControlError, LockedError, ReadOnlyError, UnknownNameError
from logfs.library.places import (
    PATIENCE_S,
    DirectoryKind,
    Place,
    is_served,
    kind_of,
    locate,
    served_at,
)
from logfs.log import names
from logfs.machine.daemonnote import read_daemon_note
from logfs.machine.disks import is_url
from logfs.machine.host import current_host, system_clock
from logfs.types import IsolationLevel

if TYPE_CHECKING:
    from logfs.client import Daemon
    from logfs.disk.vfs import RootedDisk
    from logfs.log.store import LogStore, Progress

T = TypeVar("T")

_TRY_AGAIN_S = 0.1
_DATA = "user.logfs.data"
_LEVEL = "user.logfs.isolation_level"


def data_directory(place: Place) -> str:
    """Return the data directory of a place; OSError if its mount does not answer."""
    return os.getxattr(place.root, _DATA).decode() if place.is_mount else place.root


def data_and_point(place: Place) -> tuple[str, str | None]:
    """Return the data directory of a place, and the mount point if the place has one."""
    return data_directory(place), place.root if place.is_mount else None


def shown_level(place: Place) -> IsolationLevel:
    """Return the default isolation level: that of the mount, else all records."""
    point = place.root if place.is_mount else served_at(place.root)
    if point is None:
        return IsolationLevel.READ_UNCOMMITTED
    return IsolationLevel(os.getxattr(point, _LEVEL).decode())


def daemon_of(place: Place) -> "Daemon | None":
    """Connect to the daemon that owns a data directory; None if no daemon owns it.

    Raises:
        PermissionError: The socket is another user's.
        OSError: The mount or the socket cannot be reached.
    """
    from logfs.client import Daemon

    return Daemon.connect(data_directory(place))


def daemon_at(path: str) -> "Daemon":
    """Connect to the daemon that serves a data directory or a mount point.

    Raises:
        UnknownNameError: The path continues to a name in it.
        ControlError: No daemon answers.
        PermissionError, OSError: See ``daemon_of``.
    """
    place = locate(path)
    if place.address:
        raise UnknownNameError("expected a data directory or a mount point, no name in it")
    daemon = daemon_of(place)
    if daemon is None:
        raise ControlError("no daemon answers here: expected a mount that is not read-only")
    return daemon


class Access(NamedTuple):
    """What changes a data directory; one of the three.

    Attributes:
        daemon: The daemon that owns it.
        store: The store that this process owns meanwhile.
        point: The mount point of its daemon, whose control socket is another user's.
        refusal: The refusal of the control socket.
    """

    daemon: "Daemon | None" = None
    store: "LogStore | None" = None
    point: str | None = None
    refusal: PermissionError | None = None


@contextmanager
def access_to(
    data: str, point: str | None, progress: "Progress | None" = None, *, is_durable: bool = True
) -> Iterator[Access]:
    """Connect to the daemon, or open the store if no daemon owns the directory.

    Args:
        point: The mount point in the path of the caller. Then this process never takes the lock, as
            a mount without a control socket is read-only. None: the path has no mount point.
        is_durable: Flush the store at the end.

    Raises:
        PermissionError: The socket is another user's, and the mount cannot be used either.
        LockedError: Another process that is not a daemon owns the directory.
        ReadOnlyError: The mount is read-only, or the directory is in an object store.
        LogfsError, OSError: The directory cannot be opened.
    """
    if is_url(data):
        raise read_only_store(data)
    found = _served(data, point)
    if found is None and point is None and is_served(data):
        found = _served(data, point)
    if found is None and point is not None:
        raise ReadOnlyError("the mount is read-only, its daemon changes nothing")
    with ExitStack() as stack:
        if found is None:
            try:
                opened = opened_store(data, progress, is_durable=is_durable)
                found = Access(store=stack.enter_context(opened))
            except LockedError as error:
                found = _served(data, point)  # a daemon may have started meanwhile
                if found is None:
                    raise owned(data, error) from error
        if found.daemon is not None:
            stack.enter_context(found.daemon)
        yield found


def _served(data: str, point: str | None) -> Access | None:
    """Return how the daemon of a data directory is reached; None if no daemon owns it."""
    from logfs.client import Daemon

    try:
        daemon = Daemon.connect(data)
    except PermissionError as error:
        point = served_at(data) if point is None else point
        if point is None:
            raise
        return Access(point=point, refusal=error)
    return None if daemon is None else Access(daemon)


def act(
    place: Place,
    ask: "Callable[[Daemon], T]",
    do: "Callable[[LogStore], T]",
    progress: "Progress | None" = None,
    *,
    is_durable: bool = True,
) -> T:
    """Act through the daemon, or on the store if no daemon owns the directory.

    Args:
        is_durable: Flush the store at the end.

    Raises:
        PermissionError: The socket is another user's.
        LogfsError, OSError: See ``access_to``; errors of ``ask`` and ``do``.
    """
    with access_to(*data_and_point(place), progress, is_durable=is_durable) as access:
        if access.daemon is not None:
            return ask(access.daemon)
        if access.store is None:
            raise access.refusal or PermissionError(errno.EACCES, place.root)
        return do(access.store)


def act_patiently(
    place: Place, ask: "Callable[[Daemon], T]", do: "Callable[[LogStore], T]", *, is_durable: bool
) -> T:
    """Act as ``act`` does, and retry; the action may be repeated.

    Retries if a daemon ended before it answered, and while another process has the lock: a short
    command, or a daemon that is starting. Gives up after ``PATIENCE_S``.
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


@contextmanager
def opened_store(
    data: str, progress: "Progress | None" = None, *, is_durable: bool = True
) -> "Iterator[LogStore]":
    """Open a data directory to change it, recover it if necessary, and close it cleanly.

    Without ``is_durable`` the close flushes nothing. An empty directory stays empty if the change
    fails.

    Raises:
        LockedError: Another process owns it.
    """
    # These imports take longer than asking a daemon, which does not need them.
    from logfs.config import StoreConfig
    from logfs.log.store import LogStore
    from logfs.machine.disks import disk_of

    clock = system_clock()
    disk, was_empty = disk_of(data), kind_of(data) is DirectoryKind.EMPTY
    store = LogStore.open(
        disk,
        StoreConfig.from_properties({}),
        current_host(),
        now_ms=clock.now_ms(),
        progress=progress,
    )
    has_failed = True
    try:
        yield store
        has_failed = False
    finally:
        store.close(clock.now_ms(), is_durable=is_durable)
        if has_failed and was_empty and not store.topics():
            _empty(disk)


def _empty(disk: "RootedDisk") -> None:
    """Remove the files of a data directory without topics, unless it has another owner already."""
    with suppress(LockedError, OSError):
        lock = disk.lock(names.LOCK_FILE)
        try:
            for name in set(disk.contents("").files) - {names.LOCK_FILE}:
                disk.remove(name)
            disk.remove(names.LOCK_FILE)  # those that wait for it notice
        finally:
            lock.close()


def read_only_store(url: str) -> ReadOnlyError:
    """Return the refusal to change the logs of an object store."""
    return ReadOnlyError(
        f"{url}: logs in an object store are read-only: use the data directory that they are "
        "copied from, or make one of them with 'logfs remote fetch'"
    )


def owned(data: str, error: LockedError) -> LockedError:
    """Return the error about a directory whose owner cannot be asked."""
    daemon = read_daemon_note(data)
    if daemon is None:
        return error
    if served_at(data) is not None:
        return LockedError(
            f"process {daemon.pid} serves it at {daemon.mount_point}: 'logfs umount "
            f"{daemon.mount_point}' first"
        )
    return LockedError(
        f"{error}; its last daemon, process {daemon.pid}, was mounted at {daemon.mount_point}, "
        "which cannot be used from here: unmount it first"
    )
