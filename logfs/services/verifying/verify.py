"""Checking a whole data directory, also while another process is writing to it.

Files of a directory in use change between two reads: a segment grows, is rolled, deleted, or
replaced by compaction. Damage in such a directory is reported only if several rounds in a row find
it at the same place. Segments without damage are not read again unless they have changed.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from logfs.config import TopicConfig
from logfs.disk.remote.overlay import local_part
from logfs.disk.vfs import Disk
from logfs.log import names
from logfs.log.listing import list_partitions
from logfs.services.verifying.findings import Finding, Level
from logfs.services.verifying.partitions import PartitionCheck
from logfs.services.verifying.segments import SegmentReport, SegmentTask
from logfs.services.verifying.smallfiles import RootState, read_root
from logfs.types import TopicPartition

Run = Callable[[Sequence[SegmentTask]], Iterable[SegmentReport]]
"""Checks segments, in this process or elsewhere; returns reports in the order of the tasks."""

AGREEING_ROUNDS = 3
"""How many rounds in a row have to find damage in a directory in use."""
MAX_ROUNDS = 12


@dataclass(slots=True)
class Verified:
    """The result of a check."""

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


class _RepeatedCheck:
    """The check of a partition; ``findings`` are those that earlier rounds confirm."""

    def __init__(self, check: PartitionCheck) -> None:
        self.check = check
        self.findings: list[Finding] = []
        self._unchanged_rounds = 0
        self._rounds_with: dict[tuple[str, int | None, int | None], int] = {}

    def conclude(self, root: RootState, *, was_live: bool) -> bool:
        """End a round; returns whether it is the last."""
        found = self.check.conclude(root)
        enough = AGREEING_ROUNDS if was_live or root.is_live else 1
        # By place: how many rounds in a row had a finding there.
        self._rounds_with = {f.place: self._rounds_with.get(f.place, 0) + 1 for f in found}
        self.findings = [
            finding
            for finding in found
            if finding.level is not Level.DAMAGE or self._rounds_with[finding.place] >= enough
        ]
        if self.check.has_changed and not self.check.is_gone:
            return False
        self._unchanged_rounds += 1
        return self._unchanged_rounds >= enough or len(self.findings) == len(found)


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
        only: The partitions; None for all of them, and the files in the root.
        run: Checks segments.
        wait: Called between two rounds, with the number of the first of them, from 1.
        boot_id: Identifies the boot of this machine. If it is not known, a close that flushed
            nothing is taken for a crash.
    """
    disk = local_part(disk)  # objects are checked by ``logfs remote verify``
    root = read_root(disk, defaults, boot_id)
    wanted = list_partitions(disk) if only is None else only
    checks = [_RepeatedCheck(PartitionCheck(disk, tp)) for tp in sorted(wanted)]
    unfinished, root_findings = list(checks), root.findings
    for number in range(1, MAX_ROUNDS + 1):
        was_live = root.is_live
        tasks = [(one.check, task) for one in unfinished for task in one.check.tasks(root)]
        reports = run([task for _, task in tasks])
        for (check, _), report in zip(tasks, reports, strict=True):
            check.take(report)
        root.is_live = disk.is_locked(names.LOCK_FILE)
        unfinished = [one for one in unfinished if not one.conclude(root, was_live=was_live)]
        if not unfinished:
            break
        wait(number)
        root = read_root(disk, defaults, boot_id)
    return _sum(checks, root_findings if only is None else [])


def _sum(checks: Sequence[_RepeatedCheck], of_root: Sequence[Finding]) -> Verified:
    verified = Verified(findings=list(of_root))
    for one in checks:
        verified.partitions += not one.check.is_gone
        for report in one.check.reports.values():
            verified.segments += 1
            verified.batches += report.batches
            verified.records += report.records
            verified.size_bytes += report.size_bytes
        verified.findings += one.findings
    return verified
