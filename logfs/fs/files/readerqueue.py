"""Readers that wait for a log to grow, in a queue for each log, and waking them a few at a time.

A log grows by a change in its executor, which calls ``note_change`` when it is done. A log that
another program writes grows when a look at its directory finds more. ``note_change`` wakes a few
readers. ``run`` wakes the others: a few more whenever those have come back, with pauses as long as
that took. A thousand requests at once would delay every other request, an append for instance.

For the same reason a new reader joins the end of a queue that is a crowd, even if there is data
for it already. Otherwise a crowd that was woken would stay awake as long as appends continue, since
all of its readers would read again between any two appends.

A queue is in order of arrival. Readers that were in it at a change are ``due``: they are checked
for news one by one. So a change costs the same however long the queue is.
"""

from collections.abc import Callable

import trio

from logfs.log.reading.readable import ReadableLog
from logfs.services.views.files import GrowingFile

AT_ONCE = 8
"""How many readers are woken together; a queue as long as this is a crowd."""
CHECKS = 64
"""How many readers are checked for news together."""
PATIENCE_S = 0.004
"""How long ``run`` waits until the readers it has woken are back; some may do something else."""


class QueuedReader:
    """A reader at the end of its file.

    Args:
        reader: Reads the file.
        log: The log of the file.

    Attributes:
        log: The log of the file.
        end: Where the log ended when the reader last looked; -1 if it has not looked.
    """

    __slots__ = ("_reader", "end", "log")

    def __init__(self, reader: GrowingFile, log: ReadableLog) -> None:
        self._reader = reader
        self.log = log
        self.end = reader.seen_end()

    @property
    def state(self) -> tuple[int, bool]:
        """What changes when there is news: where the log ends, and whether it is deleted."""
        return self._reader.seen_end(), self.log.is_deleted

    @property
    def has_news(self) -> bool:
        """Whether a new read may find something."""
        return self._reader.seen_end() != self.end or self.log.is_deleted

    def wake(self) -> None:
        """Have the reader look again."""
        raise NotImplementedError


class _Queue:
    """The readers that wait for one log, with their numbers."""

    __slots__ = ("_due", "_last", "_state", "readers")

    def __init__(self) -> None:
        self.readers: dict[QueuedReader, int] = {}
        self._last = 0
        self._due = 0
        self._state: tuple[int, bool] | None = None

    def add(self, reader: QueuedReader) -> None:
        """Put a reader at the end."""
        self._last += 1
        self.readers[reader] = self._last

    def note_change(self) -> bool:
        """Make all readers due if there may be news; returns whether there may be."""
        first = next(iter(self.readers), None)
        if first is None or first.state == self._state:
            return False
        self._state = first.state
        self._due = self._last
        return True

    def note_late(self) -> None:
        """Make all readers due: the news was there before the last of them came."""
        self._due = self._last

    @property
    def is_due(self) -> bool:
        """Whether the first reader has to be checked for news."""
        first = next(iter(self.readers), None)
        return first is not None and self.readers[first] <= self._due

    def wake_some(self) -> int:
        """Wake the first of the readers that are due; returns how many were woken."""
        woken = 0
        for _ in range(CHECKS):
            if not self.is_due or woken == AT_ONCE:
                break
            first = next(iter(self.readers))
            del self.readers[first]
            if not first.has_news:
                self.add(first)
                continue
            first.wake()
            woken += 1
        return woken


class ReaderQueues:
    """The queues of a mount, by log. Event loop only; the task ``run`` has to run.

    Args:
        monotonic_s: Seconds that only go forward.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._queues: dict[ReadableLog, _Queue] = {}
        self._due: dict[ReadableLog, None] = {}
        self._something_due = trio.Event()
        self._missing = 0
        self._all_back = trio.Event()

    def __len__(self) -> int:
        """How many readers wait. Any thread."""
        return sum(len(queue.readers) for queue in list(self._queues.values()))

    def is_crowd(self, log: ReadableLog) -> bool:
        """Whether so many readers wait for a log that a new one has to wait for its turn."""
        queue = self._queues.get(log)
        return queue is not None and len(queue.readers) >= AT_ONCE

    def add(self, reader: QueuedReader) -> None:
        """Wake a reader once there is news for it; soon if there is news already."""
        queue = self._queues.get(reader.log)
        if queue is None:
            queue = self._queues[reader.log] = _Queue()
        queue.add(reader)
        reader.log.watch(is_watched=True)  # before its next look at the log
        self._missing -= 1
        if self._missing == 0:
            self._all_back.set()
        if reader.has_news:
            queue.note_late()
            self._note_due(reader.log)

    def remove(self, reader: QueuedReader) -> None:
        """Do not wake a reader any more."""
        queue = self._queues.get(reader.log)
        if queue is not None:
            queue.readers.pop(reader, None)
            if not queue.readers:
                del self._queues[reader.log]
                reader.log.watch(is_watched=False)

    def note_change(self, log: ReadableLog) -> None:
        """Wake the readers that wait for a log: a few now, the others soon."""
        queue = self._queues.get(log)
        if queue is None or not queue.note_change():
            return
        if not self._due:
            queue.wake_some()
        if queue.is_due:
            self._note_due(log)

    def note_directory_look(self) -> None:
        """Do that for each log: the directory of another program has been looked at."""
        for log in list(self._queues):
            self.note_change(log)

    def wake_all(self) -> None:
        """Wake all readers, with news or without."""
        for queue in list(self._queues.values()):
            for reader in list(queue.readers):
                reader.wake()

    async def run(self) -> None:
        """Wake the readers that are due, a few at a time, until cancelled."""
        while True:
            while self._due:
                log = next(iter(self._due))
                del self._due[log]
                queue = self._queues.get(log)
                if queue is None:
                    continue
                started_s = self._monotonic_s()
                self._missing, self._all_back = queue.wake_some(), trio.Event()
                if queue.is_due:
                    self._due[log] = None
                if self._missing:
                    with trio.move_on_after(PATIENCE_S):
                        await self._all_back.wait()
                await trio.sleep(self._monotonic_s() - started_s)
            self._something_due = trio.Event()
            await self._something_due.wait()

    def _note_due(self, log: ReadableLog) -> None:
        self._due[log] = None
        self._something_due.set()
