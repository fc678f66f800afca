"""Where the calls of a partition run, and in which order: its executor.

A call on the event loop costs a third of one in a thread, as long as the disk is quick; a slow one
there would make every other partition wait. So calls run on the loop until one takes longer than
``SLOW_S``; from then on those of this partition run in a thread, until ``CALM_CALLS`` of them were
quick again. An fsync always runs in a thread, one of Python's or not (``fsyncs``), and so do the
changes of a topic that syncs with its appends (``flush.messages``) and the first call, which may
have to open files and take a lease.

The order: changes (appends, the ends of files) run one at a time, first come, first served. A call
takes its place before anything awaits, so the order is that in which requests were read from the
kernel. While a thread works on a partition its changes do not run on the loop, which could
otherwise stand still at a lock that the thread holds.

What must hold between awaits: whether a change may run at once is decided, and the change begun,
without an await in between; a new await there would let one change overtake another.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SLOW_S = 0.004
CALM_CALLS = 16
READ_THREADS = 8
"""Reads of one partition that wait for the disk at the same time; the others wait for them."""

_UNLIMITED = trio.CapacityLimiter(math.inf)
"""For calls that are limited elsewhere: a shared limit would let one partition use it up."""


class PartitionExecutor:
    """The executor of one partition. Event loop only.

    Args:
        clock: Seconds that only go forward.

    Attributes:
        always_in_thread: Every change includes an fsync.
        changed: Called after every change, and after some looks; None: nobody wants to know.
        releasing: Set when the RELEASEs that have come so far are done; None if there are none.
            Whoever looks at the partition waits for it, so that ``printf x >> f; cat f`` works.
    """

    __slots__ = (
        "_clock",
        "_flushes",
        "_is_kept_off",
        "_queue",
        "_quick_calls_missing",
        "_readers",
        "_threads",
        "_was_flush_slow",
        "always_in_thread",
        "changed",
        "releasing",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queue = trio.Lock()
        self._quick_calls_missing = 1
        self._threads = 0
        self._flushes = 0
        self._was_flush_slow = False
        self._is_kept_off = False
        self._readers: trio.CapacityLimiter | None = None
        self.always_in_thread = False
        self.changed: Callable[[], None] | None = None
        self.releasing: trio.Event | None = None

    @property
    def is_free(self) -> bool:
        """Whether a change may run at once, on the loop: with ``run``, before anything awaits."""
        return not (
            self._quick_calls_missing
            or self._threads
            or self.always_in_thread
            or self._queue.locked()
        )

    def run(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a change of an executor that is free: ``change`` without an await."""
        started_s = self._clock()
        try:
            return call(*args)
        finally:
            if self._clock() - started_s > SLOW_S:
                self._quick_calls_missing = CALM_CALLS
            self._note_change()

    async def change(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a call that changes the partition when its turn comes."""
        if not self.is_free:
            return await self._change_in_turn(call, *args)
        return self.run(call, *args)

    async def release(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run the end of an open file when its turn comes; later look-ups wait for it."""
        if self.is_free:
            return self.run(call, *args)
        mine = self.releasing = trio.Event()
        try:
            return await self._change_in_turn(call, *args)
        finally:
            # The queue is in order: every RELEASE before this one is done as well.
            mine.set()
            if self.releasing is mine:
                self.releasing = None

    async def look(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a call that reads a little, or takes the partition's lock; it takes no turn."""
        if not self.is_free:
            return await self._run_in_thread(self._reader_limit(), call, *args)
        return self.run(call, *args)

    @property
    def is_slow(self) -> bool:
        """Whether its calls run in threads because the disk was slow, or is not known yet."""
        return self._quick_calls_missing > 0

    @property
    def was_slow(self) -> bool:
        """Whether its calls run in threads because the disk was slow. Any thread."""
        return self._quick_calls_missing > 1

    @property
    def waiting(self) -> int:
        """How many changes wait for their turn. Any thread."""
        return self._queue.statistics().tasks_waiting

    @property
    def threads(self) -> int:
        """How many fsyncs and long changes are under way in threads. Any thread."""
        return self._threads + self._flushes

    def expect_long(self) -> None:
        """Have the next change run in a thread, because it is known that it takes long."""
        self._quick_calls_missing = max(self._quick_calls_missing, 1)

    def note(self, seconds: float) -> None:
        """Note how long a call took that the caller has run on the loop himself."""
        if seconds > SLOW_S:
            self._quick_calls_missing = CALM_CALLS

    async def read(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a read in a thread, of a slow partition or of what is not in memory.

        It takes no turn. That it has to wait for the device says nothing about appends.
        """
        if not self._quick_calls_missing:
            return await trio.to_thread.run_sync(call, *args, limiter=self._reader_limit())
        return await self._run_in_thread(self._reader_limit(), call, *args)

    async def sync(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run an fsync or maintenance, in a thread beside reads and appends; it takes no turn."""
        self._threads += 1
        try:
            return await trio.to_thread.run_sync(call, *args, limiter=_UNLIMITED)
        finally:
            self._threads -= 1

    def flush_begins(self) -> None:
        """Note that an fsync goes on in a thread that is not Python's.

        Changes go on on the loop, unless the last one was slow: an append may have to wait for what
        the file system is writing.
        """
        if self._was_flush_slow:
            self._threads += 1
        else:
            self._flushes += 1
        self._is_kept_off = self._was_flush_slow

    def flush_ends(self, seconds: float) -> None:
        """Note that it is over, and how long it took."""
        if self._is_kept_off:
            self._threads -= 1
        else:
            self._flushes -= 1
        self._was_flush_slow = seconds > SLOW_S

    async def alone(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a long change (loading the partition again) when its turn comes, in a thread."""
        self._threads += 1
        try:
            async with self._queue:
                return await trio.to_thread.run_sync(call, *args, limiter=_UNLIMITED)
        finally:
            self._threads -= 1
            self._note_change()

    @contextmanager
    def kept_off_loop(self) -> Iterator[None]:
        """While in it, changes run in threads: somebody else holds the partition's lock."""
        self._threads += 1
        try:
            yield
        finally:
            self._threads -= 1
            self._note_change()

    def _note_change(self) -> None:
        if self.changed is not None:
            self.changed()

    async def _change_in_turn(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        async with self._queue:
            if not self._needs_thread():
                return self.run(call, *args)
            try:
                return await self._run_in_thread(_UNLIMITED, call, *args)
            finally:
                self._note_change()

    def _needs_thread(self) -> bool:
        return bool(self._quick_calls_missing or self._threads or self.always_in_thread)

    async def _run_in_thread(
        self, limiter: trio.CapacityLimiter, call: Callable[[*Ts], T], *args: *Ts
    ) -> T:
        seconds, result = await trio.to_thread.run_sync(
            _timed, self._clock, call, *args, limiter=limiter
        )
        if seconds > SLOW_S:
            self._quick_calls_missing = CALM_CALLS
        elif self._quick_calls_missing:
            self._quick_calls_missing -= 1
        return result

    def _reader_limit(self) -> trio.CapacityLimiter:
        if self._readers is None:
            self._readers = trio.CapacityLimiter(READ_THREADS)
        return self._readers


def _timed(clock: Callable[[], float], call: Callable[[*Ts], T], *args: *Ts) -> tuple[float, T]:
    started_s = clock()
    result = call(*args)
    return clock() - started_s, result
