"""A Spark session that reads and writes records by Spark's own Kafka source and sink, and by ours.

    python -m benchmarks.sparkkafka scan LOG BOOTSTRAP TOPIC ROUNDS
    python -m benchmarks.sparkkafka sink DIRECTORY POINT BOOTSTRAP ROWS BYTES ROUNDS

``scan`` adds up the lengths of the values of a topic that is in the data directory LOG and on a
broker. ``sink`` appends a table of ROWS keys and values of BYTES, kept in memory, to a new topic of
the broker, of a data directory below DIRECTORY, and of the mount POINT. Both print the seconds of
every run as JSON, by what was used; ``tuned`` is the sink of Kafka with larger batches.
"""

import itertools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.runner import alternate
from benchmarks.sparkscan import scan, session
from logfs.cli.main import main as command
from tests.kafka.client import Client
from tests.spark.connector import jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
_TUNED = {
    "kafka.acks": "1",
    "kafka.batch.size": "1000000",
    "kafka.linger.ms": "20",
    "kafka.buffer.memory": "134217728",
    "kafka.max.request.size": "4000000",
}
"""As kafka-producer-perf-test is tuned, see ``peers.produce``."""


@contextmanager
def _spark() -> "Iterator[SparkSession]":
    with tempfile.TemporaryDirectory() as directory:
        spark = session(directory, jars.connector())
        yield spark
        spark.stop()


def scan_both(log: str, bootstrap: str, topic: str, rounds: str) -> None:
    """Run the queries in turn and print how long each took."""
    with _spark() as spark:
        theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        theirs = theirs.option("subscribe", topic)
        ours = spark.read.format("logfs").option("subscribe", topic)
        pruned = spark.read.format("logfs").option("subscribe", topic).schema("value binary")
        tables = {
            "kafka": theirs.load,
            "logfs": lambda: ours.load(log),
            "pruned": lambda: pruned.load(log),
        }
        scan(tables, int(rounds))


def sink(directory: str, point: str, bootstrap: str, rows: str, size: str, rounds: str) -> None:
    """Append a table in turn and print how long each took."""
    with _spark() as spark:
        value = f"rpad(cast(id as string), {size}, 'the quick brown fox ')"
        table = spark.range(0, int(rows), 1, PARTITIONS).selectExpr(
            "cast(id as string) key", f"cast({value} as binary) value"
        )
        table = table.cache()
        table.count()
        runs = {
            "kafka": _to_broker(table, bootstrap, {}),
            "tuned": _to_broker(table, bootstrap, _TUNED),
            "alone": _to_directory(table, Path(directory)),
            "daemon": _to_mount(table, Path(point)),
        }
        found = alternate(list(runs.values()), int(rounds))
        print(json.dumps(dict(zip(runs, found, strict=True))), flush=True)


def _to_broker(table: "DataFrame", bootstrap: str, tuned: dict[str, str]) -> Callable[[], float]:
    names = (f"{'tuned' if tuned else 'plain'}-{n}" for n in itertools.count())

    def run() -> float:
        client, topic = Client(bootstrap), next(names)
        client.create_topic(topic, PARTITIONS)
        writer = table.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.options(topic=topic, **tuned).mode("append")
        seconds = _timed(writer.save)
        written = sum(client.latest(topic, n) for n in range(PARTITIONS))
        client.delete_topic(topic)
        return _checked(seconds, written, table)

    return run


def _to_directory(table: "DataFrame", parent: Path) -> Callable[[], float]:
    def run() -> float:
        data = parent / "alone"
        data.mkdir()
        _create(data / "t")
        writer = table.write.format("logfs").mode("append")
        seconds = _timed(lambda: writer.save(str(data / "t")))
        written = _count(table, data / "t")
        shutil.rmtree(data)
        return _checked(seconds, written, table)

    return run


def _to_mount(table: "DataFrame", point: Path) -> Callable[[], float]:
    names = (f"t{n}" for n in itertools.count())

    def run() -> float:
        topic = point / next(names)
        _create(topic)
        writer = table.write.format("logfs").mode("append")
        seconds = _timed(lambda: writer.save(str(topic)))
        written = _count(table, topic)
        _delete(topic)
        return _checked(seconds, written, table)

    return run


def _create(topic: Path) -> None:
    if command(["topic", "create", str(topic), "--partitions", str(PARTITIONS)]):
        raise RuntimeError(f"{topic} could not be made")


def _delete(topic: Path) -> None:
    if command(["topic", "delete", "--now", str(topic)]):
        raise RuntimeError(f"{topic} could not be deleted")


def _count(table: "DataFrame", topic: Path) -> int:
    reader = table.sparkSession.read.format("logfs").schema("offset long")
    return int(reader.load(str(topic)).count())


def _timed(run: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s


def _checked(seconds: float, written: int, table: "DataFrame") -> float:
    if written != table.count():
        raise RuntimeError(f"{written} records were written, expected {table.count()}")
    return seconds


def main(action: str, *arguments: str) -> None:
    """Do one of the two."""
    if action == "scan":
        scan_both(*arguments)
    else:
        sink(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
