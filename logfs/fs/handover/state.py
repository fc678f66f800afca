"""The state of a mount in a memory file, which outlives the daemon.

``native/handover.h`` has the layout. The file has to survive the process, not a power cut, so
nothing is ever flushed. A word of 8 bytes is stored at once: a kill leaves the value of before or
of after the store.
"""

import os
from enum import IntEnum, auto
from typing import Final, Self

from logfs.disk.memoryfile import create_memory_file, map_memory_file
from logfs.errors import MountError

MAGIC: Final = 0x31484F53464C474F
VERSION: Final = 2
_OLDER = frozenset({1})
"""Versions whose states are read, too: they have no files that were opened natively."""
WORD_BYTES: Final = 8
SLOTS_AT: Final = 4096
SLOTS: Final = 4096
SLOT_WORDS: Final = 16
OPENED_AT: Final = 640 << 10
OPENED: Final = 12288
OPENED_WORDS: Final = 4
JOURNAL_AT: Final = 1 << 20
JOURNAL_BYTES: Final = 256 << 20
"""The size of each of its two halves."""
KEPT_AT: Final = 1 << 30
_KEPT_TABLE_BYTES: Final = 65536
_KEPT_SMALL_BYTES: Final = 65536 * 128
_KEPT_LARGE_BYTES: Final = 1024 * ((1 << 20) + 8192)
STATE_BYTES: Final = KEPT_AT + _KEPT_TABLE_BYTES + _KEPT_SMALL_BYTES + _KEPT_LARGE_BYTES

_MAPPED_BYTES: Final = JOURNAL_AT + 2 * JOURNAL_BYTES
_NAME: Final = "logfs-state"


class Word(IntEnum):
    """The words of the header, by their index."""

    MAGIC = 0
    VERSION = auto()
    INIT_SIZE = auto()
    REPLY_SIZE = auto()
    CURRENT = auto()
    """1 + the slot of the request that was read last; 0: that request has none."""
    ADOPTIONS = auto()
    """How often the connection was adopted."""
    RESENT = auto()
    """Requests that were read again."""
    WITHOUT_SLOT = auto()
    """WRITE requests for which no slot was free."""
    PLANNED = auto()
    """1: the predecessor had answered what it had read, and closed the store."""
    JOURNAL_HALF = auto()
    JOURNAL_USED = auto()
    """Bytes in the first half; the next word: in the second half."""
    JOURNAL_USED_2 = auto()
    HANDOVER_NS = auto()
    """CLOCK_MONOTONIC when the predecessor stopped reading; 0 after a crash."""
    DEVICE = auto()
    """The minor number of the mount's device; 0: not known."""
    OPENED = auto()
    """So many of the first notes of files that were opened natively may be in use."""


class SlotWord(IntEnum):
    """The words of a slot, by their index."""

    UNIQUE = 0
    """The number of the request without ``RESENT``; 0: the slot is free."""
    STAGE = auto()
    FH = auto()
    NODE = auto()
    SIZE = auto()
    LOG_END = auto()
    """The end of the log before the append."""
    UNFINISHED = auto()
    """Bytes of the unfinished line before it."""
    APPLIED = auto()
    """Bytes of the request that had been applied before it."""
    RESULT = auto()
    """Bytes of the request that are applied now."""
    PARTITION = auto()
    IS_OLD = auto()
    LINES = auto()
    """Lines of the request that a successor has found in the log."""
    KEPT_BYTES = auto()
    """Bytes of the unfinished line that it has found."""


class OpenedWord(IntEnum):
    """The words of a file that was opened natively, by their index."""

    FH = 0
    """0: the place is free."""
    NODE = auto()
    FLAGS = auto()
    USER = auto()


class Stage(IntEnum):
    """How far a WRITE request is."""

    READ = 0
    BEGUN = 1
    """The log tells what is applied of it, from ``LOG_END`` on."""
    DONE = 2
    """``RESULT`` bytes are applied."""
    SETTLED = 3
    """``LINES`` and ``KEPT_BYTES`` tell what is applied of it."""


class StateError(MountError):
    """The memory file cannot be used; the mount starts without it."""


class HandoverState:
    """The mapped state.

    Args:
        descriptor: The descriptor of the memory file; it now belongs to this object.

    Attributes:
        words: The words of the header and of the slots; a slot begins at ``slot_index``.
        journal: The bytes of the two halves of the journal.

    Raises:
        StateError: It is no state, or of another version.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        size = os.fstat(descriptor).st_size
        if size != STATE_BYTES:
            raise StateError(f"the kept state has {size} bytes; expected {STATE_BYTES}")
        mapped = map_memory_file(descriptor, _MAPPED_BYTES)
        self.words = mapped[:JOURNAL_AT].cast("Q")
        self.journal = mapped[JOURNAL_AT:]
        found = (self.words[Word.MAGIC], self.words[Word.VERSION])
        if found[0] != MAGIC or found[1] not in {VERSION, *_OLDER}:
            raise StateError(f"the kept state has version {found[1]}; expected {VERSION}")
        self.words[Word.VERSION] = VERSION

    @classmethod
    def create(cls) -> Self:
        """Create an empty one.

        Raises:
            OSError: There is no memory for it.
        """
        descriptor = create_memory_file(_NAME, STATE_BYTES)
        words = map_memory_file(descriptor, SLOTS_AT).cast("Q")
        words[Word.MAGIC], words[Word.VERSION] = MAGIC, VERSION
        return cls(descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor


def slot_index(slot: int) -> int:
    """Return the index of the first word of a slot in ``words``; slots have numbers from 0."""
    return SLOTS_AT // WORD_BYTES + slot * SLOT_WORDS
