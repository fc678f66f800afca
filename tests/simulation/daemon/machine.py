"""The machine of a simulated daemon: one thread, the time of the parent, choices of a seed."""

import contextvars
import hashlib
import itertools
import os
import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar, TypeVarTuple

import trio

from logfs.disk.vfs import File, Sync
from logfs.disk.waiting import forbid_waiting, may_wait
from logfs.errors import MountError
from logfs.fs.handover.successor import WARM_TIMEOUT_S, Successor
from logfs.fs.session.machine import Machine, MountPoints
from logfs.fs.threads import DiskCall, Threads
from logfs.log.host import Host
from logfs.machine.host import Clock
from tests.simulation.daemon.preloading import Shared, SharedWords

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PID = 77
"""The daemon's number, for other programs."""

BEGIN_NS = 1_700_000_000 * 10**9
"""The time of the first start."""

_SLOW_S = (0.001, 0.02, 0.5, 3.0)


class LoopClock(trio.abc.Clock):
    """The time of the event loop: that of the parent."""

    def __init__(self, words: SharedWords) -> None:
        self._words = words

    def start_clock(self) -> None:
        """See ``trio.abc.Clock``."""

    def current_time(self) -> float:
        """See ``trio.abc.Clock``."""
        return (self._words[Shared.TIME_NS] - BEGIN_NS) / 1e9

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """See ``trio.abc.Clock``."""
        return deadline - self.current_time()


class Choices:
    """What the seed decides in one daemon.

    Args:
        seed: The seed.
        slow: The share of calls that the disk keeps waiting.
    """

    def __init__(self, seed: int, slow: float) -> None:
        self.random = random.Random(seed)
        self._slow = slow

    async def wait(self) -> None:
        """Wait some turns of the loop, or for the disk."""
        for _ in range(self.random.randrange(3)):
            await trio.lowlevel.checkpoint()
        if self.random.random() < self._slow:
            await trio.sleep(self.random.choice(_SLOW_S))


