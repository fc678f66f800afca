"""A broker with topics of all kinds; Spark's own Kafka source reads it, and ours its directory."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logfs.disk.posix import PosixDisk
from logfs.log.checkpointing import read_checkpoint
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.kafka import theirs
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.theirs import TIME_MS
from tests.mounting import wait_until
from tests.spark.reading import Row, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THEIRS, OURS = "kafka", "logfs"
PARTS = (10, 25, 40)
"""Records of the partitions of the topic ``parts``, a second between each and the next."""
SOME = (
    *(f"codec-{name}" for name in theirs.CODECS),
    *("recompressed", "append-time", "transactions", "open-transaction", "compacted-transactions"),
    *("deleted-records", "all-deleted", "empty"),
)


def at(seconds: int) -> int:
    """Return a moment of ``parts``, at or just before the records of that number."""
    return TIME_MS + 1000 * seconds


def of_parts(*numbers: int) -> str:
    """Return numbers, one for each partition of ``parts``, as the options want them."""
    return json.dumps({"parts": {str(n): number for n, number in enumerate(numbers)}})


class Beside:
    """The two sources.

    Args:
        spark: Knows both.
        broker: Runs, and is filled here.

    Attributes:
        client: The client of the broker.
    """

    def __init__(self, spark: "SparkSession", broker: Broker) -> None:
        self.spark = spark
        self.broker = broker
        self.client = Client(broker.bootstrap)
        self.client.create_topics({name: theirs.TOPICS[name][0] for name in SOME})
        for name in SOME:
            theirs.fill_topic(broker, self.client, name)
        self._keep = self.client.producer(
            transactional_id="left-open", transaction_timeout_ms="900000"
        )
        self._keep.begin()
        self._keep.send("open-transaction", theirs.numbered(10))
        self._keep.flush()
        self.client.produce("open-transaction", theirs.numbered(20))
        self.client.create_topic("parts", len(PARTS))
        for partition, count in enumerate(PARTS):
            self.client.produce("parts", _some_records(partition, count), partition)
        for name in ("deleted-records", "all-deleted"):
            # Until it is on the disk, only the broker knows it.
            wait_until(partial(self._is_start_known, name), f"the start of {name} is on the disk")

    def _is_start_known(self, topic: str) -> bool:
        """Tell whether the directory says where a topic begins."""
        start = self.client.earliest(topic)
        noted = read_checkpoint(PosixDisk(self.broker.data), "log-start-offset-checkpoint")
        segments = (self.broker.data / f"{topic}-0").glob("*.log")
        begin = min(int(segment.stem) for segment in segments)
        return max(noted.get(TopicPartition(topic, 0), 0), begin) == start

    def table(self, source: str, path: str = "", **options: str) -> "DataFrame":
        """Return what a source makes of options, whose names have ``_`` for a dot."""
        reader = self.spark.read.format(source).options(**self._named(options))
        return reader.load(path or str(self.broker.data)) if source == OURS else reader.load()

    def rows(self, source: str, path: str = "", **options: str) -> list[Row]:
        """Return all rows, partition by partition and in order."""
        found = plain(tuple(row) for row in self.table(source, path, **options).collect())
        return sorted(found, key=lambda row: row[2:5])

    def stream(self, source: str, checkpoint: Path, **options: str) -> list[list[Row]]:
        """Run a query to its end; topic, partition and offset of the rows of each batch."""
        reader = self.spark.readStream.format(source).options(**self._named(options))
        table = reader.load(str(self.broker.data)) if source == OURS else reader.load()
        batches: list[list[Row]] = []

        def note(batch: "DataFrame", _number: int) -> None:
            found = batch.select("topic", "partition", "offset").collect()
            batches.append(sorted(tuple(row) for row in found))

        query = (
            table.writeStream.foreachBatch(note)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        return batches

    @contextmanager
    def running(
        self, source: str, path: str, checkpoint: Path, **options: str
    ) -> Iterator[list[Row]]:
        """Run a query that continues; the rows that it has read so far."""
        reader = self.spark.readStream.format(source).options(**self._named(options))
        table = reader.load(path) if path else reader.load()
        rows: list[Row] = []

        def note(batch: "DataFrame", _number: int) -> None:
            rows.extend(plain(tuple(row) for row in batch.collect()))

        query = (
            table.writeStream.foreachBatch(note)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            yield rows
        finally:
            query.stop()

    def _named(self, options: Mapping[str, str]) -> dict[str, Any]:
        named = {name.replace("_", "."): text for name, text in options.items()}
        return {"kafka.bootstrap.servers": self.broker.bootstrap, **named}


def _some_records(partition: int, count: int) -> Iterator[Record]:
    for n in range(count):
        headers = ((b"h", b"%d" % n), (b"none", None)) if n % 4 == 1 else ()
        key = None if n % 3 == 0 else b"key %d" % n
        yield Record(0, at(n) + partition, key, b"value %d" % n, headers)
