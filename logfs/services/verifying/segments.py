"""Checking one segment: its ``.log`` and its indexes.

``verify_segment`` goes from plain data, a task, to plain data, a report. So it can run in any
thread, process or machine with access to the files.
"""

import contextlib
import errno
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from logfs.disk.vfs import Disk
from logfs.log.checkpoints import EpochEntry
from logfs.log.names import FileKind, format_segment_file
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.records.layout import NO_LEADER_EPOCH, leader_epoch_of
from logfs.services.verifying.findings import Finding, refused
from logfs.services.verifying.indexes import (
    LOST,
    REBUILD,
    REBUILT,
    OffsetIndexCheck,
    TextIndexCheck,
    TimeIndexCheck,
    TransactionCheck,
)
from logfs.services.verifying.walking import BadBytes, IndexedBatches, SegmentWalk
from logfs.types import MAX_OFFSET, Positions

Progress = Callable[[int], object]
"""Called with a number of bytes that have been checked."""

STAYS = "a read gives what is before it, then EIO; restore the segment from a backup"
READ_ON = STAYS.replace("; ", "; read on with @offset={}; ", 1)
SPLIT = "reads find them without; a mount that may write splits the segment"
_PIECE_BYTES = 4096
CUT = "the next start cuts the log here, and keeps what it cuts in a .cut file"


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment to check, and what is known of it from other files.

    Attributes:
        is_live: Another process may be writing to it.
        will_recover: The next start scans it, and truncates it where it is damaged.
        may_be_padded: Zeros at its end may come from ``preallocate``.
        may_have_holes: Records may have been compacted away.
        entry: Its entry in the segment table; None if there is none.
        epochs: The leader epochs of the log; none if they are not known.
        lost: The offsets at which the cuts begin that ``logfs.losses`` lists.
    """

    directory: str
    base_offset: int
    kinds: frozenset[FileKind]
    is_last: bool = False
    is_live: bool = False
    will_recover: bool = False
    may_be_padded: bool = False
    may_have_holes: bool = False
    entry: TableEntry | None = None
    epochs: tuple[EpochEntry, ...] = ()
    interval_bytes: int = 4096
    lost: frozenset[int] = frozenset()

    def name(self, kind: FileKind) -> str:
        """Return the name of one of its files."""
        return f"{self.directory}/{format_segment_file(self.base_offset, kind)}"

    @property
    def may_grow(self) -> bool:
        """Whether its indexes may end with unused entries."""
        return self.is_last


@dataclass(slots=True)
class SegmentReport:
    """The result for one segment.

    Attributes:
        is_gone: It was removed or replaced meanwhile; the other attributes mean nothing then.
        valid_bytes: End of its last batch.
        max_timestamp, first_timestamp: Defined as in the segment table.
        gaps: Lengths of the renderings of the records that were compacted away.
        unreadable: Number of ranges of the file that could not be read.
    """

    base_offset: int
    inode: int = 0
    is_gone: bool = False
    size_bytes: int = 0
    valid_bytes: int = 0
    batches: int = 0
    records: int = 0
    next_offset: int = 0
    max_timestamp: int = -1
    first_timestamp: int = -1
    lengths: Positions = field(default_factory=Positions)
    gaps: Positions = field(default_factory=Positions)
    text_bytes: int = 0
    unreadable: int = 0
    findings: list[Finding] = field(default_factory=list)


def verify_segment(
    disk: Disk, task: SegmentTask, progress: Progress = lambda _: None
) -> SegmentReport:
    """Check one segment. Takes no lock, writes nothing.

    Raises:
        OSError: A file cannot be opened. A read that fails (EIO) is a finding instead.
    """
    walk: SegmentWalk | None = None
    try:
        segment = _Segment(disk, task)
        walk = segment.walk
        return segment.run(progress)
    except FileNotFoundError:
        return SegmentReport(task.base_offset, is_gone=True)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return _unreadable(disk, task, error, walk)


def _unreadable(
    disk: Disk, task: SegmentTask, error: OSError, walk: SegmentWalk | None
) -> SegmentReport:
    """Return the report for a segment with a file that the disk cannot read: nothing else."""
    file = f"{task.directory}/{str(error.filename or '').rpartition('/')[2]}"
    log = task.name(FileKind.LOG)
    position, size, inode = None, 0, 0
    with contextlib.suppress(OSError):
        found = disk.stat(log)
        size, inode = found.size, found.inode
        if walk is not None and file == log:
            position = walk.builder.file_position
            position = _first_unreadable(disk, log, position)
    finding = refused(file, error, "", position)
    return SegmentReport(task.base_offset, inode, size_bytes=size, unreadable=1, findings=[finding])


def _first_unreadable(disk: Disk, name: str, position: int) -> int:
    """Return where the first piece of a file begins that the disk cannot read; a position else."""
    file = disk.open(name, uncached=True)
    try:
        for at in range(position // _PIECE_BYTES * _PIECE_BYTES, file.size(), _PIECE_BYTES):
            try:
                file.pread(_PIECE_BYTES, at)
            except OSError:
                return max(at, position)
        return position
    finally:
        file.close()


class _Segment:
    """The check of one segment."""

    def __init__(self, disk: Disk, task: SegmentTask) -> None:
        self._disk = disk
        self._task = task
        self._log_name = task.name(FileKind.LOG)
        self._log = disk.open(self._log_name, uncached=True)
        self._report = SegmentReport(task.base_offset, self._log.inode())
        self._findings = self._report.findings
        # Read before the size of the log: entries are written after their batches.
        may_grow, base = task.may_grow, task.base_offset
        remedy = REBUILT if task.will_recover else REBUILD
        self._offsets = OffsetIndexCheck(
            task.name(FileKind.OFFSET_INDEX), self._read(FileKind.OFFSET_INDEX), base, remedy,
            may_grow=may_grow,
        )  # fmt: skip
        self._times = TimeIndexCheck(
            task.name(FileKind.TIME_INDEX), self._read(FileKind.TIME_INDEX), base, remedy,
            may_grow=may_grow,
        )  # fmt: skip
        self._texts = None
        if FileKind.TEXT_INDEX in task.kinds:
            self._texts = TextIndexCheck(
                task.name(FileKind.TEXT_INDEX), self._read(FileKind.TEXT_INDEX), base,
                LOST if task.entry is not None and task.entry.has_gaps else remedy,
                may_grow=may_grow, may_have_gaps=self._may_have_gaps,
            )  # fmt: skip
        self._transactions = TransactionCheck(
            disk, task.directory, base, self._read(FileKind.TXN_INDEX),
            is_compacted=task.may_have_holes,
        )  # fmt: skip
        self.walk = SegmentWalk(self._log, base, self._offsets.positions, task.is_last)
        self._end = 0
        self._hole_at = -1
        self._last_at = 0
        self._epoch = (NO_LEADER_EPOCH, 0)

    @property
    def _may_have_gaps(self) -> bool:
        entry = self._task.entry
        return entry is None or entry.has_gaps or entry.state is SegmentState.OPEN

    def run(self, progress: Progress) -> SegmentReport:
        walk, largest = self.walk, 0
        for chunk in walk.chunks():
            largest = max(largest, (chunk.stop - chunk.start) // len(chunk.places))
            self._report_bad()
            self._check_offsets(chunk)
            self._check_epochs(chunk)
            self._offsets.feed(chunk)
            self._times.feed(chunk)
            if self._texts is not None:
                self._texts.feed(chunk)
            self._transactions.feed(walk.builder)
            progress(chunk.stop - chunk.start)
        self._report_bad()
        self._finish(largest)
        # Another file may have the name now, and those of the indexes.
        self._report.is_gone = self._disk.stat(self._log_name).inode != self._report.inode
        self._log.close()
        return self._report

    def _finish(self, largest: int) -> None:
        task, walk, report = self._task, self.walk, self._report
        builder = walk.builder
        report.unreadable += walk.tail is not None
        self._check_end()
        if walk.far is not None:
            what = f"the offsets from here on are too far from {task.base_offset} for an index"
            self._findings.append(Finding(self._log_name, walk.far[0], what, "", SPLIT))
        self._note_missing()
        limit = 8 * (max(task.interval_bytes, 4096) + largest)
        if not task.is_last or not task.is_live:
            # Entries for an unreadable end may still be right.
            end = builder.file_position if walk.tail is None else walk.size
            next_offset, largest_time = builder.next_offset, builder.max_timestamp
            if walk.far is not None:
                end, next_offset, largest_time = walk.far
            self._offsets.finish(end, limit)
            last_offset = MAX_OFFSET if report.unreadable else next_offset - 1
            self._times.finish(last_offset, largest_time)
            if self._texts is not None:
                self._texts.finish(end)
        for check in (self._offsets, self._times, self._texts, self._transactions):
            if check is not None:
                self._findings += check.findings
        self._findings += self._transactions.finish(builder.next_offset)
        report.size_bytes, report.valid_bytes = walk.size, builder.file_position
        report.batches, report.records = builder.batches, builder.records
        report.next_offset = builder.next_offset
        report.max_timestamp, report.first_timestamp = (
            builder.max_timestamp,
            builder.first_timestamp,
        )
        report.lengths = Positions(builder.text, builder.tsv, builder.jsonl)
        if self._texts is not None:
            report.gaps, report.text_bytes = self._texts.gaps, self._texts.size_bytes

    # What is in the log

    def _report_bad(self) -> None:
        new, self.walk.bad = self.walk.bad, []
        self._report.unreadable += len(new)
        for bad in new:
            if not bad.size:
                self._report_step_back(bad)
                continue
            what = f"the batch ({bad.size} bytes) cannot be used: {bad.why}"
            self._findings.append(
                Finding(self._log_name, bad.position, what, "", self._remedy(bad))
            )

    def _remedy(self, bad: BadBytes) -> str:
        """Return what happens to bytes that cannot be read, and how to read after them."""
        next_offset = bad.next_offset
        if next_offset is None and self._task.entry is not None:
            next_offset = self._task.entry.next_offset  # the bytes are the end of the segment
        if self._task.will_recover and not bad.stays:
            return CUT
        return STAYS if next_offset is None else READ_ON.format(next_offset)

    def _report_step_back(self, bad: BadBytes) -> None:
        """Report a batch with too large an offset, seen from the one after it."""
        if self._hole_at == bad.position and self._findings:
            return  # reported already
        what = f"the batch has offsets that the next one, at byte {bad.seen_from}, has too"
        self._findings.append(Finding(self._log_name, bad.position, what, "smaller ones", STAYS))

    def _check_offsets(self, chunk: IndexedBatches) -> None:
        """Report holes between the offsets of batches. Steps back are reported by the walk."""
        begin = chunk.begins[0] if chunk.is_after_damage else self._end
        is_whole = begin == chunk.begins[0] and chunk.has_all_offsets
        if not is_whole and not self._task.may_have_holes:
            right = (begin, *(end + 1 for end in chunk.ends[:-1]))
            base = self._task.base_offset
            remedy = "records are missing, or its offset is wrong: restore the segment"
            for wanted, begin, position in zip(right, chunk.begins, chunk.places, strict=True):
                if begin != wanted and base + wanted not in self._task.lost:
                    what, expected = f"the batch has base offset {base + begin}", f"{base + wanted}"
                    self._findings.append(
                        Finding(self._log_name, position, what, expected, remedy)
                    )  # fmt: skip
                    self._hole_at = position
        self._end = chunk.ends[-1] + 1
        self._last_at = chunk.places[-1]

    def _check_epochs(self, chunk: IndexedBatches) -> None:
        base, buffer = self._task.base_offset, chunk.buffer
        want, stop = self._epoch
        if chunk.epochs == (want, want) and base + chunk.ends[-1] < stop:
            return
        for begin, position in zip(chunk.begins, chunk.places, strict=True):
            at, offset = chunk.within(position), base + begin
            found = leader_epoch_of(buffer, at)
            if found == NO_LEADER_EPOCH:
                continue  # of old formats, which have none
            if found == want and offset < stop:
                continue
            want, stop = self._epoch = self._epoch_of(offset, found)
            if found != want:
                self._findings.append(
                    Finding(
                        self._log_name, position, f"the batch has leader epoch {found}", str(want),
                        "logfs can read it; a broker may refuse or truncate the log here",
                    )
                )  # fmt: skip

    def _epoch_of(self, offset: int, found: int) -> tuple[int, int]:
        """Return the leader epoch of an offset, and its end; ``found`` if it is not known."""
        epochs = self._task.epochs
        number = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
        if number:
            stop = epochs[number].start_offset if number < len(epochs) else MAX_OFFSET
            return epochs[number - 1].epoch, stop
        stop = epochs[0].start_offset if epochs else MAX_OFFSET
        return max(found, self._epoch[0]), stop

    def _check_end(self) -> None:
        task, walk = self._task, self.walk
        if task.is_live and task.is_last:
            return  # a batch is being written
        if walk.tail is not None:
            what = f"{walk.tail.size} bytes are no whole batch ({walk.tail.why})"
            remedy = self._remedy(walk.tail)
            self._findings.append(
                Finding(self._log_name, walk.tail.position, what, "the end", remedy)
            )
        elif walk.padding and not task.may_be_padded:
            what = f"{walk.padding} zeros after the last batch"
            remedy = "the next start truncates them" if task.will_recover else "they are ignored"
            self._findings.append(
                Finding(self._log_name, walk.builder.file_position, what, "the end", remedy)
            )

    def _note_missing(self) -> None:
        """Report indexes that are missing."""
        kinds = [FileKind.OFFSET_INDEX, FileKind.TIME_INDEX]
        entry = self._task.entry
        if entry is not None:
            kinds.append(FileKind.TEXT_INDEX)
        for kind in kinds:
            if kind not in self._task.kinds:
                is_lost = kind is FileKind.TEXT_INDEX and entry is not None and entry.has_gaps
                remedy = LOST if is_lost else REBUILT
                self._findings.append(Finding(self._task.name(kind), None, "missing", "", remedy))

    def _read(self, kind: FileKind) -> bytes:
        return self._disk.read(self._task.name(kind), None) if kind in self._task.kinds else b""
