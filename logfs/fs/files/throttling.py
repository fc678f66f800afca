"""Writers that wait because their topic appends faster than its quota, without pyfuse3.

Their records are in the log already, and readers see them: only the reply waits, as Kafka's does.
A signal ends the wait, and the write has succeeded. So does the end of the mount. Another daemon
that takes over finds the note of the write, and replies at once.

The kernel lets one write to a file at a time through. So the other writers of a partition wait for
the one that is throttled, and those of other partitions of the topic wait for their own turn.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import trio

from logfs.fs.kernel.interrupts import InterruptWatch

_STEP_S = 1.0
"""The quota is looked at again after so long: it may have been changed."""


class Rate(Protocol):
    """A partition, or the limits of a user; see ``PartitionLog``."""

    def throttle_s(self, mark: int) -> float:
        """Return how many seconds the writer of a request still has to wait."""
        ...

    def note_throttled(self, seconds: float) -> None:
        """Count an append whose writer had to wait."""
        ...


class Throttling:
    """The waits of a mount. Event loop only.

    Args:
        interrupts: Reports signals for programs that wait.
    """

    def __init__(self, interrupts: InterruptWatch) -> None:
        self._interrupts = interrupts
        self._waits: set[trio.Event] = set()
        self._is_over = False

    @contextmanager
    def writer(self) -> Iterator[trio.Event]:
        """Let a signal end the wait of the request whose handler has just begun.

        Returns:
            What ``wait`` needs.
        """
        with self._interrupts.watched() as ended:
            self._waits.add(ended)
            try:
                yield ended
            finally:
                self._waits.remove(ended)

    async def wait(self, rate: Rate, mark: int, ended: trio.Event | None = None) -> None:
        """Return once a rate allows it.

        Args:
            rate: The partition, or the limits of the user.
            mark: Its ``throttle_mark`` after the append.
            ended: Ends the wait when it is set.
        """
        if ended is None:
            ended = trio.Event()
        begun_s, has_waited = trio.current_time(), False
        while not (self._is_over or ended.is_set()) and (left_s := rate.throttle_s(mark)) > 0:
            has_waited = True
            with trio.move_on_after(min(left_s, _STEP_S)):
                await ended.wait()
        if has_waited:
            rate.note_throttled(trio.current_time() - begun_s)

    def end(self) -> None:
        """End all waits: the mount stops."""
        self._is_over = True
        for ended in self._waits:
            ended.set()
