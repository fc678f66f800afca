"""Which processes use a mount, so that it cannot be unmounted, and how.

All of it is read in /proc. Nothing asks the file system itself, whose daemon may hang. A process
that waits for that daemon may keep its ``maps`` locked, so these are read in their own thread,
for a limited time.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from logfs.machine.mountpoints import Mount

PROC = Path("/proc")
MAPS_TIMEOUT_S = 2.0
"""The time that all ``maps`` may take together which cannot be read at once."""

_ONE_TIMEOUT_S = 0.05
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


def find_holders(mount: Mount, proc: Path = PROC) -> list[Holder]:
    """Return the other processes that use a mount, as far as this user may see them."""
    found = []
    maps = _Maps()
    for directory in proc.iterdir():
        if not directory.name.isdecimal() or int(directory.name) == os.getpid():
            continue  # A command that unmounts may itself work there.
        # A process that ended, or belongs to another user, is left out.
        with contextlib.suppress(OSError):
            holds = sorted({*_holds(directory, mount), *_mapped(maps.read(directory), mount)})
            if holds:
                command = (directory / "comm").read_text().strip()
                found.append(Holder(int(directory.name), command, holds))
    return sorted(found)


def describe(holders: list[Holder], submounts: list[str]) -> str:
    """Return all of them in one line; empty if there are none."""
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


def _mapped(maps: str, mount: Mount) -> Iterator[str]:
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) > 5 and _device(fields[3]) == mount.device:
            yield f"{fields[5]} mapped"


class _Maps:
    """Reads the ``maps`` of processes, and gives up those that take too long."""

    def __init__(self) -> None:
        self._left_s = MAPS_TIMEOUT_S

    def read(self, process: Path) -> str:
        """Return the text; empty if it cannot be read in time."""
        texts: list[str] = []

        def read() -> None:
            with contextlib.suppress(OSError):
                texts.append((process / "maps").read_text())

        started_s = time.monotonic()
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(max(self._left_s, _ONE_TIMEOUT_S))
        self._left_s -= time.monotonic() - started_s if thread.is_alive() else 0.0
        return texts[0] if texts else ""


def _is_in(path: str, point: str) -> bool:
    return path == point or path.startswith(f"{point}/")


def _mount_id(fdinfo: str) -> int | None:
    for line in fdinfo.splitlines():
        if line.startswith("mnt_id:"):
            return int(line.split()[1])
    return None


def _device(text: str) -> str:
    """Return the form of mountinfo, ``0:42``, of a device in maps, ``00:2a``."""
    major, _, minor = text.partition(":")
    return f"{int(major, 16)}:{int(minor, 16)}"
