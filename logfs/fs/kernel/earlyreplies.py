"""Replies to waiting reads, sent directly after the reply to the append that ended the wait.

A handler that waits runs again in a later step of the event loop, after everything else that is
ready then. The hooks can reply to a read of ``.follow`` earlier, when an append has woken it. Its
handler then finds that nothing is left to do. A read that would have to wait for something is left
to its handler. No pyfuse3.

The append's own reply is sent first, so a writer does not wait for readers.

Its use is measured by the benchmark ``follow``: the time from a write(2) until a read of
``.follow`` returns, and the time of a write(2) while a thousand readers follow.
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
        """Have the function called once."""

    def reply(self, request: int, data: memoryview) -> bool:
        """Reply to a request; returns False if that is left to its handler."""


class PendingRead(Protocol):
    """A waiting read that has been woken."""

    def find(self) -> memoryview | None:
        """Return the data of the reply, valid until anything else runs; None: no early reply."""

    def note_answered(self, size: int) -> None:
        """Note that the reply was sent, so that the handler need not send one."""

    def put_back(self) -> None:
        """Take back the data that ``find`` returned: it could not be sent."""


class EarlyReplies:
    """Replies to reads directly after the next reply. Event loop only.

    Args:
        hooks: The hooks; None where they were not built: then there are no early replies.
    """

    def __init__(self, hooks: ReplyHooks | None) -> None:
        self._hooks = hooks
        self._due: list[tuple[int, PendingRead]] = []
        if hooks is not None:
            hooks.on_reply(self._replied)

    def request(self) -> int:
        """Return the number of the request whose handler has just begun; 0 without hooks."""
        hooks = self._hooks
        return hooks.request() if hooks is not None and hooks.is_active else 0

    def add(self, request: int, pending: PendingRead) -> None:
        """Reply to a read after the next reply, unless its handler runs before."""
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
            except Exception:  # the caller is C
                logger.exception("a bug in logfs: a read is left to its handler")
