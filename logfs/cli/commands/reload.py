"""``logfs reload``: the daemon of a mount gives it to a successor."""

import os
import signal
import time

import click

from logfs.cli.mount_file import MountFile, read_mount_file
from logfs.cli.parameters import DIRECTORY, config_file_option
from logfs.client import Daemon
from logfs.errors import MountError
from logfs.fs.tree.xattrs import PREFIX
from logfs.machine import mountpoints
from logfs.machine.host import user_name

_TIMEOUT_S = 60.0
"""How long the daemon of a read-only mount is waited for, which has no control socket."""
_LOOK_S = 0.02


@click.command()
@click.argument("mountpoint", metavar="[MOUNTPOINT]", required=False, type=DIRECTORY)
@config_file_option("Take the mount point from this file.")
def reload(mountpoint: str | None, *, config_file: str | None) -> None:
    """Give the mount at MOUNTPOINT to a new daemon, with new code.

    The new daemon starts with the same options, and with the version of logfs that is installed
    now. It loads everything it can; then the old one stops. For programs this is a pause: open
    files continue. If the new daemon cannot start, the old one continues, and the error says why.

    The mount needs a process that keeps it: systemd, or the one that --background and mount(8)
    start. 'systemctl reload' runs this command.

    \b
    Examples:
        logfs reload /mnt/logs
        make install && sudo systemctl reload logfs@web
    """  # noqa: D301 - click's mark for text it does not fill
    found = MountFile() if config_file is None else read_mount_file(config_file)
    point = mountpoint or found.mountpoint
    if point is None:
        raise click.UsageError("Missing argument 'MOUNTPOINT'.")
    _reload(point)


def _reload(mountpoint: str) -> None:
    """Have a mount served by a new daemon; return when that daemon serves it.

    Raises:
        MountError: logfs is not mounted there, no daemon serves it, or the old daemon continues.
        LogfsError, OSError: The daemon cannot be reached.
    """
    point = mountpoints.resolve_point(mountpoint)
    found = mountpoints.mount_at(point)
    if found is None or found.kind != mountpoints.KIND:
        raise MountError(f"{point}: logfs is not mounted there")
    if os.geteuid() == 0 and found.user:
        # The mount says which process serves it, and root could signal any.
        raise MountError(
            f"{point}: the user {user_name(found.user)} mounted it, and you are root. "
            f"Run it as that user: 'sudo -u {user_name(found.user)} logfs reload {point}'"
        )
    daemon = Daemon.connect(_fact(point, "data"))
    if daemon is not None:
        with daemon:
            daemon.reload()
        return
    before = _fact(point, "pid")
    os.kill(int(before), signal.SIGUSR1)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while _fact(point, "pid") == before:
        if time.monotonic() > deadline_s:
            raise MountError(f"{point}: not reloaded: the log of process {before} says why")
        time.sleep(_LOOK_S)


def _fact(point: str, name: str) -> str:
    text = mountpoints.ask(point, lambda: os.getxattr(point, f"{PREFIX}{name}").decode())
    if text is None:
        raise MountError(f"{point}: no daemon answers. Start one, or end the mount.")
    return text
