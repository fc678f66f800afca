"""What a successor reads while its predecessor still serves, so that its own load is short.

Most of a load is the listings and segment tables of partitions, and nearly all of that is the same
when the successor takes over. It uses only what it can prove to be the same then:

* A listing, if the directory has the same time of change, and had not been changed for a while when
  it was listed. Every change after that gives the directory another time.
* An entry of a segment table, if the table begins with the same bytes and no later entry changes
  it: a segment table grows at its end.

So nothing that was read has to be right, and what has changed only takes longer.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from logfs.disk.vfs import LARGER_FILE_BYTES, Contents, Disk, FileStat
from logfs.errors import LogfsError
from logfs.log import names
from logfs.log.host import Host
from logfs.log.listing import list_partitions
from logfs.log.names import FileKind
from logfs.log.segments.segment import INDEX_KINDS, OpenSegments, Segment
from logfs.log.segments.table import DecodedTable, SegmentState, TableEntry, decode_table

_UNCHANGED_MS = 10_000
"""A directory that changed so recently may change again without another time: the clock of a file
server may be late, or its steps may be long."""

Grouped = tuple[dict[int, set[FileKind]], list[str]]


class _PartitionFiles(NamedTuple):
    """What was read of one partition directory.

    Attributes:
        directory: The directory when it was listed; None if it had just been changed.
        contents: Its entries.
        grouped: Its files, as ``names.group_segment_files`` has them.
        table: Its segment table.
        segments: The sealed segments of the table, by base offset, each with its entry.
        first: Those of them from the first of the log on that have all their files, without the
            last segment of the log, which is never among them.
    """

    directory: FileStat | None
    contents: Contents
    grouped: Grouped
    table: DecodedTable
    segments: dict[int, tuple[TableEntry, Segment]]
    first: Sequence[Segment]


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
    def read(cls, disk: Disk, host: Host, now_ms: int) -> "Preloaded":
        """Read a data directory; a partition that cannot be read is left to the load."""
        preloaded = cls(disk, host)
        try:
            found = list_partitions(disk)
        except OSError:
            return preloaded
        for topic_partition in found:
            directory = topic_partition.directory
            try:
                preloaded._partitions[directory] = preloaded._read(disk, directory, now_ms)
            except (LogfsError, OSError):
                continue
        return preloaded

    def _read(self, disk: Disk, directory: str, now_ms: int) -> _PartitionFiles:
        found = disk.stat(directory)
        contents = disk.contents(directory)
        data = disk.read(f"{directory}/{names.SEGMENT_TABLE}", LARGER_FILE_BYTES)
        grouped, table = names.group_segment_files(contents.files), decode_table(data)
        segments = {
            base: (entry, Segment.from_entry(self.opened, directory, entry))
            for base, entry in table.state.entries.items()
            if entry.state is SegmentState.SEALED
        }
        is_old = now_ms - found.mtime_ms >= _UNCHANGED_MS
        return _PartitionFiles(
            found if is_old else None,
            contents,
            grouped,
            table,
            segments,
            _first_sealed(grouped[0], segments),
        )

    def take(self, directory: str) -> "PreloadedPartition":
        """Return what was read of a partition; nothing if it was not, or was taken before."""
        return PreloadedPartition(self._partitions.pop(directory, None))


class PreloadedPartition:
    """The contents of one partition directory, which are used as far as they are still right."""

    def __init__(self, found: _PartitionFiles | None = None) -> None:
        self._found = found
        self._limit = -1

    @property
    def table(self) -> DecodedTable | None:
        """The segment table as it was; see ``SegmentTable.load``."""
        return None if self._found is None else self._found.table

    def contents(self, disk: Disk, directory: str) -> Contents:
        """Do what ``Disk.contents`` does."""
        if self._found is not None and _is_unchanged(self._found, disk, directory):
            return self._found.contents
        return disk.contents(directory)

    def group(self, files: Sequence[str]) -> Grouped:
        """Do what ``names.group_segment_files`` does."""
        if self._found is not None and self._found.contents.files == files:
            return self._found.grouped
        return names.group_segment_files(files)

    def first_segments(
        self, bases: Sequence[int], kinds: dict[int, set[FileKind]], known_below: int
    ) -> Sequence[Segment]:
        """Return sealed segments with which the log begins, each once; as many as are known.

        Args:
            bases: The base offsets of the log.
            kinds: Its files: what ``group`` has returned.
            known_below: The entries of smaller base offsets are as they were.
        """
        if self._found is None or kinds is not self._found.grouped[0]:
            return ()
        first = self._found.first
        count = bisect_left(first, known_below, key=lambda segment: segment.base_offset)
        if count == 0 or bases[:count] != [segment.base_offset for segment in first[:count]]:
            return ()
        self._limit = known_below
        return first[:count]

    def segment(self, entry: TableEntry) -> Segment | None:
        """Return the segment of an entry, once; None if the entry was not in the table."""
        if self._found is None or entry.base_offset < self._limit:
            return None
        known, segment = self._found.segments.pop(entry.base_offset, (None, None))
        return segment if known is entry else None


def _first_sealed(
    kinds: dict[int, set[FileKind]], segments: dict[int, tuple[TableEntry, Segment]]
) -> list[Segment]:
    bases = sorted(names.log_bases(kinds))[:-1]
    whole = takewhile(lambda base: base in segments and kinds[base] >= INDEX_KINDS, bases)
    return [segments[base][1] for base in whole]


def _is_unchanged(found: _PartitionFiles, disk: Disk, directory: str) -> bool:
    """Whether no name in a partition directory was made, renamed or removed since."""
    if found.directory is None:
        return False
    try:
        return disk.stat(directory) == found.directory
    except OSError:
        return False
