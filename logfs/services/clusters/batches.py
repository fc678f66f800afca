"""A cursor over the stored batches of a partition, for programs that send them on as they are.

Like ``records``, but the batches are not decoded. Batches that are not to be seen (control batches,
aborted ones) are among them.
"""

from collections.abc import Callable
from typing import NamedTuple

from logfs.errors import CorruptRecordError
from logfs.log.reading.offsetcursor import OffsetCursor
from logfs.log.segments.abortedruns import transaction_table
from logfs.log.segments.batches import LOOKUP_BYTES, Window
from logfs.log.segments.snapshot import Snapshot
from logfs.records._reading import find_offset, last_offset
from logfs.types import IsolationLevel

PIECE_BYTES = 1024 * 1024


class Piece(NamedTuple):
    """Whole batches, valid until the next piece is read.

    Attributes:
        buffer: The batches are its bytes ``[start, stop)``.
        first: Offset of the first record that was not returned before; the first batch may begin
            below it.
        end: Offset after the last record.
        aborted: Table of the aborted transactions, for ``decode_batches``.
    """

    buffer: bytearray
    start: int
    stop: int
    first: int
    end: int
    aborted: bytes


class StoredBatches(OffsetCursor):
    """A cursor over the committed batches of a partition. One user at a time.

    Attributes:
        offset: The start of the next piece.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], offset: int) -> None:
        super().__init__(offset)
        self._snapshot = snapshot
        self._window = Window()

    def read(self) -> Piece | None:
        """Return the next batches, about a mebibyte; None at the end of what is committed.

        Raises:
            CorruptRecordError: The next batch is damaged.
            FileNotFoundError: Another process has just removed a file: the snapshot is out of date.
        """
        while True:
            snapshot = self._snapshot()
            end = snapshot.visible_end(IsolationLevel.READ_COMMITTED).offset
            self._begin(snapshot)
            if self.offset >= end:
                return None
            try:
                piece = self._read_some(snapshot, end)
            except CorruptRecordError:
                self._fail()
                raise
            if piece is not None:
                self.offset = piece.end
                return piece

    def _read_some(self, snapshot: Snapshot, end: int) -> Piece | None:
        before, number = self._segment, self._enter(snapshot)
        if number is None:
            return None
        segment, (_, next_offset, file_end) = snapshot.segments[number], snapshot.end_of(number)
        if self._position >= file_end:
            self.offset = next_offset  # what was here has been compacted away
            return None
        chunk = PIECE_BYTES
        if segment is not before:
            self._window, chunk = Window(), LOOKUP_BYTES
        window = self._window
        window.load(segment.files().log, self._position, file_end, chunk, True, self._after)
        start = find_offset(window.buffer, 0, window.stop, self.offset)
        stop = find_offset(window.buffer, 0, window.stop, end)
        if start >= stop:
            self._position = window.file_position + start
            return None
        self._position = window.file_position + stop
        found = next_offset
        if self._position < file_end:
            found = last_offset(window.buffer, start, stop) + 1
        aborted = transaction_table(snapshot.aborted_in(number)) if snapshot.aborted else b""
        return Piece(window.buffer, start, stop, self.offset, min(found, end), aborted)
