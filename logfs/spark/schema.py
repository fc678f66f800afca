"""The columns of a table: those of Spark's Kafka source, in its order.

A schema given by the user is a choice of them: what it leaves out is not decoded.

Source: Spark KafkaRecordToRowConverter.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from logfs.errors import InvalidConfigError
from logfs.records.columns import Columns


class SourceColumn(NamedTuple):
    """One column: its name, its type in Spark's short form, what of a record it takes."""

    name: str
    kind: str
    takes: Columns


HEADERS = SourceColumn("headers", "array<struct<key:string,value:binary>>", Columns.HEADERS)
PLAIN = (
    SourceColumn("key", "binary", Columns.KEY),
    SourceColumn("value", "binary", Columns.VALUE),
    SourceColumn("topic", "string", Columns(0)),
    SourceColumn("partition", "int", Columns(0)),
    SourceColumn("offset", "bigint", Columns.OFFSET),
    SourceColumn("timestamp", "timestamp", Columns.TIMESTAMP),
    SourceColumn("timestampType", "int", Columns.TIMESTAMP_TYPE),
)
WRITTEN: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("value", ("string", "binary"), "required; null in a compacted topic removes the key"),
    ("key", ("string", "binary"), ""),
    ("headers", (HEADERS.kind,), ""),
    ("topic", ("string",), "required if neither the path nor the option names one"),
    ("partition", ("int",), "null: where Kafka's default partitioner sends the key"),
    ("timestamp", ("timestamp",), "null: the time of writing"),
)
"""Columns that can be written: rows (name, types, meaning)."""
_WRITTEN = {name: kinds for name, kinds, _ in WRITTEN}
_BY_NAME = {column.name.lower(): column for column in (*PLAIN, HEADERS)}


def full_schema(*, has_headers: bool) -> str:
    """Return all columns as Spark writes a schema."""
    columns = (*PLAIN, HEADERS) if has_headers else PLAIN
    return ", ".join(f"{column.name} {column.kind}" for column in columns)


def chosen(fields: Iterable[tuple[str, str]]) -> tuple[SourceColumn, ...]:
    """Return the columns of a schema that a user may have given; raise InvalidConfigError."""
    columns = []
    for name, kind in fields:
        column = _BY_NAME.get(name.lower())
        if column is None:
            known = ", ".join(column.name for column in _BY_NAME.values())
            raise InvalidConfigError(f"there is no column {name}: expected some of {known}")
        if kind != column.kind:
            raise InvalidConfigError(f"column {name} is {column.kind}, not {kind}: cast it")
        columns.append(column)
    return tuple(columns)


def check_written(fields: Iterable[tuple[str, str]]) -> None:
    """Check the columns of what is to be written.

    Raises:
        InvalidConfigError: One is missing, unknown, or of another type.

    Source: Spark KafkaWriter.validateQuery.
    """
    kinds = {name.lower(): kind for name, kind in fields}
    if "value" not in kinds:
        raise InvalidConfigError("there is no column value: expected one, string or binary")
    for name, kind in kinds.items():
        allowed = _WRITTEN.get(name)
        if allowed is None:
            raise InvalidConfigError(
                f"a column {name} cannot be written: expected some of {', '.join(_WRITTEN)}"
            )
        if kind not in allowed:
            raise InvalidConfigError(
                f"column {name} is {kind}, not {' or '.join(allowed)}: cast it"
            )


def taken(columns: Sequence[SourceColumn]) -> Columns:
    """Return what of the records is needed for some columns."""
    wanted = Columns(0)
    for column in columns:
        wanted |= column.takes
    return wanted
