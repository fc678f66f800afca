"""The columns of records as a table: those of Spark's Kafka source, in its order. Pure.

Columns that are not asked for are not decoded.

Source: Spark KafkaRecordToRowConverter.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from logfs.errors import InvalidConfigError
from logfs.records.columns import Columns


class ArrowColumn(NamedTuple):
    """One column: its name, its type in the words of Spark SQL, and what of a record it takes."""

    name: str
    kind: str
    takes: Columns


HEADERS = ArrowColumn("headers", "array<struct<key:string,value:binary>>", Columns.HEADERS)
PLAIN = (
    ArrowColumn("key", "binary", Columns.KEY),
    ArrowColumn("value", "binary", Columns.VALUE),
    ArrowColumn("topic", "string", Columns(0)),
    ArrowColumn("partition", "int", Columns(0)),
    ArrowColumn("offset", "bigint", Columns.OFFSET),
    ArrowColumn("timestamp", "timestamp", Columns.TIMESTAMP),
    ArrowColumn("timestampType", "int", Columns.TIMESTAMP_TYPE),
)
ALL = (*PLAIN, HEADERS)
BY_NAME = {column.name.lower(): column for column in ALL}
"""The columns by their names in lower case."""
BYTES = frozenset({"key", "value"})
"""Columns that can be read as text."""


def with_time(columns: Sequence[ArrowColumn]) -> tuple[ArrowColumn, ...]:
    """Return columns and the timestamp, by which partitions are merged."""
    time = BY_NAME["timestamp"]
    return (*columns, *(() if time in columns else (time,)))


def named(names: Iterable[str] | None) -> tuple[ArrowColumn, ...]:
    """Return columns by their names, all of them for None.

    Raises:
        InvalidConfigError: A name is unknown or there twice, or none is named.
        TypeError: It is a string, not a list of names.
    """
    if names is None:
        return ALL
    if isinstance(names, str):
        raise TypeError(f"columns={names!r}: expected a list of names, as in [{names!r}]")
    found: dict[str, ArrowColumn] = {}
    for name in names:
        column = BY_NAME.get(name.lower())
        if column is None:
            raise unknown_column(name)
        if column.name in found:
            raise InvalidConfigError(f"column {name} is named twice")
        found[column.name] = column
    if not found:
        raise InvalidConfigError("no columns are named: leave columns out for all of them")
    return tuple(found.values())


def texts(given: bool | Iterable[str]) -> frozenset[str]:
    """Return the names of the columns to read as text.

    Args:
        given: True: key and value; or names of these two.

    Raises:
        InvalidConfigError: A column of that name cannot be text, or is text anyway.
    """
    if isinstance(given, bool):
        return BYTES if given else frozenset()
    names = frozenset([given] if isinstance(given, str) else given)
    for name in sorted(names - BYTES):
        raise InvalidConfigError(f"text={name!r}: expected key, value or both")
    return names


def unknown_column(name: str) -> InvalidConfigError:
    """Return the error about a column that does not exist."""
    known = ", ".join(column.name for column in ALL)
    return InvalidConfigError(f"there is no column {name}: expected some of {known}")


def taken(columns: Sequence[ArrowColumn]) -> Columns:
    """Return what of the records is needed for some columns."""
    wanted = Columns(0)
    for column in columns:
        wanted |= column.takes
    return wanted
