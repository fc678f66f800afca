"""Records to Parquet, a file for each day (UTC) of their timestamps.

A row group is what of a day comes together in some tens of megabytes, so that a file is read as
quickly as Parquet can be. A range may have records of any number of days: what waits is bounded in
all, and so is the number of open files, of which the one that was used least recently is closed.
"""

import io
from collections.abc import Callable, Collection, Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logfs.arrow.batches import schema_of
from logfs.arrow.columns import ALL

COLUMNS = ALL
"""Those of Spark's Kafka source, as ``spark.read.format("logfs")`` has them."""

_FIELD_ID = b"PARQUET:field_id"
_LIST_ID, _HEADER_IDS = 9, (10, 11)

GROUP_BYTES = 64 << 20
"""Of Arrow's columns; in Parquet it is less."""
WAITING_BYTES = 256 << 20
OPEN_FILES = 64
_DAY_US = 86_400_000_000


class _Day:
    def __init__(self) -> None:
        self.writer: pq.ParquetWriter | None = None
        self.file: io.IOBase | None = None
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.files = 0


class DayFiles:
    """Writes records, day by day, to the file for a day and a number from 0.

    Args:
        open_file: Returns it; it is closed when it is whole.
    """

    def __init__(self, open_file: Callable[[str, int], io.IOBase], schema: pa.Schema) -> None:
        self._open_file = open_file
        self._schema = schema
        self._days: dict[int, _Day] = {}
        self._waiting_bytes = 0

    def write(self, records: pa.RecordBatch) -> None:
        """Write some records."""
        for number, part in by_day(records):
            day = self._days.pop(number, None) or _Day()
            self._days[number] = day  # the last one is the one used last
            day.waiting.append(part)
            day.waiting_bytes += part.nbytes
            self._waiting_bytes += part.nbytes
            if day.waiting_bytes >= GROUP_BYTES:
                self._flush(number)
        while self._waiting_bytes > WAITING_BYTES:
            self._flush(max(self._days, key=lambda number: self._days[number].waiting_bytes))

    def close(self) -> None:
        """Write the rest; the files are whole then."""
        for number in sorted(self._days):
            self._flush(number)
            self._close(self._days[number])

    def _flush(self, number: int) -> None:
        """Write what waits of a day as a row group."""
        day = self._days[number]
        if not day.waiting:
            return
        if day.writer is None:
            self._make_room()
            day.file = self._open_file(str(np.datetime64(number, "D")), day.files)
            day.writer = pq.ParquetWriter(
                day.file, self._schema, compression="zstd", write_page_checksum=True
            )
            day.files += 1
        # Rows of one group are together: none is larger than what waited.
        day.writer.write_table(pa.Table.from_batches(day.waiting), row_group_size=1 << 30)
        self._waiting_bytes -= day.waiting_bytes
        day.waiting, day.waiting_bytes = [], 0

    def _make_room(self) -> None:
        is_open = [day for day in self._days.values() if day.writer is not None]
        for day in is_open[: len(is_open) - OPEN_FILES + 1]:
            self._close(day)

    def _close(self, day: _Day) -> None:
        if day.writer is not None and day.file is not None:
            day.writer.close()
            day.file.close()
            day.writer = day.file = None


def file_schema(text: Collection[str]) -> pa.Schema:
    """Return the columns of a file, with the field ids that a new Iceberg table gives them.

    Columns from 1 on, then what is in headers. Readers of Iceberg find a column by its id, so a
    table may rename or drop it.

    Source: Iceberg specification, "Column Projection"; pyiceberg ``assign_fresh_schema_ids``.
    """
    fields = []
    for number, column in enumerate(schema_of(COLUMNS, text), 1):
        kind = column.type
        if pa.types.is_list(kind):
            pairs = zip(_HEADER_IDS, kind.value_type, strict=True)
            header = pa.struct([_with_id(field, each) for each, field in pairs])
            kind = pa.list_(_with_id(kind.value_field.with_type(header), _LIST_ID))
        fields.append(_with_id(column.with_type(kind), number))
    return pa.schema(fields)


def _with_id(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({_FIELD_ID: str(number).encode()})


def by_day(records: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Divide records by the day of their timestamps, counted from 1970; rows keep their order."""
    times = records.column("timestamp").view(pa.int64()).to_numpy(zero_copy_only=False)
    days = times // _DAY_US
    if not len(days):
        return
    if (days == days[0]).all():
        yield int(days[0]), records
        return
    for number in np.unique(days):
        yield int(number), records.take(pa.array(np.flatnonzero(days == number)))


def read_columns(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file, and check the checksums of its pages.

    Raises:
        pa.ArrowException, OSError, KeyError, ValueError: It is damaged, or lacks a column.
    """
    names = [column.name for column in COLUMNS]
    with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        for batch in parquet.iter_batches(columns=names):
            yield batch.select(names)
