"""A canary: why logfs does not let Spark push filters down to it.

Spark asks one reader for all scans of a DataFrame, so what one scan's filters leave out is missing
in the others. When this test fails, Spark has mended that: then ``LogfsReader`` can narrow offsets
and times by the filters it is given.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 100


def source() -> type:  # noqa: C901 - classes that are sent to workers by value
    """Return a data source of numbers that narrows its range, and gives every filter back."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        Filter,
        GreaterThanOrEqual,
        InputPartition,
    )

    class Reader(DataSourceReader):  # type: ignore[misc]  # pyspark is not typed here
        def __init__(self) -> None:
            self.start = 0

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's
            for one in filters:
                if isinstance(one, GreaterThanOrEqual):
                    self.start = max(self.start, one.value)
                yield one

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(self.start)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            for number in range(partition.value, ROWS):
                yield (number,)

    class Numbers(DataSource):  # type: ignore[misc]  # pyspark is not typed here
        @classmethod
        def name(cls) -> str:
            return "pushed"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> Reader:  # noqa: ANN401 - Spark's
            return Reader()

    return Numbers


def test_filters_of_one_scan_still_change_the_others(spark: "SparkSession") -> None:
    key = "spark.sql.python.filterPushdown.enabled"
    spark.dataSource.register(source())
    spark.conf.set(key, "true")
    try:
        table = spark.read.format("pushed").load()
        assert table.where("n >= 90").count() == 10
        found = table.count()
    finally:
        spark.conf.unset(key)
    assert found != ROWS, "Spark's filter pushdown has become safe: use it"
