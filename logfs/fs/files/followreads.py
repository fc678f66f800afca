"""Reads of ``.follow`` names, which wait at the end for the next record.

    0.follow                retained records, then new ones: as ``tail -n +1 -f 0``, without end
    0@latest.follow         new records
    0@-1h.follow            records of the last hour, then new ones
    0@-1h..SOMETIME.follow  the same up to TO: there a read returns 0 bytes (end of file), at the
                            latest when the clock reaches TO; a name whose TO is past is fixed
    0.follow.jsonl          no such name: a name has one view, and ``.follow`` shows that of ``0``

Positions, size and holes are those of the name without ``.follow``, under another inode. A read at
the end, or after it, waits for the next record that the isolation level shows. With O_NONBLOCK it
fails with EAGAIN. When the topic is deleted, a reader that has read everything gets end of file.
When the mount stops, reads fail with ENOTCONN, like all later requests.

poll(2): a program that was told "nothing yet" is notified when a read that continues at the end of
the last one would find something. The kernel does not tell where a program has gone with lseek(2).

A read that waits must not be the second part of a read(2) whose first part was answered: the kernel
splits a large read(2) into requests and ends it at the first short reply. So a request that may be
such a part is never answered in full.
"""

import contextlib
import math
import select
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from logfs.fs.files.handles import FileHandle
from logfs.fs.files.readerqueue import QueuedReader, ReaderQueues
from logfs.fs.kernel.errnos import InterruptedWaitError, NothingYetError, StoppedError
from logfs.fs.kernel.interrupts import InterruptWatch
from logfs.machine.host import Clock
from logfs.services.views.files import GrowingFile

BLIND_WAIT_S = 1.0
"""How long a read waits where signals for its program are not reported."""
READABLE = select.POLLIN | select.POLLRDNORM
READY = READABLE | select.POLLOUT | select.POLLWRNORM
"""The events of every other file. Source: Linux DEFAULT_POLLMASK."""
_CUT_BYTES = 255 * 4096
"""A larger request may be part of a read(2): 256 pages, the first not whole."""

Read = Callable[[FileHandle, int, int], Awaitable[memoryview | None]]


class PollHandle(Protocol):
    """Notifies the kernel; pyfuse3's."""

    def notify(self) -> None:
        """Tell the kernel that polling again may find something."""
        ...


class _Reading(QueuedReader):
    """A read that has not been answered.

    Args:
        request: The number of the request.
        file: The open file.

    Attributes:
        request: See above.
        woken: Set to have the handler look again.
        is_interrupted: The program was sent a signal.
    """

    __slots__ = ("is_interrupted", "request", "woken")

    def __init__(self, request: int, file: FileHandle) -> None:
        super().__init__(_reader_of(file), file.log)
        self.request = request
        self.woken = trio.Event()
        self.is_interrupted = False

    def wake(self) -> None:
        """Have the handler look again."""
        self.woken.set()

    async def wait(self, limit_s: float) -> None:
        """Wait until woken, at most ``limit_s`` seconds."""
        if math.isinf(limit_s):  # usual, and needs no deadline
            await self.woken.wait()
        else:
            with trio.move_on_after(limit_s):
                await self.woken.wait()

    def interrupt(self) -> None:
        """End the wait, also one that has not begun yet."""
        self.is_interrupted = True
        self.woken.set()


class _Polling(QueuedReader):
    """A file whose poll(2) was told that there is nothing yet."""

    __slots__ = ("_handle",)

    def __init__(self, file: FileHandle, handle: PollHandle) -> None:
        super().__init__(_reader_of(file), file.log)
        self._handle = handle

    def wake(self) -> None:
        """Have the kernel ask again."""
        with contextlib.suppress(OSError):  # the file is being closed
            self._handle.notify()


