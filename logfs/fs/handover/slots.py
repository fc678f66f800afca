"""Slots of writes in flight: what is noted of a write, so that its lines are appended once.

The library gives each WRITE request a slot when it has been read, and frees it when the reply has
been sent. ``state.SlotWord`` has the words. Before its append the write notes where the log ends;
afterwards, how much was accepted. When the kernel sends the request again, the successor finds its
slot by its number:

    READ       nothing of it is applied
    BEGUN      the successor reads in the log how much is; see ``settling``
    SETTLED    it has: so many lines, and so many bytes of the unfinished line
    DONE       so many bytes are applied, and no more was begun

A stage is stored after the words that belong to it, so a kill between any two stores leaves a valid
slot. Only one write of a partition is in stage BEGUN, for the caller has the lock of the partition.
"""

from typing import Final

from logfs.fs.handover.journal import Journal, NoJournal, Words
from logfs.fs.handover.state import SLOT_WORDS, SlotWord, Stage, Word, slot_index
from logfs.fs.tree.inodes import inode_number
from logfs.log.lines.writer import NO_SLOT
from logfs.types import View

_FIRST: Final = slot_index(0) - SLOT_WORDS
_CURRENT: Final = int(Word.CURRENT)
_STAGE: Final = int(SlotWord.STAGE)
_LOG_END: Final = int(SlotWord.LOG_END)
_UNFINISHED: Final = int(SlotWord.UNFINISHED)
_APPLIED: Final = int(SlotWord.APPLIED)
_RESULT: Final = int(SlotWord.RESULT)
_PARTITION: Final = int(SlotWord.PARTITION)
_LINES: Final = int(SlotWord.LINES)
_KEPT_BYTES: Final = int(SlotWord.KEPT_BYTES)
_BEGUN: Final = int(Stage.BEGUN)
_DONE: Final = int(Stage.DONE)


def partition_key(identity: str) -> int:
    """Return the number of a partition in the slots; see ``partitions.identity_of``."""
    return inode_number(identity, 0)


class Slots:
    """The slots of a mount, and the journal that says more about open files.

    A slot is named by the index of its first word; ``NO_SLOT`` is none.

    Args:
        words: The words of the state; None: nothing outlives the daemon.
        journal: The journal of the mount.
    """

    def __init__(self, words: Words | None, journal: Journal) -> None:
        self._words: Words = [0] * (_CURRENT + 1) if words is None else words
        self.journal = journal
        self.is_kept = words is not None

    def current(self) -> int:
        """Return the slot of the request that was read last: before the first await."""
        number = self._words[_CURRENT]
        return _FIRST + number * SLOT_WORDS if number else NO_SLOT

    def notes(self, identity: str, fh: int, view: View) -> "FileNotes | None":
        """Return the notes of an open file of a partition; None if nothing is kept."""
        if not self.is_kept:
            return None
        return FileNotes(self._words, self.journal, partition_key(identity), fh, view)


NO_SLOTS: Final = Slots(None, NoJournal())
"""Nothing outlives the daemon."""


class FileNotes:
    """The notes of one open file; see ``logfs.log.lines.notes.WriteNotes``."""

    __slots__ = ("_fh", "_journal", "_partition", "_view", "_words")

    def __init__(self, words: Words, journal: Journal, partition: int, fh: int, view: View) -> None:
        self._words = words
        self._journal = journal
        self._partition = partition
        self._fh = fh
        self._view = view

    def begin(self, slot: int, data: bytes, log_end: int, unfinished: int) -> int:
        """Note that a write is about to be applied; returns how much of it is applied already."""
        words = self._words
        applied = 0
        if words[slot + _STAGE]:
            applied = self.applied(slot, data)
            words[slot + _APPLIED] = applied
        words[slot + _LOG_END] = log_end
        words[slot + _UNFINISHED] = unfinished
        words[slot + _PARTITION] = self._partition
        words[slot + _STAGE] = _BEGUN
        return applied

    def applied(self, slot: int, data: bytes) -> int:
        """Return how many bytes of a write are applied."""
        words = self._words
        match words[slot + _STAGE]:
            case Stage.DONE:
                return words[slot + _RESULT]
            case Stage.SETTLED:
                applied = _applied(words, slot, data)
                words[slot + _RESULT] = applied
                words[slot + _STAGE] = _DONE
                return applied
            case _:
                return 0

    def done(self, slot: int, accepted: int) -> None:
        """Note how many bytes of a write are applied, and that no more will be."""
        self._words[slot + _RESULT] = accepted
        self._words[slot + _STAGE] = _DONE

    def keep(self, name: str) -> None:
        """Note the name of the file that the unfinished line is about to be in."""
        self._journal.unfinished(self._fh, self._view, name)


def _applied(words: Words, slot: int, data: bytes) -> int:
    """Return how many bytes of a settled write are applied.

    A line is a record, so the lines tell where the applied ones end. The bytes after the last
    newline are there if, and only if, the unfinished line is as long as it is with them.
    """
    at = words[slot + _APPLIED]
    total = data.count(b"\n", at)
    lines = min(words[slot + _LINES], total)
    for _ in range(lines):
        at = data.index(b"\n", at) + 1
    rest = len(data) - at
    before = 0 if total else words[slot + _UNFINISHED]
    if lines == total and rest and words[slot + _KEPT_BYTES] == before + rest:
        return len(data)
    return at
