"""Logs of messages of formats v0, v1 and v2, of brokers whose format was changed meanwhile."""

from collections.abc import Callable

from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import Compression
from logfs.records.record import Record
from tests.records.messages import message, wrapper
from tests.records.strategies import NOW_MS

COUNT = 240
SIZES = (1, 5, 2, 40)


def records_of(magic: int, first: int, count: int) -> list[Record]:
    return [
        Record(
            offset,
            -1 if magic == 0 else NOW_MS + 10 * offset - 25 * (offset % 3),
            None if offset % 4 == 0 else b"key %d" % (offset % 9),
            None
            if offset % 11 == 5
            else b"value %d of format %d " % (offset, magic) * (offset % 5),
        )
        for offset in range(first, first + count)
    ]


def encoded(magic: int, codec: Compression, records: list[Record]) -> bytes:
    if magic == 2:
        return encode_batch(records, BatchFields(codec, leader_epoch=0))
    if codec is Compression.NONE:
        return b"".join(message(magic, record) for record in records)
    return wrapper(magic, codec, records)


def upgraded(codec: Compression, magics: tuple[int, ...]) -> tuple[bytes, list[Record]]:
    """A log whose format was changed while it was written."""
    log, records = b"", list[Record]()
    while len(records) < COUNT:
        magic = magics[len(records) * len(magics) // COUNT]
        batch = records_of(magic, len(records), SIZES[len(log) % len(SIZES)])
        log += encoded(magic, codec, batch)
        records += batch
    return log, records


def append_time() -> tuple[bytes, list[Record]]:
    records = [r._replace(timestamp=NOW_MS + r.offset // 6) for r in records_of(1, 0, COUNT)]
    log = b""
    for at in range(0, COUNT, 6):
        batch = records_of(1, at, 6)
        log += wrapper(1, Compression.SNAPPY, batch, NOW_MS + at // 6)
    return log, records


LOGS: dict[str, Callable[[], tuple[bytes, list[Record]]]] = {
    "plain": lambda: upgraded(Compression.NONE, (0, 1, 2)),
    "gzip": lambda: upgraded(Compression.GZIP, (0, 1, 2)),
    "snappy": lambda: upgraded(Compression.SNAPPY, (0, 1, 2)),
    "lz4": lambda: upgraded(Compression.LZ4, (1, 2)),
    "old": lambda: upgraded(Compression.NONE, (0,)),
    "tail-v1": lambda: upgraded(Compression.GZIP, (0, 1)),
    "append-time": append_time,
}
"""The bytes of logs, and their records."""
