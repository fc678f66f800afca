"""Requests of the control socket that must not be done twice, though a client repeats them.

A client numbers its requests. After a lost connection it connects again, and repeats the request
with its number. The daemon keeps its last answers to each client in the journal. A request without
an answer was interrupted: its appends are noted as writes are (see ``slots``), for each partition.
"""

import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, NamedTuple

import trio

from logfs.control import frames
from logfs.control.requests import Request
from logfs.errors import LogfsError
from logfs.fs.handover.journal import Journal, NoJournal
from logfs.fs.handover.notes import NoteKind
from logfs.fs.handover.slots import partition_key
from logfs.fs.partitions.partition import identity_of
from logfs.log.partition import PartitionLog
from logfs.records.jsontext import decode_json, decode_object

MAX_NOTES: Final = 64
"""How many interrupted requests whose clients do not return are remembered."""
_CONTROL: Final = 1 << 63
"""The bit that the numbers of these notes have; those of requests of the kernel do not."""
_NO_JOURNAL: Final = NoJournal()


class _Part(NamedTuple):
    """What a request has appended to one partition.

    Attributes:
        is_open: More records of the request are in the log from ``log_end`` on, if any.
        log_end: The log end offset before the last append.
        records: Records of the request before that one.
        first: The offset of the first of all; -1 if there is none.
    """

    is_open: bool
    log_end: int
    records: int
    first: int

    def settled(self, log_end: int) -> "_Part":
        """Return what it is if the log ends there."""
        found = max(0, log_end - self.log_end)
        first = self.log_end if found and self.first < 0 else self.first
        return _Part(False, 0, self.records + found, first)


class ControlNote:
    """The note of one request. One thread at a time.

    Attributes:
        was_begun: An earlier daemon has begun to do it.
    """

    def __init__(self, journal: Journal, key: int) -> None:
        self._journal = journal
        self._key = key
        kind, text = journal.begun(key) or (0, "")
        self.was_begun = kind == NoteKind.CONTROL
        self._parts, self._partitions = _decode(text)

    def begin(self) -> None:
        """Note that it begins."""
        self._journal.begin(self._key, NoteKind.CONTROL, _encode(self._parts, self._partitions))

    @contextmanager
    def forgiving(self, error: type[LogfsError], is_done: Callable[[], bool]) -> Iterator[None]:
        """Make a change that may be complete already, which the error says then.

        Args:
            error: The error that a complete change raises.
            is_done: Tells whether it would be raised now; then the request is not noted.
        """
        if not self.was_begun and not is_done():
            self.begin()
        try:
            yield
        except error:
            if not self.was_begun:
                raise

    def partitions(self, count: int) -> int:
        """Return over how many partitions its lines are distributed: as many as the first time."""
        if not self._partitions:
            self._partitions = count
            self.begin()
        return self._partitions

    def applied(self, log: PartitionLog) -> tuple[int, int]:
        """Return how many of its records a log has, and the offset of the first of them."""
        part = self._parts.get(_name(log))
        return (0, -1) if part is None else (part.records, part.first)

    def begin_append(self, log: PartitionLog, records: int) -> None:
        """Note that records are about to be appended after so many; with the lock of the log."""
        self._parts[_name(log)] = _Part(True, log.log_end_offset, records, self.applied(log)[1])
        self.begin()

    def end_append(self, log: PartitionLog) -> None:
        """Note that those which are in the log are all; with its lock."""
        part = self._parts.get(_name(log))
        if part is not None and part.is_open:
            self._parts[_name(log)] = part.settled(log.log_end_offset)
            self.begin()


class ControlNotes:
    """Answers each numbered request once. Event loop only.

    Attributes:
        journal: The journal with notes and answers.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self.journal: Journal = journal or _NO_JOURNAL
        self._running: dict[tuple[int, int], trio.Event] = {}

    def note(self, request: Request) -> ControlNote:
        """Return the note of a request."""
        if request.identity is None:
            return ControlNote(_NO_JOURNAL, 0)
        return ControlNote(self.journal, _key(*request.identity))

    async def answer(
        self, request: Request, command: Callable[[Request], Awaitable[object]]
    ) -> object:
        """Answer a request, once if it is numbered.

        Raises:
            LogfsError, OSError: The error that it met.
        """
        identity = request.identity
        if identity is None or not self.journal.is_kept:
            return await command(request)
        running = self._running.get(identity)
        if running is not None:
            await running.wait()
        kept = self.journal.answer(*identity)
        if kept is None:
            self._running[identity] = done = trio.Event()
            try:
                kept = await self._answer_first(request, command)
            finally:
                del self._running[identity]
                done.set()
        answer = decode_object(kept)
        if "error" in answer:
            raise frames.decode_error(answer["error"])
        return answer["result"]

    async def _answer_first(
        self, request: Request, command: Callable[[Request], Awaitable[object]]
    ) -> bytes:
        assert request.identity is not None
        try:
            answer = {"result": await command(request)}
        except (LogfsError, OSError) as error:
            answer = {"error": frames.encode_error(error)}
        text = json.dumps(answer).encode()
        self.journal.answered(*request.identity, text)
        self.journal.end(_key(*request.identity))
        return text


class ControlSettling:
    """Settles the appends of interrupted requests while a store is loaded. Any thread."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        notes = [key for key, note in journal.all_begun().items() if note[0] == NoteKind.CONTROL]
        for key in notes[:-MAX_NOTES]:
            journal.end(key)
        self._keys = notes[-MAX_NOTES:]

    def settle(self, log: PartitionLog) -> None:
        """Note how many records of each request a log has, before anything is appended to it."""
        with self._lock:
            for key in self._keys:
                ControlNote(self._journal, key).end_append(log)


def _name(log: PartitionLog) -> str:
    return str(partition_key(identity_of(log)))


def _key(client: int, number: int) -> int:
    digest = blake2b(b"%d/%d" % (client, number), digest_size=8).digest()
    return int.from_bytes(digest, "big") | _CONTROL


def _encode(parts: dict[str, _Part], partitions: int) -> str:
    return json.dumps([parts, partitions])


def _decode(text: str) -> tuple[dict[str, _Part], int]:
    if not text:
        return {}, 0
    return decode_json(
        text, lambda row: ({name: _Part(*part) for name, part in row[0].items()}, row[1])
    )
