"""Who waits at the end of a ``.follow`` name, and who wakes them.

    0.follow                what is kept, then what comes: as ``tail -n +1 -f 0``, and never ends
    0@latest.follow         what comes
    0@-1h.follow            what has come for an hour, then what comes
    0@-1h..SOMETIME.follow  the same up to TO: that read is answered with the end (0 bytes), at the
                            latest when the clock reaches it; a name whose TO is not ahead is fixed
    0.follow.jsonl          no such name: a name has one view, and ``.follow`` shows that of ``0``

Positions, size and holes are those of the name without ``.follow``, under another inode. A read at
the end, or after it, waits for the next record that the isolation level shows; opened with
O_NONBLOCK it is EAGAIN. When the topic is deleted, who has read all of it is told the end; when the
mount stops, ENOTCONN, as by every request after that.

poll(2): what was told "nothing yet" is told when a read that goes on where the last one ended would
find something. The kernel does not say where a program has gone with lseek(2).

A read that waits must not be a later part of a read(2) the first part of which was answered: the
kernel cuts a large one into requests and ends it at the first that is not answered in full. So no
request that can have been cut off is answered in full.
"""

import contextlib
import math
import select
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from logfs.fs.earlyreplies import EarlyReplies
from logfs.fs.errnos import InterruptedWaitError, NothingYetError, StoppedError
from logfs.fs.handles import FileHandle
from logfs.fs.interrupts import InterruptWatch
from logfs.fs.readerqueue import QueuedReader, ReaderQueues
from logfs.log.reading.files import GrowingFile
from logfs.machine.host import Clock

BLIND_WAIT_S = 1.0
"""How long a read waits where nobody tells that its program has been sent a signal."""
READABLE = select.POLLIN | select.POLLRDNORM
READY = READABLE | select.POLLOUT | select.POLLWRNORM
"""What poll(2) says of every other file. Source: Linux DEFAULT_POLLMASK."""
_CUT_BYTES = 255 * 4096
"""A request may be a part of a larger read(2) if it is larger: 256 pages, the first not whole."""

Read = Callable[[FileHandle, int, int], Awaitable[memoryview | None]]
ReadNow = Callable[[FileHandle, int, int], memoryview | None]


class PollHandle(Protocol):
    """What the kernel wants to be told by; pyfuse3's."""

    def notify(self) -> None:
        """Say that it is worth asking again."""
        ...


