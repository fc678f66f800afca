"""The data source as Spark sees it: its name, its schema, who reads."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from logfs.machine.host import LOCAL_ZONE
from logfs.spark.batch import LogfsReader
from logfs.spark.options import has_headers, parse_options
from logfs.spark.schema import Column, chosen, full_schema
from logfs.spark.streaming import LogfsStreamReader


class LogfsDataSource(DataSource):
    """The data source ``logfs``. Spark makes one for every table or stream."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is given."""
        return "logfs"

    def schema(self) -> str:
        """Return the columns if the user names none."""
        return full_schema(has_headers=has_headers(self.options))

    def reader(self, schema: StructType) -> LogfsReader:
        """Return what reads a table."""
        options = parse_options(self.options, LOCAL_ZONE, is_stream=False)
        return LogfsReader(options, _columns(schema))

    def streamReader(self, schema: StructType) -> LogfsStreamReader:  # noqa: N802
        """Return what reads a stream."""
        options = parse_options(self.options, LOCAL_ZONE, is_stream=True)
        return LogfsStreamReader(options, _columns(schema))


def _columns(schema: StructType) -> tuple[Column, ...]:
    return chosen((field.name, field.dataType.simpleString()) for field in schema.fields)
