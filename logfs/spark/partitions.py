"""The partitions of data directories as a table: ``option("table", "partitions")``.

A row is a partition as a reader of records would see it now: where it begins and ends, and about
how many bytes of its log that is. The options that choose topics apply, and those of the path.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logfs.errors import InvalidConfigError
from logfs.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = {
    "topic": "string",
    "partition": "int",
    "startOffset": "bigint",
    "endOffset": "bigint",
    "bytes": "bigint",
}
PARTITIONS_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
"""All columns as Spark writes a schema."""


class PartitionsReader(DataSourceReader):
    """A ``DataSourceReader`` of one task.

    Args:
        fields: The columns that are wanted, with their types.

    Raises:
        InvalidConfigError: There is no such column, or it has another type.
    """

    def __init__(self, options: ReadOptions, fields: Iterable[tuple[str, str]]) -> None:
        self._options = options
        self._columns = []
        for name, kind in fields:
            if _COLUMNS.get(name) != kind:
                raise InvalidConfigError(
                    f"there is no column {name} {kind} of partitions: expected {PARTITIONS_SCHEMA}"
                )
            self._columns.append(name)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the one task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Look at the partitions."""
        import pyarrow as pa

        from logfs.library.stored_partitions import Directories

        del partition
        directories = Directories(self._options.roots, self._options.level)
        wanted = self._options.selection.choose(directories.partitions())
        rows = []
        for one, log in sorted(directories.refresh(wanted).items()):
            start, end = log.earliest(), log.latest()
            rows.append((*one, start, end, log.size_of(start, end)))
        types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64())
        found = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
        arrays = {
            name: pa.array(found.get(name, ()), kind)
            for name, kind in zip(_COLUMNS, types, strict=True)
        }
        yield pa.record_batch({name: arrays[name] for name in self._columns})
