"""What the kernel knows of a mount by number, and the requests that must not be done twice.

Every entry is written before the reply to its request. A successor reads the entries again and has
the same nodes, open files and notes. The journal is in the memory file of the mount, in two halves
of which one is in use. An entry becomes valid by the store of the number of bytes in use, after its
own bytes. So a kill between any two stores leaves a valid journal.

    entry, 32 bytes and the text
    0      kind         uint8
    1-3    zero
    4-7    text length  uint32   in bytes
    8-15   a            uint64   16-23 b uint64   24-27 c uint32   28-31 d uint32

    kind  entry                   a       b           c      d     text
    1     identity                                                 of the mount
    2     node                    inode                            its description
    3     open file               handle  inode       flags  user
    4     open directory          handle  inode              user
    5     closed file, directory  handle
    6     unfinished line         handle              view         name of its file
    7     poll                    handle  poll handle
    8     backing file            inode   number; 0: closed
    9     request has begun       number              kind         what it is
    10    request has ended       number
    11    answer                  client  number                   the answer, as bytes
    12    passages of holes       handle                           of each its four numbers
    13    deleted segment         number                           see ``segments``; "": no more

When the half in use has grown to twice what is needed, the other half is filled in steps: with each
new entry, which goes into both halves, a few of the older ones. So no step takes long.
"""

import logging
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from logfs.disk.memoryfile import free_memory
from logfs.fs.handover.state import (
    JOURNAL_AT,
    OPENED,
    OPENED_AT,
    OPENED_WORDS,
    WORD_BYTES,
    HandoverState,
    OpenedWord,
    StateError,
    Word,
)
from logfs.services.views.files import Passage
from logfs.types import View

T = TypeVar("T")

logger = logging.getLogger(__name__)

SPARE_BYTES = 1024 * 1024
"""How many bytes more than twice the needed ones are used before the other half is filled."""
COPIES = 32
"""How many older entries are copied with each new one."""
ANSWERS = 8
"""How many answers are kept for each client."""
CLIENTS = 256
"""For how many clients answers are kept: those that were answered last."""

PASSAGES = 4
"""How many passages are kept for each handle: those of one request, and of what was read ahead."""

_ENTRY = struct.Struct("<B3xIQQII")
_PASSAGE = struct.Struct("<QQQQ")
_MASK_32 = 2**32 - 1
_HALF = 0
"""The word with the number of the half in use; after it the bytes in use of each half."""


class _Kind(IntEnum):
    IDENTITY = 1
    NODE = 2
    FILE = 3
    DIRECTORY = 4
    CLOSED = 5
    UNFINISHED = 6
    POLL = 7
    BACKING = 8
    BEGUN = 9
    ENDED = 10
    ANSWER = 11
    PASSAGES = 12
    DELETED = 13


class KeptFile(NamedTuple):
    """An open file or directory.

    Attributes:
        ino: The inode number.
        flags: The flags of open(2); 0 for a directory.
        uid: The user that has opened it.
    """

    ino: int
    flags: int
    uid: int


class KeptLine(NamedTuple):
    """The file of an unfinished line.

    Attributes:
        view: The rendering the line is written in.
        name: The name of the file in the directory of the partition.
    """

    view: View
    name: str


class Words(Protocol):
    """Words that are stored at once; a memoryview of words is one."""

    def __getitem__(self, index: int, /) -> int:
        """Return a word."""

    def __setitem__(self, index: int, value: int, /) -> None:
        """Store a word."""


class Bytes(Protocol):
    """Memory that is written in slices; a memoryview is one."""

    def __len__(self) -> int:
        """Return the size."""

    def __getitem__(self, part: slice, /) -> "bytes | memoryview":
        """Return a part."""

    def __setitem__(self, part: slice, data: bytes, /) -> None:
        """Write a part."""


