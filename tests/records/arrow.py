"""The buffers of Arrow columns, decoded plainly."""

import struct

from logfs.records.columns import BytesColumn, HeadersColumn


def numbers(code: str, rows: int, data: bytes) -> list[int]:
    return list(struct.unpack_from(f"={rows}{code}", data))


def is_valid(bitmap: bytes | None, row: int) -> bool:
    return bitmap is None or bool(bitmap[row >> 3] >> (row & 7) & 1)


def strings(rows: int, column: BytesColumn) -> list[bytes | None]:
    ends = numbers("i", rows + 1, column.ends)
    assert ends[0] == 0
    return [
        column.data[ends[row] : ends[row + 1]] if is_valid(column.valid, row) else None
        for row in range(rows)
    ]


def lists(rows: int, column: HeadersColumn) -> list[tuple[tuple[bytes, bytes | None], ...] | None]:
    ends = numbers("i", rows + 1, column.ends)
    keys, values = strings(column.total, column.keys), strings(column.total, column.values)
    pairs = [(key or b"", value) for key, value in zip(keys, values, strict=True)]
    return [
        tuple(pairs[ends[row] : ends[row + 1]]) if is_valid(column.valid, row) else None
        for row in range(rows)
    ]
