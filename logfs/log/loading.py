"""Loading a partition: what its directory holds, what recovery makes of it.

After a clean stop the segment table says everything and no segment is opened. After an unclean one
every segment from the recovery point on is scanned; the log is cut where its first bad batch
begins, after what is cut has been copied. Other segments are scanned only if their indexes or table
entries are missing; what is corrupt in them stays and is reported.

Source: Kafka LogLoader.load, UnifiedLog.recover.
"""

import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.errors import CorruptIndexError, CorruptRecordError
from logfs.log import names
from logfs.log.active import ActiveSegment, remove_segment_files
from logfs.log.checkpoints import read_leader_epochs, read_partition_metadata
from logfs.log.cutting import cut_log, cut_segment
from logfs.log.host import Host
from logfs.log.lookup import positions_of_offset
from logfs.log.losses import Loss, LossFile
from logfs.log.memoryindex import memory_files
from logfs.log.names import FileKind, FileSuffix
from logfs.log.partition import PartitionLog
from logfs.log.scan import Scan, rebuild_indexes, scan_segment
from logfs.log.segment import OpenSegments, Segment
from logfs.log.snapshot import LogEnd, LogStart, Snapshot
from logfs.log.state import PartitionState
from logfs.log.table import SegmentState, SegmentTable, TableEntry
from logfs.log.topics import effective_config, read_properties
from logfs.types import Positions, TopicPartition

logger = logging.getLogger(__name__)

_INDEX_KINDS = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TEXT_INDEX})
_NO_GENERATION = bytes(16)


@dataclass(frozen=True, slots=True)
class Loading:
    """What the store knows before it loads a partition.

    Attributes:
        is_clean: The last owner stopped cleanly: nothing needs to be scanned.
        recovery_points: First offset of each partition that may not be on the disk.
        start_offsets: Log start offsets that lie above the first segment's base.
        defaults: Configuration of topics, as the store sets it.
    """

    disk: Disk
    host: Host
    opened: OpenSegments
    defaults: TopicConfig
    is_clean: bool
    recovery_points: dict[TopicPartition, int]
    start_offsets: dict[TopicPartition, int]
    now_ms: int
    read_only: bool


class _Listing(NamedTuple):
    """The segment files of a partition directory."""

    kinds: dict[int, set[FileKind]]
    has_text_index: bool

    @property
    def bases(self) -> list[int]:
        return sorted(base for base, kinds in self.kinds.items() if FileKind.LOG in kinds)


@dataclass(slots=True)
class _Loader:
    """One partition being loaded."""

    loading: Loading
    topic_partition: TopicPartition
    config: TopicConfig
    losses: LossFile
    listing: _Listing
    table: SegmentTable | None
    segments: list[Segment] = field(default_factory=list)
    changes: list[TableEntry] = field(default_factory=list)
    has_cut: bool = False

    @property
    def directory(self) -> str:
        return self.topic_partition.directory

    @property
    def recovery_point(self) -> int:
        return self.loading.recovery_points.get(self.topic_partition, 0)

    def lose(self, kind: str, file: str, position: int, size: int, detail: str) -> None:
        """Note a loss in the daemon's log and in the partition's file."""
        logger.warning("%s: %s", self.topic_partition, detail)
        offset = self.segments[-1].next_offset if self.segments else None
        loss = Loss(self.loading.now_ms, kind, file, position, size, offset, detail)
        self.losses.add(loss)


def list_partitions(disk: Disk, *, read_only: bool) -> list[TopicPartition]:
    """Return the partitions of a data directory; directories of deleted topics are removed."""
    found = []
    for name, is_directory in disk.list(""):
        parsed = names.parse_partition_directory(name) if is_directory else None
        if parsed is None or name == names.CLUSTER_METADATA_DIRECTORY:
            continue
        if parsed.state is names.DirectoryState.NONE:
            found.append(TopicPartition(parsed.topic, parsed.partition))
        elif parsed.state is names.DirectoryState.DELETE and not read_only:
            disk.remove_tree(name)
    return found


def load_partition(loading: Loading, topic_partition: TopicPartition) -> PartitionLog:
    """Load one partition directory, recovering it if the last stop was not clean.

    Raises:
        UnsupportedFormatError: A newer logfs wrote one of its files.
        InvalidConfigError: Its configuration does not parse.
        CorruptCheckpointError: Its ``partition.metadata`` or leader epochs do not parse.
        OSError: The disk failed.
    """
    disk, directory = loading.disk, topic_partition.directory
    config = effective_config(loading.defaults, read_properties(disk, directory))
    topic_id = read_partition_metadata(disk, directory)
    epochs = read_leader_epochs(disk, directory)
    loader = _Loader(
        loading,
        topic_partition,
        config,
        LossFile(disk, directory, read_only=loading.read_only),
        _list_segments(loading, directory),
        None,
    )
    loader.table = _load_table(loader)
    _load_segments(loader)
    lease = _begin_behind_what_was_lost(loader)
    table = _store_table(loader, lease)
    snapshot = _snapshot(loader)
    return PartitionLog(
        PartitionState(
            disk,
            loading.host,
            loading.opened,
            topic_partition,
            config,
            None if topic_id is None else names.format_topic_id(topic_id),
            epochs[-1].epoch if epochs else 0,
            table,
            snapshot,
            lease,
            snapshot.end.offset
            if loading.is_clean
            else min(loader.recovery_point, snapshot.end.offset),
            disk.stat(snapshot.active.name).mtime_ms,
            loader.losses,
            loading.read_only,
        )
    )


