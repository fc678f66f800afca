"""Owners and modes: what each name has, and what they let a user do where the kernel does not ask.

The mount has ``default_permissions``: on the way along a path the kernel checks the mode of every
directory and of the file. ``TOPIC@FROM`` is a name in the root, but its records are those of the
files in TOPIC. So the daemon checks for it what the kernel checks for ``TOPIC/N``:

    the directory of the topic     may be searched, at every look-up: ``check_search``
    all partitions                 may be read: ``common`` is the mode and owner that says so
"""

import stat
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import NamedTuple

from logfs.fs.kernel.errnos import PermissionDeniedError
from logfs.log.attributes import Attributes as StoredAttributes

_SEARCH = 1
_ROOT = 0


class FileAttributes(NamedTuple):
    """The attributes that stat(2) returns."""

    mode: int
    uid: int
    gid: int
    size: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class MountOwnership:
    """The owner and mode of each name: the stored ones, else the defaults of the mount.

    A partition belongs to the owner of its topic unless it has its own owner. The root of
    the mount is stored as the topic "".
    """

    stored: StoredAttributes
    uid: int
    gid: int
    umask: int

    def of_directory(self, topic: str) -> tuple[int, int, int]:
        """Return mode, user and group of a topic."""
        mode, uid, gid = self.stored.get(topic, None)
        return (
            stat.S_IFDIR | (0o777 & ~self.umask if mode is None else mode),
            self.uid if uid is None else uid,
            self.gid if gid is None else gid,
        )

    def of_file(self, topic: str, partition: int) -> tuple[int, int, int]:
        """Return mode, user and group of a partition."""
        mode, uid, gid = self.stored.get(topic, partition)
        if uid is None or gid is None:
            _, topic_uid, topic_gid = self.of_directory(topic)
            uid = topic_uid if uid is None else uid
            gid = topic_gid if gid is None else gid
        return stat.S_IFREG | (0o666 & ~self.umask if mode is None else mode), uid, gid


class Caller(NamedTuple):
    """The user that a request comes from.

    Attributes:
        uid: The user; root may do everything.
        gid: The first group.
        groups: Returns all groups.
    """

    uid: int
    gid: int
    groups: Callable[[], Collection[int]]


def check_search(topic: str, ownership: MountOwnership, caller: Caller) -> None:
    """Check that a user may search the directory of a topic.

    Source: Linux fs/namei.c acl_permission_check.

    Raises:
        PermissionDeniedError: The user may not.
    """
    if caller.uid == _ROOT:
        return
    mode, uid, gid = ownership.of_directory(topic)
    if caller.uid == uid:
        mode >>= 6
    # Reading the groups of a process takes a file: only if group and others differ.
    elif (mode >> 3 ^ mode) & _SEARCH and (caller.gid == gid or gid in caller.groups()):
        mode >>= 3
    if not mode & _SEARCH:
        raise PermissionDeniedError(f"{topic}: user {caller.uid} may not search the topic")


def common(files: Sequence[FileAttributes]) -> tuple[int, int, int]:
    """Return mode, user and group of a file that a user may read if it may read all of some files.

    One mode cannot always say that of files with different owners. It then allows less.
    """
    mode = reduce(and_, (file.mode for file in files))
    users, groups = {file.uid for file in files}, {file.gid for file in files}
    uid = users.pop() if len(users) == 1 else _ROOT
    gid = groups.pop() if len(groups) == 1 else _ROOT
    is_shared = mode & 0o444 == 0o444  # every user may read, as owner, in the group or as another
    if not is_shared and users | groups:
        by_group = not groups and mode & 0o440 == 0o440
        mode &= ~0o7 if by_group else ~0o77
    return mode, uid, gid
