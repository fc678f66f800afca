"""Batches that a client has encoded are taken as they are: what may change, and what is refused."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError, UnparsableLineError
from logfs.records._encoding import encode_records, rebase_batches
from logfs.records.batch import BatchFields, decode_header, decode_records, encode_batch
from logfs.records.compression import Compression, decompress
from logfs.records.encoded import EncodedBatch, EncodeOptions, ProducerBatch
from logfs.records.record import Record
from tests.records.encoding import ANY_TIME
from tests.records.strategies import NOW_MS, codecs, make_record, record_numbers

THEIRS = dataclasses.replace(ANY_TIME, max_batch_bytes=6000)


def rebase(payload: bytes, options: EncodeOptions, base_offset: int = 77) -> list[EncodedBatch]:
    found = rebase_batches(payload, base_offset, NOW_MS, options, decompress)
    assert found is not None
    return found


def payload_of(records: list[Record], options: EncodeOptions = THEIRS) -> bytes:
    return b"".join(batch.data for batch in encode_records(records, 0, 0, options).batches)


@given(
    numbers=st.lists(record_numbers, min_size=1, max_size=12),
    append=st.booleans(),
    producer=st.sampled_from([None, ProducerBatch(7, 3, 2**31 - 2, True)]),
)
def test_it_is_what_encoding_there_would_have_made(
    numbers: list[int], append: bool, producer: ProducerBatch | None
) -> None:
    records = [make_record(0, number) for number in numbers]
    ours = dataclasses.replace(THEIRS, leader_epoch=4, log_append_time=append, producer=producer)
    expected = encode_records(records, 77, NOW_MS, ours).batches
    assert rebase(payload_of(records), ours) == expected


@given(numbers=st.lists(record_numbers, min_size=1, max_size=8), codec=codecs)
def test_a_compressed_batch_stays_compressed(numbers: list[int], codec: Compression) -> None:
    records = [make_record(0, number) for number in numbers]
    payload = payload_of(records, dataclasses.replace(ANY_TIME, compression=codec))
    [batch] = rebase(payload, dataclasses.replace(ANY_TIME, leader_epoch=9))
    header = decode_header(batch.data)
    assert header.compression == decode_header(payload).compression
    assert header.partition_leader_epoch == 9
    assert batch.data[61:] == payload[61:]
    assert decode_records(batch.data) == [
        record._replace(offset=77 + n) for n, record in enumerate(records)
    ]


def test_what_the_topic_would_have_stored_in_another_way_is_to_be_encoded_again() -> None:
    payload = payload_of([Record(0, NOW_MS, None, b"v" * 200)])
    for options in (
        dataclasses.replace(ANY_TIME, max_batch_bytes=len(payload) - 1),
        dataclasses.replace(ANY_TIME, compression=Compression.ZSTD),
    ):
        assert rebase_batches(payload, 0, NOW_MS, options, decompress) is None
    exact = dataclasses.replace(ANY_TIME, max_batch_bytes=len(payload))
    assert len(rebase(payload, exact)) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (dataclasses.replace(ANY_TIME, require_key=True), "record 3: this topic needs a key"),
        (dataclasses.replace(ANY_TIME, timestamp_after_max_ms=5), "record 4: timestamp 1700000000"),
    ],
)
def test_records_are_refused_by_their_number(options: EncodeOptions, reason: str) -> None:
    two = [Record(0, NOW_MS, b"k", b"v")] * 2
    wrong = [Record(0, NOW_MS, None, b"no key"), Record(0, NOW_MS + 9, b"k", b"late")]
    if not options.require_key:
        wrong[0] = two[0]
    with pytest.raises(UnparsableLineError, match=reason):
        rebase(payload_of(two) + payload_of(wrong), options)


def test_limits_of_timestamps_that_no_timestamp_reaches() -> None:
    payload = payload_of([Record(0, 2**63 - 1, None, b"v"), Record(0, -1, None, b"v")])
    assert len(rebase(payload, ANY_TIME)) == 1
    options = dataclasses.replace(ANY_TIME, timestamp_after_max_ms=2**63 - 1)
    assert len(rebase(payload, options)) == 1


def damaged(change: dict[str, object]) -> bytes:
    records = [Record(0, NOW_MS, None, b"a"), Record(1, NOW_MS, None, b"b")]
    return encode_batch(records, dataclasses.replace(BatchFields(), **change))  # type: ignore[arg-type]


GOOD = damaged({})


DAMAGED = {
    "noise": b"x" * 99,
    "cut": GOOD[:-1],
    "cut after": GOOD + GOOD[:70],
    "checksum": GOOD[:70] + b"\xff" + GOOD[71:],
    "control": damaged({"is_control": True}),
    "append time": damaged({"is_log_append_time": True}),
    "gap": encode_batch([Record(0, NOW_MS), Record(2, NOW_MS)]),
    "shifted": encode_batch(
        [Record(0, NOW_MS), Record(2, NOW_MS), Record(3, NOW_MS)], BatchFields(last_offset=2)
    ),
    "first": encode_batch([Record(5, NOW_MS)], BatchFields(base_offset=4)),
}


@pytest.mark.parametrize("payload", DAMAGED.values(), ids=DAMAGED)
def test_what_does_not_decode_is_not_taken(payload: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        rebase(payload, ANY_TIME)


def test_nothing_is_no_batch() -> None:
    assert rebase(b"", ANY_TIME) == []


@given(at=st.integers(0, 200), byte=st.integers(0, 255), fixed=st.booleans())
def test_any_bytes_are_taken_or_reported(at: int, byte: int, fixed: bool) -> None:
    from logfs.records.checksum import crc32c

    data = bytearray(payload_of([make_record(0, n * 997) for n in range(4)]))
    data[at % len(data)] = byte
    if fixed:
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    try:
        batches = rebase(bytes(data), ANY_TIME)
    except (CorruptRecordError, UnparsableLineError):
        return
    for batch in batches:
        records = decode_records(batch.data)
        assert [r.offset for r in records] == list(range(batch.base_offset, batch.last_offset + 1))
