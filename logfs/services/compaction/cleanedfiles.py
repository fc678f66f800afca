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
from logfs.log.segments.segment import SEGMENT_FILE_KINDS, Segment

Indexes = tuple[bytearray, bytearray, bytearray]
"""Offset index, time index, text index with its header."""


class CleanedFiles:
    """The files of a new segment: ``append`` its log, then ``finish``.

    Args:
        first: The first segment that is replaced.
        new_id: 16 random bytes.
        spend: See ``CleaningTools.spend``.

    Attributes:
        mark: What the header of the text index has; see ``SegmentTable``.
        indexes: The entries of the indexes, to be extended by the caller.
        size_bytes: Bytes of the log so far.
    """

    def __init__(
        self, disk: Disk, first: Segment, new_id: bytes, spend: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._first = first
        self._spend = spend
        self.mark = new_id[:MARK_BYTES]
        self.indexes: Indexes = (
            bytearray(),
            bytearray(),
            bytearray(TEXT_INDEX.header_of(self.mark)),
        )
        self.size_bytes = 0
        self._log = self._create(FileKind.LOG)

    def append(self, data: bytes) -> None:
        """Write the next bytes of the log."""
        self._log.pwrite(data, self.size_bytes)
        self.size_bytes += len(data)
        self._spend(len(data))

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """Write the indexes and make all files durable; they keep their names.

        Args:
            aborted: The entries of the transaction index.
            modified_ms: Modification time of the log.
        """
        files = [self._log]
        rows = [*zip(SEGMENT_FILE_KINDS[1:3], self.indexes[:2], strict=True)]
        rows.append((FileKind.TEXT_INDEX, self.indexes[2]))
        if aborted:
            rows.append((FileKind.TXN_INDEX, bytearray().join(map(encode_aborted, aborted))))
        for kind, data in rows:
            file = self._create(kind)
            file.pwrite(data, 0)
            self._spend(len(data))
            files.append(file)
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
