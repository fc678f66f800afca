from collections.abc import Callable, Iterable
from typing import final

from logfs.records.compression import Buffer
from logfs.records.encoded import Encoded, EncodeOptions
from logfs.records.record import Record

Decompress = Callable[[int, Buffer], bytes]

def header_ok(buf: Buffer, position: int, limit: int) -> bool: ...
def next_batch(buf: Buffer, position: int, stop: int) -> int: ...
def find_offset(buf: Buffer, start: int, stop: int, offset: int) -> int: ...
def measure(
    buf: Buffer, start: int, stop: int, offset: int, decompress: Decompress
) -> tuple[int, int, int]: ...
def find_timestamp(
    buf: Buffer, start: int, stop: int, timestamp: int, decompress: Decompress
) -> tuple[int, int] | None: ...
def decode_payload(
    payload: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time: int | None,
) -> list[Record]: ...
def encode_lines(  # noqa: PLR0913 - one call per write request
    view: int,
    head: bytes,
    body: Buffer,
    start: int,
    stop: int,
    base_offset: int,
    now_ms: int,
    options: EncodeOptions,
) -> Encoded: ...
def encode_records(
    records: Iterable[Record], base_offset: int, now_ms: int, options: EncodeOptions
) -> Encoded: ...
def encode_payload(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes: ...
def unfinished_fits(view: int, length: int, options: EncodeOptions) -> bool: ...

@final
class IndexBuilder:
    base_offset: int
    index_interval_bytes: int
    file_position: int
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    first_timestamp: int
    last_time_entry: int
    bytes_since_entry: int
    text: int
    tsv: int
    jsonl: int
    max_leader_epoch: int
    leader_epochs: list[tuple[int, int]]
    batches: int
    records: int
    problem: str | None
    wanted: int
    def __init__(
        self, base_offset: int, index_interval_bytes: int, decompress: Decompress
    ) -> None: ...
    def restore(  # noqa: PLR0913 - all of its state
        self,
        *,
        file_position: int,
        next_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        first_timestamp: int,
        last_time_entry: int,
        text: int,
        tsv: int,
        jsonl: int,
        bytes_since_entry: int = 0,
        max_leader_epoch: int = -1,
    ) -> None: ...
    def add(  # noqa: PLR0913 - once per append
        self,
        batch_bytes_len: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: int,
        text: int,
        tsv: int,
        jsonl: int,
    ) -> bool: ...
    def feed(self, buf: Buffer, start: int, stop: int, verify: bool) -> int: ...
    def take(self) -> tuple[bytes, bytes, bytes]: ...
    def final_time_entry(self) -> bytes: ...

@final
class Renderer:
    stop_offset: int
    def __init__(self, view: int, decompress: Decompress) -> None: ...
    @property
    def view(self) -> int: ...
    @property
    def at_stop(self) -> bool: ...
    @property
    def exhausted(self) -> bool: ...
    @property
    def batch_position(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def load(self, buf: Buffer, start: int, stop: int) -> None: ...
    def release(self) -> None: ...
    def render(self, out: bytearray | memoryview, start: int, limit: int) -> int: ...
    def skip(self, n: int) -> int: ...
    def skip_to_offset(self, offset: int) -> int: ...
