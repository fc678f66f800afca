"""Mounts of this machine, and removing them.

Nothing here waits for a file system that does not answer: mounts are found in /proc, and only one
of FUSE, at exactly the place in question, is looked at to see whether it is dead.
"""

import errno
import os
import re
import threading
from collections.abc import Callable
from glob import glob
from typing import NamedTuple, TypeVar

from logfs.errors import MountError

SUBTYPE = "logfs"
KIND = f"fuse.{SUBTYPE}"
_FSTAB = "/etc/fstab"
_TOML = "/etc/logfs/*.toml"
_MOUNTINFO = "/proc/self/mountinfo"
_UNKNOWN = ""
_MAX_LINKS = 40
"""As many symbolic links as Linux follows."""
_MNT_DETACH = 2
ANSWER_TIMEOUT_S = 10.0
"""How long a mount is waited for that no daemon serves now."""
Answer = TypeVar("Answer")
_REMOTE = frozenset(
    {_UNKNOWN, "fuse", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "virtiofs"}
)


class Mount(NamedTuple):
    """One line of mountinfo."""

    point: str
    kind: str
    """As in /proc/mounts: ``fuse.logfs``."""
    source: str
    device: str
    """Major and minor number, ``0:42``."""
    id: int = 0
    """The mount's, which open files name too."""
    user: int | None = None
    """The user that mounted it, of a FUSE mount."""


def parse_mountinfo(text: str) -> list[Mount]:
    """Read the contents of ``/proc/self/mountinfo``, in the order in which mounts were made."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        kind, source, *options = fields[fields.index("-") + 1 :]
        user = re.search(r"\buser_id=(\d+)", " ".join(options))
        mounts.append(
            Mount(
                _unescape(fields[4]),
                kind,
                _unescape(source),
                fields[2],
                int(fields[0]),
                None if user is None else int(user[1]),
            )
        )
    return mounts


def present_mounts() -> list[Mount]:
    """Return the mounts of this process, in the order in which they were made."""
    with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
        return parse_mountinfo(file.read())


def configured_in(point: str) -> str | None:
    """Return the file that names a path as a mount point of logfs: fstab(5) or a TOML file."""
    for file in (_FSTAB, *sorted(glob(_TOML))):
        try:
            with open(file, encoding="utf-8", errors="surrogateescape") as opened:
                lines = opened.read().splitlines()
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            toml = re.match(r"""\s*mountpoint\s*=\s*["']([^"']+)["']""", line)
            found = toml[1] if toml is not None else ""
            if file == _FSTAB and len(fields) > 2 and fields[2] in (SUBTYPE, KIND):
                found = _unescape(fields[1])
            if found and os.path.realpath(found) == point:
                return file
    return None


def mount_at(point: str) -> Mount | None:
    """Return what is mounted at a path without symbolic links, the topmost if there are several."""
    mounts = present_mounts()
    return next((mount for mount in reversed(mounts) if mount.point == point), None)


def resolve_point(path: str) -> str:
    """Return the path of a mount point without symbolic links, without waiting for what is mounted.

    ``os.path.realpath`` asks the mounted file system, which may not answer yet.
    """
    from pathlib import Path  # slow to import

    found = Path.cwd() / path
    for _ in range(_MAX_LINKS):
        if found.name == "..":
            return os.path.realpath(found)
        found = found.parent.resolve() / found.name
        if mount_at(str(found)) is not None:
            break
        try:
            found = found.parent / found.readlink()
        except OSError:  # no symbolic link
            break
    return str(found)


def detach(point: str) -> None:
    """Take a mount away at once, though programs use it, without asking its daemon.

    Raises:
        MountError: It cannot be unmounted.
    """
    if os.geteuid() != 0:
        take_away(point, lazy=True)  # fusermount3 does not ask it either
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), _MNT_DETACH):
        raise MountError(f"{point}: {os.strerror(ctypes.get_errno())}")


def mounts_in(point: str) -> list[str]:
    """Return what is mounted below a mount point."""
    mounts = present_mounts()
    return sorted({mount.point for mount in mounts if mount.point.startswith(f"{point}/")})


def is_local(descriptor: int) -> bool:
    """Return whether an open file is local: no program and no other machine answers its reads.

    False if that cannot be found out.
    """
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        facts = file.read()
    found = re.search(r"^mnt_id:\s*(\d+)$", facts, re.MULTILINE)
    if found is None:
        return False
    mounts = present_mounts()
    kind = next((mount.kind for mount in mounts if mount.id == int(found[1])), _UNKNOWN)
    return kind.partition(".")[0] not in _REMOTE


def ask(point: str, question: Callable[[], Answer]) -> Answer | None:
    """Return what a question to a mount is answered with; None: no daemon answers in time.

    The mount waits while its next daemon starts. A thread can be left waiting with it.

    Raises:
        OSError: The question has failed.
    """
    answers: list[Answer] = []
    errors: list[OSError] = []

    def run() -> None:
        try:
            answers.append(question())
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"asking {point}", daemon=True)
    thread.start()
    thread.join(ANSWER_TIMEOUT_S)
    if errors:
        raise errors[0]
    return answers[0] if answers else None


def is_dead(point: str) -> bool:
    """Return whether the daemon of a FUSE mount has died; waits as long as the mount does."""
    try:
        os.statvfs(point)  # not stat, which the kernel may answer from what it has cached
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


def has_dead_mount(point: str) -> bool:
    """Return whether a daemon that died has left a mount at a path.

    Raises:
        MountError: logfs is mounted there and alive.
    """
    found = mount_at(point)
    if found is None or not found.kind.startswith("fuse"):
        return False
    if ask(point, lambda: is_dead(point)):
        return True
    if found.kind == KIND:
        raise MountError(f"{point}: {found.source} is mounted there already")
    return False


def clear_dead_mount(point: str) -> bool:
    """Take a mount away that a daemon left when it died.

    Returns:
        Whether there was one.

    Raises:
        MountError: logfs is mounted there and alive, or the mount cannot be taken away.
    """
    is_there = has_dead_mount(point)
    if is_there:
        take_away(point, lazy=True)
    return is_there


def take_away(point: str, *, lazy: bool = False) -> None:
    """Unmount; with ``lazy`` also a mount in use.

    Raises:
        MountError: It cannot be unmounted; the message is the system's.
    """
    import subprocess  # slow to import, needed only here

    flags = ["-l"] if lazy else []
    command = ["umount", *flags, "--", point]
    if os.geteuid() != 0:
        command = ["fusermount3", "-u", *(["-z"] if lazy else []), "--", point]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise MountError(f"{point}: {result.stderr.strip() or 'it cannot be unmounted'}")


def check_paths(data: str, point: str) -> None:
    """Refuse a mount that would hide its own data, or be part of it.

    Args:
        data: The data directory.
        point: The mount point; both without symbolic links.

    Raises:
        MountError: One is the other or lies in it.
    """
    if data == point:
        raise MountError(f"{point}: the data directory cannot be its own mount point")
    for outer, inner, what in (
        (data, point, "the mount point lies in the data directory"),
        (point, data, "the data directory lies in the mount point"),
    ):
        if f"{inner}/".startswith(f"{outer.rstrip('/')}/"):
            raise MountError(f"{point}: {what} ({inner} in {outer})")


def _unescape(field: str) -> str:
    """Read a field in which white space and backslashes are three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
