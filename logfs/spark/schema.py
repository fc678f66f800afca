"""The columns of a table as Spark declares them: those of its Kafka source, in its order.

A schema given by the user is a choice of them: what it leaves out is not decoded.

Source: Spark KafkaRecordToRowConverter.
"""

from collections.abc import Iterable

from logfs.arrow.columns import ALL, BY_NAME, HEADERS, PLAIN, ArrowColumn, unknown_column
from logfs.errors import InvalidConfigError

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


def full_schema(*, has_headers: bool) -> str:
    """Return all columns as Spark writes a schema."""
    columns = ALL if has_headers else PLAIN
    return ", ".join(f"{column.name} {column.kind}" for column in columns)


def chosen(fields: Iterable[tuple[str, str]]) -> tuple[ArrowColumn, ...]:
    """Return the columns of a schema that a user may have given; raise InvalidConfigError."""
    columns = []
    for name, kind in fields:
        column = BY_NAME.get(name.lower())
        if column is None:
            raise InvalidConfigError(
                f"{unknown_column(name)}; with valueFormat=json a member of JSON values"
            )
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
        if allowed is None and name in BY_NAME:
            continue  # of a source, so that a copy needs no select
        if allowed is None:
            raise InvalidConfigError(
                f"a column {name} cannot be written: expected some of {', '.join(_WRITTEN)}"
            )
        if kind not in allowed:
            raise InvalidConfigError(
                f"column {name} is {kind}, not {' or '.join(allowed)}: cast it"
            )
