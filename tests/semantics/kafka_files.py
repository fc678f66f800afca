"""Kafka's files read and written by libraries that know nothing of logfs."""

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords

with warnings.catch_warnings():
    # It reads its resources through functions that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Kafka's names in ``compression.type`` -> the number in a batch's attributes."""
KAFKA_PYTHON_READS = ("uncompressed", "gzip")
"""What it reads without further packages."""


class Found(NamedTuple):
    """One record as a library found it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_log(library: str, log: bytes) -> list[Found]:
    """Read a ``.log`` file, checking every checksum."""
    source: Any = (AiokafkaRecords if library == "aiokafka" else KafkaPythonRecords)(log)
    found = []
    while source.has_next():
        batch = source.next_batch()
        assert batch.validate_crc()
        found += [
            Found(r.offset, r.timestamp, _bytes(r.key), _bytes(r.value), _headers(r.headers))
            for r in batch
        ]
    assert source.size_in_bytes() == len(log)
    return found


def make_log(codec: str, records: list[Found], batch_records: int) -> bytes:
    """Make a ``.log`` file of records whose offsets follow each other."""
    log = b""
    for at in range(0, len(records), batch_records):
        batch = records[at : at + batch_records]
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=CODECS[codec],
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 20,
        )
        for number, record in enumerate(batch):
            assert builder.append(
                number,
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
            )
        # The base offset is given by the broker; the checksum does not cover it.
        log += batch[0].offset.to_bytes(8, "big") + bytes(builder.build())[8:]
    return log


def make_old_log(magic: int, codec: str, records: list[Found]) -> bytes:
    """Make a ``.log`` file of format v0 or v1, as Kafka before 0.10 and before 0.11 wrote them."""
    builder = LegacyRecordBatchBuilder(
        magic=magic, compression_type=CODECS[codec], batch_size=1 << 20
    )
    first = 0 if codec == "uncompressed" or magic == 0 else records[0].offset
    for record in records:
        assert builder.append(
            record.offset - first, timestamp=record.timestamp, key=record.key, value=record.value
        )
    log = bytes(builder.build())
    if codec == "uncompressed":
        return log
    # The offset of a compressed message is given by the broker; the checksum does not cover it.
    return records[-1].offset.to_bytes(8, "big") + log[8:]


def _bytes(data: "bytes | memoryview | None") -> bytes | None:
    return None if data is None else bytes(data)


def _headers(
    headers: Iterable[tuple[str, bytes | None]],
) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((key, _bytes(value)) for key, value in headers)
