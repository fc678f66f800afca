"""The note of the daemon in the data directory that it serves: ``logfs.daemon``."""

import json
from typing import Any, NamedTuple

from logfs.disk.posix import PosixDisk
from logfs.log import names
from logfs.records.jsontext import decode_json

_VERSION = 1


class DaemonNote(NamedTuple):
    """What the daemon of a data directory noted in it when it began to serve it.

    Attributes:
        pid: Its process. Any process that may write to the directory can change it.
        mount_point: The mount point.
    """

    pid: int
    mount_point: str


def read_daemon_note(data: str) -> DaemonNote | None:
    """Return the note of the last daemon of a data directory; the daemon may be dead.

    None: there is no note, or this logfs cannot read it.
    """
    try:
        return decode_json(PosixDisk(data).read(names.DAEMON), _note)
    except (OSError, ValueError):
        return None


def format_daemon_note(note: DaemonNote) -> bytes:
    """Return the content of the file."""
    facts = {"version": _VERSION, "pid": note.pid, "mountpoint": note.mount_point}
    return (json.dumps(facts) + "\n").encode()


def _note(facts: dict[str, Any]) -> DaemonNote | None:
    if facts["version"] != _VERSION:
        return None
    return DaemonNote(int(facts["pid"]), str(facts["mountpoint"]))
