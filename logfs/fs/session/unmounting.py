"""Unmounting: remove the mount, then wait until the daemon has closed the data directory."""

import os
import time
from pathlib import Path

from logfs.disk.posix import PosixDisk
from logfs.errors import MountError
from logfs.fs.tree.xattrs import PREFIX
from logfs.log import names
from logfs.machine import holders, mountpoints
from logfs.machine.daemonnote import read_daemon_note
from logfs.machine.host import user_name

CLOSING_TIMEOUT_S = 60.0
"""How long an unmount waits for a daemon to close the data directory."""


def unmount(mountpoint: str, *, lazy: bool = False) -> None:
    """Unmount, and wait until the daemon has closed the data directory.

    Args:
        mountpoint: The mount point.
        lazy: Remove it also while it is in use. The daemon ends after its last use, and is not
            waited for.

    Raises:
        MountError: logfs is not mounted there, the mount is in use, or the daemon does not end.
    """
    point = mountpoints.resolve_point(mountpoint)
    found = mountpoints.mount_at(point)
    if found is None or found.kind != mountpoints.KIND:
        raise MountError(f"{point}: logfs is not mounted there")
    if os.geteuid() not in (0, found.user) and found.user is not None:
        raise MountError(
            f"{point}: mounted by {user_name(found.user)}; only that user and root may unmount it"
        )
    if lazy:
        mountpoints.detach(point)
        return
    is_dead = mountpoints.ask(point, lambda: mountpoints.is_dead(point))
    if is_dead is None:
        raise MountError(
            f"{point}: it waits for its next daemon. To end it without one: "
            f"'logfs umount --lazy {point}'."
        )
    if is_dead:
        mountpoints.detach(point)
        return
    data, pid = _find_daemon(point)
    try:
        mountpoints.take_away(point)
    except MountError as error:
        raise _in_use(found, error) from error
    others = sorted(m.point for m in mountpoints.present_mounts() if m.device == found.device)
    if others:
        raise MountError(
            f"{point}: unmounted, but the daemon continues: mount --bind has mounted it at "
            f"{' and '.join(others)}, too. 'umount {others[0]}' ends that"
        )
    deadline_s = time.monotonic() + CLOSING_TIMEOUT_S
    while pid is not None and _has_note(data) and Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline_s:
            raise MountError(f"{point}: unmounted, but process {pid} still closes {data}")
        time.sleep(0.01)


def unmount_dead(mountpoint: str) -> bool:
    """Remove the mount of a daemon that died; returns whether there was one."""
    point = mountpoints.resolve_point(mountpoint)
    found = mountpoints.mount_at(point)
    if (
        found is None
        or found.kind != mountpoints.KIND
        or not mountpoints.ask(point, lambda: mountpoints.is_dead(point))
    ):
        return False
    mountpoints.detach(point)
    return True


def _in_use(mount: mountpoints.Mount, error: MountError) -> MountError:
    """Return the error for a mount that could not be removed."""
    found = holders.find_holders(mount)
    text = holders.describe(found, mountpoints.mounts_in(mount.point))
    if not text and "busy" not in str(error):
        return error
    if not text:
        text = "none of the processes that can be seen from here; root sees more of them"
    return MountError(
        f"{mount.point}: in use: {text}; end them or let them leave, or let it go when they "
        f"have: 'logfs umount --lazy {mount.point}'"
    )


def find_closing(data: str) -> int | None:
    """Return the process that is closing a data directory; None if there is none."""
    note = read_daemon_note(data)
    if note is None:
        return None
    found = mountpoints.mount_at(note.mount_point)
    is_serving = found is not None and found.kind == mountpoints.KIND
    return None if is_serving or not Path(f"/proc/{note.pid}").exists() else note.pid


def _find_daemon(point: str) -> tuple[str, int | None]:
    """Return the data directory of a mount, and its daemon by the note there."""
    try:
        data = os.getxattr(point, f"{PREFIX}data").decode()
    except (OSError, ValueError):
        return "", None
    note = read_daemon_note(data)
    return data, note.pid if note is not None and note.mount_point == point else None


def _has_note(data: str) -> bool:
    return PosixDisk(data).exists(names.DAEMON)
