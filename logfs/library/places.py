"""Paths: which leading part is a data directory or a mount point.

A path on the command line starts with the data directory or a mount point; the rest is the same as
in a mount: ``/var/lib/logfs/orders/0@-1h.jsonl``. ``split_path`` has the rule.
"""

import errno
import os
import re
import threading
from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from typing import NamedTuple

from logfs.errors import (
    InvalidConfigError,
    LockedError,
    MountError,
    NoDataDirectoryError,
    ReadOnlyError,
)
from logfs.log import names
from logfs.machine import mountpoints
from logfs.machine.daemonnote import read_daemon_note
from logfs.machine.disks import has_logs, is_url

ROOT_FILES = (
    names.REMOTE,
    names.CLEAN_SHUTDOWN,
    names.META_PROPERTIES,
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.REPLICATION_OFFSET_CHECKPOINT,
    names.CLEANER_OFFSET_CHECKPOINT,
    names.ATTRIBUTES,
    names.DAEMON,
    names.BACKUP,
)
"""Files that logfs or a broker keeps in the root of a data directory, and no program elsewhere.

Not ``.lock``: many programs have one in a directory of theirs, which may be further up the path.
"""

_IGNORED_IN_EMPTY = frozenset({names.LOCK_FILE, "lost+found"})
PATIENCE_S = 60.0
"""How long a process waits for a daemon that is being restarted, or for the lock."""


class DirectoryKind(Enum):
    """The meaning of a path for logfs."""

    DATA = auto()
    """A data directory."""
    EMPTY = auto()
    """An empty directory, or one with a lock file alone: it may become a data directory."""
    OTHER = auto()
    """Any other directory."""
    MISSING = auto()
    """No directory."""


class Place(NamedTuple):
    """A path, split at its data directory or mount point.

    Attributes:
        root: The data directory or mount point, absolute and without symbolic links; or the URL of
            an object store.
        address: The names below it.
        is_mount: ``root`` is a mount point of logfs.
    """

    root: str
    address: tuple[str, ...]
    is_mount: bool

    @property
    def is_remote(self) -> bool:
        """Whether the logs are in an object store."""
        return is_url(self.root)


def split_path(
    path: str,
    mount_points: Collection[str],
    kind_of: Callable[[str], DirectoryKind],
    *,
    may_begin: bool = False,
) -> Place:
    """Split a path into the data directory or mount point, and the address after it.

    1. If leading parts are mount points of logfs, the longest of them is it. Nothing below a mount
       point is looked at: ``.segments`` would pass for a data directory.
    2. Otherwise the longest leading part that is a data directory (see ``kind_of``) is it. Where a
       topic may be the first (``may_begin``), an empty directory is treated as one, if one or two
       names follow: TOPIC or TOPIC/PARTITION.

    Args:
        path: Absolute, without symbolic links, ``.`` and ``..``; the whole is a leading part too.
        mount_points: The mount points of logfs; paths of the same kind.
        kind_of: Returns the kind of a path. Called from the longest leading part to the shortest,
            and not for more than it takes.
        may_begin: An empty directory will do.

    Raises:
        NoDataDirectoryError: No leading part is one.
    """
    parts = [part for part in path.split("/") if part]
    leading = [("/" + "/".join(parts[:n]), tuple(parts[n:])) for n in range(len(parts), -1, -1)]
    for root, address in leading:
        if root in mount_points:
            return Place(root, address, is_mount=True)
    nearest: tuple[str, DirectoryKind] | None = None
    for root, address in leading:
        kind = kind_of(root)
        if kind is DirectoryKind.DATA or (
            kind is DirectoryKind.EMPTY and may_begin and 1 <= len(address) <= 2
        ):
            return Place(root, address, is_mount=False)
        if kind is not DirectoryKind.MISSING and nearest is None:
            nearest = root, kind
    raise _refusal(*(nearest or ("/", DirectoryKind.OTHER)), may_begin=may_begin)


def kind_of(path: str) -> DirectoryKind:
    """Return what a path is.

    A data directory is a directory that holds one of ``ROOT_FILES``, or a directory named
    TOPIC-PARTITION in which a ``.log`` or ``partition.metadata`` lies.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - asked for every leading part
        return DirectoryKind.MISSING
    if any(os.path.lexists(f"{path}/{name}") for name in ROOT_FILES):
        return DirectoryKind.DATA
    is_empty = True
    with os.scandir(path) as entries:
        for entry in entries:
            if _is_partition(entry):
                return DirectoryKind.DATA
            is_empty = is_empty and entry.name in _IGNORED_IN_EMPTY
    return DirectoryKind.EMPTY if is_empty else DirectoryKind.OTHER


def locate(path: str, *, may_begin: bool = False) -> Place:
    """Split a path of the command line, which may be relative, or the URL of an object store.

    Raises:
        NoDataDirectoryError: No leading part is a data directory or a mount point.
        MountError: It is in a mount that waits for its next daemon.
        OSError: A directory on the way cannot be read.
    """
    if is_url(path):
        return split_url(path.rstrip("/"), has_logs)
    real = mountpoints.ask(path, lambda: os.path.realpath(path))
    if real is None:
        raise MountError(f"{path}: the mount waits for its next daemon, which has not come")
    place = split_path(real, _mount_points(), kind_of, may_begin=may_begin)
    if may_begin and not place.is_mount and kind_of(place.root) is DirectoryKind.EMPTY:
        file = mountpoints.configured_in(place.root)
        if file is not None:
            raise MountError(
                f"{place.root}: nothing is mounted there, and {file} names it as a mount point of "
                "logfs: mount it first. New logs need another directory"
            )
    return place


def split_url(url: str, is_store: Callable[[str], bool]) -> Place:
    """Split a URL into the store of logs, and the address after it.

    Args:
        url: As ``s3://bucket/prefix/orders/0@-1h``.
        is_store: Whether logs are directly below a URL. It takes a request, so the likeliest part
            is asked for first.

    Raises:
        NoDataDirectoryError: No leading part has logs.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        rest = rest.lstrip("/")
    first, *names_after = [part for part in rest.split("/") if part] or [""]
    start = f"{scheme}:///{first}" if scheme == "file" else f"{scheme}://{first}"
    count = len(names_after)
    for length in _likeliest(names_after):
        root = "/".join([start, *names_after[: count - length]])
        if is_store(root):
            return Place(root, tuple(names_after[count - length :]), is_mount=False)
    raise NoDataDirectoryError(
        f"{url}: there are no logs of logfs (no object named logfs-store, no topics), neither "
        "here nor before TOPIC/PARTITION. Check bucket and prefix"
    )


