"""A Spark session that adds up the lengths of lines, from a log and from a text file, in turn.

    python -m benchmarks.sparkscan LOG TEXT ROUNDS

LOG is a data directory, TEXT a plain file with the same lines, or the URL of an object store with
the same log. Prints the seconds of every run as JSON, by what was read: ``text`` or ``url``,
``logfs`` (all columns, as a query that says nothing gets them), ``pruned`` (the value alone),
``arrow`` and ``arrow_value`` (the same with ``read_arrow``, without Spark, in one thread). Beside a
URL only ``logfs``.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import logfs
from benchmarks.arrowscan import timed, total
from benchmarks.runner import alternate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main(log: str, text: str, rounds: int) -> None:
    """Run the queries in turn and print how long each took."""
    with tempfile.TemporaryDirectory() as directory:
        spark = session(directory)
        tables = {
            "text": lambda: spark.read.text(text),
            "logfs": lambda: spark.read.format("logfs").load(log),
            "pruned": lambda: spark.read.format("logfs").schema("value binary").load(log),
        }
        runs = {name: _run(table) for name, table in tables.items()}
        if "://" in text:
            del runs["text"], runs["pruned"]
            runs["url"] = _run(lambda: spark.read.format("logfs").load(text))
        else:
            runs["arrow"] = timed(lambda: total(logfs.scan(log).read_arrow()))
            runs["arrow_value"] = timed(
                lambda: total(logfs.scan(log, columns=["value"]).read_arrow())
            )
        _print_times(runs, rounds)
        spark.stop()


def scan(tables: "Mapping[str, Callable[[], DataFrame]]", rounds: int) -> None:
    """Add up the lengths of the values of tables in turn, and print how long each took."""
    _print_times({name: _run(table) for name, table in tables.items()}, rounds)


def _print_times(runs: Mapping[str, Callable[[], tuple[float, int]]], rounds: int) -> None:
    found = alternate(list(runs.values()), rounds)
    totals = {length for times in found for _, length in times}
    if len(totals) != 1:
        raise RuntimeError(f"the lengths add up to {sorted(totals)}")
    times = zip(runs, ([seconds for seconds, _ in one] for one in found), strict=True)
    print(json.dumps(dict(times)), flush=True)


def _run(table: "Callable[[], DataFrame]") -> Callable[[], tuple[float, int]]:
    def summed() -> int:
        (row,) = table().selectExpr("sum(length(value))").collect()
        return int(row[0])

    return timed(summed)


def session(directory: str, jars: str = "") -> "SparkSession":
    """Return a session on all cores.

    Args:
        directory: For what it leaves.
        jars: Paths of what else it is to know, with commas in between.
    """
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", jars)
        # As the guide says; it matters to sources in Python only.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", str(Path(directory, "warehouse")))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
