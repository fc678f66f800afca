"""Where an operation can be stopped, and how: a scene at each change of the disk or the store.

A stop is named by its number and how it stops: ``12/kill``. With ``12.31/kill`` the 12th change is
a write, of which 31 bytes were written.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.fakestate import CHANGES
from tests.model.account import StopKind
from tests.remote.fakestore import CHANGES as STORE_CHANGES
from tests.simulation.machine import Machine, Scene

_HEADER_BYTES = 61
_THE_END = "the end"
_LITTLE_ROOM = 400
"""For a copy of what recovery cuts, and not for the note of it."""


class Fault(NamedTuple):
    """How it stops.

    Attributes:
        name: Its name in the name of a stop.
        kind: What stops.
        keeps: Number of the choice of unsynced sectors that are kept; 0: none is.
        room: The room on the disk at the next start; None: enough.
        is_killed: That start is killed before there is more room.
        damages: The disk has other bytes in the last batch, though the machine has run on.
    """

    name: str
    kind: StopKind
    keeps: int = 0
    room: int | None = None
    is_killed: bool = True
    damages: bool = False

    def seed(self, where: str) -> int | None:
        """Return the seed of ``FakeDisk.crash``, another one for each place."""
        return zlib.crc32(f"{where} {self.keeps}".encode()) if self.keeps else None


FAULTS = (
    Fault("kill", StopKind.KILL),
    Fault("power", StopKind.POWER),
    Fault("power1", StopKind.POWER, 1),
    Fault("power2", StopKind.POWER, 2),
    Fault("cache", StopKind.CACHE),
    Fault("cache1", StopKind.CACHE, 1),
    Fault("full", StopKind.KILL, room=0),
    Fault("full1", StopKind.POWER, 1, room=_LITTLE_ROOM),
    Fault("room", StopKind.KILL, room=0, is_killed=False),
    Fault("damage", StopKind.KILL, damages=True),
)
AT_THE_END = tuple(Fault(f"power{keeps}", StopKind.POWER, keeps) for keeps in range(3, 11))
"""More power cuts at the end of a sequence, where most is not synced."""
SECOND = FAULTS[:3]
"""Second stops."""
FIRST = (*SECOND, FAULTS[-1])
"""The first ones that have second stops."""


class Moment(NamedTuple):
    """A moment at which everything may stop.

    Attributes:
        name: Its number, and how much was written of a write.
        event: What would have come next.
        scene: What a stop leaves.
    """

    name: str
    event: str
    scene: Scene

    @property
    def faults(self) -> tuple[Fault, ...]:
        """How it is stopped here."""
        return (*FAULTS, *AT_THE_END) if self.event == _THE_END else FAULTS


class Moments:
    """Moments before each change, and within each write, while a block runs."""

    def __init__(self, machine: Machine) -> None:
        self.found: list[Moment] = []
        self._machine = machine
        self._changes = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take them while this runs, and one at the end of it, whether it raises or not."""
        disk, objects = self._machine.disk, self._machine.objects
        disk.before = self._see
        if objects is not None:
            objects.before = self._see_store
        try:
            yield
        finally:
            disk.before = None
            if objects is not None:
                objects.before = None
            self._take(_THE_END)

    def _see(self, operation: str, name: str, _size: int) -> None:
        if operation in CHANGES:
            scene = self._take(f"{operation} {name}")
            if operation == "pwrite":
                self._tear(scene, name, *self._machine.disk.writing)

    def _see_store(self, operation: str, key: str) -> None:
        if operation in STORE_CHANGES:
            self._take(f"{operation} of the object {key}")

    def _take(self, event: str) -> Scene:
        scene = self._machine.scene()
        self.found.append(Moment(f"{self._changes}", event, scene))
        self._changes += 1
        return scene

    def _tear(self, scene: Scene, name: str, position: int, data: bytes) -> None:
        sizes = {len(data) // 2, len(data) - 1, _HEADER_BYTES + 1}
        for size in sorted(size for size in sizes if 0 < size < len(data)):
            torn = scene._replace(disk=scene.disk.after_kill())
            torn.disk.tear(name, position, data[:size])
            event = f"all of a write of {len(data)} bytes to {name}"
            self.found.append(Moment(f"{self._changes - 1}.{size}", event, torn))