class _Reading(QueuedReader):
    """A read that has not been answered.

    Args:
        request: Its number.
        file: The open file.
        offset: Byte of the file.
        size: How much is asked for.
        early_replies: Answers it once it has been woken.
        read_now: Reads what is there; None if that takes an await.

    Attributes:
        woken: Set to have it look again.
        left: What was read for it and could not be sent; its handler answers with it.
        is_answered: Nothing is left to do.
        is_interrupted: Its program was sent a signal.
        is_waiting: Its handler waits for ``woken``.
    """

    __slots__ = (
        *("_file", "_found", "_offset", "_early_replies", "_read_now", "_request", "_size"),
        *("is_answered", "is_interrupted", "is_waiting", "left", "woken"),
    )

    def __init__(
        self,
        request: int,
        file: FileHandle,
        offset: int,
        size: int,
        early_replies: EarlyReplies,
        read_now: ReadNow,
    ) -> None:
        super().__init__(_reader_of(file), file.log)
        self._request = request
        self._file = file
        self._offset = offset
        self._size = size
        self._early_replies = early_replies
        self._read_now = read_now
        self._found: memoryview | None = None
        self.left = b""
        self.woken = trio.Event()
        self.is_answered = False
        self.is_interrupted = False
        self.is_waiting = False

    def wake(self) -> None:
        """Have it look again."""
        self.woken.set()
        self._early_replies.add(self._request, self)

    def find(self) -> memoryview | None:
        """Return what it is to be answered; None if its handler has to see to it."""
        if not self.is_waiting or self.is_interrupted or self.left:
            return None
        self._found = self._read_now(self._file, self._offset, self._size)
        return self._found

    def note_answered(self, size: int) -> None:
        """Note that nothing is left to do: it got so many bytes."""
        self.is_answered = True
        self._file.partition.log.counters.bytes_out += size

    def put_back(self) -> None:
        """Keep what ``find`` returned: the reader has passed it, so it cannot be read again."""
        self.left = bytes(self._found or b"")

    async def wait(self, limit_s: float) -> None:
        """Wait until it is woken, or for so many seconds."""
        if math.isinf(limit_s):  # usual, and needs no deadline
            await self.woken.wait()
        else:
            with trio.move_on_after(limit_s):
                await self.woken.wait()

    def interrupt(self) -> None:
        """End it if it waits, or once it would."""
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
    """Those of a mount. Event loop only.

    Args:
        clock: The clocks.
        interrupts: See below.
        early_replies: See below.

    Attributes:
        interrupts: Tells of signals for programs that wait.
        early_replies: Answers them soon.
        queues: Wakes them.
    """

    def __init__(
        self, clock: Clock, interrupts: InterruptWatch, early_replies: EarlyReplies
    ) -> None:
        self.interrupts = interrupts
        self.early_replies = early_replies
        self._now_ms = clock.now_ms
        self.queues = ReaderQueues(clock.monotonic_s)
        self._polling: dict[int, _Polling] = {}
        self._is_over = False

    async def read(
        self, file: FileHandle, offset: int, size: int, read: Read, read_now: ReadNow
    ) -> memoryview:
        """Read; wait at the end.

        Args:
            file: The open file.
            offset: Byte of the file.
            size: How much is asked for.
            read: Reads what is there; None if it could not be read just now.
            read_now: Reads it without an await; None if that cannot be.

        Returns:
            The bytes; none if it has been answered already.

        Raises:
            NothingYetError: There is nothing yet, and the file is not to wait.
            InterruptedWaitError: The program was sent a signal, or may have been.
            StoppedError: The mount stops.
        """
        size = size - 1 if size > _CUT_BYTES else size
        reading = _Reading(
            self.early_replies.request(), file, offset, size, self.early_replies, read_now
        )
        with self.interrupts.watched(reading.interrupt):
            return await self._read(reading, file, offset, size, read)

    def poll(self, file: FileHandle, number: int, handle: PollHandle | None) -> int:
        """Return the events a file is ready for; its handle is told when that changes."""
        reader = _reader_of(file)
        self.leave(number)
        if self._is_over or reader.has_more() or reader.is_over(self._now_ms()):
            return READABLE
        if handle is not None:
            polling = self._polling[number] = _Polling(file, handle)
            self.queues.add(polling)
        return 0

    def leave(self, number: int) -> None:
        """Tell the handle of a file nothing any more."""
        polling = self._polling.pop(number, None)
        if polling is not None:
            self.queues.remove(polling)

    def end(self) -> None:
        """Let nobody wait any longer: the mount stops."""
        self._is_over = True
        self.queues.wake_all()

    async def _read(
        self, reading: _Reading, file: FileHandle, offset: int, size: int, read: Read
    ) -> memoryview:
        reader = _reader_of(file)
        if self.queues.is_crowd(file.log) and not file.never_waits and reader.has_more():
            reading.end = -1  # there is something, but it is not his turn
            await self._wait(reading, None)
        while not reading.is_answered:
            was_over, reading.end = reader.is_over(self._now_ms()), reader.seen_end()
            if reading.left:
                file.partition.log.counters.bytes_out += len(reading.left)
                return memoryview(reading.left)
            data = await read(file, offset, size)
            if data is None:
                continue
            if len(data) or was_over:
                return data
            if file.never_waits:
                raise NothingYetError("no record has come yet")
            await self._wait(reading, reader.is_over_at_ms())
        return memoryview(b"")

    async def _wait(self, reading: _Reading, until_ms: int | None) -> None:
        """Wait until it is worth looking again, or the clock reaches a time."""
        # atomic: no await until it is in the line, or a change could be missed
        if not (self._is_over or reading.is_interrupted):
            left_s = math.inf if until_ms is None else max(until_ms - self._now_ms(), 0) / 1000
            limit_s = math.inf if self.interrupts.is_told else BLIND_WAIT_S
            reading.woken = trio.Event()
            self.queues.add(reading)
            reading.is_waiting = True
            try:
                await reading.wait(min(left_s, limit_s))
            finally:
                reading.is_waiting = False
                self.queues.remove(reading)
            if reading.is_answered or reading.left:
                return
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
