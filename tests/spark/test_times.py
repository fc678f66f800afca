"""``logfs.spark.times.between``: a time of a table, found by the index."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logfs.errors import InvalidConfigError
from logfs.records.record import Record
from logfs.spark.times import between
from tests.spark.logs import START_MS, Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BEGIN = datetime.fromtimestamp(START_MS / 1000, UTC)


def test_a_time_is_what_a_filter_gives(spark: "SparkSession", tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("t", 2)
    for second in (0, 10, 20, 5, 30):  # one comes late
        logs.append("t", 0, [Record(0, START_MS + 1000 * second, None, b"%d" % second)])
    logs.append("t", 1, [Record(0, START_MS, None, b"before")])
    logs.close()
    reader = spark.read.schema("value binary, timestamp timestamp")
    start, end = BEGIN + timedelta(seconds=5), BEGIN + timedelta(seconds=14, microseconds=1)

    def values(*, sorted_times: bool) -> list[bytes]:
        frame = between(reader, str(logs.path), start, end, sorted_times=sorted_times)
        return sorted(bytes(row.value) for row in frame.collect())

    assert values(sorted_times=False) == [b"10", b"5"]
    assert values(sorted_times=True) == [b"10"], "nothing is read from 20 on"
    with pytest.raises(InvalidConfigError, match="no time zone"):
        between(reader, str(logs.path), datetime(2026, 1, 1), end)
