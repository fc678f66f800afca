"""What a mount takes from the machine that it runs on: clocks, identifiers, threads, mount points.

All of it comes through a ``Machine``. The defaults are the real ones. With other ones a daemon runs
in a process without threads, in time that the caller moves, and behaves in the same way each time.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from logfs.disk.vfs import Syncs
from logfs.errors import MountError
from logfs.fs.handover.successor import Again, Successor
from logfs.fs.threads import Threads
from logfs.log.host import Host
from logfs.machine import mountpoints
from logfs.machine.disks import is_url
from logfs.machine.host import Clock, current_host, system_clock

_READ_AHEAD_KIB = 1024
_MAX_BACKGROUND = 1024


class MountPoints:
    """The mount points of this machine."""

    def resolve(self, point: str) -> str:
        """Return the path of a mount point without symbolic links."""
        return mountpoints.resolve_point(point)

    def check(self, point: str) -> None:
        """Refuse a mount point where nothing can be mounted.

        Raises:
            MountError: There is no directory, or logfs is mounted there and alive.
        """
        if not mountpoints.has_dead_mount(point):
            _check_directory(point)

    def take(self, data: str, point: str) -> bool:
        """Make room for the mount of a data directory; returns whether a dead one was removed.

        Raises:
            MountError: It cannot be mounted there.
        """
        # Only now: until the new mount is ready the dead one prevents writes below it.
        if not is_url(data):
            mountpoints.check_paths(data, point)
        was_dead = mountpoints.clear_dead_mount(point)
        _check_directory(point)
        return was_dead

    def raise_limits(self, point: str) -> None:
        """Raise the limits of a mount without asking it: a killed daemon would wait for itself."""
        found = mountpoints.mount_at(point)
        if found is None:
            return
        minor = found.device.partition(":")[2]
        # Reads ahead as large as a request may be. RELEASE is a background request: it must not
        # wait after the reads ahead of a partition whose disk hangs. Both need privileges.
        for name, value in (
            (f"/sys/class/bdi/{found.device}/read_ahead_kb", _READ_AHEAD_KIB),
            (f"/sys/fs/fuse/connections/{minor}/max_background", _MAX_BACKGROUND),
        ):
            with contextlib.suppress(OSError):
                Path(name).write_text(str(value))

    async def ask(self, point: str) -> None:
        """Have the kernel send a request to the daemon of a mount, and wait for its reply."""
        command = ["stat", "--file-system", point]
        await trio.run_process(command, capture_stdout=True, check=False)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that a mount runs on.

    Attributes:
        clock: The clocks of the file system.
        loop_clock: The clock of the event loop; None: that of trio.
        native_clock: The address of a ``clock_function`` for the native code; 0: the clocks of the
            machine. See ``log/writing/_clock.h``.
        host: Returns the identity of the machine, called when a store is opened.
        pid: The number of this process, for commands that look for the daemon.
        points: The mount points.
        threads: Make the calls that the event loop must not make.
        syncs: Returns what runs the fsyncs that are begun; None: native threads.
        has_helpers: The native code may use threads and processes beside the event loop. Otherwise
            the event loop does their work; see ``Serving.work``.
        start_successor: Starts a process with new code; see ``Successor.start``.
    """

    clock: Clock = field(default_factory=system_clock)
    loop_clock: trio.abc.Clock | None = None
    native_clock: int = 0
    host: Callable[[], Host] = current_host
    pid: int = field(default_factory=os.getpid)
    points: MountPoints = field(default_factory=MountPoints)
    threads: Threads = field(default_factory=Threads)
    syncs: Callable[[], Syncs] | None = None
    has_helpers: bool = True
    start_successor: Callable[[Again, tuple[int, int | None]], Successor] = Successor.start


def _check_directory(point: str) -> None:
    if not Path(point).is_dir():
        raise MountError(f"{point}: the mount point has to be an existing directory")
