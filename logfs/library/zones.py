"""The time zone of dates without one: that of the daemon that serves a directory.

If no daemon serves it, the zone is that of this process. The daemon is asked for its offset from
UTC at each such date, through its mount or its control socket. So the daemon, the commands and the
library follow the same rules.
"""

import errno
import os
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo

from logfs.errors import BadSelectorError, ControlError
from logfs.library.places import Place, served_at
from logfs.machine.host import LOCAL_ZONE

_OFFSET = "user.logfs.utc_offset."
"""Followed by a local date and time: an attribute of the root of a mount, in seconds."""


class ServedZone(tzinfo):
    """The time zone of dates without one in addresses of a data directory or a mount.

    The daemon is asked when a date needs it.
    """

    def __init__(self, find: Callable[[], Place]) -> None:
        self._find = find

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        """Return the offset from UTC at a local time.

        Raises:
            BadSelectorError: A daemon serves the directory, and its time zone cannot be learned.
            LogfsError, OSError: The directory or the mount cannot be reached.
        """
        if dt is None:
            return None
        local = dt.replace(tzinfo=None)
        seconds = _ask(self._find(), local.isoformat())
        return LOCAL_ZONE.utcoffset(local) if seconds is None else timedelta(seconds=seconds)

    def dst(self, dt: datetime | None) -> timedelta | None:
        """Return None: it is not used."""
        return None

    def tzname(self, dt: datetime | None) -> str:
        """Return a word for the zone."""
        return "served"


def zone_of(place: Place) -> ServedZone:
    """Return the time zone of dates without one below a data directory or a mount point."""
    return ServedZone(lambda: place)


def _ask(place: Place, local: str) -> int | None:
    """Return the daemon's offset from UTC in seconds; None if no daemon serves the directory."""
    if place.is_mount:
        return _ask_mount(place.root, local)
    if place.is_remote:
        return None
    from logfs.client import Daemon

    try:
        daemon = Daemon.connect(place.root)
    except PermissionError as error:
        point = served_at(place.root)
        if point is None:
            raise _unknown(
                local, "its control socket and its mount are not yours to use"
            ) from error
        return _ask_mount(point, local)
    if daemon is None:
        return None
    with daemon:
        try:
            return daemon.utc_offset_s(local)
        except ControlError as error:
            raise _unknown(local, str(error)) from error


def _ask_mount(point: str, local: str) -> int:
    try:
        return int(os.getxattr(point, _OFFSET + local))
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        raise _unknown(local, "it is of an earlier version of logfs: restart it") from error


def _unknown(local: str, reason: str) -> BadSelectorError:
    return BadSelectorError(
        f"{local}: a date without a time zone is in that of the daemon, which cannot be learned: "
        f"{reason}; write the zone, as in {local}Z or {local}+01:00"
    )
