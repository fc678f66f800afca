"""A sink that dies: ``logfs`` under the name ``dying``, killed with ``kill -9`` at a moment.

It happens once: the process makes the file ``once`` before it dies. It is the Python process that
stages or publishes, or with the option ``kills`` the process with that number. As a program it is a
its own driver, whose JVM dies:

    python -m tests.spark.dying MASTER MOMENT ONCE INPUT CHECKPOINT DATA
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from logfs.spark.sink import LogfsStreamWriter, Staged
from logfs.spark.source import LogfsDataSource
from logfs.spark.target import SinkTarget
from tests.dying import die_once, die_while_writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

BEFORE_STAGING = "before staging"
WHILE_STAGING = "while staging"
AFTER_STAGING = "after staging"
WHILE_PUBLISHING = "while publishing"
AFTER_PUBLISHING = "after publishing"
WITH_ATTEMPTS = "with attempts "
"""Before a moment: before it the first attempts of tasks fail, each in another way."""
NEVER = "never"


class DyingSource(LogfsDataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogfsStreamWriter:  # noqa: N802
        moment, once, kills = (self.options.pop(name) for name in ("moment", "once", "kills"))
        target = super().streamWriter(schema, overwrite).target
        return DyingWriter(target, moment, Path(once), int(kills))


class DyingWriter(LogfsStreamWriter):
    """See the module."""

    def __init__(self, target: SinkTarget, moment: str, once: Path, kills: int) -> None:
        super().__init__(target)
        self._moment, self._once, self._kills = moment, once, kills

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        if self._moment.startswith(WITH_ATTEMPTS):
            return self._attempt(iterator)
        self._die_at(BEFORE_STAGING)
        return super().write(self._handed_over(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._die_at(AFTER_STAGING)
        die_while_writing(lambda: self._die_at(WHILE_PUBLISHING))
        super().commit(messages, batchId)
        self._die_at(AFTER_PUBLISHING)

    def _die_at(self, moment: str) -> None:
        if moment == self._moment.removeprefix(WITH_ATTEMPTS):
            die_once(self._once, self._kills)

    def _handed_over(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 1:
                self._die_at(WHILE_STAGING)
            yield batch

    def _attempt(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        rows, context = list(iterator), TaskContext.get()
        assert context is not None
        staged = super().write(iter(rows))
        number = context.partitionId()
        first = self._once.with_name(f"first attempt of task {number}")
        if first.exists():
            return staged
        first.touch()
        if number == 0:
            raise RuntimeError("the first attempt fails when it has staged")
        if number == 1:
            executor = parent_of(os.getppid())
            os.kill(executor, signal.SIGKILL)
        return super().write(iter(rows))  # as if another attempt had overtaken the first one


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def start_query(
    spark: "SparkSession", moment: str, places: Sequence[str], kills: int = 0
) -> "StreamingQuery":
    """Start a query that writes the lines of all files in a directory.

    Args:
        spark: The session.
        moment: When it dies.
        places: The file ``once``, the input, the checkpoint, the data directory.
        kills: The process that dies instead; 0: the one that does the work.
    """
    once, source, checkpoint, data = places
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    spark.dataSource.register(DyingSource)
    lines = spark.readStream.format("text").load(source).repartition(3)
    writing = lines.writeStream.format("dying").option("checkpointLocation", checkpoint)
    for name, text in {"moment": moment, "once": once, "kills": str(kills)}.items():
        writing = writing.option(name, text)
    return writing.trigger(availableNow=True).option("topic", "orders").start(data)


def main(master: str, moment: str, *places: str) -> None:
    """Write what there is, and die of it."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.executor.memory": "512m",
        # It lives for one small batch: what is compiled well does not pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for name, text in settings.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    jvm = spark.sparkContext._gateway.proc.pid
    start_query(spark, moment, places, jvm).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
