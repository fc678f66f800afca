"""The data that a task carries to a worker, and its work there: read ranges of offsets."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from logfs.arrow.columns import ArrowColumn
from logfs.arrow.reading import read_range
from logfs.errors import DataLossError
from logfs.library.mounted_disk import disk_at
from logfs.library.stored_partitions import SeenLog, check_root
from logfs.services.scanning.ranges import OffsetRange
from logfs.spark.planning import Task
from logfs.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from logfs.spark.jsonvalues import JsonColumns

logger = logging.getLogger(__name__)

LOSS_HINT = "set failOnDataLoss to false to continue with what is left"


class StoredRange(NamedTuple):
    """A range of offsets and the data directory that it is in."""

    root: str
    topic: str
    partition: int
    start: int
    end: int


class LogfsPartition(InputPartition):
    """The ranges that one task reads, in order."""

    def __init__(self, ranges: tuple[StoredRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class Work(NamedTuple):
    """The common part of all tasks of a query; it is sent to each of them.

    Attributes:
        columns: What of the records is needed.
        contains: What the value of each record has; empty: anything.
        json: The columns of a table of JSON values; None: the table has ``columns``.
    """

    columns: tuple[ArrowColumn, ...]
    level: IsolationLevel
    fails_on_loss: bool
    contains: bytes = b""
    json: "JsonColumns | None" = None

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read what a task is to read.

        Args:
            partition: A ``LogfsPartition``; None, which Spark gives if there is none, is nothing.

        Raises:
            DataLossError: Records of it are gone, and that is a reason to stop.
            NoDataDirectoryError: This machine does not have the data directory.
            CorruptRecordError: A batch in it is damaged.
        """
        if isinstance(partition, LogfsPartition):
            batches = self._batches(partition)
            yield from batches if self.json is None else self.json.rows(batches)

    def _batches(self, partition: LogfsPartition) -> Iterator[pa.RecordBatch]:
        for root, topic, number, start, end in partition.ranges:
            one = TopicPartition(topic, number)

            def lost(first: int, behind: int, one: TopicPartition = one, root: str = root) -> None:
                check_root(root)
                self.lose(f"{one}: offsets {first} to {behind - 1} are gone")

            yield from read_range(
                disk_at(root),
                OffsetRange(one, start, end),
                self.columns,
                hides_aborted=self.level is IsolationLevel.READ_COMMITTED,
                on_loss=lost,
                contains=self.contains,
            )

    def lose(self, what: str) -> None:
        """Raise DataLossError for records that are gone, or log a warning and continue."""
        if self.fails_on_loss:
            raise DataLossError(f"{what}; {LOSS_HINT}")
        logger.warning("%s; continuing with what is left", what)


def with_roots(
    tasks: Sequence[Task], logs: Mapping[TopicPartition, SeenLog]
) -> list[LogfsPartition]:
    """Return tasks as Spark wants them."""
    return [
        LogfsPartition(
            tuple(StoredRange(logs[one].root, *one, start, end) for one, start, end, _ in task)
        )
        for task in tasks
    ]
