"""A partition that a daemon owns, backed up as it was at one moment.

The sealed segments are taken whole, the active one up to the point that the daemon has returned.
The target is then in the state after a crash at that moment. It is loaded and closed there:
recovery makes the missing indexes, and the clean stop leaves nothing to recover.
"""

import contextlib
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from logfs.disk.vfs import LARGER_FILE_BYTES
from logfs.errors import BackupError
from logfs.log import names
from logfs.log.host import cache_mark
from logfs.log.manifest import BackedUp
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, format_segment_file
from logfs.log.partition import PartitionLog
from logfs.log.remote.directory import tiered_sizes
from logfs.log.segments.segment import SEGMENT_FILE_KINDS
from logfs.log.segments.table import (
    SegmentState,
    SegmentTable,
    TableEntry,
    decode_entries,
)
from logfs.records.checksum import crc32c
from logfs.services.backup.copying import Job, SourceChangedError
from logfs.services.backup.point import Point
from logfs.types import TopicPartition

Ask = Callable[[TopicPartition], Point]
"""Asks the daemon for the point of a partition; everything before it is durable."""

_ATTEMPTS = 200
_PATIENT_ATTEMPTS = 100
"""In how many attempts to wait for the end of a compaction."""
_SNAPSHOTS_COPIED = 2


class DamagedCopyError(BackupError):
    """The end of a copy was truncated, because it is damaged in the source."""

    def __init__(self, message: str, row: BackedUp) -> None:
        super().__init__(message)
        self.row = row


class _PartitionPlan(NamedTuple):
    """The files to take of a partition.

    Attributes:
        raw: The bytes of the table's file.
        inodes: The listing of the directory: name -> inode.
        files: The files of each segment; the last one is the active segment.
    """

    point: Point
    table: SegmentTable
    raw: bytes
    inodes: dict[str, int]
    files: dict[int, list[SegmentFileName]]


def back_up_live(job: Job, topic_partition: TopicPartition, ask: Ask) -> BackedUp:
    """Back up one partition; whole and durable on return.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: It was deleted.
        DamagedCopyError: The end of the log is damaged; the rest is in the copy.
        BackupError: It changes faster than it can be copied; the target has a part of it.
    """
    directory = topic_partition.directory
    job.make_directory(directory)
    why = ""
    for attempt in range(_ATTEMPTS):
        point = ask(topic_partition)
        try:
            unfinished = _read_unfinished(job, directory, point)
            plan = _plan(job, directory, point, is_patient=attempt < _PATIENT_ATTEMPTS)
            kept = _take_segments(job, directory, plan)
            kept |= _take_others(job, directory, plan)
            _check_unchanged(job, directory, plan)
        except SourceChangedError as error:
            why = str(error)
            job.pause()
            continue
        for name, data in unfinished.items():
            job.target.replace(f"{directory}/{name}", data)
        job.clear(directory, {*kept, *unfinished})
        return _close(job, topic_partition, plan)
    raise BackupError(
        f"it has changed {_ATTEMPTS} times while it was copied ({why}): 'logfs verify' says "
        "whether it is whole; if so, try again when fewer segments are rolled and compacted"
    )


def _read_unfinished(job: Job, directory: str, point: Point) -> dict[str, bytes]:
    """Read unfinished lines as they were at the point; since then they were only appended to."""
    found = {}
    for name, (size, crc) in point.unfinished.items():
        try:
            data = job.source.read(f"{directory}/{name}", None)[:size]
        except FileNotFoundError as error:
            raise SourceChangedError(str(error)) from error
        if crc32c(data) != crc:
            raise SourceChangedError(f"{name} has started again")
        found[name] = data
    return found


