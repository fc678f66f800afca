"""Columns of records as Arrow's record batches, with the types that Spark insists on.

Source: Spark ArrowUtils.toArrowType; large_binary, views and dictionaries are refused.
"""

from collections.abc import Collection, Sequence
from itertools import count

import pyarrow as pa

from logfs.arrow.columns import ArrowColumn
from logfs.errors import UndecodableTextError
from logfs.records.columns import BytesColumn, HeadersColumn, RecordColumns
from logfs.types import TopicPartition

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(_HEADER),
}


def schema_of(columns: Sequence[ArrowColumn], text: Collection[str] = ()) -> pa.Schema:
    """Return the schema of record batches with some columns; those in ``text`` are strings."""
    names = [column.name for column in columns]
    return pa.schema([(name, pa.string() if name in text else _TYPES[name]) for name in names])


class BatchMaker:
    """Makes record batches of one partition.

    Args:
        text: The columns of bytes that are checked to be UTF-8 and become strings. The offsets have
            to be taken too.
    """

    def __init__(
        self,
        columns: Sequence[ArrowColumn],
        topic_partition: TopicPartition,
        text: Collection[str] = (),
    ) -> None:
        self._columns = columns
        self._text = text
        self._topic_partition = topic_partition
        self.schema = schema_of(columns, text)
        topic, partition = topic_partition
        self._constants = {
            "topic": pa.scalar(topic, pa.string()),
            "partition": pa.scalar(partition, pa.int32()),
        }
        self._repeated: dict[str, pa.Array] = {}

    def make(self, records: RecordColumns) -> pa.RecordBatch:
        """Return some records as a record batch; their buffers are not copied.

        Raises:
            UndecodableTextError: A key or value that is to be text is not UTF-8.
        """
        arrays = [self._array(column.name, records) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, records: RecordColumns) -> pa.Array:
        rows = records.rows
        if name in self._constants:
            return self._constant(name, rows)
        if name == "headers":
            return _headers(rows, records.headers)
        if name in {"key", "value"}:
            found = _bytes(rows, records.keys if name == "key" else records.values, pa.binary())
            return self._as_text(name, found, records) if name in self._text else found
        numbers = {
            "offset": records.offsets,
            "timestamp": records.timestamps,
            "timestampType": records.timestamp_types,
        }
        return pa.Array.from_buffers(_TYPES[name], rows, [None, pa.py_buffer(numbers[name])])

    def _as_text(self, name: str, found: pa.Array, records: RecordColumns) -> pa.Array:
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            row = next(n for n in count() if not _is_text(found[n].as_py()))
        offset = memoryview(records.offsets or b"").cast("q")[row]
        raise UndecodableTextError(
            f"{self._topic_partition}: the {name} at offset {offset} is not UTF-8. Read {name} as "
            "bytes: leave it out of text"
        )

    def _constant(self, name: str, rows: int) -> pa.Array:
        found = self._repeated.get(name)
        if found is None or len(found) < rows:
            found = self._repeated[name] = pa.repeat(self._constants[name], rows)
        return found.slice(0, rows)


def _bytes(rows: int, column: BytesColumn | None, kind: pa.DataType) -> pa.Array:
    if column is None:
        raise ValueError("the column was not taken")
    buffers = [_bitmap(column.valid), pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers)


def _is_text(data: bytes | None) -> bool:
    try:
        (data or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _headers(rows: int, column: HeadersColumn | None) -> pa.Array:
    if column is None:
        raise ValueError("the column was not taken")
    pairs = pa.Array.from_buffers(
        _HEADER,
        column.total,
        [None],
        children=[
            _bytes(column.total, column.keys, pa.string()),
            _bytes(column.total, column.values, pa.binary()),
        ],
    )
    buffers = [_bitmap(column.valid), pa.py_buffer(column.ends)]
    return pa.Array.from_buffers(_TYPES["headers"], rows, buffers, children=[pairs])


def _bitmap(valid: bytes | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(valid)
