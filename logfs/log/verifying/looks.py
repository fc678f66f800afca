"""Checking a whole data directory, while somebody may be writing to it.

Files change between one read and the next: a segment grows, is rolled, deleted, or replaced by
compaction. So where somebody owns the directory, what is found counts only if it is found at the
same place in several looks in a row. A segment in which nothing was found, and which is what it
was, is not read again.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log import names
from logfs.log.loading.loader import list_partitions
from logfs.log.verifying.findings import Finding, Level
from logfs.log.verifying.partitions import PartitionCheck
from logfs.log.verifying.roots import RootLook, look_at_root
from logfs.log.verifying.segments import SegmentReport, SegmentTask
from logfs.types import TopicPartition

Run = Callable[[Sequence[SegmentTask]], Iterable[SegmentReport]]
"""Checks segments, in whatever way; the reports come in the order of the tasks."""

AGREEING_LOOKS = 3
"""So often something has to be found where somebody may be writing."""
MOST_LOOKS = 12


@dataclass(slots=True)
class Verified:
    """What a check has found.

    Attributes:
        partitions, segments, batches, records, size_bytes: What was checked.
        findings: What was found, partition after partition.
    """

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def damages(self) -> list[Finding]:
        """The findings that are damage."""
        return [finding for finding in self.findings if finding.level is Level.DAMAGE]


class _Followed:
    """A partition, and what was found in it look after look.

    Attributes:
        findings: What counts of what the last look has found.
    """

    def __init__(self, check: PartitionCheck) -> None:
        self.check = check
        self.findings: list[Finding] = []
        self._rests = 0
        self._looks: dict[tuple[str, int | None, int | None], int] = {}

    def conclude(self, root: RootLook, *, was_live: bool) -> bool:
        """Take one more look into account; returns whether it is the last."""
        found = self.check.conclude(root)
        enough = AGREEING_LOOKS if was_live or root.is_live else 1
        # By place: how many looks in a row something was found there.
        self._looks = {finding.place: self._looks.get(finding.place, 0) + 1 for finding in found}
        self.findings = [
            finding
            for finding in found
            if finding.level is not Level.DAMAGE or self._looks[finding.place] >= enough
        ]
        if self.check.has_changed and not self.check.is_gone:
            return False
        self._rests += 1
        return self._rests >= enough or len(self.findings) == len(found)


def verify(
    disk: Disk,
    defaults: TopicConfig,
    only: Collection[TopicPartition] | None,
    run: Run,
    wait: Callable[[int], object],
    boot_id: str = "",
) -> Verified:
    """Check the partitions of a data directory.

    Args:
        disk: The data directory.
        defaults: Configuration of topics that have none.
        only: The partitions; None for all of them, and the files in the root.
        run: Checks segments.
        wait: Called with the number of a look, from 1, before the next one: lets time pass.
        boot_id: Of this machine; where nobody knows it, a close that flushed nothing is none.

    Raises:
        OSError: The disk failed.
    """
    root = look_at_root(disk, defaults, boot_id)
    wanted = list_partitions(disk) if only is None else only
    followed = [_Followed(PartitionCheck(disk, tp)) for tp in sorted(wanted)]
    open_ones, root_findings = list(followed), root.findings
    for number in range(1, MOST_LOOKS + 1):
        was_live = root.is_live
        tasks = [(f.check, task) for f in open_ones for task in f.check.tasks(root)]
        reports = run([task for _, task in tasks])
        for (check, _), report in zip(tasks, reports, strict=True):
            check.take(report)
        root.is_live = disk.is_locked(names.LOCK_FILE)
        open_ones = [f for f in open_ones if not f.conclude(root, was_live=was_live)]
        if not open_ones:
            break
        wait(number)
        root = look_at_root(disk, defaults, boot_id)
    return _sum(followed, root_findings if only is None else [])


def _sum(followed: Sequence[_Followed], of_root: Sequence[Finding]) -> Verified:
    verified = Verified(findings=list(of_root))
    for one in followed:
        verified.partitions += not one.check.is_gone
        for report in one.check.reports.values():
            verified.segments += 1
            verified.batches += report.batches
            verified.records += report.records
            verified.size_bytes += report.size_bytes
        verified.findings += one.findings
    return verified
