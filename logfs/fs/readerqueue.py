"""Readers that wait for a log to grow, in a queue for each log, and waking them a few at a time.

A log grows by a change in its executor, which calls ``note_change`` when it is done. A log that
another program writes grows when a look at its directory finds more. ``note_change`` wakes a few
readers. ``run`` wakes the others: a few more whenever those have come back, with pauses as long as
that took. A thousand requests at once would delay every other request, an append for instance.

For the same reason a new reader joins the end of a queue that is a crowd, even if there is data
for it already. Otherwise a crowd that was woken would stay awake as long as appends go on, since
all of its readers would read again between any two appends.

A queue is in order of arrival. Readers that were in it at a change are ``due``: they are checked
for new data one by one. So a change costs the same however long the queue is.
"""

from collections.abc import Callable

import trio

from logfs.log.reading.files import GrowingFile
from logfs.log.reading.readable import ReadableLog

AT_ONCE = 8
"""How many are woken in one go; more are a crowd."""
LOOKS = 64
"""How many are looked at in one go."""
PATIENCE_S = 0.004
"""How long ``run`` waits for those that it has woken: one who does something else is not missed."""


class QueuedReader:
    """Somebody at the end of a file.

    Args:
        reader: Of the file.
        log: What it reads.

    Attributes:
        log: What it reads.
        end: Where that ended when it was looked at; -1: not at all.
    """

    __slots__ = ("_reader", "end", "log")

    def __init__(self, reader: GrowingFile, log: ReadableLog) -> None:
        self._reader = reader
        self.log = log
        self.end = reader.seen_end()

    @property
    def state(self) -> tuple[int, bool]:
        """What of the log changes when there are news: where it ends, whether it is deleted."""
        return self._reader.seen_end(), self.log.is_deleted

    @property
    def has_news(self) -> bool:
        """Whether it is worth looking again."""
        return self._reader.seen_end() != self.end or self.log.is_deleted

    def wake(self) -> None:
        """Have it look again."""
        raise NotImplementedError


class _Line:
    """Those who wait for one log."""

    __slots__ = ("_due", "_last", "_state", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[QueuedReader, int] = {}
        self._last = 0
        self._due = 0
        self._state: tuple[int, bool] | None = None

    def add(self, waiter: QueuedReader) -> None:
        """Put somebody at the end of the line."""
        self._last += 1
        self.waiters[waiter] = self._last

    def note_change(self) -> bool:
        """Note that there may be news for all who are in it; returns whether there may be."""
        first = next(iter(self.waiters), None)
        if first is None or first.state == self._state:
            return False
        self._state = first.state
        self._due = self._last
        return True

    def note_late(self) -> None:
        """Note that the last one was late: there are news for him already."""
        self._due = self._last

    @property
    def is_due(self) -> bool:
        """Whether the first one has to be looked at."""
        first = next(iter(self.waiters), None)
        return first is not None and self.waiters[first] <= self._due

    def wake_some(self) -> int:
        """Wake the first of those who are due; returns how many."""
        woken = 0
        for _ in range(LOOKS):
            if not self.is_due or woken == AT_ONCE:
                break
            first = next(iter(self.waiters))
            del self.waiters[first]
            if not first.has_news:
                self.add(first)
                continue
            first.wake()
            woken += 1
        return woken


class ReaderQueues:
    """The lines of a mount. Event loop only; ``run`` has to.

    Args:
        monotonic_s: Seconds that only go forward.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._lines: dict[ReadableLog, _Line] = {}
        self._due: dict[ReadableLog, None] = {}
        self._something_due = trio.Event()
        self._missing = 0
        self._all_back = trio.Event()

    def __len__(self) -> int:
        """How many wait. Any thread."""
        return sum(len(line.waiters) for line in list(self._lines.values()))

    def is_crowd(self, log: ReadableLog) -> bool:
        """Whether so many wait for a log that whoever comes has to wait for his turn."""
        line = self._lines.get(log)
        return line is not None and len(line.waiters) >= AT_ONCE

    def add(self, waiter: QueuedReader) -> None:
        """Have somebody woken when there are news for him, at once if there are."""
        line = self._lines.get(waiter.log)
        if line is None:
            line = self._lines[waiter.log] = _Line()
        line.add(waiter)
        self._missing -= 1
        if self._missing == 0:
            self._all_back.set()
        if waiter.has_news:
            line.note_late()
            self._note_due(waiter.log)

    def remove(self, waiter: QueuedReader) -> None:
        """Have somebody woken no more."""
        line = self._lines.get(waiter.log)
        if line is not None:
            line.waiters.pop(waiter, None)
            if not line.waiters:
                del self._lines[waiter.log]

    def note_change(self, log: ReadableLog) -> None:
        """Wake those who wait for a log: a few now, the others soon."""
        line = self._lines.get(log)
        if line is None or not line.note_change():
            return
        if not self._due:
            line.wake_some()
        if line.is_due:
            self._note_due(log)

    def note_look(self) -> None:
        """Do that for every log: somebody else's directory has been looked at."""
        for log in list(self._lines):
            self.note_change(log)

    def wake_all(self) -> None:
        """Wake everybody, news or not."""
        for line in list(self._lines.values()):
            for waiter in list(line.waiters):
                waiter.wake()

    async def run(self) -> None:
        """Wake those who are due, a few at a time, until cancelled."""
        while True:
            while self._due:
                log = next(iter(self._due))
                del self._due[log]
                line = self._lines.get(log)
                if line is None:
                    continue
                started_s = self._monotonic_s()
                self._missing, self._all_back = line.wake_some(), trio.Event()
                if line.is_due:
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