def _likeliest(after_bucket: Sequence[str]) -> list[int]:
    """Return how many names at the end of a URL are an address, the likeliest number first."""
    last = after_bucket[-1] if after_bucket else ""
    order = [2, 1, 0, 3] if re.match(r"(0|[1-9][0-9]*)([@.]|$)", last) else [0, 1, 2, 3]
    if len(after_bucket) >= 3 and after_bucket[-3].startswith("."):
        order.insert(0, 3)  # .segments/TOPIC-PARTITION/FILE
    return [length for length in dict.fromkeys(order) if length <= len(after_bucket)]


def locate_local(path: str, *, may_begin: bool = False) -> Place:
    """Split a path for what changes or copies a data directory; see ``locate``.

    Raises:
        ReadOnlyError: It is the URL of an object store.
    """
    if is_url(path):
        raise ReadOnlyError(
            f"{path}: logs in an object store are read-only: use the data directory that they are "
            "copied from, or make one of them with 'logfs remote fetch'"
        )
    return locate(path, may_begin=may_begin)


def local_directory(path: str) -> str:
    """Return the directory of this machine that a command is to write, without symbolic links.

    Raises:
        InvalidConfigError: It is the URL of an object store, or meant as one.
    """
    if is_url(path):
        raise InvalidConfigError(
            f"{path}: expected a directory of this machine, not the URL of an object store"
        )
    return os.path.realpath(path)


def served_at(data: str) -> str | None:
    """Return the mount point at which a daemon serves a data directory; None: no usable one.

    The note is not enough: its daemon may be dead, and another directory be mounted there. So the
    mount must answer, and its source must be the data directory. A mount that waits for its next
    daemon is not usable.
    """
    return None if is_url(data) else mountpoints.ask(data, lambda: _served_at(data))


def _served_at(data: str) -> str | None:
    daemon = read_daemon_note(data)
    mount = None if daemon is None else mountpoints.mount_at(daemon.mount_point)
    if mount is None or mount.kind != mountpoints.KIND or mount.source != data:
        return None
    try:
        os.statvfs(mount.point)  # ENOTCONN: it is dead; EACCES: it is another user's
    except OSError:
        return None
    return mount.point


def is_served(data: str) -> bool:
    """Return whether a daemon serves a data directory, after a restart that is under way.

    While no daemon serves a mount that outlives its daemon, the lock of the directory is free. But
    open files continue, so no other process may own the directory.

    Raises:
        LockedError: No daemon has come back for ``PATIENCE_S``.
    """
    note = None if is_url(data) else read_daemon_note(data)
    if note is None or mountpoints.mount_at(note.mount_point) is None:
        return False
    points: list[str | None] = []
    # The mount answers when the next daemon serves it; a thread can be left waiting.
    thread = threading.Thread(target=lambda: points.append(_served_at(data)), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if not points:
        raise LockedError(
            f"{data}: its mount at {note.mount_point} waits for a daemon, which has not come: "
            f"start it, or end the mount with 'umount --lazy {note.mount_point}'"
        )
    return points[0] is not None


def _mount_points() -> set[str]:
    # The last of several mounts at one point is visible.
    mounts = mountpoints.present_mounts()
    kinds = {mount.point: mount.kind for mount in mounts}
    return {point for point, kind in kinds.items() if kind == mountpoints.KIND}


def _is_partition(entry: os.DirEntry[str]) -> bool:
    parsed = names.parse_partition_directory(entry.name)
    if parsed is None or parsed.state is not names.DirectoryState.NONE or not entry.is_dir():
        return False
    try:
        inside = os.listdir(entry.path)  # noqa: PTH208 - names are enough
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENOENT):
            return False
        raise
    return any(name == names.PARTITION_METADATA or _is_log(name) for name in inside)


def _is_log(name: str) -> bool:
    parsed = names.parse_segment_file(name)
    return parsed is not None and parsed.kind is names.FileKind.LOG


def _refusal(nearest: str, kind: DirectoryKind, *, may_begin: bool) -> NoDataDirectoryError:
    if kind is DirectoryKind.EMPTY:
        return NoDataDirectoryError(
            f"{nearest} is empty and no data directory yet; 'logfs topic create {nearest}/TOPIC' "
            f"or 'logfs mount {nearest} MOUNTPOINT' makes it one"
        )
    what = "a data directory, an empty directory" if may_begin else "a data directory"
    remedy = "; for new logs make an empty directory with mkdir first" if may_begin else ""
    return NoDataDirectoryError(
        f"expected {what} or a mount point of logfs before TOPIC/PARTITION; {nearest}, the "
        f"last directory of the path that exists, holds no logs{remedy}"
    )
