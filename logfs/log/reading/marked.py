"""The batches of a segment into which a reader has looked, and places inside them.

A look-up by the text index compares the index with the log, reads the batch that it leads to as a
whole, up to 1 MiB, and goes through its records. When it comes to a batch for the second time it
marks it: it notes where some of the records begin, and the checksums of the bytes between them.
Later look-ups read the few KiB between two marks, and nothing of the index.
"""

from bisect import bisect_right
from typing import NamedTuple

from logfs.log.segments.batches import Window
from logfs.log.segments.segment import Segment
from logfs.records._reading import next_batch
from logfs.records._rendering import BatchMarks, mark_batch
from logfs.types import View

LARGE_BYTES = 8 * 1024
"""The memory is worth it for a batch of this size."""
PIECE_BYTES = 16 * 1024
"""Between two marks, at least; a mark takes 32 bytes of memory."""
MOST_MEMORY_BYTES = 1024 * 1024
"""The most that a reader remembers. Beyond it the reader forgets all."""
_BATCH_BYTES = 300


class MarkedBatch(NamedTuple):
    """A batch.

    Attributes:
        file_position: The position at which the batch begins.
        start: Length of the rendering of the segment before it.
        marks: None: the reader has been there once, or it is compressed.
    """

    file_position: int
    start: int
    marks: BatchMarks | None


class MarkedBatches:
    """The batches of one segment, in one view. One user at a time.

    Attributes:
        memory_bytes: How much memory they take.
    """

    __slots__ = ("_batches", "_owner", "_starts", "_view", "memory_bytes")

    def __init__(self, view: View) -> None:
        self._view = view
        self._owner: tuple[Segment, int] | None = None
        self._starts: list[int] = []
        self._batches: list[MarkedBatch] = []
        self.memory_bytes = 0

    def clear(self) -> None:
        """Forget them."""
        self._owner = None
        self._starts.clear()
        self._batches.clear()
        self.memory_bytes = 0

    def find(self, segment: Segment, truncations: int, length: int) -> MarkedBatch | None:
        """Return the batch in which a byte of the rendering of a segment is, if it has marks.

        Args:
            segment: One without gaps.
            truncations: How often the log has been truncated.
            length: The length of the part before the byte.
        """
        owner = self._owner
        if owner is None or owner[0] is not segment or owner[1] != truncations:
            self.clear()
            self._owner = segment, truncations
        number = bisect_right(self._starts, length) - 1
        found = self._batches[number] if number >= 0 else None
        if found is None or found.marks is None or length >= found.start + found.marks.length:
            return None
        return found

    def note(self, start: int, window: Window, at: int) -> None:
        """Note that a look-up which ``find`` could not help has led to a batch.

        Args:
            start: Length of the rendering of the segment before it.
            window: The batch is in there.
            at: The place in the buffer.
        """
        size = next_batch(window.buffer, at, window.stop)
        if size < LARGE_BYTES:
            return
        number = bisect_right(self._starts, start)
        if not number or self._starts[number - 1] != start:
            self._add(number, MarkedBatch(window.file_position + at, start, None))
            return
        position = window.file_position + at
        if self._batches[number - 1] == (position, start, None):
            marks = mark_batch(window.buffer, at, at + size, self._view, PIECE_BYTES)
            self._batches[number - 1] = MarkedBatch(position, start, marks)
            self.memory_bytes += 0 if marks is None else marks.memory_bytes

    def _add(self, number: int, batch: MarkedBatch) -> None:
        if self.memory_bytes >= MOST_MEMORY_BYTES:
            owner = self._owner
            self.clear()
            self._owner, number = owner, 0
        self._starts.insert(number, batch.start)
        self._batches.insert(number, batch)
        self.memory_bytes += _BATCH_BYTES
