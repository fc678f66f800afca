from typing import final

from logfs.records.compression import Buffer, Decompress

BytesParts = tuple[bytes | None, bytes, bytes]
HeadersParts = tuple[bytes | None, bytes, int, BytesParts, BytesParts]

@final
class ColumnBuilder:
    start_offset: int
    stop_offset: int
    def __init__(
        self,
        columns: int,
        max_rows: int,
        max_bytes: int,
        decompress: Decompress,
        aborted: Buffer = b"",
        max_column_bytes: int = ...,
        contains: bytes = ...,
    ) -> None: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def rows(self) -> int: ...
    def load(self, buf: Buffer, start: int, stop: int) -> None: ...
    def fill(self) -> int: ...
    def take(
        self,
    ) -> tuple[
        int,
        BytesParts | None,
        BytesParts | None,
        bytes | None,
        bytes | None,
        bytes | None,
        HeadersParts | None,
    ]: ...
