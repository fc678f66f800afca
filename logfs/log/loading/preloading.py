"""What a successor reads while its predecessor still serves, so that its own load is short.

Most of a load is the listings and segment tables of partitions, and nearly all of that is the same
when the successor takes over. It reads both again then. What was decoded before is used only if the
listing is equal, and if the table begins with the same bytes: a segment table grows at its end. So
nothing of it has to be right, and what has changed only takes longer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from logfs.disk.vfs import LARGER_FILE_BYTES, Disk
from logfs.errors import LogfsError
from logfs.log import names
from logfs.log.host import Host
from logfs.log.listing import list_partitions
from logfs.log.names import FileKind
from logfs.log.segments.segment import OpenSegments, Segment
from logfs.log.segments.table import DecodedTable, SegmentState, TableEntry, decode_table

Grouped = tuple[dict[int, set[FileKind]], list[str]]


class _PartitionFiles(NamedTuple):
    files: Sequence[str]
    grouped: Grouped
    table: DecodedTable
    segments: dict[int, tuple[TableEntry, Segment]]


class Preloaded:
    """Listings and segment tables of a data directory that another process writes.

    Each is given away once, to the load that follows.

    Attributes:
        opened: The open segments of the store that is going to be loaded.
    """

    def __init__(self, disk: Disk, host: Host) -> None:
        self.opened = OpenSegments(disk, host.open_segments)
        self._partitions: dict[str, _PartitionFiles] = {}

    @classmethod
    def read(cls, disk: Disk, host: Host) -> "Preloaded":
        """Read a data directory; a partition that cannot be read is left to the load."""
        preloaded = cls(disk, host)
        try:
            found = list_partitions(disk)
        except OSError:
            return preloaded
        for topic_partition in found:
            directory = topic_partition.directory
            try:
                preloaded._partitions[directory] = preloaded._read(disk, directory)
            except (LogfsError, OSError):
                continue
        return preloaded

    def _read(self, disk: Disk, directory: str) -> _PartitionFiles:
        files = disk.contents(directory).files
        data = disk.read(f"{directory}/{names.SEGMENT_TABLE}", LARGER_FILE_BYTES)
        table = decode_table(data)
        segments = {
            base: (entry, Segment.from_entry(self.opened, directory, entry))
            for base, entry in table.state.entries.items()
            if entry.state is SegmentState.SEALED
        }
        return _PartitionFiles(files, names.group_segment_files(files), table, segments)

    def take(self, directory: str) -> "PreloadedPartition":
        """Return what was read of a partition; nothing if it was not, or was taken before."""
        return PreloadedPartition(self._partitions.pop(directory, None))


class PreloadedPartition:
    """What was read of one partition directory, and is used as far as it is still right."""

    def __init__(self, found: _PartitionFiles | None = None) -> None:
        self._found = found

    @property
    def table(self) -> DecodedTable | None:
        """The segment table as it was; see ``SegmentTable.load``."""
        return None if self._found is None else self._found.table

    def group(self, files: Sequence[str]) -> Grouped:
        """Do what ``names.group_segment_files`` does."""
        if self._found is not None and self._found.files == files:
            return self._found.grouped
        return names.group_segment_files(files)

    def segment(self, entry: TableEntry) -> Segment | None:
        """Return the segment of an entry, once; None if the entry was not in the table."""
        if self._found is None:
            return None
        known, segment = self._found.segments.pop(entry.base_offset, (None, None))
        return segment if known is entry else None
