from collections.abc import Iterable
from typing import final

from logfs.records.compression import Buffer, Decompress
from logfs.records.encoded import Encoded, EncodedBatch, EncodeOptions
from logfs.records.record import Record

StringsParts = tuple[Buffer | None, Buffer, Buffer, int]
NumbersParts = tuple[Buffer | None, Buffer, int]
ListsParts = tuple[Buffer | None, Buffer, StringsParts, StringsParts, int]

encode_function: object
"""A capsule of ``lf_encode``, for native threads; see ``_logend.h``."""

def encode_lines(
    view: int,
    head: Buffer,
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
def rebase_batches(
    payload: Buffer, base_offset: int, now_ms: int, options: EncodeOptions, decompress: Decompress
) -> list[EncodedBatch] | None: ...
def encode_payload(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes: ...
def unfinished_fits(view: int, length: int, options: EncodeOptions) -> bool: ...
def murmur2(key: bytes) -> int: ...
def partition_lines(
    view: int,
    delimiter: bytes,
    body: Buffer,
    start: int,
    stop: int,
    partitions: int,
    unkeyed: int,
) -> list[bytearray]: ...

@final
class RowEncoder:
    def __init__(self, now_ms: int, options: EncodeOptions) -> None: ...
    def put(
        self,
        keys: StringsParts | None,
        values: StringsParts | None,
        timestamps: NumbersParts | None,
        headers: ListsParts | None,
        rows: Buffer | None,
        count: int,
    ) -> None: ...
    def take(self, *, last: bool) -> list[EncodedBatch]: ...

def spread_rows(
    keys: StringsParts | None,
    given: NumbersParts | None,
    rows: Buffer | None,
    count: int,
    partitions: int,
    unkeyed: int,
) -> list[bytes]: ...