class Journal:
    """The journal of a mount, with what its entries say. Entries may come from any thread.

    Args:
        words: The number of the half in use (0 or 1), and the bytes in use of each half.
        area: The two halves.
        punch: Frees the memory of a part of the area, as (start, length).
        spare_bytes: See ``SPARE_BYTES``.

    Attributes:
        identity: The identity of the mount; "" before ``identify``, and if there was no room for an
            entry.
        nodes: The description of each inode that the kernel may know.
        files: The open files, by handle.
        directories: The open directories, by handle.
        lines: The files of unfinished lines, by handle.
        passages: The places at which reads passed holes: the last of each handle, in order.
        poll_handles: The poll handle of each handle that was polled.
        backings: The number of the backing file of each inode that has one.
        deleted: The deleted segments that open files read, in the order of their deletion.

    Raises:
        StateError: What is in it does not decode.
    """

    is_kept = True
    """Whether a successor may read it."""

    def __init__(
        self,
        words: Words,
        area: Bytes,
        punch: Callable[[int, int], None] = lambda _start, _length: None,
        spare_bytes: int = SPARE_BYTES,
    ) -> None:
        self._words = words
        self._area = area
        self._punch = punch
        self._spare_bytes = spare_bytes
        self._size = len(area) // 2
        self.identity = ""
        self.nodes: dict[int, str] = {}
        self.files: dict[int, KeptFile] = {}
        self.directories: dict[int, KeptFile] = {}
        self.lines: dict[int, KeptLine] = {}
        self.passages: dict[int, tuple[Passage, ...]] = {}
        self.poll_handles: dict[int, int] = {}
        self.backings: dict[int, int] = {}
        self.deleted: dict[int, str] = {}
        self._begun: dict[int, tuple[int, str]] = {}
        self._answers: dict[int, dict[int, bytes]] = {}
        self._answered: dict[int, int] = {}  # by client: when, as a count of answers
        self._copies: Iterator[bytes] | None = None
        self._lock = threading.Lock()
        self._is_lost = False
        self._meanings: dict[int, Callable[[int, int, int, int, bytes], None]] = {
            _Kind.IDENTITY: self._keep_identity,
            _Kind.NODE: self._keep_node,
            _Kind.FILE: self._keep_file,
            _Kind.DIRECTORY: self._keep_directory,
            _Kind.CLOSED: self._drop_handle,
            _Kind.UNFINISHED: self._keep_line,
            _Kind.POLL: self._keep_poll_handle,
            _Kind.BACKING: self._keep_backing,
            _Kind.BEGUN: self._keep_begun,
            _Kind.ENDED: self._drop_begun,
            _Kind.ANSWER: self._keep_answer,
            _Kind.PASSAGES: self._keep_passages,
            _Kind.DELETED: self._keep_deleted,
        }
        self._replay()
        self._full_at = 2 * sum(map(len, self._needed())) + spare_bytes

    # What a mount notes

    def identify(self, text: str) -> None:
        """Note whose state this is; it has to be the first entry."""
        self._note(_Kind.IDENTITY, text=text.encode())

    def node(self, ino: int, text: str) -> None:
        """Note a node that the kernel is about to know."""
        if self.nodes.get(ino) != text:
            self._note(_Kind.NODE, ino, text=text.encode())

    def forgotten(self, ino: int) -> None:
        """Leave a node out from now on: the kernel does not know it any more."""
        with self._lock:
            self.nodes.pop(ino, None)

    def opened(self, fh: int, ino: int, flags: int, uid: int) -> None:
        """Note an open file."""
        self._note(_Kind.FILE, fh, ino, flags & _MASK_32, uid)

    def opened_directory(self, fh: int, ino: int, uid: int) -> None:
        """Note an open directory."""
        self._note(_Kind.DIRECTORY, fh, ino, 0, uid)

    def released(self, fh: int) -> None:
        """Note that a file or directory was closed."""
        self._note(_Kind.CLOSED, fh)

    def unfinished(self, fh: int, view: View, name: str) -> None:
        """Note the file of an open file's unfinished line; "": it has none any more."""
        self._note(_Kind.UNFINISHED, fh, 0, view, text=name.encode())

    def passed(self, fh: int, passage: Passage) -> None:
        """Note where a read of an open file passed a hole."""
        last = (*self.passages.get(fh, ())[1 - PASSAGES :], passage)
        self._note(_Kind.PASSAGES, fh, text=_encode_passages(last))

    def polls(self, fh: int, poll_handle: int) -> None:
        """Note the poll handle of an open file."""
        if self.poll_handles.get(fh) != poll_handle:
            self._note(_Kind.POLL, fh, poll_handle)

    def backing(self, ino: int, number: int) -> None:
        """Note the backing file of an inode; 0: it has none any more."""
        self._note(_Kind.BACKING, ino, number)

    def deleted_segment(self, number: int, text: str) -> None:
        """Note a deleted segment that open files read; "": they do not need it any more."""
        if self.deleted.get(number, "") != text:
            self._note(_Kind.DELETED, number, text=text.encode())

    def begin(self, unique: int, kind: int, text: str = "") -> None:
        """Note that a request which must not be done twice begins.

        Args:
            unique: The number of the request, without the bit of a resent one.
            kind: The kind of the request; any number.
            text: To what.
        """
        self._note(_Kind.BEGUN, unique, 0, kind, text=text.encode())

    def end(self, unique: int) -> None:
        """Drop the note of a request, if there is one."""
        if unique in self._begun:
            self._note(_Kind.ENDED, unique)

    def begun(self, unique: int) -> tuple[int, str] | None:
        """Return kind and text of a request that has begun; None if no note was made."""
        return self._begun.get(unique)

    def all_begun(self) -> dict[int, tuple[int, str]]:
        """Return kind and text of all requests that have begun and not ended, by number."""
        return dict(self._begun)

    def answered(self, client: int, number: int, answer: bytes) -> None:
        """Keep the answer to a request of a client of the control socket.

        Args:
            client: Any number of 64 bits.
            number: The number of the request; later requests of a client have higher ones.
            answer: The bytes of the answer.
        """
        count = max(self._answered.values(), default=0) + 1
        self._note(_Kind.ANSWER, client, number, count & _MASK_32, text=answer)

    def answer(self, client: int, number: int) -> bytes | None:
        """Return the answer to a request of a client; None if it is not kept."""
        return self._answers.get(client, {}).get(number)

    # What an entry says

    def _keep_identity(self, _a: int, _b: int, _c: int, _d: int, text: bytes) -> None:
        self.identity = text.decode()

    def _keep_node(self, ino: int, _b: int, _c: int, _d: int, text: bytes) -> None:
        self.nodes[ino] = text.decode()

    def _keep_file(self, fh: int, ino: int, flags: int, uid: int, _text: bytes) -> None:
        self.files[fh] = KeptFile(ino, flags, uid)

    def _keep_directory(self, fh: int, ino: int, flags: int, uid: int, _text: bytes) -> None:
        self.directories[fh] = KeptFile(ino, flags, uid)

    def _drop_handle(self, fh: int, _b: int, _c: int, _d: int, _text: bytes) -> None:
        for table in (self.files, self.directories, self.lines, self.passages):
            table.pop(fh, None)
        self.poll_handles.pop(fh, None)

    def _keep_line(self, fh: int, _b: int, view: int, _d: int, name: bytes) -> None:
        self.lines.pop(fh, None)
        if name:
            self.lines[fh] = KeptLine(View(view), name.decode())

    def _keep_passages(self, fh: int, _b: int, _c: int, _d: int, text: bytes) -> None:
        self.passages[fh] = tuple(Passage(*numbers) for numbers in _PASSAGE.iter_unpack(text))

    def _keep_poll_handle(self, fh: int, handle: int, _c: int, _d: int, _text: bytes) -> None:
        self.poll_handles[fh] = handle

    def _keep_backing(self, ino: int, number: int, _c: int, _d: int, _text: bytes) -> None:
        self.backings.pop(ino, None)
        if number:
            self.backings[ino] = number

    def _keep_deleted(self, number: int, _b: int, _c: int, _d: int, text: bytes) -> None:
        self.deleted.pop(number, None)
        if text:
            self.deleted[number] = text.decode()

    def _keep_begun(self, unique: int, _b: int, kind: int, _d: int, text: bytes) -> None:
        self._begun[unique] = kind, text.decode()

    def _drop_begun(self, unique: int, _b: int, _c: int, _d: int, _text: bytes) -> None:
        self._begun.pop(unique, None)

    def _keep_answer(self, client: int, number: int, count: int, _d: int, answer: bytes) -> None:
        answers = self._answers.setdefault(client, {})
        answers[number] = answer
        self._answered[client] = max(count, self._answered.get(client, 0))
        if len(answers) > ANSWERS:
            del answers[min(answers)]
        if len(self._answers) > CLIENTS:
            oldest = min(self._answered, key=lambda client: self._answered[client])
            del self._answers[oldest], self._answered[oldest]

    def _needed(self) -> Iterator[bytes]:
        """Yield entries that say what is still needed; entries may be noted meanwhile."""
        yield _encode(_Kind.IDENTITY, text=self.identity.encode())
        yield from _rows(self.nodes, lambda ino, t: _encode(_Kind.NODE, ino, text=t.encode()))
        yield from _rows(self.files, lambda fh, file: _encode(_Kind.FILE, fh, *file))
        yield from _rows(self.directories, lambda fh, file: _encode(_Kind.DIRECTORY, fh, *file))
        yield from _rows(
            self.lines,
            lambda fh, line: _encode(_Kind.UNFINISHED, fh, 0, line.view, text=line.name.encode()),
        )
        yield from _rows(
            self.passages,
            lambda fh, last: _encode(_Kind.PASSAGES, fh, text=_encode_passages(last)),
        )
        yield from _rows(self.poll_handles, lambda fh, handle: _encode(_Kind.POLL, fh, handle))
        yield from _rows(self.backings, lambda ino, number: _encode(_Kind.BACKING, ino, number))
        yield from _rows(self.deleted, lambda n, t: _encode(_Kind.DELETED, n, text=t.encode()))
        yield from _rows(
            self._begun,
            lambda unique, note: _encode(_Kind.BEGUN, unique, 0, note[0], text=note[1].encode()),
        )
        for client, answers in list(self._answers.items()):
            count = self._answered.get(client, 0)
            for number, answer in list(answers.items()):
                yield _encode(_Kind.ANSWER, client, number, count, text=answer)

    # Bytes

    def _note(
        self, kind: _Kind, a: int = 0, b: int = 0, c: int = 0, d: int = 0, text: bytes = b""
    ) -> None:
        with self._lock:
            # First here: a step of copying must not copy what this entry takes back.
            self._meanings[kind](a, b, c, d, text)
            if not self._is_lost:
                self._append(_encode(kind, a, b, c, d, text))

    def _append(self, entry: bytes) -> None:
        half = self._words[_HALF]
        used = self._write(half, entry)
        if self._copies is not None:
            self._write(1 - half, entry)
            self._copy_some(half)
        elif used > self._full_at:
            self._words[2 - half] = 0
            self._copies = self._needed()

    def _copy_some(self, half: int) -> None:
        """Copy a few needed entries into the other half; after the last one use that half."""
        copies, copied = self._copies, 0
        while copies is not None and copied < COPIES:
            entry = next(copies, None)
            if entry is None:
                self._copies = None
                if not self._is_lost:
                    self._words[_HALF] = 1 - half
                    self._full_at = 2 * self._words[2 - half] + self._spare_bytes
                    self._punch(half * self._size, self._size)
                return
            self._write(1 - half, entry)
            copied += 1

    def _write(self, half: int, entry: bytes) -> int:
        used = self._words[1 + half]
        end = used + len(entry)
        if end > self._size:
            self._lose()
            return 0
        start = half * self._size
        self._area[start + used : start + end] = entry
        self._words[1 + half] = end
        return end

    def _lose(self) -> None:
        """Give up: a successor finds no identity, so it mounts afresh."""
        self._is_lost, self._copies, self.identity = True, None, ""
        self._words[1 + self._words[_HALF]] = 0
        logger.warning(
            "the state of the mount has no room for %d open files and %d names: a restart of the "
            "daemon will end open files", len(self.files), len(self.nodes)
        )  # fmt: skip

    def _replay(self) -> None:
        half = self._words[_HALF]
        if half not in (0, 1) or self._words[1 + half] > self._size:
            raise StateError(f"the kept journal does not decode: half {half} is in use")
        start, used = half * self._size, self._words[1 + half]
        data = bytes(self._area[start : start + used])
        position = 0
        try:
            while position < used:
                kind, length, a, b, c, d = _ENTRY.unpack_from(data, position)
                text = data[position + _ENTRY.size : position + _ENTRY.size + length]
                self._meanings[kind](a, b, c, d, text)
                position += _ENTRY.size + length
        except (ValueError, LookupError, struct.error) as error:
            raise StateError(
                f"the kept journal does not decode at byte {position}: {error}"
            ) from error