def _plan(job: Job, directory: str, point: Point, *, is_patient: bool) -> _PartitionPlan:
    try:
        raw = job.source.read(f"{directory}/{names.SEGMENT_TABLE}", LARGER_FILE_BYTES)
        inodes = job.source.inodes(directory)
        table = SegmentTable.decode(job.source, directory, raw)
    except FileNotFoundError as error:
        raise SourceChangedError(str(error)) from error
    if table.state.pending and is_patient:
        raise SourceChangedError("a compaction is about to end")
    known = table.entries.keys() | table.state.pending.keys()
    files: dict[int, list[SegmentFileName]] = {}
    for name in inodes:
        file = names.parse_segment_file(name)
        if file is None or file.suffix is not FileSuffix.NONE or file.kind is FileKind.SNAPSHOT:
            continue
        if file.base_offset in known and file.base_offset <= point.base_offset:
            files.setdefault(file.base_offset, []).append(file)
    logs = {base for base, found in files.items() if any(f.kind is FileKind.LOG for f in found)}
    wanted = {base for base in table.entries if base <= point.base_offset}
    active = format_segment_file(point.base_offset, FileKind.LOG)
    tiered = tiered_sizes(job.source, directory).keys()
    is_whole = wanted - tiered <= logs <= wanted or bool(table.state.pending)
    if not is_whole or point.base_offset not in wanted or inodes.get(active) != point.inode:
        raise SourceChangedError("not all segments of the table are there")
    taken = {base: found for base, found in files.items() if base in logs or base not in tiered}
    return _PartitionPlan(point, table, raw, inodes, dict(sorted(taken.items())))


def _take_segments(job: Job, directory: str, plan: _PartitionPlan) -> set[str]:
    """Take the segments; returns the names of their files."""
    point, kept = plan.point, set()
    bases = [*plan.files, point.end_offset]
    for base, behind in zip(plan.files, bases[1:], strict=True):
        files = sorted(plan.files[base], key=lambda file: SEGMENT_FILE_KINDS.index(file.kind))
        if base == point.base_offset:
            files = [SegmentFileName(base, FileKind.LOG)]
            _copy(job, directory, files[0], plan, point.size_bytes)
        elif _is_settled(plan, base, behind):
            found = [format_segment_file(*file) for file in files]
            job.take_segment(directory, found, plan.inodes)
        else:
            for file in files:
                _copy(job, directory, file, plan)
        kept |= {format_segment_file(*file) for file in files}
        job.say(f"{directory}: {format_segment_file(base, FileKind.LOG)}")
    return kept


def _is_settled(plan: _PartitionPlan, base: int, behind: int) -> bool:
    """Whether a sealed segment and its indexes are durable, so that they never change.

    A compacted segment is durable from the start.
    """
    entry = plan.table.entries.get(base)
    return behind <= plan.point.recovery_point or (entry is not None and entry.has_gaps)


def _copy(
    job: Job, directory: str, file: SegmentFileName, plan: _PartitionPlan, size: int | None = None
) -> None:
    name = format_segment_file(*file)
    try:
        job.transfer.copy(f"{directory}/{name}", inode=plan.inodes[name], size=size)
    except FileNotFoundError as error:
        raise SourceChangedError(str(error)) from error


def _take_others(job: Job, directory: str, plan: _PartitionPlan) -> set[str]:
    """Take the other files of the partition; returns their names."""
    snapshots, others = [], []
    for name in plan.inodes:
        file = names.parse_segment_file(name)
        if file is not None:
            if file.kind is FileKind.SNAPSHOT and file.suffix is FileSuffix.NONE:
                snapshots.append(file)
        elif not (
            name == names.SEGMENT_TABLE
            or names.is_on_its_way(name)
            or names.parse_unfinished_file(name) is not None
        ):
            others.append(name)
    snapshots = sorted(s for s in snapshots if s.base_offset <= plan.point.base_offset)
    kept = {names.SEGMENT_TABLE, names.LEADER_EPOCH_CHECKPOINT}
    linked = [format_segment_file(*file) for file in snapshots[:-_SNAPSHOTS_COPIED]]
    linked += [name for name in others if names.parse_cut_file(name) is not None]
    for name in [*(format_segment_file(*file) for file in snapshots), *others]:
        path = f"{directory}/{name}"
        with contextlib.suppress(FileNotFoundError):  # gone, as staged records go
            if name in linked:
                job.transfer.take(path, plan.inodes[name])
            else:
                job.transfer.copy(path)
            kept.add(name)
    return kept


