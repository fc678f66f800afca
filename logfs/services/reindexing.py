"""Rebuilding the indexes of a stopped directory from its logs.

For each segment the offset, time and text index are rebuilt from the ``.log``. An index that
differs is replaced by one rename, so that at any moment the old or the new one exists. The unit of
work is a segment (``reindex_segment``): plain data in, plain data out, so that threads or machines
can share a directory.

A scan cannot rebuild the text index of a compacted segment, since positions of its records do not
follow from those before them; nor the segment table and transaction indexes. These are kept, and a
start recreates them if they are missing. A corrupt batch is skipped and reported.
"""

import errno
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.errors import text_of
from logfs.log.indexes.index import OFFSET_INDEX, TIME_INDEX
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.listing import list_partition
from logfs.log.names import FileKind, format_segment_file
from logfs.log.segments.scan import SegmentScan, Skipped, scan_segment
from logfs.log.segments.segment import OpenSegments, Segment
from logfs.log.segments.table import TableEntry, TableState
from logfs.log.topics import effective_config, read_properties
from logfs.services.verifying.tables import read_table
from logfs.types import Positions, TopicPartition


class ReindexTask(NamedTuple):
    """A segment whose indexes are rebuilt; ``entry`` is None without one in the table."""

    directory: str
    base_offset: int
    size_bytes: int
    entry: TableEntry | None
    config: dict[str, str]


class Reindexed(NamedTuple):
    """The result for one segment.

    Attributes:
        size_bytes: Bytes that were read.
        written: The index files that differed or were missing.
        keeps_text: Its text index was kept.
        corrupt: Batches that were skipped.
        unreadable: Why the disk cannot read it (EIO); its indexes are as before.
    """

    name: str
    size_bytes: int
    written: tuple[str, ...]
    keeps_text: bool
    corrupt: tuple[Skipped, ...] = ()
    unreadable: str | None = None


def tasks_of(disk: Disk, one: TopicPartition, defaults: TopicConfig) -> list[ReindexTask]:
    """Return the segments of a stopped partition; raise a LogfsError for its configuration."""
    directory = one.directory
    properties = read_properties(disk, directory)
    effective_config(defaults, properties)  # raises here, not in every task
    state = read_table(disk, directory).state or TableState()
    tasks = []
    for base_offset in list_partition(disk, directory).inodes(FileKind.LOG):
        if base_offset in state.dropped:
            continue
        name = format_segment_file(base_offset, FileKind.LOG)
        size_bytes = disk.stat(f"{directory}/{name}").size
        entry = state.entries.get(base_offset)
        tasks.append(ReindexTask(directory, base_offset, size_bytes, entry, dict(properties or {})))
    return tasks


def reindex_segment(disk: Disk, task: ReindexTask) -> Reindexed:
    """Rebuild the indexes of a segment; durable on return.

    No other process may write to the directory.

    Raises:
        OSError: The disk failed, but for reading; each index is the old or the new one.
    """
    try:
        return _reindex(disk, task)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        name = f"{task.directory}/{format_segment_file(task.base_offset, FileKind.LOG)}"
        return Reindexed(name, 0, (), keeps_text=False, unreadable=text_of(error))


def _reindex(disk: Disk, task: ReindexTask) -> Reindexed:
    segment = Segment(OpenSegments(disk), task.directory, task.base_offset, Positions())
    log = disk.open(segment.name)
    scan = _scan(disk, segment, task)
    text = f"{task.directory}/{format_segment_file(task.base_offset, FileKind.TEXT_INDEX)}"
    # Without its entry in the table it is not known whether it was compacted.
    keeps_text = disk.exists(text) if task.entry is None else task.entry.has_gaps
    rows = [
        (FileKind.OFFSET_INDEX, OFFSET_INDEX.header + scan.offset_entries),
        (FileKind.TIME_INDEX, TIME_INDEX.header + scan.time_entries),
    ]
    if not keeps_text:
        rows.append((FileKind.TEXT_INDEX, TEXT_INDEX.header + scan.text_entries))
    written = []
    for kind, data in rows:
        name = f"{task.directory}/{format_segment_file(task.base_offset, kind)}"
        if _content(disk, name) != data:
            disk.replace(name, data)
            written.append(name)
    log.close()
    return Reindexed(segment.name, scan.file_size, tuple(written), keeps_text, tuple(scan.corrupt))


def _content(disk: Disk, name: str) -> bytes | None:
    """Return the content of an index; None without one, and of one that the disk cannot read."""
    try:
        return disk.read(name, None)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


def _scan(disk: Disk, segment: Segment, task: ReindexTask) -> SegmentScan:
    """Scan a segment like a start that finds no index."""
    config = effective_config(TopicConfig(), task.config)
    log = disk.open(segment.name)
    scan = scan_segment(log, segment, config, pass_over_corrupt=True)
    whole = (
        task.entry is not None and task.entry.size_bytes == scan.file_size and task.entry.lengths
    )
    if whole and (lengths := scan.lengths_of_corrupt(whole)):
        scan = scan_segment(
            log, segment, config, pass_over_corrupt=True, lengths_of_corrupt=lengths
        )
    log.close()
    return scan
