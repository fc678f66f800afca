"""Making the indexes of a stopped directory again, from what the logs hold.

Of every segment the offset index, the time index and the text index are worked out from its
``.log`` and put in the place of those that are there, if they are others: each by one rename, so
that at any moment there is the old or the new one, both hints. The unit of work is a segment
(``reindex_segment``): plain data to plain data, so that threads or machines can share a directory.

What a scan cannot know stays: the text index of a segment that was compacted, since where a
survivor was does not follow from its neighbours; the segment table; transaction indexes. Where
those are missing a start makes them again. A corrupt batch is passed over, and told.
"""

from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log.indexes.index import OFFSET_INDEX, TIME_INDEX
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.names import FileKind, FileSuffix, format_segment_file, parse_segment_file
from logfs.log.segments.scan import Scan, scan_segment
from logfs.log.segments.segment import OpenSegments, Segment
from logfs.log.segments.table import TableEntry, TableState
from logfs.log.topics import effective_config, read_properties
from logfs.log.verifying.tables import read_table
from logfs.types import Positions, TopicPartition


class ReindexTask(NamedTuple):
    """A segment whose indexes are recreated.

    Attributes:
        directory: Of its partition.
        base_offset: Of the segment.
        size_bytes: Of its ``.log``.
        entry: What the segment table says of it; None if it does not know it.
        config: Of its topic, by Kafka's names.
    """

    directory: str
    base_offset: int
    size_bytes: int
    entry: TableEntry | None
    config: dict[str, str]


class Reindexed(NamedTuple):
    """What became of a segment.

    Attributes:
        name: Of its ``.log``.
        size_bytes: That were read.
        written: The index files that were others, or missing.
        keeps_text: Its text index was left alone.
        corrupt: Batches that were passed over: (file position, bytes, why).
    """

    name: str
    size_bytes: int
    written: tuple[str, ...]
    keeps_text: bool
    corrupt: tuple[tuple[int, int, str], ...]


def tasks_of(disk: Disk, one: TopicPartition, defaults: TopicConfig) -> list[ReindexTask]:
    """Return the segments of a partition that was stopped cleanly.

    Raises:
        LogfsError: Its configuration does not parse.
        OSError: The disk failed.
    """
    directory = one.directory
    properties = read_properties(disk, directory)
    effective_config(defaults, properties)  # refuses what is wrong here, not in every task
    state = read_table(disk, directory).state or TableState()
    tasks = []
    for name in sorted(disk.inodes(directory)):
        parsed = parse_segment_file(name)
        if parsed is None or parsed[1:] != (FileKind.LOG, FileSuffix.NONE):
            continue
        base_offset = parsed.base_offset
        if base_offset in state.dropped:
            continue
        size_bytes = disk.stat(f"{directory}/{name}").size
        entry = state.entries.get(base_offset)
        tasks.append(ReindexTask(directory, base_offset, size_bytes, entry, dict(properties or {})))
    return tasks


def reindex_segment(disk: Disk, task: ReindexTask) -> Reindexed:
    """Make the indexes of a segment again; durable on return.

    Nobody else may write to the directory.

    Raises:
        OSError: The disk failed; each index is the old or the new one.
    """
    segment = Segment(OpenSegments(disk), task.directory, task.base_offset, Positions())
    log = disk.open(segment.name)
    scan = _scan(disk, segment, task)
    text = f"{task.directory}/{format_segment_file(task.base_offset, FileKind.TEXT_INDEX)}"
    # Without its entry in the table nobody knows whether it was compacted.
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
        if not disk.exists(name) or disk.read(name, None) != data:
            disk.replace(name, data)
            written.append(name)
    log.close()
    return Reindexed(segment.name, scan.file_size, tuple(written), keeps_text, tuple(scan.corrupt))


def _scan(disk: Disk, segment: Segment, task: ReindexTask) -> Scan:
    """Scan a segment as a start does that finds no index."""
    config = effective_config(TopicConfig(), task.config)
    log = disk.open(segment.name)
    scan = scan_segment(log, segment, config, pass_over_corrupt=True)
    if task.entry is not None and scan.corrupt and task.entry.size_bytes == scan.file_size:
        lengths = scan.lengths_of_corrupt(task.entry.kept)
        scan = scan_segment(
            log, segment, config, pass_over_corrupt=True, lengths_of_corrupt=lengths
        )
    log.close()
    return scan
