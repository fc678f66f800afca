"""The table of the guide that says what Spark's SQL and catalog do with a source in Python."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mounting import ROOT
from tests.spark.logs import Logs
from tests.transcripts import table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GUIDE = ROOT / "logfs" / "guides" / "spark.md"
WORKS = "works"


class Tries:
    """What is tried, under the words of the guide.

    Args:
        path: A topic with some records.
    """

    def __init__(self, spark: "SparkSession", path: str, checkpoint: Path) -> None:
        self._spark, self._path, self._checkpoint = spark, path, checkpoint
        self._options = f"USING logfs OPTIONS (path '{path}')"
        self._sql(f"CREATE OR REPLACE TEMPORARY VIEW v {self._options}")

    def _sql(self, text: str) -> "DataFrame":
        return self._spark.sql(text)

    def _table(self) -> "DataFrame":
        return self._spark.read.format("logfs").load(self._path)

    def all(self) -> dict[str, Callable[[], object]]:
        """Return each with what does it."""
        path, spark = self._path, self._spark
        return {
            "`CREATE TEMPORARY VIEW v USING logfs OPTIONS (path '…')`": lambda: self._sql(
                "SELECT count(value) FROM v"
            ).collect(),
            "`CREATE GLOBAL TEMPORARY VIEW g AS SELECT … FROM v`": lambda: (
                self._sql("CREATE GLOBAL TEMPORARY VIEW g AS SELECT value FROM v"),
                self._sql("SELECT count(value) FROM global_temp.g").collect(),
                self._sql("DROP VIEW global_temp.g"),
            ),
            "`CREATE VIEW p AS SELECT … FROM v`": lambda: self._sql(
                "CREATE VIEW p AS SELECT value FROM v"
            ),
            "`CREATE TABLE t USING logfs OPTIONS (path '…')`": lambda: self._sql(
                f"CREATE TABLE t {self._options}"
            ),
            "`CREATE TABLE t USING logfs LOCATION '…'`": lambda: self._sql(
                f"CREATE TABLE t USING logfs LOCATION '{path}'"
            ),
            "`CREATE TABLE t (value BINARY) USING logfs OPTIONS (path '…')`": lambda: (
                self._sql(f"CREATE TABLE t (value BINARY) {self._options}"),
                self._sql("SELECT count(value) FROM t").collect(),
            ),
            "`CREATE TABLE t USING logfs … AS SELECT`": lambda: self._sql(
                f"CREATE TABLE t {self._options} AS SELECT 'new' AS value"
            ),
            "`spark.catalog.createTable('t', '…', 'logfs')`": lambda: spark.catalog.createTable(
                "t", path, "logfs"
            ),
            "``SELECT … FROM logfs.`…` ``": lambda: self._sql(f"SELECT value FROM logfs.`{path}`"),
            "`INSERT INTO v SELECT * FROM …`": lambda: self._sql("INSERT INTO v SELECT * FROM v"),
            "`INSERT INTO v (value) VALUES (…)`": lambda: self._sql(
                "INSERT INTO v (value) VALUES (CAST('new' AS BINARY))"
            ),
            "`spark.readStream.table('v')`": lambda: spark.readStream.table("v"),
            "a temporary view of a stream": lambda: (
                spark.readStream.format("logfs").load(path).createOrReplaceTempView("s"),
                spark.table("s").isStreaming or pytest.fail("it is no stream"),
            ),
            "`df.write.mode('append').save('…')`": lambda: self._table()
            .write.format("logfs").mode("append").save(path),
            "`df.write.save('…')` without a mode": lambda: self._table()
            .write.format("logfs").save(path),
            "`df.write.saveAsTable('t')`, then `SELECT … FROM t`": lambda: (
                self._table().write.format("logfs").option("path", path).mode("append")
                .saveAsTable("t"),
                self._sql("SELECT count(value) FROM t").collect(),
            ),
            "`CREATE TABLE t (…) USING logfs`, then "
            "`spark.read.option('path', '…').table('t')`": lambda: (
                self._sql("CREATE TABLE t (value BINARY) USING logfs"),
                spark.read.option("path", path).table("t").collect(),
            ),
            "`df.write.insertInto('v')`": lambda: self._table().write.insertInto("v"),
            "`df.writeTo('t').using('logfs').create()`, then `SELECT … FROM t`": lambda: (
                self._table().writeTo("t").using("logfs").option("path", path).create(),
                self._sql("SELECT count(value) FROM t").collect(),
            ),
            "`df.toPandas()`, `df.toArrow()`": lambda: (
                self._table().toPandas(), self._table().toArrow()
            ),
            "`df.pandas_api()`": lambda: self._table().pandas_api(),
        }  # fmt: skip


@pytest.mark.filterwarnings("ignore::Warning")  # PySpark 4.3 does not know pandas 3
def test_each_row_is_what_happens(spark: "SparkSession", tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("orders")
    logs.write("orders", 0, b"one", b"two")
    logs.close()
    tries = Tries(spark, f"{logs.path}/orders", tmp_path / "checkpoint").all()
    table = table_of(GUIDE.read_text(), "tried")
    assert [row[0] for row in table] == list(tries)
    found = []
    for (what, verdict, _), attempt in zip(table, tries.values(), strict=True):
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 - of any kind
            expected = verdict.removeprefix("no: ").strip("`") if verdict != WORKS else "\0"
            found.append(
                (what, verdict if expected in str(error) else str(error).splitlines()[-1][-300:])
            )
        else:
            found.append((what, WORKS))
        finally:
            spark.sql("DROP TABLE IF EXISTS t")
    assert found == [(what, verdict) for what, verdict, _ in table]
