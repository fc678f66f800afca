"""The data source as Spark sees it: its name, its schema, its readers.

A query starts Python some seven times, each time for one of the methods here, so each imports what
it needs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from logfs.arrow.columns import ArrowColumn
    from logfs.library.zones import ServedZone
    from logfs.spark.batch import LogfsReader
    from logfs.spark.jsonvalues import JsonColumns
    from logfs.spark.partitions import PartitionsReader
    from logfs.spark.sink import LogfsStreamWriter, LogfsWriter
    from logfs.spark.streaming import LogfsStreamReader


class LogfsDataSource(DataSource):
    """The data source ``logfs``. Spark makes one for every table or stream."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is given."""
        return "logfs"

    def schema(self) -> str:
        """Return the columns if the user names none; raise InvalidConfigError for JSON."""
        from logfs.errors import InvalidConfigError
        from logfs.spark.options import has_headers, is_of_json, is_of_partitions
        from logfs.spark.schema import full_schema

        if is_of_partitions(self.options):
            from logfs.spark.partitions import PARTITIONS_SCHEMA

            return PARTITIONS_SCHEMA
        if is_of_json(self.options):
            raise InvalidConfigError(
                'valueFormat=json needs a schema: .schema("id long, level string"), or that of '
                "infer_schema in logfs.spark.jsonvalues"
            )
        return full_schema(has_headers=has_headers(self.options))

    def reader(self, schema: "StructType") -> "LogfsReader | PartitionsReader":
        """Return what reads a table."""
        from logfs.spark.batch import LogfsReader
        from logfs.spark.options import is_of_partitions, parse_options

        options = parse_options(self.options, _zone(self.options), is_stream=False)
        if is_of_partitions(self.options):
            from logfs.spark.partitions import PartitionsReader

            return PartitionsReader(options, _fields(schema))
        return LogfsReader(options, *_columns(schema, self.options))

    def streamReader(self, schema: "StructType") -> "LogfsStreamReader":  # noqa: N802
        """Return what reads a stream."""
        from logfs.spark.options import parse_options
        from logfs.spark.streaming import LogfsStreamReader

        options = parse_options(self.options, _zone(self.options), is_stream=True)
        return LogfsStreamReader(options, *_columns(schema, self.options))

    def writer(self, schema: "StructType", overwrite: bool) -> "LogfsWriter":
        """Return what appends a table; raise InvalidConfigError if it is to be replaced."""
        from logfs.spark.sink import LogfsWriter
        from logfs.spark.target import parse_target

        target = parse_target(
            self.options, _fields(schema), _zone(self.options), is_overwritten=overwrite
        )
        return LogfsWriter(target)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "LogfsStreamWriter":  # noqa: N802
        """Return what appends the batches of a stream.

        In complete mode (``overwrite``) each batch is the whole result, and is appended as one.
        Source: Spark KafkaSourceProvider.createSink, which takes every mode and appends.
        """
        from logfs.spark.sink import LogfsStreamWriter
        from logfs.spark.target import parse_target

        del overwrite
        target = parse_target(
            self.options, _fields(schema), _zone(self.options), is_overwritten=False
        )
        return LogfsStreamWriter(target)


def _zone(options: Mapping[str, str]) -> "ServedZone":
    """Return the zone of dates without one: of several directories, that of the first."""
    from logfs.library.places import locate
    from logfs.library.zones import ServedZone

    first = (options.get("path") or "").split(",")[0].strip().removeprefix("file:")
    return ServedZone(lambda: locate(first))


def _columns(
    schema: "StructType", options: Mapping[str, str]
) -> "tuple[tuple[ArrowColumn, ...], JsonColumns | None]":
    """Return what is needed of the records, and the columns of a table of JSON values."""
    from logfs.spark.options import is_of_json

    if is_of_json(options):
        from logfs.spark.jsonvalues import json_columns

        found = json_columns(schema)
        return found.read, found
    from logfs.spark.schema import chosen

    return chosen(_fields(schema)), None


def _fields(schema: "StructType") -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