class FollowReads:
    """The reads and polls of a mount that wait. Event loop only.

    Args:
        clock: The clocks.
        interrupts: Reports signals for programs that wait.
        note_waiting: Called with the number of a request that waits from now on.

    Attributes:
        interrupts: As above.
        queues: The reads and polls that wait, by log.
    """

    def __init__(
        self,
        clock: Clock,
        interrupts: InterruptWatch,
        note_waiting: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.interrupts = interrupts
        self._note_waiting = note_waiting
        self._now_ms = clock.now_ms
        self.queues = ReaderQueues(clock.monotonic_s)
        self._polling: dict[int, _Polling] = {}
        self._is_over = False

    async def read(self, file: FileHandle, offset: int, size: int, read: Read) -> memoryview:
        """Read; at the end, wait.

        Args:
            file: The open file.
            offset: Byte of the file.
            size: How much is asked for.
            read: Reads what is there; returns None if it cannot be read just now.

        Raises:
            NothingYetError: There is nothing yet, and the file was opened with O_NONBLOCK.
            InterruptedWaitError: The program was sent a signal, or may have been.
            StoppedError: The mount stops.
        """
        size = size - 1 if size > _CUT_BYTES else size
        reading = _Reading(self.interrupts.request(), file)
        following, data = file.following, memoryview(b"")
        if following is not None:
            following.begin(offset)
        try:
            with self.interrupts.watched(reading.interrupt):
                data = await self._read(reading, file, offset, size, read)
        finally:
            if following is not None:
                following.end(offset, len(data))
        return data

    def poll(self, file: FileHandle, number: int, handle: PollHandle | None) -> int:
        """Return the events a file is ready for; the handle is notified when that changes."""
        reader = _reader_of(file)
        self.forget(number)
        if file.following is not None:
            file.following.take()
        if self._is_over or reader.has_more() or reader.is_over(self._now_ms()):
            return READABLE
        if handle is not None:
            polling = self._polling[number] = _Polling(file, handle)
            self.queues.add(polling)
        return 0

    def forget(self, number: int) -> None:
        """Do not notify the handle of a file any more."""
        polling = self._polling.pop(number, None)
        if polling is not None:
            self.queues.remove(polling)

    def end(self) -> None:
        """End all waits: the mount stops."""
        self._is_over = True
        self.queues.wake_all()

    async def _read(
        self, reading: _Reading, file: FileHandle, offset: int, size: int, read: Read
    ) -> memoryview:
        reader = _reader_of(file)
        if self.queues.is_crowd(file.log) and not file.never_waits and reader.has_more():
            reading.end = -1  # there is data, but other readers come first
            await self._wait(reading, None)
        while True:
            was_over, reading.end = reader.is_over(self._now_ms()), reader.seen_end()
            data = await read(file, offset, size)
            if data is None:
                continue
            if len(data) or was_over:
                return data
            if file.never_waits:
                raise NothingYetError("no record has come yet")
            await self._wait(reading, reader.is_over_at_ms())

    async def _wait(self, reading: _Reading, until_ms: int | None) -> None:
        """Wait until a new look may find something, or the clock reaches a time."""
        # atomic: no await until it is in the queue, or a change could be missed
        if not (self._is_over or reading.is_interrupted):
            left_s = math.inf if until_ms is None else max(until_ms - self._now_ms(), 0) / 1000
            limit_s = math.inf if self.interrupts.is_told else BLIND_WAIT_S
            reading.woken = trio.Event()
            self.queues.add(reading)
            self._note_waiting(reading.request)
            try:
                await reading.wait(min(left_s, limit_s))
            finally:
                self.queues.remove(reading)
            if not reading.woken.is_set() and limit_s < left_s:
                reading.is_interrupted = True  # perhaps
        if self._is_over:
            raise StoppedError("the mount stops")
        if reading.is_interrupted:
            raise InterruptedWaitError("interrupted while it waited for a record")


def _reader_of(file: FileHandle) -> GrowingFile:
    if not isinstance(file.reader, GrowingFile):
        raise TypeError(f"{type(file.reader).__name__} cannot be followed")
    return file.reader