class SimulatedThreads(Threads):
    """Calls that begin and end when the seed says so; each is made at once, on the loop."""

    def __init__(self, choices: Choices) -> None:
        super().__init__()
        self._choices = choices

    def run(
        self,
        call: Callable[[*Ts], T],
        *args: *Ts,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> Awaitable[T]:
        """See ``Threads``."""
        return self._run(call, args, limiter, shield=not abandon_on_cancel)

    async def _run(
        self,
        call: Callable[[*Ts], T],
        args: tuple[*Ts],
        limiter: trio.CapacityLimiter | None,
        *,
        shield: bool,
    ) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        if limiter is None:
            return await self._call(call, args, shield=shield)
        await limiter.acquire()
        try:
            return await self._call(call, args, shield=shield)
        finally:
            limiter.release()

    async def _call(self, call: Callable[[*Ts], T], args: tuple[*Ts], *, shield: bool) -> T:
        context = contextvars.copy_context()
        with trio.CancelScope(shield=shield):
            await self._choices.wait()
            try:
                return _as_in_thread(lambda: context.run(call, *args))
            finally:
                await self._choices.wait()
        raise AssertionError("its own scope is not cancelled")

    def make(self, call: DiskCall[object]) -> bool:
        """See ``Threads``."""
        if self._choices.random.random() < 0.8:
            return _as_in_thread(call.run)
        call.give_up()
        trio.lowlevel.spawn_system_task(self._make_later, call)
        return False

    async def _make_later(self, call: DiskCall[object]) -> None:
        await self._choices.wait()
        _as_in_thread(call.run)


def _as_in_thread(call: Callable[[], T]) -> T:
    """Make a call that may wait for a store, which the loop must not."""
    before = may_wait()
    forbid_waiting(is_forbidden=False)
    try:
        return call()
    finally:
        forbid_waiting(is_forbidden=not before)


class SimulatedSync(Sync):
    """A sync that was begun."""

    def __init__(self, descriptor: int, file: File) -> None:
        self._descriptor = descriptor
        self._file = file
        self._error: OSError | None = None
        self.is_done = False

    def make(self) -> None:
        """Do it, unless that has been done."""
        if self.is_done:
            return
        self.is_done = True
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._error = error

    @property
    def has_failed(self) -> bool:
        """See ``vfs.Sync``."""
        return self._error is not None

    def wait(self) -> None:
        """See ``vfs.Sync``."""
        self.make()
        if self._error is not None:
            raise self._error


class SimulatedSyncs:
    """Syncs that are done when the seed says so."""

    threads = 0

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._event = os.eventfd(0, os.EFD_NONBLOCK)
        self._done: list[SimulatedSync] = []

    def fileno(self) -> int:
        """See ``vfs.Syncs``."""
        return self._event

    def start(self, descriptor: int, file: File, path: str) -> Sync:
        """See ``vfs.Syncs``."""
        sync = SimulatedSync(descriptor, file)
        trio.lowlevel.spawn_system_task(self._make_later, sync)
        return sync

    async def _make_later(self, sync: SimulatedSync) -> None:
        await self._choices.wait()
        sync.make()
        await self._choices.wait()
        self._done.append(sync)
        os.eventfd_write(self._event, 1)

    def take(self) -> list[SimulatedSync]:
        """See ``vfs.Syncs``."""
        if self._done:
            os.eventfd_read(self._event)
        done, self._done = self._done, []
        return done


class SimulatedPool(Executor):
    """Threads of a start: their calls are made in an order that the seed chooses."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """See ``Executor``."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[object],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """See ``Executor``."""
        calls = list(enumerate(zip(*iterables, strict=False)))
        self._choices.random.shuffle(calls)
        results = {number: self.submit(fn, *args) for number, args in calls}
        return iter([results[number].result() for number in sorted(results)])


class SimulatedPoints(MountPoints):
    """The one mount point, which is a descriptor.

    Args:
        ask: Has the kernel send a request.
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask

    def resolve(self, point: str) -> str:
        """See ``MountPoints``."""
        return point

    def check(self, point: str) -> None:
        """See ``MountPoints``."""

    def take(self, data: str, point: str) -> bool:
        """See ``MountPoints``."""
        return False

    def raise_limits(self, point: str) -> None:
        """See ``MountPoints``."""

    async def ask(self, point: str) -> None:
        """See ``MountPoints``."""
        self._ask()
        await trio.lowlevel.checkpoint()


class SimulatedSuccessor(Successor):
    """A successor that the parent has forked.

    Args:
        connection: A socket to it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.pid = PID
        self._socket = connection

    async def wait_until_warm(self) -> None:
        """See ``Successor``."""
        said = b""
        with trio.move_on_after(WARM_TIMEOUT_S):
            said = await self._receive(100)
        if not said:
            self.end()
            raise MountError("the next daemon cannot start: the simulation has ended it")

    def end(self) -> None:
        """See ``Successor``."""
        self._socket.close()


def simulated_machine(
    words: SharedWords,
    native_clock: int,
    choices: Choices,
    identity: str,
    ask: Callable[[], None],
    get_successor: Callable[[], socket.socket],
) -> Machine:
    """Return the machine of one daemon.

    Args:
        words: What it shares with the parent.
        native_clock: The address of the clock for the native code.
        choices: What the seed decides.
        identity: A name of the boot, a blank, and a name of the daemon.
        ask: Has the kernel send a request.
        get_successor: Has a successor forked; returns a socket to it.
    """
    loop_clock, numbers = LoopClock(words), itertools.count()

    def new_id() -> bytes:
        text = f"{identity} {next(numbers)}".encode()
        return hashlib.md5(text, usedforsecurity=False).digest()

    def host() -> Host:
        boot = identity.partition(" ")[0]
        clock_s = loop_clock.current_time
        return Host(boot, new_id, clock_s=clock_s, pool=lambda *_: SimulatedPool(choices))

    return Machine(
        clock=Clock(
            lambda: words[Shared.TIME_NS] // 1_000_000, loop_clock.current_time, lambda: 0.0
        ),
        loop_clock=loop_clock,
        native_clock=native_clock,
        host=host,
        pid=PID,
        points=SimulatedPoints(ask),
        threads=SimulatedThreads(choices),
        syncs=lambda: SimulatedSyncs(choices),
        has_helpers=False,
        start_successor=lambda *_: SimulatedSuccessor(get_successor()),
    )
