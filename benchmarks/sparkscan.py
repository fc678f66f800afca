"""A Spark session that adds up the lengths of lines, from a log and from a text file, in turn.

    python -m benchmarks.sparkscan LOG TEXT ROUNDS

LOG is a data directory, TEXT a plain file with the same lines, or the URL of an object store with
the same log. Prints the seconds of every run as JSON, by what was read: ``text`` or ``url``,
``logfs`` (all columns, as a query that says nothing gets them), ``pruned`` (the value alone; not
beside a URL).
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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
        if "://" in text:
            del tables["text"], tables["pruned"]
            tables["url"] = lambda: spark.read.format("logfs").load(text)
        scan(tables, rounds)
        spark.stop()


def scan(tables: "Mapping[str, Callable[[], DataFrame]]", rounds: int) -> None:
    """Add up the lengths of the values of tables in turn, and print how long each took."""
    found = alternate([_run(table) for table in tables.values()], rounds)
    totals = {total for runs in found for _, total in runs}
    if len(totals) != 1:
        raise RuntimeError(f"the lengths add up to {sorted(totals)}")
    times = zip(tables, ([seconds for seconds, _ in runs] for runs in found), strict=True)
    print(json.dumps(dict(times)), flush=True)


def _run(table: "Callable[[], DataFrame]") -> Callable[[], tuple[float, int]]:
    def run() -> tuple[float, int]:
        started_s = time.perf_counter()
        (row,) = table().selectExpr("sum(length(value))").collect()
        return time.perf_counter() - started_s, int(row[0])

    return run


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
