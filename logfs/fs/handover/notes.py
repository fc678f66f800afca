"""Requests that must not be done twice: mkdir, rmdir, and changes of attributes.

A request is noted in the journal before it changes anything, and again when the change is complete.
Both happen while no other change of the store can run. So after a kill the successor knows whether
the change is complete, has not begun, or was the last one that was under way.

A note is needed until the reply is sent, which follows the handler in the same step. The last ones
are kept: after a kill, requests come again in any order, and some of them were never noted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final, TypeVarTuple

from logfs.errors import LogfsError
from logfs.fs.handover.journal import Journal, NoJournal

Ts = TypeVarTuple("Ts")

KEPT_NOTES: Final = 64
"""How many notes are kept. At a kill far fewer have no reply: changes are made one at a time, and
each is answered as soon as it is complete."""


class NoteKind(IntEnum):
    """The contents of a note in the journal."""

    BEGUN = 1
    DONE = 2
    CONTROL = 3
    """The note belongs to a request of the control socket; see ``control``."""


class Note:
    """The note of one request.

    Attributes:
        was_begun: An earlier daemon has begun to do it; it may be complete or not.
        is_done: An earlier daemon has done it.
        text: The text that that daemon noted.
    """

    def __init__(self, journal: Journal, request: int) -> None:
        kind, self.text = journal.begun(request) or (0, "")
        self._journal = journal
        self._request = request
        self.was_begun = kind == NoteKind.BEGUN
        self.is_done = kind == NoteKind.DONE

    def apply(
        self,
        call: Callable[[*Ts], object],
        *args: *Ts,
        text: str = "",
        is_refused: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make a change, unless it is complete. Any thread, but no other change meanwhile.

        Args:
            call: Makes it; ``was_begun`` says that parts of it may be made.
            args: For the call.
            text: The text to note.
            is_refused: Tells whether the call will raise an error without changing anything.
        """
        if self.is_done:
            return
        if not self.was_begun:
            if is_refused():
                call(*args)
                return
            self._journal.begin(self._request, NoteKind.BEGUN, text)
        try:
            call(*args)
        except (LogfsError, OSError):
            self._journal.end(self._request)
            raise
        self._journal.begin(self._request, NoteKind.DONE, text)


class RequestNotes:
    """The notes of a mount. Event loop only.

    Attributes:
        journal: The journal with the notes.
    """

    def __init__(self) -> None:
        self.journal: Journal = NoJournal()
        self._running: set[int] = set()

    @contextmanager
    def of(self, request: int) -> Iterator[Note]:
        """Return the note of a request; it begins before the first await of its handler."""
        note = Note(self.journal, request)
        self._drop_old()
        self._running.add(request)
        try:
            yield note
        finally:
            self._running.discard(request)

    def _drop_old(self) -> None:
        notes = self.journal.all_begun().items()
        numbers = [number for number, (kind, _) in notes if kind != NoteKind.CONTROL]
        for number in numbers[:-KEPT_NOTES]:
            if number not in self._running:
                self.journal.end(number)
