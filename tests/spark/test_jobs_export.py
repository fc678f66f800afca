"""``logfs export --spark`` writes what ``logfs export`` writes, and Spark reads it as a table."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Call
from tests.spark.exports import DAYS, NOW_MS, rows_in, three_days, written
from tests.spark.logs import Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_it_writes_what_the_local_command_writes(
    spark: "SparkSession", logfs: Call, tmp_path: Path
) -> None:
    logs, ours, theirs = Logs(tmp_path / "store", NOW_MS), tmp_path / "ours", tmp_path / "theirs"
    logs.topic("orders", 3)
    for number in range(3):
        logs.append("orders", number, three_days(number, 50))
    done = logfs("export", logs.path, ours, "--spark")
    assert (done.status, done.errors) == (0, [])
    assert logfs("export", logs.path, theirs).out == done.out.replace(b"ours", b"theirs")
    assert files_of(ours) == files_of(theirs)
    logs.append("orders", 1, three_days(50, 9))
    assert logfs("export", logs.path, ours, "--spark").status == 0
    logs.close()
    assert rows_in(ours) == written(logs, *(("orders", n) for n in range(3)))
    table = spark.read.parquet(str(ours))
    days = table.where("topic = 'orders' and partition = 1").groupBy("day").count().collect()
    counts = {str(row["day"]): row["count"] for row in days}
    assert counts == dict(zip(DAYS, (19, 20, 20), strict=True))


def files_of(directory: Path) -> dict[str, bytes]:
    files = directory.glob("topic=*/*/*.parquet")
    return {str(file.relative_to(directory)): file.read_bytes() for file in files}
