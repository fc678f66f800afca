"""Checking one partition: its segments, and whether they fit together.

``tasks`` lists the directory and returns the segments to check, ``take`` gets their reports, and
``conclude`` returns the findings. All three can be called again for another round. Reports without
findings are kept for segments that have not changed.
"""

from itertools import pairwise

from logfs.disk.vfs import Disk
from logfs.errors import LogfsError
from logfs.log.listing import list_partition
from logfs.log.losses import CUT
from logfs.log.names import (
    TIERED,
    FileKind,
    FileSuffix,
    format_segment_file,
)
from logfs.log.remote.directory import tiered_sizes
from logfs.log.segments.table import SegmentState
from logfs.services.verifying.findings import Finding, refused
from logfs.services.verifying.segments import SegmentReport, SegmentTask
from logfs.services.verifying.smallfiles import (
    RootState,
    SmallFiles,
    find_irregular,
    find_leftovers,
    find_unreadable,
)
from logfs.services.verifying.tables import SEALED, TableContents, compare, read_table
from logfs.types import MAX_OFFSET, TopicPartition


class PartitionCheck:
    """The check of one partition.

    Attributes:
        reports: Reports of the segments of the last round, by base offset.
        is_gone: The directory was removed meanwhile.
        has_changed: Segments to be checked were removed or replaced meanwhile.
    """

    def __init__(self, disk: Disk, topic_partition: TopicPartition) -> None:
        self._disk = disk
        self.topic_partition = topic_partition
        self._directory = topic_partition.directory
        self.reports: dict[int, SegmentReport] = {}
        self.is_gone = False
        self.has_changed = False
        self._tasks: dict[int, SegmentTask] = {}
        self._refused: Finding | None = None

    def tasks(self, root: RootState) -> list[SegmentTask]:
        """List the directory; returns the segments to check."""
        self._refused = None
        try:
            found = self._segments(root)
        except FileNotFoundError:
            self.is_gone = True
            return []
        except OSError as error:
            self._refused = self._refusal(error)
            return []
        self.has_changed = False
        self._tasks = {task.base_offset: task for task in found}
        self.reports = {base: r for base, r in self.reports.items() if self._holds(base, r)}
        return [task for task in found if task.base_offset not in self.reports]

    def take(self, report: SegmentReport) -> None:
        """Take the report of a segment."""
        if report.is_gone:
            self.has_changed = True
        else:
            self.reports[report.base_offset] = report

    def conclude(self, root: RootState) -> list[Finding]:
        """Return all findings, in the order of the log.

        If ``has_changed``, only the findings in single segments.
        """
        if self.is_gone:
            return []
        if self._refused is not None:
            return [self._refused]
        try:
            return self._conclude(root)
        except FileNotFoundError:
            self.has_changed = True
            return []
        except OSError as error:
            of_segments = [f for base in sorted(self.reports) for f in self.reports[base].findings]
            return [*of_segments, self._refusal(error)]

    def _refusal(self, error: OSError) -> Finding:
        """Return the finding for a file that cannot be read."""
        _, below, name = str(error.filename).rpartition(f"{self._directory}/")
        file = f"{self._directory}/{name}" if below else self._directory
        remedy = "move it away and restore it from a backup"
        return refused(file, error, remedy)

    def _segments(self, root: RootState) -> list[SegmentTask]:
        kinds = list_partition(self._disk, self._directory).kinds()
        table = read_table(self._disk, self._directory)
        small = SmallFiles(self._disk, self._directory, root.defaults)
        dropped = set() if table.state is None else table.state.dropped
        bases = sorted(b for b, k in kinds.items() if FileKind.LOG in k and b not in dropped)
        recovery_point = root.recovery_points.get(self.topic_partition, 0)
        cleaned = self._cleaned_below(root, bases)
        config, tasks = small.config, []
        lost = frozenset(
            loss.offset
            for loss in small.losses()[0]
            if loss.kind == CUT and loss.offset is not None
        )
        for number, base_offset in enumerate(bases):
            is_last = number == len(bases) - 1
            entry = table.entries.get(base_offset)
            size = self._size_of(base_offset)
            tasks.append(
                SegmentTask(
                    self._directory,
                    base_offset,
                    frozenset(kinds[base_offset]),
                    is_last=is_last,
                    is_live=root.is_live,
                    will_recover=not root.is_clean
                    and (is_last or bases[number + 1] > recovery_point),
                    may_be_padded=config.preallocate
                    or (is_last and size == config.effective_segment_bytes)
                    or (is_last and not table.entries),
                    may_have_holes=base_offset < cleaned
                    or (entry is not None and entry.has_gaps)
                    or config.is_compacted,
                    entry=entry,
                    epochs=small.epochs,
                    interval_bytes=config.index_interval_bytes,
                    lost=lost,
                )
            )
        return tasks

    def _cleaned_below(self, root: RootState, bases: list[int]) -> int:
        """Return the first offset below which records may have been compacted away.

        A round of compaction replaces one segment after the other, and saves its progress only at
        its end. An interrupted round may have reached the last segment. Signs of a round are an
        earlier checkpoint, and replaced files, which stay for ``file.delete.delay.ms``.

        Source: Kafka LogCleaner.cleanLog, LogCleanerManager.doneCleaning.
        """
        if not bases:
            return 0
        deleted = list_partition(self._disk, self._directory).kinds(FileSuffix.DELETED)
        is_cleaned = self.topic_partition in root.cleaner_offsets
        if is_cleaned or any(base >= bases[0] for base in deleted):
            return max(bases[-1], root.cleaner_offsets.get(self.topic_partition, 0))
        return 0

    def _size_of(self, base_offset: int) -> int:
        name = f"{self._directory}/{format_segment_file(base_offset, FileKind.LOG)}"
        try:
            return self._disk.stat(name).size
        except FileNotFoundError:
            return 0

    def _holds(self, base_offset: int, report: SegmentReport) -> bool:
        """Whether the last report of a segment is still valid."""
        task = self._tasks.get(base_offset)
        if task is None or task.is_last or report.findings:
            return False
        name = task.name(FileKind.LOG)
        try:
            found = self._disk.stat(name)
        except FileNotFoundError:
            return False
        return (found.inode, found.size) == (report.inode, report.size_bytes)

    def _conclude(self, root: RootState) -> list[Finding]:
        # Read first: it may describe newer files than those that were checked.
        table = read_table(self._disk, self._directory)
        self._forget_replaced()
        reports = [self.reports[base] for base in sorted(self.reports)]
        findings = [finding for report in reports for finding in report.findings]
        if self.has_changed:
            return findings
        findings += self._holes(reports)
        listed = [name for name, is_folder in self._disk.list(self._directory) if not is_folder]
        findings += table.findings
        kinds = list_partition(self._disk, self._directory).kinds()
        bases = {base for base, found in kinds.items() if FileKind.LOG in found}
        tiered, problems = self._tiered()
        findings += problems
        if table.state is not None:
            findings += compare(table, reports, self._directory, may_move=root.is_live)
            findings += self._missing(table, bases | tiered, root)
        elif table.is_missing and any(n.endswith(FileKind.TEXT_INDEX) for n in listed):
            remedy = "restore it from a backup; without it the next start restarts positions at 0"
            findings.append(Finding(table.name, None, "missing", "", remedy))
        small = SmallFiles(self._disk, self._directory, root.defaults)
        end_offset = MAX_OFFSET  # unknown if the end of the log cannot be read
        if reports and not reports[-1].unreadable:
            end_offset = reports[-1].next_offset
        small.check(end_offset, listed, is_own=table.state is not None)
        findings += small.findings
        if reports and not root.is_live:
            findings += root.outside(self.topic_partition, end_offset)
        findings += find_irregular(self._disk, self._directory)
        findings += find_unreadable(self._disk, self._directory, listed)
        if not root.is_live:
            findings += find_leftovers(self._directory, listed, bases | tiered)
        return findings

    def _tiered(self) -> tuple[set[int], list[Finding]]:
        """Return the base offsets of the segments that the object store has; and findings."""
        try:
            return set(tiered_sizes(self._disk, self._directory)), []
        except LogfsError as error:
            remedy = "the next start rebuilds it from the object store"
            file = f"{self._directory}/{TIERED}"
            return set(), [Finding(file, None, str(error).removeprefix(f"{file}: "), "", remedy)]

    def _forget_replaced(self) -> None:
        """Drop the reports of segments that were removed or replaced since."""
        for base_offset, report in list(self.reports.items()):
            try:
                found = self._disk.stat(self._tasks[base_offset].name(FileKind.LOG))
            except FileNotFoundError:
                found = None
            if found is None or found.inode != report.inode:
                del self.reports[base_offset]
                self.has_changed = True

    def _holes(self, reports: list[SegmentReport]) -> list[Finding]:
        """Find offsets that two segments have, or none."""
        findings = []
        for report, following in pairwise(reports):
            end, base = report.next_offset, following.base_offset
            before, task = self._tasks[report.base_offset], self._tasks[base]
            log = before.name(FileKind.LOG)
            if end == base or report.unreadable:
                continue  # or its end is not known
            if any(finding.file == log for finding in report.findings):
                continue
            if end > base:
                problem, right = f"it starts at offset {base}", f"{end}, the end of the one before"
                remedy = "reads of these offsets are not defined: restore both segments"
                findings.append(Finding(task.name(FileKind.LOG), 0, problem, right, remedy))
            elif task.entry is not None and task.entry.is_after_gap:
                continue  # of a mirror, whose source has lost these offsets; that is a loss
            elif not (task.may_have_holes or before.may_have_holes or end in task.lost):
                problem, right = f"the segment ends with offset {end - 1}", str(base - 1)
                remedy = "records are missing at its end, or a segment: restore it from a backup"
                entry, place = before.entry, report.valid_bytes
                if entry is None or entry.size_bytes in (None, report.size_bytes):
                    findings.append(Finding(log, place, problem, right, remedy))
        return findings

    def _missing(self, table: TableContents, bases: set[int], root: RootState) -> list[Finding]:
        """Find segments that are in the table, but not in the directory."""
        findings = []
        start = root.start_offsets.get(self.topic_partition, 0)
        for base_offset, entry in sorted(table.entries.items()):
            is_known = entry.state in SEALED
            if base_offset in bases or (is_known and (entry.next_offset or 0) <= start):
                continue
            if not is_known and entry.state is not SegmentState.OPEN:
                continue
            if entry.state is SegmentState.CLOSED and not entry.size_bytes:
                continue
            name = f"{self._directory}/{format_segment_file(base_offset, FileKind.LOG)}"
            size = f", {entry.size_bytes} bytes" if entry.size_bytes else ""
            problem = f"missing; {table.name} lists it{size}"
            remedy = "its records are lost: restore it from a backup"
            findings.append(Finding(name, None, problem, "", remedy))
        return findings
