"""Where the calls of a partition run, and in which order: in threads, never on the event loop.

**No call to the disk, and no wait for the lock of a partition, holds the loop.** A disk that hangs
under one topic would stop all others, and that it hangs is known only afterwards. So the loop gives
each call to a thread. As long as the disk is quick, the loop waits for it, at most a moment: see
``threads``. That takes half as long as a thread of trio, in which other calls run. These run on the
loop itself: what reads memory, what takes the lock only if it is free
(``PartitionLock.take_now``), and reads that end where they would have to wait for the disk
(``filereads``). The native thread has the same rule, see ``native/serving.h``.

The loop waits until a call of the partition sleeps longer than ``SLOW_S``, for the disk, a lock or
a page. On a busy machine a call may also take long because it loses the processor. That says
nothing about the disk. A call that would wait for an object store is made again in a thread of
trio. After a slow call the calls of this partition run in threads of trio, until ``CALM_CALLS`` of
them were quick again. These always do: fsyncs (see ``fsyncs``), the changes of a topic that syncs
with its appends (``flush.messages``), and the first call of a partition, which may have to open
files.

Changes (appends, and closing files) run one at a time, in the order in which the requests were read
from the kernel: a call joins the queue before it awaits anything. While a thread works on a
partition, the loop waits for none of its changes: they could block on a lock that the thread holds.

There must be no await between the decision that a change may run at once and the start of the
change. An await there would let one change overtake another.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar, TypeVarTuple

import trio

from logfs.disk.waiting import WouldWaitError, waiting_forbidden
from logfs.fs.threads import QUICK_S, DiskCall, begin_call, run_in_thread
from logfs.log.writing._end import PartitionLock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Begun = tuple[float, float]
"""When a call began, by the two clocks."""

Change = DiskCall[tuple[bool, T]]
"""A change that has begun: whether it was slow, and its result."""

SLOW_S = QUICK_S
CALM_CALLS = 16
READ_THREADS = 8
"""The most reads of one partition that wait for the disk at the same time."""

STORE_READ_THREADS = 64
"""The same where reads may wait for an object store: a store that hangs keeps many of them."""

_UNLIMITED = trio.CapacityLimiter(math.inf)
"""For calls that are limited elsewhere; one partition could use up a shared limit."""


class PartitionExecutor:
    """Runs the calls of one partition. Event loop only.

    Args:
        clock: Seconds that only go forward.
        slept_s: How long the calling thread has slept; see ``Clock``.

    Attributes:
        always_in_thread: Every change includes an fsync.
        has_store: Reads may wait for an object store, so that more of them have threads.
        changed: Called after every change, and after some queries; None: nothing is called.
        lock: The lock of the partition, which the native thread takes, too; None: there is none.
        releasing: Set when the RELEASEs that have arrived are done; None if there are none. A
            look at the partition waits for it, so that ``printf x >> f; cat f`` works.
    """

    __slots__ = (
        "_clock",
        "_flushes",
        "_is_kept_off",
        "_local_reads",
        "_queue",
        "_quick_calls_missing",
        "_readers",
        "_slept_s",
        "_threads",
        "_was_flush_slow",
        "always_in_thread",
        "changed",
        "has_store",
        "lock",
        "releasing",
    )

    def __init__(self, clock: Callable[[], float], slept_s: Callable[[], float]) -> None:
        self._clock = clock
        self._slept_s = slept_s
        self._queue = trio.Lock()
        self._quick_calls_missing = 1
        self._threads = 0
        self._flushes = 0
        self._was_flush_slow = False
        self._is_kept_off = False
        self._readers: trio.CapacityLimiter | None = None
        self._local_reads: trio.CapacityLimiter | None = None
        self.always_in_thread = False
        self.has_store = False
        self.changed: Callable[[], None] | None = None
        self.lock: PartitionLock | None = None
        self.releasing: trio.Event | None = None

    @property
    def is_free(self) -> bool:
        """Whether a change may run at once: with ``begin_change``, before anything awaits."""
        return not (
            self._quick_calls_missing
            or self._threads
            or self.always_in_thread
            or self._queue.locked()
            or (self.lock is not None and self.lock.is_busy)
        )

    def begin_change(self, call: Callable[[*Ts], T], *args: *Ts) -> Change[T]:
        """Begin a change at once, when ``is_free``; ``end_change`` or ``finish_change`` ends it."""
        begun = self._begin_call(call, *args)
        if not begun.is_done:
            self._queue.acquire_nowait()
        return begun

    def end_change(self, begun: Change[T]) -> T:
        """End a change that is done: return its result, or raise its error."""
        try:
            return self._note_result(*begun.result())
        finally:
            self._note_change()

    async def finish_change(self, begun: Change[T]) -> T:
        """Wait for a change that this task has begun, if it is not done, and end it."""
        if begun.is_done:
            return self.end_change(begun)
        try:
            return await self._finish_call(begun)
        finally:
            self._queue.release()

    async def change(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a call that changes the partition when its turn comes."""
        if not self.is_free:
            return await self._change_in_turn(call, *args)
        return await self.finish_change(self.begin_change(call, *args))

    async def release(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Close an open file when its turn comes; later look-ups wait for it."""
        begun = self.begin_change(call, *args) if self.is_free else None
        if begun is not None and begun.is_done:
            return self.end_change(begun)
        mine = self.releasing = trio.Event()
        try:
            if begun is not None:
                return await self.finish_change(begun)
            return await self._change_in_turn(call, *args)
        finally:
            # The queue is in order, so every earlier RELEASE is done as well.
            mine.set()
            if self.releasing is mine:
                self.releasing = None

    async def query(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a call that reads a little or takes the partition's lock; it waits for no turn."""
        try:
            return await self.query_locally(call, *args)
        except WouldWaitError:
            pass  # a slow store does not make the partition slow for appends
        return await run_in_thread(call, *args, limiter=self._reader_limit())

    async def query_locally(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a query that waits neither for an object store nor for reads that wait for one.

        Raises:
            WouldWaitError: It needs the store; what it needs has been asked for.
        """
        if not self.is_free:
            if not self.has_store:
                return await self._run_in_thread(self._reader_limit(), call, *args)
            return await self._run_in_thread(self._local_limit(), _without_waiting, call, *args)
        return await self._call_now(call, *args)

    @property
    def is_slow(self) -> bool:
        """Whether calls run in threads because the disk was slow, or has not been used yet."""
        return self._quick_calls_missing > 0

    @property
    def was_slow(self) -> bool:
        """Whether calls run in threads because the disk was slow. Any thread."""
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
        """Have the next change run in a thread, because it will take long."""
        self._quick_calls_missing = max(self._quick_calls_missing, 1)

    def note_slow(self) -> None:
        """Note that the native thread has had to wait for the disk."""
        self._quick_calls_missing = CALM_CALLS

    def begin(self) -> Begun:
        """Return the beginning of a call, which the caller runs on the loop, for ``end``."""
        return self._clock(), self._slept_s()

    def end(self, begun: Begun) -> None:
        """Note that the call has ended, and whether it was slow."""
        if self._was_slow(begun):
            self._quick_calls_missing = CALM_CALLS

    def _was_slow(self, begun: Begun) -> bool:
        started_s, slept_s = begun
        return self._clock() - started_s > SLOW_S and self._slept_s() - slept_s > SLOW_S

    async def read(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a read in a thread, when the partition is slow or the data is not in memory.

        It does not wait for a turn. A slow read does not make the partition slow for appends.
        When all threads wait for an object store, a read that does not need it has its own thread.
        """
        if self.has_store and not self._reader_limit().available_tokens:
            with suppress(WouldWaitError):
                return await self._run_in_thread(self._local_limit(), _without_waiting, call, *args)
        if not self._quick_calls_missing:
            return await run_in_thread(call, *args, limiter=self._reader_limit())
        return await self._run_in_thread(self._reader_limit(), call, *args)

    async def sync(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run an fsync or maintenance in a thread, at the same time as reads and appends."""
        self._threads += 1
        try:
            return await run_in_thread(call, *args, limiter=_UNLIMITED)
        finally:
            self._threads -= 1

    def note_flush_start(self) -> None:
        """Note that an fsync has started in a thread that is not Python's.

        Changes stay on the loop, unless the last fsync was slow: an append may have to wait for the
        file system to write.
        """
        if self._was_flush_slow:
            self._threads += 1
        else:
            self._flushes += 1
        self._is_kept_off = self._was_flush_slow

    def note_flush_end(self, seconds: float) -> None:
        """Note that this fsync has ended, and how long it took."""
        if self._is_kept_off:
            self._threads -= 1
        else:
            self._flushes -= 1
        self._was_flush_slow = seconds > SLOW_S

    async def change_in_thread(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a long change (reloading the partition) in a thread when its turn comes."""
        self._threads += 1
        try:
            async with self._queue:
                return await run_in_thread(call, *args, limiter=_UNLIMITED)
        finally:
            self._threads -= 1
            self._note_change()

    @contextmanager
    def kept_off_loop(self) -> Iterator[None]:
        """Run changes in threads inside the ``with`` block: another thread holds the lock."""
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
                return await self._call_now(call, *args)
            try:
                return await self._run_in_thread(_UNLIMITED, call, *args)
            finally:
                self._note_change()

    def _needs_thread(self) -> bool:
        is_busy = self.lock is not None and self.lock.is_busy
        return bool(self._quick_calls_missing or self._threads or self.always_in_thread or is_busy)

    async def _run_in_thread(
        self, limiter: trio.CapacityLimiter, call: Callable[[*Ts], T], *args: *Ts
    ) -> T:
        is_slow, result = await run_in_thread(self._watched, call, *args, limiter=limiter)
        # A wait for the object store says nothing about the disk.
        if is_slow and limiter is self._readers and self.has_store:
            return result
        return self._note_result(is_slow, result)

    def _note_result(self, is_slow: bool, result: T) -> T:
        if is_slow:
            self._quick_calls_missing = CALM_CALLS
        elif self._quick_calls_missing:
            self._quick_calls_missing -= 1
        return result

    def _begin_call(self, call: Callable[[*Ts], T], *args: *Ts) -> Change[T]:
        begun = begin_call(partial(self._watched, call, *args))
        if not begun.is_done:
            self._threads += 1
        return begun

    async def _finish_call(self, begun: Change[T]) -> T:
        try:
            return self._note_result(*await begun.wait())
        finally:
            self._threads -= 1
            self._note_change()

    async def _call_now(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        begun = self._begin_call(call, *args)
        return self.end_change(begun) if begun.is_done else await self._finish_call(begun)

    def _watched(self, call: Callable[[*Ts], T], *args: *Ts) -> tuple[bool, T]:
        """Run a call in a thread; returns whether it was slow, and its result."""
        begun = self.begin()
        result = call(*args)
        return self._was_slow(begun), result

    def _local_limit(self) -> trio.CapacityLimiter:
        if self._local_reads is None:
            self._local_reads = trio.CapacityLimiter(READ_THREADS)
        return self._local_reads

    def _reader_limit(self) -> trio.CapacityLimiter:
        if self._readers is None:
            self._readers = trio.CapacityLimiter(
                STORE_READ_THREADS if self.has_store else READ_THREADS
            )
        return self._readers


def _without_waiting(call: Callable[[*Ts], T], *args: *Ts) -> T:
    with waiting_forbidden():
        return call(*args)
