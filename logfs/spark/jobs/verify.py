"""``logfs verify --spark``: check the segments on the executors, with the same code.

The driver lists the directory and judges the findings (``logfs.services.verifying.verify``); only
the segments are checked here. The job locks and writes nothing, so a killed one leaves no trace,
and the next one starts from the beginning.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from logfs.disk.vfs import Disk
from logfs.errors import SparkJobError
from logfs.log.names import FileKind
from logfs.machine.disks import disk_of
from logfs.services.verifying.segments import SegmentReport, SegmentTask, verify_segment
from logfs.spark.jobs.running import Progress, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkVerifier:
    """Checks the segments of a data directory."""

    def __init__(self, spark: "SparkSession", root: str, progress: Progress) -> None:
        self._job = SparkJob(spark, f"logfs verify {root}", progress)
        self._root = root

    def run(self, tasks: Sequence[SegmentTask]) -> Sequence[SegmentReport]:
        """Check segments: a ``logfs.services.verifying.verify.Run``.

        Raises:
            SparkJobError: A machine does not have the directory, or a task failed.
        """
        disk = disk_of(self._root)
        sizes = [size_of(disk, task.name(FileKind.LOG)) for task in tasks]
        found = self._job.map(partial(_verify_segment, self._root), tasks, sizes)
        for task, (_, is_there) in zip(tasks, found, strict=True):
            if not is_there and disk.exists(task.directory):
                raise SparkJobError(
                    f"{self._root}/{task.directory} is not there where Spark runs: every machine "
                    "needs the data directory at the same path"
                )
        return [report for report, _ in found]


def size_of(disk: Disk, name: str) -> int:
    """Return the size of a file; 0 of one that has gone."""
    try:
        return disk.stat(name).size
    except FileNotFoundError:
        return 0


def _verify_segment(root: str, task: SegmentTask) -> tuple[SegmentReport, bool]:
    """Check a segment; tells as well whether its partition is on this machine."""
    disk = disk_of(root)
    report = verify_segment(disk, task)
    return report, not report.is_gone or disk.exists(task.directory)
