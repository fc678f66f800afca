"""Messages of formats v0 and v1, as batches."""

import struct
import warnings
import zlib
from collections.abc import Callable

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaMessage
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._indexing import IndexBuilder
from logfs.records._reading import (
    find_offset,
    find_timestamp,
    first_offset,
    header_ok,
    measure,
    next_batch,
)
from logfs.records._rendering import Renderer
from logfs.records.batch import UNKNOWN_COUNT, decode_header, decode_records
from logfs.records.compression import Compression, compress, decompress
from logfs.records.legacy import mend_lz4
from logfs.records.record import Record
from logfs.types import View
from tests.records.messages import (
    APPEND_TIME,
    KAFKA_RECORDS,
    KAFKA_SETS,
    kafka_records,
    kafka_set,
    message,
    wrapper,
)
from tests.records.oracle import lengths, renderings

with warnings.catch_warnings():
    # It reads its resources through functions that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonMessage
    from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

FIRST, *_, LAST = KAFKA_RECORDS
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
RAW_MESSAGE = message(1, FIRST)


def positions(log: bytes) -> list[int]:
    found, position = [], 0
    while position < len(log):
        found.append(position)
        position += next_batch(log, position, len(log))
    return found


def records_of(log: bytes) -> list[Record]:
    return [record for at in positions(log) for record in decode_records(log, at)]


def rendered(view: View, log: bytes) -> bytes:
    renderer, out = Renderer(view, decompress), bytearray(10_000)
    renderer.load(log, 0, len(log))
    return bytes(out[: renderer.render(out, 0, len(out))])


def fed(log: bytes, base_offset: int = 0) -> IndexBuilder:
    builder = IndexBuilder(base_offset, 0, decompress)
    builder.feed(log, 0, len(log), True)
    return builder


def with_value(value: bytes | None, *, magic: int = 1, codec: int = 1, offset: int = 8) -> bytes:
    """A wrapper around any value."""
    return message(magic, Record(offset, FIRST.timestamp, None, value), codec)


def gzipped(*messages: bytes, magic: int = 1, offset: int = 8) -> bytes:
    value = compress(Compression.GZIP, b"".join(messages))
    return with_value(value, magic=magic, offset=offset)


@pytest.mark.parametrize(("magic", "codec", "append_time"), KAFKA_SETS)
def test_what_kafka_wrote(magic: int, codec: str, append_time: bool) -> None:
    log = kafka_set(magic, codec, append_time=append_time)
    records = kafka_records(magic, append_time=append_time)
    assert records_of(log) == records
    assert measure(log, 0, len(log), 2**62, decompress) == lengths(records)
    for view in View:
        assert rendered(view, log) == renderings(view, records)
    builder = fed(log)
    assert builder.problem is None
    assert builder.file_position == len(log)
    assert (builder.next_offset, builder.records) == (9, 4)
    assert builder.max_timestamp == max(record.timestamp for record in records)
    assert builder.leader_epochs == []
    assert first_offset(log, 0, len(log)) == 5
    for record in records:
        before = [r for r in records if r.offset < record.offset]
        assert measure(log, 0, len(log), record.offset, decompress) == lengths(before)
        at = find_offset(log, 0, len(log), record.offset)
        assert record in decode_records(log, at)
    assert find_offset(log, 0, len(log), 9) == len(log)


def test_the_header_of_a_message() -> None:
    plain = decode_header(message(0, FIRST))
    assert (plain.magic, plain.base_offset, plain.last_offset) == (0, 5, 5)
    assert (plain.max_timestamp, plain.base_timestamp, plain.record_count) == (-1, -1, 1)
    assert (plain.producer_id, plain.producer_epoch, plain.base_sequence) == (-1, -1, -1)
    assert plain.partition_leader_epoch == -1
    assert plain.crc == zlib.crc32(message(0, FIRST)[16:])
    packed = decode_header(kafka_set(1, "lz4", append_time=True))
    assert (packed.magic, packed.last_offset, packed.max_timestamp) == (1, 8, APPEND_TIME)
    assert (packed.compression, packed.record_count) == (Compression.LZ4, UNKNOWN_COUNT)
    assert packed.is_log_append_time
    assert not packed.is_transactional
    assert not packed.is_control


