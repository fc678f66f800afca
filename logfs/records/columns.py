"""Records as columns, in the memory layout of Arrow: what ``ColumnBuilder`` gives.

What ``RowEncoder`` and ``spread_rows`` take has the same layout. There, the columns come from
another library: each may begin in the middle of its buffers, and they are not trusted.

    column           buffers
    bytes            validity bitmap, int32 ends, data
    offsets          int64
    timestamps       int64, microseconds since the epoch; ms beyond what fits are the last that fit
    timestamp types  int32: 0 CreateTime, 1 LogAppendTime, -1 none (format v0)
    headers          validity bitmap, int32 ends; their number, their keys and values as bytes

Numbers are in the byte order of the machine. A validity bitmap has a bit for each row, 0 for null,
the first row in the lowest bit; None if no row is null. ``ends`` has one number more than there are
rows, the first is 0. A record without headers has null. Keys of headers are UTF-8; bytes that are
not have become U+FFFD. A buffer may be longer than what is in it.

Source: the Arrow columnar format, version 1.
"""

from enum import IntFlag
from typing import NamedTuple, Self

from logfs.records._columnar import ColumnBuilder
from logfs.records.compression import Buffer

FULL = 0
AT_STOP = 1
WINDOW_END = 2


class Columns(IntFlag):
    """Which columns are wanted."""

    KEY = 1
    VALUE = 2
    OFFSET = 4
    TIMESTAMP = 8
    TIMESTAMP_TYPE = 16
    HEADERS = 32


class BytesColumn(NamedTuple):
    """A column of byte strings."""

    valid: bytes | None
    ends: bytes
    data: bytes


class HeadersColumn(NamedTuple):
    """A column of lists of headers; ``total`` is the number of headers in all of them."""

    valid: bytes | None
    ends: bytes
    total: int
    keys: BytesColumn
    values: BytesColumn


class Strings(NamedTuple):
    """A column of byte strings to encode; ``first`` is the slot of row 0, as in the others."""

    valid: Buffer | None
    ends: Buffer
    data: Buffer
    first: int = 0


class Numbers(NamedTuple):
    """A column of numbers to encode."""

    valid: Buffer | None
    data: Buffer
    first: int = 0


class Lists(NamedTuple):
    """A column of headers to encode; ``ends`` count from the first of ``keys`` and ``values``."""

    valid: Buffer | None
    ends: Buffer
    keys: Strings
    values: Strings
    first: int = 0


class RecordColumns(NamedTuple):
    """Some records, column by column; None for what was not wanted."""

    rows: int
    keys: BytesColumn | None
    values: BytesColumn | None
    offsets: bytes | None
    timestamps: bytes | None
    timestamp_types: bytes | None
    headers: HeadersColumn | None

    @classmethod
    def taken(cls, builder: ColumnBuilder) -> Self:
        """Take the columns that a builder has collected."""
        rows, keys, values, offsets, timestamps, types, headers = builder.take()
        return cls(
            rows,
            None if keys is None else BytesColumn(*keys),
            None if values is None else BytesColumn(*values),
            offsets,
            timestamps,
            types,
            None if headers is None else _headers(*headers),
        )


def _headers(
    valid: bytes | None,
    ends: bytes,
    total: int,
    keys: tuple[bytes | None, bytes, bytes],
    values: tuple[bytes | None, bytes, bytes],
) -> HeadersColumn:
    return HeadersColumn(valid, ends, total, BytesColumn(*keys), BytesColumn(*values))
