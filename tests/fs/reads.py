"""Reads of ``.follow`` names that run beside a test, and the signals for their programs."""

from collections.abc import Callable

import trio
from pyfuse3 import FUSEError

from tests.fs.world import MIB, Handle, World

PATIENCE_S = 30


class Signals:
    """The kernel, which numbers requests from 1 on.

    Attributes:
        interrupted: Called with the number of a request whose program got a signal.
    """

    is_active = True
    interrupted: Callable[[int], None]

    def __init__(self) -> None:
        self._number = 1

    def request(self) -> int:
        return self._number

    def request_thread(self) -> int:
        return 0

    def drop_buffer(self) -> None:
        self._number += 1  # the last thing that a handler says before it reads

    def on_interrupt(self, interrupted: Callable[[int], None]) -> None:
        self.interrupted = interrupted


class Reads:
    """Reads that run beside a test, and their answers by the number of the handle."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self.world = world
        self.answers: dict[int, bytes | int] = {}
        self.order: list[int] = []
        self._nursery = nursery

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self.world.operations.follow_reads.queues)

    def start(self, handle: Handle, offset: int = 0) -> None:
        """Begin a read."""
        self._nursery.start_soon(self._read, handle, offset, MIB)

    async def begin(self, handle: Handle, offset: int = 0) -> None:
        """Begin a read that has to wait; returns when it waits."""
        waiting = self.waiting
        self.start(handle, offset)
        with trio.fail_after(PATIENCE_S):
            while self.waiting == waiting:  # noqa: ASYNC110 - there is no event for it
                await trio.sleep(0.001)
        assert handle.number not in self.answers

    async def answered(self, count: int = 1) -> dict[int, bytes | int]:
        """Return the answers, once there are so many."""
        with trio.fail_after(PATIENCE_S):
            while len(self.answers) < count:  # noqa: ASYNC110 - as above
                await trio.sleep(0.001)
        return self.answers

    async def _read(self, handle: Handle, offset: int, size: int) -> None:
        try:
            self.answers[handle.number] = await self.world.read(handle, offset, size)
        except FUSEError as error:
            self.answers[handle.number] = error.errno
        self.order.append(handle.number)