def _check_unchanged(job: Job, directory: str, plan: _PartitionPlan) -> None:
    """Check that the files that were taken belong together; raise ChangedError if they do not."""
    try:
        raw = job.source.read(f"{directory}/{names.SEGMENT_TABLE}", LARGER_FILE_BYTES)
        inodes = job.source.inodes(directory)
    except FileNotFoundError as error:
        raise SourceChangedError(str(error)) from error
    if not raw.startswith(plan.raw):
        raise SourceChangedError("the segment table was rewritten")
    dropped = _dropped_since(plan, raw)
    for base in plan.files.keys() - dropped:
        for kind in SEGMENT_FILE_KINDS:
            name = format_segment_file(base, kind)
            # The active segment may have been sealed since, and may have a transaction index now.
            is_same = plan.inodes.get(name) == inodes.get(name)
            if not is_same and (kind is FileKind.LOG or base != plan.point.base_offset):
                raise SourceChangedError(f"{name} was replaced")


def _dropped_since(plan: _PartitionPlan, raw: bytes) -> set[int]:
    """Return the segments that retention has removed since; ChangedError for anything else."""
    dropped = set()
    for entry in decode_entries(raw, len(plan.raw)):
        if entry.base_offset not in plan.files:
            continue
        if entry.state is SegmentState.DROPPED:
            dropped.add(entry.base_offset)
        elif not (entry.base_offset == plan.point.base_offset and _is_growth(entry)):
            raise SourceChangedError("a segment was compacted")
    return dropped


def _is_growth(entry: TableEntry) -> bool:
    return entry.state in (SegmentState.OPEN, SegmentState.SEALED) and not entry.has_gaps


def _close(job: Job, topic_partition: TopicPartition, plan: _PartitionPlan) -> BackedUp:
    """Recover the copy and stop it cleanly; durable on return."""
    directory, point = topic_partition.directory, plan.point
    _write_table(job, directory, plan)
    is_settled = all(_is_settled(plan, base, behind) for base, behind in pairwise(plan.files))
    # Above the end of the sealed segments, so that they are not scanned.
    recovery_point = point.base_offset + 1 if is_settled else point.recovery_point
    points, starts = {topic_partition: recovery_point}, {topic_partition: point.start_offset}
    log = job.load_copy(topic_partition, points, starts, is_clean=False, read_only=False)
    log.close()
    job.target.sync_directory(directory)
    if log.log_end_offset != point.end_offset:
        raise DamagedCopyError(
            f"the copy ends at offset {log.log_end_offset}, the log at {point.end_offset}: its "
            "active segment is damaged; 'logfs verify' says where",
            backed_up(log),
        )
    return backed_up(log)


def _write_table(job: Job, directory: str, plan: _PartitionPlan) -> None:
    base = plan.point.base_offset
    state = plan.table.state
    entries = [e for b, e in sorted(plan.table.entries.items()) if b < base]
    entries += [e for b, e in sorted(state.pending.items()) if b < base]
    bases = plan.table.entries[base].bases
    boot = cache_mark(job.host, job.target)
    entries.append(TableEntry(base, SegmentState.OPEN, bases, bases, boot=boot))
    SegmentTable.create(job.target, directory, plan.table.generation, entries).close()


def backed_up(log: PartitionLog) -> BackedUp:
    """Describe a partition of a backup."""
    snapshot = log.snapshot
    sealed = sum(segment.size_bytes for segment in snapshot.segments[:-1])
    return BackedUp(
        *log.topic_partition,
        log.log_start_offset,
        log.log_end_offset,
        snapshot.start.positions.text,
        snapshot.end.positions.text,
        len(snapshot.segments),
        sealed + snapshot.end.file_size,
    )
