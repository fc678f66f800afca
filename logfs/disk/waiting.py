"""Waiting for a store or a disk: where a thread may wait, and until a signal ends it.

    forbid_waiting()                        # in a thread that must never wait: the event loop
    interruption = Interruption()
    CURRENT.set(interruption)               # in the context of a request
    interruption.interrupt()                # any thread: the request fails with EINTR

A request runs in one context: ``trio.to_thread`` hands the context of a task to its thread. What
the thread waits for continues without it: a request to the store ends, and its bytes stay in
memory.
"""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_forbidden = threading.local()
_LOOK_S = 0.02
"""How often a thread that waits for a lock looks whether it was interrupted."""


class StoreReadError(OSError):
    """The store failed, or the wait for it was interrupted; the file may be readable later.

    Nothing may be concluded about the file.
    """


class WouldWaitError(Exception):
    """A thread that must not wait would have to; what it would wait for has been asked for.

    It says nothing about the file, so it is no ``OSError``: code that takes a file for damaged or
    missing after an ``OSError`` lets this pass. The loop makes the call again in a thread.
    """

    def __init__(self, address: str) -> None:
        super().__init__(f"{address}: it is not in memory yet")


class InterruptedReadError(StoreReadError):
    """The request that waited was interrupted."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EINTR, "interrupted while it waited for the store", address)


class Interruption:
    """Ends the waits of one request. Any thread may interrupt; one thread at a time waits.

    Attributes:
        is_set: Whether the request was interrupted; later waits end at once.
    """

    __slots__ = ("_waiter", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiter: threading.Event | None = None

    def interrupt(self) -> None:
        """End the wait, if there is one, and all later ones."""
        self.is_set = True
        waiter = self._waiter
        if waiter is not None:
            waiter.set()

    def wait(self, waiter: threading.Event) -> None:
        """Wait until the event is set, or ``interrupt`` is called."""
        self._waiter = waiter
        try:
            # From here on an interruption sets the event.
            if not self.is_set:
                waiter.wait()
        finally:
            self._waiter = None


CURRENT: ContextVar[Interruption | None] = ContextVar("interruption", default=None)
"""The interruption of the request that runs in this context; None: nothing interrupts it."""


def forbid_waiting(*, is_forbidden: bool = True) -> None:
    """Have ``wait`` raise in the calling thread."""
    _forbidden.value = is_forbidden


@contextmanager
def waiting_forbidden() -> Iterator[None]:
    """Have ``wait`` raise in the calling thread inside the ``with`` block."""
    before = may_wait()
    forbid_waiting()
    try:
        yield
    finally:
        forbid_waiting(is_forbidden=not before)


def without_disk(call: Callable[[*Ts], T], *args: *Ts) -> T:
    """Make a call that gets from a disk only what is in memory: it opens no file, and may not wait.

    Raises:
        WouldWaitError: It needs more.
    """
    _forbidden.is_without_disk = True
    try:
        return call(*args)
    finally:
        _forbidden.is_without_disk = False


def check_disk(name: str) -> None:
    """Raise WouldWaitError in such a call."""
    if getattr(_forbidden, "is_without_disk", False):
        raise WouldWaitError(name)


def may_wait() -> bool:
    """Return whether the calling thread may wait."""
    return not getattr(_forbidden, "value", False)


def wait(done: threading.Event, address: str) -> None:
    """Wait for a request to the store.

    Args:
        done: Set when it has ended; and when the wait is interrupted, so it belongs to one waiter.
        address: The object, for the errors.

    Raises:
        WouldWaitError: This thread must not wait.
        InterruptedReadError: The request of this context was interrupted.
    """
    if not may_wait():
        raise WouldWaitError(address)
    interruption = CURRENT.get()
    if interruption is None:
        done.wait()
        return
    interruption.wait(done)
    if interruption.is_set:
        raise InterruptedReadError(address)


@contextmanager
def held(lock: threading.Lock, address: str) -> Iterator[None]:
    """Hold a lock that other threads hold while they wait for a store.

    Args:
        lock: The lock.
        address: The address that the lock is for, for the errors.

    Raises:
        WouldWaitError: Another thread has it, and this thread must not wait.
        InterruptedReadError: The request of this context was interrupted.
    """
    interruption = CURRENT.get()
    if not lock.acquire(blocking=interruption is None and may_wait()):
        if interruption is None or not may_wait():
            raise WouldWaitError(address)
        while not lock.acquire(timeout=_LOOK_S):
            if interruption.is_set:
                raise InterruptedReadError(address)
    try:
        yield
    finally:
        lock.release()
