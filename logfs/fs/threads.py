"""Threads for calls that the event loop must not make: the only way of ``fs`` to such a thread.

Two ways lead to one. ``run_in_thread`` gives a call to a thread of trio, and costs a turn of the
loop. ``begin_call`` is for calls that may wait for a disk and rarely do: the loop waits for the
thread as if it made the call, at most ``QUICK_S``, so nothing else happens meanwhile. If the disk
takes longer, the loop continues, and the thread is that of the one call. The next call has another
thread. A call on the loop itself would be quickest, but a disk that hangs under it would stop
everything.

A process has one ``Threads``; ``use_threads`` gives it another one, with its own order of calls.
"""

import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, TypeVarTuple, cast

import trio

from logfs.disk.waiting import forbid_waiting

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

QUICK_S = 0.004


class DiskCall(Generic[T]):
    """A call that has begun. Event loop only.

    Attributes:
        is_done: Whether the call ended while the loop waited.
    """

    __slots__ = ("_call", "_claim", "_context", "_error", "_result", "_token", "_woken", "is_done")

    def __init__(self, call: Callable[[], T]) -> None:
        self.is_done = False
        self._call = call
        self._context = contextvars.copy_context()
        self._claim = threading.Lock()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._woken: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def run(self) -> bool:
        """Make the call, in a thread; returns whether the loop waits for it."""
        try:
            self._result = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = error
        if self._claim.acquire(blocking=False):
            return True
        token, woken = self._token, self._woken
        if token is not None and woken is not None:
            token.run_sync_soon(woken.set)
        return False

    def give_up(self) -> bool:
        """Have the loop continue without it; returns False if it has ended just now."""
        self._woken, self._token = trio.Event(), trio.lowlevel.current_trio_token()
        return self._claim.acquire(blocking=False)

    def result(self) -> T:
        """Return the result of a call that has ended, or raise its error."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return cast("T", self._result)

    async def wait(self) -> T:
        """Wait for the result; like a call in a thread, this cannot be cancelled."""
        if not self.is_done and self._woken is not None:
            with trio.CancelScope(shield=True):
                await self._woken.wait()
        return self.result()


class _Worker:
    """A thread that makes the calls which it is given."""

    def __init__(self) -> None:
        self._given, self._ended = threading.Lock(), threading.Lock()
        self._given.acquire()
        self._ended.acquire()
        self._call: DiskCall[object] | None = None
        threading.Thread(target=self._run, name="disk call", daemon=True).start()

    def make(self, call: DiskCall[object]) -> bool:
        """See ``Threads.make``; if it returns False, the thread is that of the call."""
        self._call = call
        self._given.release()
        if not self._ended.acquire(timeout=QUICK_S):
            if call.give_up():
                return False
            self._ended.acquire()
        return True

    def _run(self) -> None:
        forbid_waiting()  # for an object store
        while True:
            self._given.acquire()
            call, self._call = self._call, None
            if call is None or not call.run():
                return
            del call  # and what it holds
            self._ended.release()


class _OfLoop(threading.local):
    """The thread that waits for the next call of a loop."""

    worker: _Worker | None = None


class Threads:
    """The threads of this machine. Event loop only."""

    def __init__(self) -> None:
        self._of_loop = _OfLoop()

    def run(
        self,
        call: Callable[[*Ts], T],
        *args: *Ts,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> Awaitable[T]:
        """Run a call in a thread; see ``trio.to_thread.run_sync``."""
        return trio.to_thread.run_sync(
            call, *args, limiter=limiter, abandon_on_cancel=abandon_on_cancel
        )

    def make(self, call: DiskCall[object]) -> bool:
        """Have a call made, and wait for its end at most ``QUICK_S``.

        Returns:
            False if it has not ended: ``DiskCall.give_up`` was called.
        """
        of_loop = self._of_loop
        worker, of_loop.worker = of_loop.worker or _Worker(), None
        is_done = worker.make(call)
        if is_done:
            of_loop.worker = worker
        return is_done


_of_process = Threads()


def use_threads(threads: Threads) -> None:
    """Have all calls of this process run in other threads; before the first one."""
    global _of_process
    _of_process = threads


def run_in_thread(
    call: Callable[[*Ts], T],
    *args: *Ts,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> Awaitable[T]:
    """Run a call in a thread; see ``trio.to_thread.run_sync``."""
    return _of_process.run(call, *args, limiter=limiter, abandon_on_cancel=abandon_on_cancel)


def begin_call(call: Callable[[], T]) -> DiskCall[T]:
    """Begin a call, and wait for its end unless that takes long. Event loop only."""
    begun = DiskCall(call)
    begun.is_done = _of_process.make(cast("DiskCall[object]", begun))
    return begun
