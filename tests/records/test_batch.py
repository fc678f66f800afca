import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records.batch import (
    BatchFields,
    BatchHeader,
    decode_header,
    decode_records,
    encode_batch,
)
from logfs.records.checksum import crc32c
from logfs.records.compression import Compression
from logfs.records.layout import HEADER_BYTES
from logfs.records.record import Record
from tests.records.strategies import codecs, record_lists, sealed

TIME = 1_700_000_000_000

PLAIN = bytes.fromhex(
    "00000000000000000000004c0000000302610ae70d0000000000010000018bcfe568000000018bcfe56805ffffffff"
    "ffffffffffffffffffff0000000214000000046b31047631001e000a02046b32010402680278026e01"
)
COMMIT_MARKER = bytes.fromhex(
    "000000000000000700000042000000030274471a4e0030000000000000018bcfe568000000018bcfe5680000000000"
    "000003e80002ffffffff000000012000000008000000010c00000000000900"
)
EMPTY = bytes.fromhex(
    "000000000000000a000000310000000302cfe0f109001000000004ffffffffffffffff0000018bcfe5680500000000"
    "000003e800020000001100000000"
)
TOMBSTONE_WITH_HORIZON = bytes.fromhex(
    "00000000000000140000003c0000000302b06ca6c80040000000000000018bd50bc4000000018bcfe56800ffffffff"
    "ffffffffffffffffffff000000011400ffefb25200026b0100"
)

GOLDEN = [
    (
        PLAIN,
        [
            Record(0, TIME, b"k1", b"v1"),
            Record(1, TIME + 5, b"k2", None, ((b"h", b"x"), (b"n", None))),
        ],
        BatchFields(leader_epoch=3),
    ),
    (
        COMMIT_MARKER,
        [Record(7, TIME, b"\0\0\0\1", b"\0\0\0\0\0\x09")],
        BatchFields(
            leader_epoch=3,
            producer_id=1000,
            producer_epoch=2,
            is_transactional=True,
            is_control=True,
        ),
    ),
    (
        EMPTY,
        [],
        BatchFields(
            leader_epoch=3,
            producer_id=1000,
            producer_epoch=2,
            base_sequence=17,
            is_transactional=True,
            base_offset=10,
            last_offset=14,
            max_timestamp=TIME + 5,
        ),
    ),
    (
        TOMBSTONE_WITH_HORIZON,
        [Record(20, TIME, b"k", None)],
        BatchFields(leader_epoch=3, delete_horizon_ms=TIME + 86_400_000),
    ),
]


@pytest.mark.parametrize(("data", "records", "fields"), GOLDEN, ids=["A", "B", "C", "D"])
def test_golden_vectors_both_ways(data: bytes, records: list[Record], fields: BatchFields) -> None:
    assert decode_records(data) == records
    assert encode_batch(records, fields) == data
    assert decode_records(b"##" + data + b"#", 2) == records


def test_checksum_vector() -> None:
    assert crc32c(b"Some String") == 608_512_271


def test_header_fields() -> None:
    header = decode_header(EMPTY)
    assert header == BatchHeader(10, 49, 3, 2, 0xCFE0F109, 0x10, 4, -1, TIME + 5, 1000, 2, 17, 0)
    assert (header.size_bytes, header.last_offset, header.next_offset) == (61, 14, 15)
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert header.compression is Compression.NONE
    assert header.delete_horizon_ms is None
    assert decode_header(COMMIT_MARKER).is_control
    assert decode_header(TOMBSTONE_WITH_HORIZON).delete_horizon_ms == TIME + 86_400_000
    with pytest.raises(CorruptRecordError, match="unknown compression codec 6"):
        assert dataclasses.replace(header, attributes=6).compression


@given(records=record_lists(first_offset=3, min_size=1), codec=codecs, append=st.booleans())
def test_records_come_back(records: list[Record], codec: Compression, append: bool) -> None:
    fields = BatchFields(codec, is_log_append_time=append, base_offset=2)
    data = encode_batch(records, fields)
    header = decode_header(data)
    assert header.compression is codec
    assert header.base_offset == 2
    assert header.last_offset == records[-1].offset
    largest = max(record.timestamp for record in records)
    assert header.max_timestamp == largest
    if append:
        records = [record._replace(timestamp=largest) for record in records]
    assert decode_records(data) == records


def test_a_batch_without_records_needs_offsets() -> None:
    for fields in (BatchFields(), BatchFields(base_offset=1), BatchFields(last_offset=1)):
        with pytest.raises(ValueError, match="needs base_offset and last_offset"):
            encode_batch([], fields)
    fields = BatchFields(Compression.ZSTD, base_offset=1, last_offset=1)
    assert len(encode_batch([], fields)) == HEADER_BYTES


