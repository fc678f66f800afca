"""Our batches read by two other libraries, and theirs by us."""

import warnings
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy

from logfs.records._encoding import encode_records
from logfs.records._rendering import Renderer
from logfs.records.batch import BatchFields, decode_header, decode_records, encode_batch
from logfs.records.compression import Compression, decompress
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from logfs.types import View
from tests.records import oracle
from tests.records.strategies import NOW_MS

with warnings.catch_warnings():
    # It reads its resources through functions that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

# Header keys have to be UTF-8 for both, and kafka-python needs further packages for the other
# codecs.
RECORDS = [
    Record(0, NOW_MS, None, b"plain value"),
    Record(1, NOW_MS - 70_000, b"key", None, (("größe".encode(), b"\xff\x00"), (b"n", None))),
    Record(2, NOW_MS + 5, b"", b""),
    Record(3, NOW_MS + 2**40, b"k" * 70, b"x" * 70_000),
    *[Record(4 + i, NOW_MS + i, b"%d" % i, b"compressible text " * 3) for i in range(200)],
]

READERS = {
    "kafka-python": (KafkaPythonBatch, [Compression.NONE, Compression.GZIP]),
    "aiokafka": (AiokafkaBatch, list(Compression)),
    "aiokafka in Python": (_DefaultRecordBatchPy, list(Compression)),
}
WRITERS = {
    "kafka-python": (KafkaPythonBuilder, [Compression.NONE, Compression.GZIP]),
    "aiokafka": (AiokafkaBuilder, list(Compression)),
    "aiokafka in Python": (_DefaultRecordBatchBuilderPy, list(Compression)),
}


def pairs(
    table: dict[str, tuple[Callable[..., object], list[Compression]]],
) -> list[tuple[str, Compression]]:
    return [(name, codec) for name, (_, codecs) in table.items() for codec in codecs]


def theirs_to_ours(batch: object) -> list[Record]:
    return [
        Record(
            record.offset,
            record.timestamp,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple((key.encode(), value) for key, value in record.headers),
        )
        for record in batch  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize(("name", "codec"), pairs(READERS))
def test_they_read_what_we_write(name: str, codec: Compression) -> None:
    reader = READERS[name][0]
    options = EncodeOptions(
        1 << 20, compression=codec, leader_epoch=7, timestamp_after_max_ms=2**62
    )
    [encoded] = encode_records(RECORDS, 0, NOW_MS, options).batches
    for data in (encoded.data, encode_batch(RECORDS, BatchFields(codec))):
        batch = reader(bytearray(data))
        assert batch.validate_crc()
        assert batch.compression_type == codec
        assert batch.max_timestamp == NOW_MS + 2**40
        assert theirs_to_ours(batch) == RECORDS


@pytest.mark.parametrize(("name", "codec"), pairs(WRITERS))
def test_we_read_what_they_write(name: str, codec: Compression) -> None:
    builder = WRITERS[name][0](
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        headers = [(key.decode(), value) for key, value in record.headers]
        assert builder.append(record.offset, record.timestamp, record.key, record.value, headers)
    data = bytes(builder.build())
    assert decode_records(data) == RECORDS
    for view in View:
        renderer = Renderer(view, decompress)
        renderer.load(data, 0, len(data))
        out = bytearray(1 << 20)
        count = renderer.render(out, 0, len(out))
        assert bytes(out[:count]) == oracle.renderings(view, RECORDS)
    if codec is Compression.NONE:
        ours = encode_batch(
            RECORDS, BatchFields(leader_epoch=decode_header(data).partition_leader_epoch)
        )
        assert ours == data
