"""The ``.cleaned`` files of a segment that is going to replace others.

They have the base offset of the first segment that they replace. A stop before they are put in
place removes them, see ``writing.segmentreplacement``.
"""

import contextlib
from collections.abc import Callable, Sequence

from logfs.disk.vfs import Disk, File
from logfs.log.indexes.index import MARK_BYTES
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.indexes.txnindex import AbortedTransaction, encode_aborted
from logfs.log.names import FileKind, FileSuffix, format_segment_file
from logfs.log.segments.batches import read_pieces
from logfs.log.segments.segment import SEGMENT_FILE_KINDS, Segment
from logfs.services.compaction.tools import CleaningTools

Indexes = tuple[bytearray, bytearray, bytearray]
"""Offset index, time index, text index with its header."""


class CleanedFiles:
    """The files of a new segment: ``read`` the old ones, ``append`` its log, then ``finish``.

    Args:
        first: The first segment that is replaced.
        tools: Have the rate, and the bytes of new ids.

    Attributes:
        mark: The mark in the header of the text index; see ``SegmentTable``.
        indexes: The entries of the indexes.
        size_bytes: Bytes of the log so far.
    """

    def __init__(self, disk: Disk, first: Segment, tools: CleaningTools) -> None:
        self._disk = disk
        self._first = first
        self._tools = tools
        self.mark = tools.new_id()[:MARK_BYTES]
        self.indexes: Indexes = (
            bytearray(),
            bytearray(),
            bytearray(TEXT_INDEX.header_of(self.mark)),
        )
        self.size_bytes = 0
        self._log = self._create(FileKind.LOG)

    def read(self, segment: Segment, take: Callable[[bytearray, int], int]) -> None:
        """Read a segment that is replaced, at the rate of the tools; see ``read_pieces``."""

        def take_paced(buffer: bytearray, size: int) -> int:
            self._tools.spend(size)
            used = take(buffer, size)
            self._tools.advance(used)
            return used

        log, piece_bytes = segment.files().log, self._tools.piece_bytes
        read_pieces(log, segment.name, segment.size_bytes, piece_bytes, take_paced)

    def add_entries(self, entries: Sequence[bytes]) -> None:
        """Add entries to each of the indexes."""
        for index, more in zip(self.indexes, entries, strict=True):
            index.extend(more)

    def append(self, data: bytes) -> None:
        """Write the next bytes of the log."""
        self._log.pwrite(data, self.size_bytes)
        self.size_bytes += len(data)
        self._tools.spend(len(data))

    def finish(
        self, time_entry: bytes, aborted: Sequence[AbortedTransaction], last: Segment
    ) -> None:
        """Write the indexes and make all files durable; they keep their names.

        Args:
            time_entry: The last one of the time index.
            aborted: The entries of the transaction index.
            last: The last segment that is replaced, whose modification time the log gets.
        """
        self.indexes[1].extend(time_entry)
        files = [self._log]
        rows = [*zip(SEGMENT_FILE_KINDS[1:3], self.indexes[:2], strict=True)]
        rows.append((FileKind.TEXT_INDEX, self.indexes[2]))
        if aborted:
            rows.append((FileKind.TXN_INDEX, bytearray().join(map(encode_aborted, aborted))))
        for kind, data in rows:
            file = self._create(kind)
            file.pwrite(data, 0)
            self._tools.spend(len(data))
            files.append(file)
        modified_ms = self._disk.stat(last.name).mtime_ms
        self._disk.touch_times(self._name(FileKind.LOG), modified_ms)
        for file in files:
            file.sync()
            file.close()

    def discard(self) -> None:
        """Remove the files."""
        self._log.close()
        for kind in SEGMENT_FILE_KINDS:
            with contextlib.suppress(OSError):
                self._disk.remove(self._name(kind))

    def _create(self, kind: FileKind) -> File:
        file = self._disk.open(self._name(kind), write=True, create=True)
        file.truncate(0)
        return file

    def _name(self, kind: FileKind) -> str:
        name = format_segment_file(self._first.base_offset, kind, FileSuffix.CLEANED)
        return f"{self._first.directory}/{name}"