@pytest.mark.parametrize("magic", [0, 1])
def test_bits_that_mean_nothing_are_passed_over(magic: int) -> None:
    log = message(magic, FIRST, 0xF0 if magic else 0xF8)
    expected = kafka_records(magic)[0]
    assert records_of(log) == [expected]
    assert rendered(View.JSONL, log) == renderings(View.JSONL, [expected])
    assert not decode_header(log).is_control


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers(magic: int, codec: Compression) -> None:
    records = [Record(2**40 + 7 * n, n if magic else -1, b"k%d" % n, b"v" * n) for n in range(500)]
    log = wrapper(magic, codec, records)
    assert records_of(log) == records
    assert first_offset(log, 0, len(log)) == 2**40
    builder = fed(log, 2**40)
    assert (builder.problem, builder.next_offset) == (None, 2**40 + 7 * 499 + 1)


def test_snappy_without_its_frame() -> None:
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(message(1, FIRST._replace(offset=0))))
    assert records_of(with_value(raw, codec=Compression.SNAPPY, offset=5)) == [FIRST]


def test_the_header_checksum_of_old_lz4_frames() -> None:
    text = b"some text " * 20
    frame = compress(Compression.LZ4, text)
    damaged = frame[:6] + b"\x00" + frame[7:]
    with pytest.raises(CorruptRecordError):
        decompress(Compression.LZ4, damaged)
    assert mend_lz4(damaged) == frame
    # With the size of what it holds in it, as other libraries make it.
    sized = bytes.fromhex("04224d18684005000000000000006e0500008068656c6c6f00000000")
    mended = mend_lz4(sized)
    assert bytes(decompress(Compression.LZ4, mended)) == b"hello"
    for size in range(8):
        assert mend_lz4(sized[:size])[:6] == sized[:size][:6]
    # Of v1 it is right, and verified.
    with pytest.raises(CorruptRecordError, match="lz4"):
        records_of(with_value(damaged, codec=Compression.LZ4))


def test_the_offset_that_librdkafka_left_at_0() -> None:
    inner = [message(1, FIRST._replace(offset=n)) for n in range(3)]
    log = gzipped(*inner, offset=0)
    assert [record.offset for record in records_of(log)] == [0, 1, 2]
    assert fed(log).next_offset == 3
    assert find_offset(log, 0, len(log), 2) == 0
    assert find_offset(log, 0, len(log), 3) == len(log)
    assert len(rendered(View.TEXT, log)) == 18


def test_messages_of_another_format_inside() -> None:
    # KAFKA-4298: the wrapper decides how offsets count, each message how it is laid out.
    log = gzipped(message(0, FIRST._replace(offset=0)), message(1, LAST._replace(offset=3)))
    assert records_of(log) == [FIRST._replace(timestamp=-1), LAST]
    log = gzipped(message(1, FIRST), message(0, LAST), magic=0)
    assert records_of(log) == [FIRST, LAST._replace(timestamp=-1)]


def test_a_message_cut_inside_a_wrapper_ends_it() -> None:
    for size in (1, 17, 18, len(RAW_MESSAGE) - 1):
        log = gzipped(RAW_MESSAGE, RAW_MESSAGE[:size], offset=5)
        assert records_of(log) == [FIRST]
        assert rendered(View.TEXT, log) == b"first\n"


def test_lengths_below_minus_one_are_null() -> None:
    log = bytearray(message(1, Record(0, 1, None, None)))
    log[26:30] = struct.pack(">i", -7)
    log[12:16] = zlib.crc32(log[16:]).to_bytes(4, "big")
    assert records_of(bytes(log)) == [Record(0, 1, None, None)]


