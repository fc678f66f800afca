from collections.abc import Callable, Iterable

from logfs.records.compression import Buffer, Decompress
from logfs.records.record import Record

def header_ok(buf: Buffer, position: int, limit: int) -> bool: ...
def header_last_offset(buf: Buffer, position: int) -> int: ...
def next_batch(buf: Buffer, position: int, stop: int) -> int: ...
def first_offset(buf: Buffer, position: int, stop: int) -> int: ...
def find_offset(buf: Buffer, start: int, stop: int, offset: int) -> int: ...
def whole_batches(
    buf: Buffer, start: int, stop: int, after: int, verify: bool = False
) -> tuple[int, int, str | None]: ...
def has_right_checksum(buf: Buffer, start: int, stop: int) -> bool: ...
def batch_run(buf: Buffer, start: int, stop: int, limit: int) -> tuple[int, int, int]: ...
def last_offset(buf: Buffer, start: int, stop: int) -> int: ...
def measure(
    buf: Buffer, start: int, stop: int, offset: int, decompress: Decompress
) -> tuple[int, int, int]: ...
def find_timestamp(
    buf: Buffer,
    start: int,
    stop: int,
    timestamp: int,
    decompress: Decompress,
    aborted: Buffer = b"",
) -> tuple[int, int] | None: ...
def aborted_ranges(
    buf: Buffer, start: int, stop: int, aborted: Buffer
) -> list[tuple[int, int, int, int]]: ...
def decode_payload(
    payload: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None,
) -> list[Record]: ...

class RecordSearch:
    def __init__(
        self,
        needles: Iterable[bytes] = (),
        keys: Iterable[bytes] = (),
        headers: Iterable[tuple[bytes, bytes]] = (),
        fields: Iterable[tuple[tuple[bytes, ...], bytes]] = (),
        confirm: Callable[[bytes], object] | None = None,
        always_confirms: bool = False,
        expression: bytes | None = None,
    ) -> None: ...
    @property
    def is_native(self) -> bool: ...

def decode_batches(
    buf: Buffer,
    start: int,
    stop: int,
    first: int,
    end: int,
    decompress: Decompress,
    aborted: Buffer = b"",
    search: RecordSearch | None = None,
) -> tuple[list[Record], int, int]: ...
def matched_lines(
    buf: Buffer,
    start: int,
    stop: int,
    first: int,
    end: int,
    decompress: Decompress,
    aborted: Buffer,
    search: RecordSearch,
    view: int,
) -> tuple[bytes, int, int]: ...
def decode_messages(batch: Buffer, decompress: Decompress) -> list[Record]: ...
