"""Reading logs as a table: where each partition begins and ends is decided when Spark plans."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from logfs.arrow.columns import ArrowColumn
from logfs.errors import DataLossError
from logfs.library.stored_partitions import Directories, SeenLog, now_ms
from logfs.spark.bounds import end_of, start_of
from logfs.spark.options import ReadOptions
from logfs.spark.planning import plan, task_bytes
from logfs.spark.tasks import LogfsPartition, Work, with_roots
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.spark.jsonvalues import JsonColumns


class LogfsReader(DataSourceReader):
    """A ``DataSourceReader``. Small: it is sent to every task.

    Filters are not pushed down: Spark 4.3 returns wrong results with sources that take them.
    """

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[ArrowColumn, ...],
        json: "JsonColumns | None" = None,
    ) -> None:
        self._options = options
        self._work = Work(columns, options.level, options.fails_on_loss, options.contains, json)

    def partitions(self) -> Sequence[LogfsPartition]:
        """Resolve where each partition begins and ends, and share the ranges out."""
        options = self._options
        directories = Directories(options.roots, options.level)
        wanted = options.selection.choose(directories.partitions())
        options.start.check(wanted)
        options.end.check(wanted)
        logs = directories.refresh(wanted)
        for gone in set(wanted) - logs.keys():
            self._work.lose(f"{gone} is gone")
        at = now_ms()
        ranges = {one: self._range(one, log, at) for one, log in logs.items()}
        return share_out(options, logs, ranges)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read what a task is to read; see ``Work.read``."""
        return self._work.read(partition)

    def _range(self, one: TopicPartition, log: SeenLog, at: int) -> tuple[int, int]:
        options, latest = self._options, log.latest()
        try:
            start = start_of(options.start, one, log, at)
        except DataLossError as error:
            self._work.lose(str(error))
            start = latest
        end = end_of(options.end, one, log, at)
        if start < log.earliest():
            self._work.lose(
                f"{one}: offsets {start} to {log.earliest() - 1} are gone, "
                f"the log begins at {log.earliest()}"
            )
            start = log.earliest()
        if end > latest:
            self._work.lose(f"{one}: the log ends at {latest}, before {end}")
            end = latest
        return start, max(start, end)


def share_out(
    options: ReadOptions,
    logs: Mapping[TopicPartition, SeenLog],
    ranges: Mapping[TopicPartition, tuple[int, int]],
) -> list[LogfsPartition]:
    """Return the tasks that read ranges of offsets."""
    total = sum(logs[one].size_of(*bounds) for one, bounds in ranges.items())
    most = task_bytes(total, os.cpu_count() or 1)
    pieces = [piece for one, bounds in ranges.items() for piece in logs[one].pieces(*bounds, most)]
    tasks = plan(pieces, most, options.min_partitions, options.max_records)
    return with_roots(tasks, logs)
