"""Signals for programs that wait for an answer.

The kernel reports them to the daemon (FUSE_INTERRUPT). A program in the kernel cannot even be
killed until its request is answered. pyfuse3 does not pass the report on; the hooks do.

    with interrupts.watched() as interrupted:   # in a handler, before its first await
        ...                                     # wait for the data, or interrupted.wait()

A handler that is interrupted fails with EINTR (``InterruptedWaitError``); any other reply is
allowed too. Without the hooks nothing is reported: ``is_told`` is False, and a handler that waits
has to check for signals itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU
from typing import Protocol

import trio

_PENDING = ("SigPnd:", "ShdPnd:")
_NOT_DELIVERED = ("SigBlk:", "SigIgn:")
_STOPS = sum(1 << (number - 1) for number in (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU))


class InterruptHooks(Protocol):
    """The functions of ``hooks.Hooks`` that are needed here."""

    @property
    def is_active(self) -> bool:
        """Whether the mount goes through the hooks."""

    def request(self) -> int:
        """Return the number of the request whose handler has just begun."""

    def request_thread(self) -> int:
        """Return the thread that waits for its reply; 0: it is not known."""

    def drop_buffer(self) -> None:
        """Give back the memory that the request was read into."""

    def on_interrupt(self, interrupted: Callable[[int], None]) -> None:
        """Have a function called with the number of each request that is interrupted."""


def _nothing() -> None:
    pass


class InterruptWatch:
    """The requests that wait, by their numbers. Event loop only.

    Args:
        hooks: The hooks; None where they were not built.
    """

    def __init__(self, hooks: InterruptHooks | None) -> None:
        self._hooks = hooks
        self._waiting: dict[int, list[tuple[trio.Event, Callable[[], object]]]] = {}
        if hooks is not None:
            hooks.on_interrupt(self._interrupted)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_told(self) -> bool:
        """Whether signals are reported to a watched request."""
        return self._hooks is not None and self._hooks.is_active

    def thread(self) -> int:
        """Return the thread that waits for the handler that has just begun; 0: it is not known."""
        hooks = self._hooks
        return hooks.request_thread() if hooks is not None and hooks.is_active else 0

    def request(self) -> int:
        """Return the number of the request whose handler has just begun; 0 without hooks."""
        hooks = self._hooks
        return hooks.request() if hooks is not None and hooks.is_active else 0

    @contextmanager
    def watched(self, interrupt: Callable[[], object] = _nothing) -> Iterator[trio.Event]:
        """Watch the request whose handler has just begun, before its first await.

        A request may be watched more than once, one inside the other.

        Args:
            interrupt: Called when a signal came, for handlers that wait for other events too.

        Returns:
            An event that is set when a signal came for the program that waits for the answer.
        """
        event = trio.Event()
        if self._hooks is None or not self._hooks.is_active:
            yield event
            return
        number = self._hooks.request()
        self._hooks.drop_buffer()
        waits = self._waiting.setdefault(number, [])
        waits.append((event, interrupt))
        try:
            yield event
        finally:
            waits.pop()
            if not waits:
                del self._waiting[number]

    def _interrupted(self, number: int) -> None:
        """Called by the hooks while the loop reads requests."""
        for event, interrupt in self._waiting.get(number, ()):
            event.set()
            interrupt()


def has_signal(thread: int) -> bool:
    """Whether a signal is pending that ends a thread or that it handles, or it has ended.

    A signal that only stops it is left out. A program that continues after a stop does not expect
    that a read of a file fails.
    """
    try:
        lines = Path(f"/proc/{thread}/status").read_text().splitlines()
    except OSError:
        return True
    pending = hidden = 0
    stops = _STOPS
    for line in lines:
        name, _, mask = line.partition("\t")
        if name in _PENDING:
            pending |= int(mask, 16)
        elif name in _NOT_DELIVERED:
            hidden |= int(mask, 16)
        elif name == "SigCgt:":
            stops &= ~int(mask, 16)
    return bool(pending & ~hidden & ~stops)
