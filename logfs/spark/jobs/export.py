"""``logfs export --spark``: write ranges of offsets to Parquet on the executors.

The plan, and the record of written ranges, are in ``logfs.spark.exporting``.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from logfs.spark.exporting.manifest import ExportRange, Written
from logfs.spark.exporting.ranges import export_range
from logfs.spark.jobs.running import Progress, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkExporter:
    """Writes ranges of a data directory."""

    def __init__(
        self, spark: "SparkSession", root: str, destination: str, progress: Progress
    ) -> None:
        self._job = SparkJob(spark, f"logfs export {root} {destination}", progress)
        self._root = root
        self._destination = destination

    def run(self, ranges: Sequence[ExportRange], sizes: Sequence[int]) -> list[Written]:
        """Write ranges: a ``logfs.spark.exporting.export.Run``."""
        return self._job.map(partial(export_range, self._root, self._destination), ranges, sizes)