def _list_segments(loading: Loading, directory: str) -> _Listing:
    """List the segment files; what Kafka's loader removes goes, unless the store is read-only."""
    kinds: dict[int, set[FileKind]] = {}
    has_text_index = False
    for name, is_directory in loading.disk.list(directory):
        parsed = None if is_directory else names.parse_segment_file(name)
        if parsed is None:
            continue
        if parsed.suffix is FileSuffix.NONE:
            kinds.setdefault(parsed.base_offset, set()).add(parsed.kind)
            has_text_index |= parsed.kind is FileKind.TEXT_INDEX
        elif parsed.suffix in (FileSuffix.DELETED, FileSuffix.CLEANED) and not loading.read_only:
            loading.disk.remove(f"{directory}/{name}")
    return _Listing(kinds, has_text_index)


def _load_table(loader: _Loader) -> SegmentTable | None:
    """Read the segment table; None in a directory that never had one, or if it is lost."""
    try:
        table = SegmentTable.load(loader.loading.disk, loader.directory)
        if table.entries or not loader.listing.bases:
            return table
        reason = "holds no entry"
    except FileNotFoundError:
        if not loader.listing.has_text_index:
            return None
        reason = "is gone"
    except CorruptIndexError as error:
        reason = f"does not decode ({error})"
    loader.lose(
        "positions",
        names.SEGMENT_TABLE,
        0,
        0,
        f"the segment table {reason}: the positions of {loader.topic_partition} start anew at 0, "
        "under new inode numbers",
    )
    return None


def _load_segments(loader: _Loader) -> None:
    bases = loader.listing.bases
    ends = Positions()
    for number, base_offset in enumerate(bases):
        upper = bases[number + 1] if number + 1 < len(bases) else None
        must_recover = not loader.loading.is_clean and (
            upper is None or upper > loader.recovery_point
        )
        entry = loader.table.entries.get(base_offset) if loader.table else None
        if loader.has_cut:
            _drop(loader, base_offset, ends)
            continue
        if entry is not None and _is_trusted(loader, entry, must_recover, upper is None):
            segment = Segment.from_entry(loader.loading.opened, loader.directory, entry)
        else:
            first = ends if entry is None else entry.bases
            segment = Segment(loader.loading.opened, loader.directory, base_offset, first)
            segment.has_gaps = entry is not None and entry.has_gaps
            _scan(loader, segment, must_recover)
        loader.segments.append(segment)
        ends = segment.ends


def _is_trusted(loader: _Loader, entry: TableEntry, must_recover: bool, is_last: bool) -> bool:
    if must_recover and entry.state is not SegmentState.CLOSED:
        return False
    if entry.state is SegmentState.OPEN:
        return False
    if not loader.listing.kinds[entry.base_offset] >= _INDEX_KINDS:
        return False
    if not (is_last or must_recover):
        return True
    name = names.format_segment_file(entry.base_offset, FileKind.LOG)
    return loader.loading.disk.stat(f"{loader.directory}/{name}").size == entry.size_bytes


def _scan(loader: _Loader, segment: Segment, must_recover: bool) -> None:
    """Scan a segment and store its indexes; cut it where it is bad if it is to be recovered."""
    loading = loader.loading
    log = loading.disk.open(segment.name, write=not loading.read_only)
    scan = scan_segment(log, segment, loader.config, pass_over_corrupt=not must_recover)
    scan.describe(segment)
    for position, size, why in scan.corrupt:
        loader.lose("corrupt", segment.name, position, size,
                    f"{segment.name}: the batch at byte {position} ({size} bytes) cannot be read: "
                    f"{why}; it stays where it is")  # fmt: skip
    if scan.valid_bytes < scan.file_size:
        _handle_tail(loader, segment, scan, must_recover)
    if loading.read_only:
        segment.pinned_files = memory_files(loading.disk, segment, scan)
        return
    rebuild_indexes(loading.disk, segment, scan, durable=not must_recover)
    loader.changes.append(segment.entry(SegmentState.SEALED))