@pytest.mark.parametrize("codec", Compression)
def test_every_bit_counts(codec: Compression) -> None:
    """A flipped bit is found, save in the bytes that the CRC does not cover."""
    records = [Record(300, TIME, b"key", b"value " * 3), Record(301, TIME + 1, None, None)]
    data = encode_batch(records, BatchFields(codec))
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            if position < 8:
                base_offset = int.from_bytes(damaged[:8], "big", signed=True)
                moved = [
                    record._replace(offset=base_offset + i) for i, record in enumerate(records)
                ]
                assert decode_records(damaged) == moved
            elif 12 <= position < 16:
                assert decode_records(damaged) == records
            else:
                with pytest.raises(CorruptRecordError) as caught:
                    decode_records(damaged)
                assert caught.value.position == 0


@pytest.mark.parametrize("data", [PLAIN, EMPTY, COMMIT_MARKER])
def test_every_cut_is_found(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(CorruptRecordError, match="cut") as caught:
            decode_records(b"#" + data[:size], 1)
        assert caught.value.position == 1


def with_payload(payload: bytes, count: int = 1, attributes: int = 0) -> bytes:
    header = bytearray(PLAIN[:HEADER_BYTES])
    header[22] = attributes
    header[57:61] = count.to_bytes(4, "big", signed=True)
    return sealed(bytes(header) + payload)


def test_a_record_by_hand() -> None:
    body = "00 0a 04 01 02 76 02 02 68 01"  # attributes, +5 ms, +2, null, "v", one header
    assert decode_records(with_payload(bytes.fromhex("14" + body))) == [
        Record(2, TIME + 5, None, b"v", ((b"h", None),))
    ]


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "00",  # length 0
        "01",  # length -1
        "0e 00 00 00 01 01 00",  # longer than the batch
        "0a 00 00 00 01 01 00",  # shorter than its fields
        "0c 00 00 00 03 01 00",  # key of length -2
        "0c 00 00 00 01 03 00",
        "0c 00 00 00 01 04 00",  # value longer than the record
        "0c 00 00 00 01 01 01",  # -1 headers
        "0c 00 00 00 01 01 02",  # a header that is not there
        "10 00 00 00 01 01 02 01 01",  # header key null
        "0e 00 00 00 01 01 02 00",  # header without value
        "0e 00 00 00 01 01 00 00",  # a byte too many in the record
        "0c 00 00 00 01 01 00 00",  # a byte too many after it
        "14 00 00 80 80 80 80 80 00 01 01 00",  # varint of 6 bytes
        "22 00 80 80 80 80 80 80 80 80 80 80 00 00 01 01 00",  # varlong of 11
        "8c 80 80 80 80 00 00 00 00 01 01 00",
    ],
)
def test_records_that_do_not_decode(payload: str) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        decode_records(with_payload(bytes.fromhex(payload)))
    assert caught.value.position == 0


def test_a_record_ends_where_its_length_says() -> None:
    """Here the first record's length takes in the second, which would decode where it is."""
    payload = bytes.fromhex("1a 00 00 00 01 01 00  0c 00 00 02 01 01 00")
    with pytest.raises(CorruptRecordError):
        decode_records(with_payload(payload, 2))


def test_odd_records_that_kafka_reads() -> None:
    plain = [Record(0, TIME)]
    for payload in (
        "0c 00 00 00 01 01 00",
        "0c ff 00 00 01 01 00",  # attributes are not looked at
        "8c 00 00 00 00 01 01 00",  # a varint longer than it must be
        "8c 80 80 80 70 00 00 00 01 01 00",  # bits beyond 32 are dropped
        "14 00 00 80 80 80 80 70 01 01 00",
    ):
        assert decode_records(with_payload(bytes.fromhex(payload))) == plain


def test_counts_that_do_not_fit() -> None:
    payload = bytes.fromhex("0c000000010100")
    for count in (2, 2**31 - 1, -1):
        with pytest.raises(CorruptRecordError):
            decode_records(with_payload(payload, count))
    assert decode_records(with_payload(payload, 0)) == []


def test_codecs_that_do_not_exist() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CorruptRecordError, match=f"unknown compression codec {codec}"):
            decode_records(with_payload(b"", attributes=codec))


def test_other_magics_are_not_guessed_at() -> None:
    for magic in (3, 127, 255):
        damaged = bytearray(PLAIN)
        damaged[16] = magic
        with pytest.raises(CorruptRecordError, match="unsupported magic"):
            decode_header(damaged)


@given(payload=st.binary(max_size=60), count=st.integers(-1, 4), attributes=st.integers(0, 127))
def test_any_payload_gives_records_or_an_error(payload: bytes, count: int, attributes: int) -> None:
    data = with_payload(payload, count, attributes)
    try:
        assert len(decode_records(data)) == count
    except CorruptRecordError as error:
        assert error.position == 0  # noqa: PT017


@given(data=st.binary(max_size=150), position=st.integers(-5, 160))
def test_any_bytes_give_records_or_an_error(data: bytes, position: int) -> None:
    try:
        decode_records(data, position)
    except CorruptRecordError as error:
        assert error.position == position  # noqa: PT017
