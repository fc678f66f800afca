"""Requests that may wait for an object store: in threads, and until a signal ends them.

The event loop must not wait, so its thread forbids it (``forbid_waiting``). A call there that would
wait raises WouldWaitError, and is made again in a thread. The thread waits until the bytes are
there, or until the kernel reports a signal that the program handles or that ends it. What was asked
for still comes.
"""

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import trio

from logfs.disk.remote.overlay import OverlayDisk
from logfs.disk.remote.treedisk import TreeDisk
from logfs.disk.vfs import Disk
from logfs.disk.waiting import CURRENT, Interruption
from logfs.fs.kernel.errnos import InterruptedWaitError
from logfs.fs.kernel.interrupts import InterruptWatch, has_signal

LOOK_S = 0.05
"""How often is looked for a signal that ends a wait, after one that does not."""


class StoreWaits:
    """The requests of a mount that may wait for a store. Event loop only.

    Args:
        disk: The files of the mount.
        interrupts: Reports signals for programs that wait.

    Attributes:
        has_store: Whether files of the disk may be in an object store alone.
        interrupts: See above.
        running: Interrupts each of the requests.
    """

    def __init__(self, disk: Disk, interrupts: InterruptWatch) -> None:
        self.has_store = isinstance(disk, OverlayDisk | TreeDisk)
        self.interrupts = interrupts
        self.running: set[Callable[[], None]] = set()

    @contextmanager
    def request(self, cancel: Callable[[], None] | None = None) -> Iterator[None]:
        """Let a signal end the waits of the request whose handler has just begun.

        Args:
            cancel: Called when a signal came, for what the request waits for besides the store.
        """
        interruption = Interruption()
        thread = self.interrupts.thread()

        def interrupt() -> None:
            interruption.interrupt()
            if cancel is not None:
                cancel()

        def told() -> None:
            if not thread or has_signal(thread):
                interrupt()
            else:  # the kernel tells of one signal alone
                trio.lowlevel.spawn_system_task(self._look, thread, interrupt)

        token = CURRENT.set(interruption)
        self.running.add(interrupt)
        try:
            with self.interrupts.watched(told):
                yield
        finally:
            self.running.remove(interrupt)
            CURRENT.reset(token)

    async def _look(self, thread: int, interrupt: Callable[[], None]) -> None:
        """End the waits of a request once there is a signal that does."""
        while interrupt in self.running:
            if has_signal(thread):
                interrupt()
                return
            await trio.sleep(LOOK_S)

    def end(self) -> None:
        """End all waits: the mount stops."""
        for interrupt in list(self.running):
            interrupt()


class WaitingHandlers(Protocol):
    """An object with handlers.

    Attributes:
        store_waits: The look-ups that may wait.
    """

    store_waits: StoreWaits


SelfT = TypeVar("SelfT", bound=WaitingHandlers)
P = ParamSpec("P")
T = TypeVar("T")


def interruptible(
    handler: Callable[Concatenate[SelfT, P], Awaitable[T]],
) -> Callable[Concatenate[SelfT, P], Coroutine[Any, Any, T]]:
    """Let a signal end what a handler waits for: the store, and its turn."""

    @functools.wraps(handler)
    async def run(self: SelfT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        waits = self.store_waits
        if not waits.has_store:
            return await handler(self, *args, **kwargs)
        with trio.CancelScope() as scope, waits.request(scope.cancel):
            return await handler(self, *args, **kwargs)
        raise InterruptedWaitError("interrupted while it waited for the object store")

    return run
