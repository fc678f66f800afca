from collections.abc import Callable
from typing import final, overload

from logfs.records.compression import Buffer, Decompress

Parse = Callable[[int, bytes | None, bytes | None], tuple[bytes | None, bytes | None]]

@overload
def java_text(text: None) -> None: ...
@overload
def java_text(text: Buffer) -> bytes: ...
@overload
def java_text(text: Buffer | None) -> bytes | None: ...
def largest_timestamp(buf: Buffer, start: int, stop: int, decompress: Decompress) -> int: ...

@final
class Dumper:
    position: int
    last_offset: int
    invalid: int
    def __init__(
        self,
        *,
        records: bool,
        metadata: bool,
        payloads: bool,
        decompress: Decompress,
        control: Callable[[bytes | None, bytes | None], bytes],
        parse: Parse | None = None,
    ) -> None: ...
    @property
    def gaps(self) -> list[tuple[int, int]]: ...
    def feed(self, buf: Buffer, start: int, stop: int) -> int: ...
    def drain(self, write: Callable[[memoryview], object]) -> None: ...
