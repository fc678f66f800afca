"""``logfs reindex --spark``: rebuild the indexes of the segments on the executors.

The driver holds the lock of the directory meanwhile. An executor replaces index files by a rename
each, so one that is killed, or works on a segment twice, leaves whole ones.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from logfs.disk.posix import PosixDisk
from logfs.log.reindexing import Reindexed, ReindexTask, reindex_segment
from logfs.spark.jobs.running import Progress, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkReindexer:
    """Makes the indexes of segments again."""

    def __init__(self, spark: "SparkSession", root: str, progress: Progress) -> None:
        self._job = SparkJob(spark, f"logfs reindex {root}", progress)
        self._root = root

    def run(self, tasks: Sequence[ReindexTask], sizes: Sequence[int]) -> list[Reindexed]:
        """Work on segments of these sizes."""
        return self._job.map(partial(_reindex, self._root), tasks, sizes)


def _reindex(root: str, task: ReindexTask) -> Reindexed:
    return reindex_segment(PosixDisk(root), task)
