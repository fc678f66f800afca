"""Answers that go out right after the reply to the change that made them possible.

A handler that waits runs again in a later step of the event loop, after whatever else is ready
then. A read of ``.follow`` that an append has woken can be answered before that, by the hooks, and
its handler then finds that it has nothing left to do. What cannot be answered so, because it would
have to wait for something, is left to the handler. No pyfuse3.

The append's own reply goes first: who writes does not wait for those who read.
"""

import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)


class ReplyHooks(Protocol):
    """The functions of ``hooks.Hooks`` that are needed here."""

    @property
    def is_active(self) -> bool:
        """Whether the mount goes through the hooks."""

    def request(self) -> int:
        """Return the number of the request whose handler has just begun."""

    def on_reply(self, replied: Callable[[], None]) -> None:
        """Have a function called after the reply that is sent next after ``expect_reply``."""

    def expect_reply(self) -> None:
        """Have it called once."""

    def reply(self, request: int, data: memoryview) -> bool:
        """Answer a request; False: it is left to its handler."""


class PendingRead(Protocol):
    """A read that has been woken."""

    def find(self) -> memoryview | None:
        """Return what it is to be answered, good until anything else runs; None: not so."""

    def note_answered(self, size: int) -> None:
        """Note that it got so many bytes, so that its handler need not answer it."""

    def put_back(self) -> None:
        """Take back what ``find`` returned: it could not be sent."""


class EarlyReplies:
    """The reads that may be answered after the next reply. Event loop only.

    Args:
        hooks: The hooks; None where they were not built: nothing is answered so.
    """

    def __init__(self, hooks: ReplyHooks | None) -> None:
        self._hooks = hooks
        self._due: list[tuple[int, PendingRead]] = []
        if hooks is not None:
            hooks.on_reply(self._replied)

    def request(self) -> int:
        """Return the number of the request whose handler has just begun; 0: none is known."""
        hooks = self._hooks
        return hooks.request() if hooks is not None and hooks.is_active else 0

    def add(self, request: int, pending: PendingRead) -> None:
        """Answer a read after the next reply, if its handler does not run before."""
        if self._hooks is not None and request:
            self._due.append((request, pending))
            self._hooks.expect_reply()

    def _replied(self) -> None:
        """Called by the hooks, in the step of the request that has been replied to."""
        due, self._due = self._due, []
        for request, pending in due:
            try:
                data = pending.find()
                if data is None or self._hooks is None:
                    continue
                if self._hooks.reply(request, data):
                    pending.note_answered(len(data))
                else:
                    pending.put_back()
            except Exception:  # nobody above could take it
                logger.exception("a bug in logfs: a read is left to its handler")
