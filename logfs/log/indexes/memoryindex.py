"""Indexes that exist only in memory: the directory must not be written, or the disk is full."""

from logfs.disk.vfs import Disk
from logfs.log.indexes.index import Entries
from logfs.log.loading.scan import Scan
from logfs.log.segments.segment import Segment, SegmentFiles, sealed_indexes


class MemoryFiles(SegmentFiles):
    """The files of a segment whose indexes are not on the disk."""

    def __init__(self, disk: Disk, segment: Segment, scan: Scan | None, *, but_text: bool) -> None:
        super().__init__(disk, segment, sealed_indexes(disk, segment))
        self._offset = bytes(scan.offset_entries) if scan else b""
        self._time = bytes(scan.time_entries) if scan else b""
        self._text = None if but_text else bytes(scan.text_entries) if scan else b""

    def offset_entries(self) -> Entries:
        """Entries of the offset index."""
        return self._offset

    def time_entries(self) -> Entries:
        """Entries of the time index."""
        return self._time

    def text_entries(self) -> Entries:
        """Entries of the text index."""
        return super().text_entries() if self._text is None else self._text


def memory_files(
    disk: Disk, segment: Segment, scan: Scan | None, *, but_text: bool = False
) -> MemoryFiles:
    """Return the files of a segment with the indexes that a scan found; None: it is empty.

    ``but_text``: the text index is on the disk.
    """
    return MemoryFiles(disk, segment, scan, but_text=but_text)
