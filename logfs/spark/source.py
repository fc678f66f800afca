"""The data source as Spark sees it: its name, its schema, who reads."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from logfs.errors import InvalidConfigError
from logfs.machine.host import LOCAL_ZONE
from logfs.spark.batch import LogfsReader
from logfs.spark.options import has_headers, parse_options
from logfs.spark.paths import parse_path
from logfs.spark.schema import Column, check_written, chosen, full_schema
from logfs.spark.sink import LogfsStreamWriter, LogfsWriter
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

    def writer(self, schema: StructType, overwrite: bool) -> LogfsWriter:
        """Return what appends a table.

        Raises:
            InvalidConfigError: If the table is to take the place of what there is.
        """
        if overwrite:
            raise InvalidConfigError('a log is only appended to: .mode("append")')
        return LogfsWriter(*self._target(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogfsStreamWriter:  # noqa: N802
        """Return what appends the batches of a stream.

        In complete mode (``overwrite``) each batch is the whole result, and is appended as one.
        Source: Spark KafkaSourceProvider.createSink, which takes every mode and appends.
        """
        del overwrite
        return LogfsStreamWriter(*self._target(schema))

    def _target(self, schema: StructType) -> tuple[str, str | None]:
        """Return the data directory, and the topic if the rows do not say it."""
        check_written((field.name, field.dataType.simpleString()) for field in schema.fields)
        source = parse_path(self.options.get("path"), LOCAL_ZONE)
        if len(source.roots) != 1 or source.address is not None:
            raise InvalidConfigError("a sink has one path: a data directory, or a topic in it")
        return source.roots[0], source.topic or self.options.get("topic")


def _columns(schema: StructType) -> tuple[Column, ...]:
    return chosen((field.name, field.dataType.simpleString()) for field in schema.fields)