def too_long(field: int) -> bytes:
    data = bytearray(RAW_MESSAGE)
    data[field : field + 4] = (1000).to_bytes(4, "big")
    data[12:16] = zlib.crc32(data[16:]).to_bytes(4, "big")
    return bytes(data)


DAMAGED = {
    "key": (too_long(26), "record 0 of 1"),
    "value": (too_long(30), "record 0 of 1"),
    "crc": (RAW_MESSAGE[:-1] + b"x", "checksum differs"),
    "null": (with_value(None), "without a value"),
    "empty": (gzipped(b""), "holds no message"),
    "zstd": (with_value(b"x", codec=4), "codec 4 of format v1"),
    "codec": (with_value(b"x", codec=7, magic=0), "codec 7 of format v0"),
    "payload": (with_value(b"x"), "gzip"),
    "size": (gzipped(bytes(30)), "0 bytes and magic 0"),
    "v1 size": (gzipped(bytes(11) + b"\x0f" + bytes(4) + b"\x01" + bytes(20)), "15 bytes and"),
    "magic": (gzipped(bytes(11) + b"\x30" + bytes(4) + b"\x02" + bytes(50)), "magic 2"),
    "nested": (gzipped(gzipped(RAW_MESSAGE)), "is compressed"),
    "order": (gzipped(message(1, FIRST), message(1, FIRST)), "out of order"),
    "relative": (gzipped(message(1, FIRST), offset=4), "holds the relative offset 5"),
}


@pytest.mark.parametrize(("log", "problem"), DAMAGED.values(), ids=DAMAGED)
def test_damage(log: bytes, problem: str) -> None:
    with pytest.raises(CorruptRecordError, match=problem) as caught:
        decode_records(b"#" * 3 + log, 3)
    assert caught.value.position == 3
    builder = fed(message(0, Record(0, 0, None, b"")) + log)
    assert builder.batches == 1
    assert builder.problem
    with pytest.raises(CorruptRecordError):
        measure(log, 0, len(log), 2**62, decompress)
    with pytest.raises(CorruptRecordError):
        rendered(View.TEXT, log)


@pytest.mark.parametrize("magic", [0, 1])
def test_sizes_that_no_message_has(magic: int) -> None:
    least = 14 + 8 * magic
    log = bytearray(message(magic, Record(0, 0, None, None)))
    assert len(log) == 12 + least
    assert header_ok(bytes(log), 0, len(log))
    assert not header_ok(bytes(log), 0, len(log) - 1)
    assert not header_ok(bytes(log[:-1])[:25], 0, len(log))
    log[8:12] = (least - 1).to_bytes(4, "big")
    assert not header_ok(bytes(log), 0, 1000)
    for search in (next_batch, first_offset):
        with pytest.raises(CorruptRecordError, match="too small"):
            search(bytes(log), 0, len(log))
    with pytest.raises(CorruptRecordError, match="too small"):
        decode_header(bytes(log))
    log = bytearray(message(magic, Record(-1, 0, None, None)))
    with pytest.raises(CorruptRecordError, match="impossible: offset -1"):
        next_batch(bytes(log), 0, len(log))


def test_order_of_wrappers_is_checked_by_their_first_offset() -> None:
    late = wrapper(1, Compression.GZIP, KAFKA_RECORDS[1:])
    assert fed(message(1, FIRST) + late).problem is None
    builder = fed(message(1, FIRST) + message(1, KAFKA_RECORDS[1]) + late)
    assert builder.problem == "base offset 6 is below 7"
    assert builder.batches == 2
    assert fed(late, base_offset=7).problem == "base offset 6 is below 7"


