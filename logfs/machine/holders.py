"""Who keeps a mount from being taken away: which processes, by what.

All of it is read in /proc. Nothing asks the file system itself, whose daemon may hang.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from logfs.machine.mountpoints import Mount

_PROC = Path("/proc")
_AT_MOST = 8


class Holder(NamedTuple):
    """A process and what it holds.

    Attributes:
        pid: The process.
        command: Its name.
        holds: ``working directory PATH``, ``PATH open``, ``PATH mapped`` …; never empty.
    """

    pid: int
    command: str
    holds: list[str]


def find_holders(mount: Mount) -> list[Holder]:
    """Return the processes that hold a mount, as far as this user may see them."""
    found = []
    for directory in _PROC.iterdir():
        if not directory.name.isdecimal():
            continue
        # A process may end, or be another user's: then it is as if it were not there.
        with contextlib.suppress(OSError):
            holds = sorted(set(_holds(directory, mount)))
            if holds:
                command = (directory / "comm").read_text().strip()
                found.append(Holder(int(directory.name), command, holds))
    return sorted(found)


def describe(holders: list[Holder], submounts: list[str]) -> str:
    """Return all of them in one line; empty if there is nothing to tell."""
    texts = [f"{path} is mounted in it" for path in submounts]
    texts += [f"{held.command} (process {held.pid}): {', '.join(held.holds)}" for held in holders]
    more = len(texts) - _AT_MOST
    return "; ".join(texts[:_AT_MOST]) + (f"; and {more} more" if more > 0 else "")


def _holds(process: Path, mount: Mount) -> Iterator[str]:
    for name, what in (("cwd", "working directory "), ("root", "root directory ")):
        with contextlib.suppress(OSError):
            path = str((process / name).readlink())
            if _is_in(path, mount.point):
                yield what + path
    with contextlib.suppress(OSError):
        for descriptor in (process / "fdinfo").iterdir():
            with contextlib.suppress(OSError):
                if _mount_id(descriptor.read_text()) == mount.id:
                    yield f"{(process / 'fd' / descriptor.name).readlink()} open"
    with contextlib.suppress(OSError):
        for line in (process / "maps").read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) > 5 and _device(fields[3]) == mount.device:
                yield f"{fields[5]} mapped"


def _is_in(path: str, point: str) -> bool:
    return path == point or path.startswith(f"{point}/")


def _mount_id(fdinfo: str) -> int | None:
    for line in fdinfo.splitlines():
        if line.startswith("mnt_id:"):
            return int(line.split()[1])
    return None


def _device(text: str) -> str:
    """Read ``00:2a`` of maps as in mountinfo, ``0:42``."""
    major, _, minor = text.partition(":")
    return f"{int(major, 16)}:{int(minor, 16)}"