def _handle_tail(loader: _Loader, segment: Segment, scan: Scan, must_recover: bool) -> None:
    size = scan.file_size - scan.valid_bytes
    begin = f"{segment.name}: {size} bytes from byte {scan.valid_bytes} on"
    what = f"{begin} are no whole batch ({scan.problem})"
    if loader.loading.read_only:
        loader.lose("cut", segment.name, scan.valid_bytes, size, f"{what}; recovery would cut them")
        return
    if not must_recover:
        loader.lose("corrupt", segment.name, scan.valid_bytes, size, f"{what}; they stay")
        return
    copy = cut_log(loader.loading.disk, segment, scan.valid_bytes, scan.file_size)
    loader.has_cut = True
    where = f"a copy is in {copy}" if copy else "all of them were zero"
    loader.lose("cut", segment.name, scan.valid_bytes, size, f"{what} and were cut; {where}")


def _drop(loader: _Loader, base_offset: int, bases: Positions) -> None:
    """Set a segment aside that lies behind a cut. Source: Kafka LogLoader.recoverLog."""
    segment = Segment(loader.loading.opened, loader.directory, base_offset, bases)
    size = loader.loading.disk.stat(segment.name).size
    copy = cut_segment(loader.loading.disk, segment)
    remove_segment_files(loader.loading.disk, segment)
    loader.changes.append(segment.entry(SegmentState.DROPPED))
    loader.lose("cut", segment.name, 0, size,
                f"{segment.name}: it lies behind a cut and was set aside as {copy}")  # fmt: skip


def _begin_behind_what_was_lost(loader: _Loader) -> Positions:
    """Make sure that no position is given twice; returns the lease to go on with."""
    loading = loader.loading
    entries = list(loader.table.entries.values()) if loader.table else []
    open_entries = [e for e in entries if e.state is SegmentState.OPEN]
    shown = Positions()
    for entry in entries:
        shown = shown.at_least(entry.ends)
    if not loader.segments:
        first = loading.start_offsets.get(loader.topic_partition, 0)
        _begin_segment(loader, first, shown)
        return shown
    last = loader.segments[-1]
    if loading.is_clean or loading.read_only or not open_entries:
        return last.ends
    may_have_lost = loader.has_cut or any(e.boot != loading.host.boot for e in open_entries)
    if not may_have_lost:
        return shown.at_least(last.ends)
    if last.ends != shown:
        _begin_segment(loader, last.next_offset, shown.at_least(last.ends))
    return loader.segments[-1].ends


def _begin_segment(loader: _Loader, base_offset: int, bases: Positions) -> None:
    """Begin an empty segment; an empty last one is moved instead."""
    loading = loader.loading
    if loader.segments and loader.segments[-1].size_bytes == 0:
        base_offset = loader.segments.pop().base_offset
    segment = Segment(loading.opened, loader.directory, base_offset, bases)
    if loading.read_only:
        segment.pinned_files = memory_files(loading.disk, segment, None)
    else:
        active = ActiveSegment.create(loading.disk, segment, loader.config, loading.now_ms)
        active.close()
        segment.close_files()
        segment.is_writable = False
        loading.disk.sync_directory(loader.directory)
    loader.segments.append(segment)


def _store_table(loader: _Loader, lease: Positions) -> SegmentTable:
    """Write what loading found out to the segment table."""
    loading, table = loader.loading, loader.table
    last = loader.segments[-1]
    is_closed = table is not None and table.entries.get(last.base_offset) == last.entry(
        SegmentState.CLOSED
    )
    if loading.read_only:
        return table or SegmentTable(loading.disk, loader.directory, _NO_GENERATION, {})
    sealed = [s.entry(SegmentState.SEALED) for s in loader.segments[:-1]]
    state = SegmentState.CLOSED if is_closed else SegmentState.OPEN
    tail = TableEntry(
        last.base_offset,
        SegmentState.OPEN,
        last.bases,
        lease,
        max_timestamp=last.max_timestamp,
        first_timestamp=last.first_timestamp,
        boot=loading.host.boot,
    )
    if table is None:
        return SegmentTable.create(
            loading.disk, loader.directory, loading.host.new_id(), [*sealed, tail]
        )
    if state is SegmentState.OPEN or loader.changes:
        table.rewrite([*sealed, tail])
    return table


def _snapshot(loader: _Loader) -> Snapshot:
    segments = tuple(loader.segments)
    last = segments[-1]
    end = LogEnd(last.next_offset, last.ends, last.size_bytes, last.max_timestamp)
    start = LogStart(segments[0].base_offset, segments[0].bases)
    snapshot = Snapshot.of(segments, start, end)
    offset = loader.loading.start_offsets.get(loader.topic_partition, 0)
    if offset <= start.offset:
        return snapshot
    offset = min(offset, end.offset)
    try:
        positions = positions_of_offset(snapshot, offset)
    except CorruptRecordError as error:
        logger.warning("%s: no log start at %d: %s", loader.topic_partition, offset, error)
        return snapshot
    return Snapshot.of(segments, LogStart(offset, positions), end)