def journal_of(state: HandoverState) -> Journal:
    """Return the journal in the state of a mount, with what its entries say.

    Files that were opened natively get entries like all others, and their notes end.

    Raises:
        StateError: It does not decode.
    """
    area = state.journal
    words = state.words[Word.JOURNAL_HALF : Word.JOURNAL_USED_2 + 1]
    journal = Journal(
        words, area, lambda start, length: free_memory(area, JOURNAL_AT + start, length)
    )
    first = OPENED_AT // WORD_BYTES
    stop = first + min(state.words[Word.OPENED], OPENED) * OPENED_WORDS
    for at in range(first, stop, OPENED_WORDS):
        fh, ino, flags, uid = state.words[at : at + OPENED_WORDS]
        if not fh:
            continue
        try:
            journal.opened(fh, ino, flags, uid)
        except struct.error as error:
            raise StateError(
                f"the note of a file that was opened natively does not decode: {error}"
            ) from error
        state.words[at + OpenedWord.FH] = 0
    return journal


class NoJournal(Journal):
    """The journal of a mount without a successor: it keeps nothing."""

    is_kept = False

    def __init__(self) -> None:
        super().__init__([0, 0, 0], memoryview(bytearray()))

    def _note(
        self, kind: _Kind, a: int = 0, b: int = 0, c: int = 0, d: int = 0, text: bytes = b""
    ) -> None:
        pass


def _encode(
    kind: _Kind, a: int = 0, b: int = 0, c: int = 0, d: int = 0, text: bytes = b""
) -> bytes:
    return _ENTRY.pack(kind, len(text), a, b, c, d) + text


def _encode_passages(passages: Iterable[Passage]) -> bytes:
    return b"".join(_PASSAGE.pack(*passage) for passage in passages)


def _rows(table: dict[int, T], encode: Callable[[int, T], bytes]) -> Iterator[bytes]:
    for key in list(table):
        if key in table:
            yield encode(key, table[key])