def test_finding_a_moment_in_a_wrapper() -> None:
    log = kafka_set(1, "gzip") + message(1, Record(9, LAST.timestamp + 100, None, b"later"))
    start = FIRST.timestamp
    for ms, expected in [(0, 5), (1, 6), (7, 6), (8, 9), (101, 9)]:
        found = find_timestamp(log, 0, len(log), start + ms, decompress)
        assert found is not None
        assert found[0] == expected
    assert find_timestamp(log, 0, len(log), start + 102, decompress) is None


@given(magic=st.integers(0, 1), data=st.binary(max_size=120), flips=st.lists(st.integers(0, 150)))
def test_garbage_gives_an_answer_or_an_error(magic: int, data: bytes, flips: list[int]) -> None:
    def looked_at(log: bytes) -> None:
        size = len(log)
        calls: list[Callable[[], object]] = [
            lambda: next_batch(log, 0, size),
            lambda: find_offset(log, 0, size, 2**62),
            lambda: measure(log, 0, size, 2**62, decompress),
            lambda: find_timestamp(log, 0, size, -(2**63), decompress),
            lambda: first_offset(log, 0, size),
            lambda: header_ok(log, 0, size),
            lambda: decode_records(log),
            lambda: rendered(View.JSONL, log),
        ]
        for call in calls:
            try:
                call()
            except CorruptRecordError as error:
                assert error.position is not None  # noqa: PT017
        fed(log)

    def sealed(log: bytearray) -> bytes:
        log[12:16] = zlib.crc32(log[16:]).to_bytes(4, "big")
        return bytes(log)

    looked_at(gzipped(data, magic=magic))
    damaged = bytearray(kafka_set(magic, "gzip"))
    for flip in flips:
        damaged[flip % len(damaged)] ^= 1 << flip % 8
    looked_at(bytes(damaged))
    looked_at(sealed(damaged))
    inner = bytearray(RAW_MESSAGE * 2)
    for flip in flips:
        inner[flip % len(inner)] ^= 1 << flip % 8
    looked_at(gzipped(bytes(inner), magic=magic))


# Other libraries

ORACLES = [
    ("aiokafka", AiokafkaBuilder, AiokafkaMessage, 0, Compression.NONE),
    ("aiokafka", AiokafkaBuilder, AiokafkaMessage, 1, Compression.NONE),
    ("aiokafka", AiokafkaBuilder, AiokafkaMessage, 0, Compression.GZIP),
    ("aiokafka", AiokafkaBuilder, AiokafkaMessage, 1, Compression.SNAPPY),
    ("aiokafka", AiokafkaBuilder, AiokafkaMessage, 1, Compression.LZ4),
    ("kafka-python", KafkaPythonBuilder, KafkaPythonMessage, 0, Compression.NONE),
    ("kafka-python", KafkaPythonBuilder, KafkaPythonMessage, 1, Compression.GZIP),
]


@pytest.mark.parametrize(("name", "make", "read", "magic", "codec"), ORACLES)
def test_other_libraries_agree(
    name: str,
    make: Callable[..., AiokafkaBuilder],
    read: Callable[..., AiokafkaMessage],
    magic: int,
    codec: Compression,
) -> None:
    records = [Record(n, 1000 + n, b"k" * n or None, b"v" * 50 + b"%d" % n) for n in range(9)]
    builder = make(magic=magic, compression_type=codec, batch_size=1 << 20)
    for r in records:
        assert builder.append(r.offset, timestamp=r.timestamp, key=r.key, value=r.value)
    log = bytes(builder.build())
    if codec:
        log = (8).to_bytes(8, "big") + log[8:]  # given by the broker
    expected = records if magic else [r._replace(timestamp=-1) for r in records]
    assert records_of(log) == expected, name
    theirs = [
        (r.offset, r.timestamp, r.key, r.value)
        for at in positions(log)
        for r in read(bytearray(log[at : at + next_batch(log, at, len(log))]), magic)
    ]
    assert theirs == [(r.offset, r.timestamp if magic else None, r.key, r.value) for r in expected]
