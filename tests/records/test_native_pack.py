"""The native half of packing: fewer, compressed batches with the same records."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._indexing import IndexBuilder
from logfs.records._packing import BatchPacker
from logfs.records.batch import (
    BatchFields,
    BatchHeader,
    decode_header,
    decode_records,
    encode_batch,
)
from logfs.records.compression import Compression, decompress
from logfs.records.record import Record
from tests.records.compacting import batches
from tests.records.messages import KAFKA_SETS, kafka_set


def pack(log: bytes, most_bytes: int = 1000, piece: int = 1 << 20) -> tuple[bytes, BatchPacker]:
    """Pack a segment in pieces, and compare its indexes with those of a recovery scan."""
    builder = IndexBuilder(0, 100, decompress)
    packer = BatchPacker(builder, Compression.ZSTD, None, most_bytes, decompress)
    at, parts, indexes = 0, [], [b"", b"", b""]
    while at < len(log):
        used = packer.feed(log, at, min(at + piece, len(log)))
        piece = piece if used > at else 2 * piece
        at = used
        if at == len(log):
            packer.finish()
        data, *entries = packer.take()
        parts.append(data)
        indexes = [index + more for index, more in zip(indexes, entries, strict=True)]
    packed = b"".join(parts)
    again = IndexBuilder(0, 100, decompress)
    assert again.feed(packed, 0, len(packed), True) == len(packed), again.problem
    assert indexes == [*again.take()]
    assert builder.next_offset == again.next_offset
    assert (builder.text, builder.tsv, builder.jsonl) == (again.text, again.tsv, again.jsonl)
    assert packer.bytes_written == len(packed)
    return packed, packer


def batches_of(log: bytes) -> list[tuple[BatchHeader, bytes]]:
    found, at = [], 0
    while at < len(log):
        header = decode_header(log, at)
        found.append((header, log[at : at + header.size_bytes]))
        at += header.size_bytes
    return found


def records_of(log: bytes) -> list[Record]:
    return [record for _, batch in batches_of(log) for record in decode_records(batch, 0)]


def lines(count: int, first: int = 0, fields: BatchFields | None = None) -> bytes:
    """Batches of one record each, as a program makes them that writes line by line."""
    return b"".join(
        encode_batch(
            [Record(n, 1000 + n, None, b"GET /index.html HTTP/1.1 200 %d" % n, ())],
            replace(fields or BatchFields(), base_offset=n),
        )
        for n in range(first, first + count)
    )


@given(batches(), st.integers(1, 2000), st.integers(61, 4000))
def test_every_record_stays_as_it_is(log: list[bytes], most_bytes: int, piece: int) -> None:
    whole = b"".join(log)
    packed, packer = pack(whole, most_bytes, piece)
    assert records_of(packed) == records_of(whole)
    assert len(packed) <= len(whole)
    assert packer.bytes_read == len(whole)
    assert packer.batches_read == len(log)
    if not packer.changes:
        assert packed == whole


def test_lines_of_a_program_become_few_compressed_batches() -> None:
    log = lines(1000)
    packed, packer = pack(log, 64 * 1024)
    assert records_of(packed) == records_of(log)
    assert len(packed) < len(log) / 10
    found = [header for header, _ in batches_of(packed)]
    assert len(found) == packer.changes == 1
    assert found[0].compression is Compression.ZSTD
    assert (found[0].max_timestamp, found[0].last_offset, found[0].record_count) == (
        1999,
        999,
        1000,
    )


def test_a_merged_batch_has_no_more_bytes_than_allowed() -> None:
    packed, _ = pack(lines(1000), 1000)
    sizes = [
        len(decompress(header.compression, batch[61:])) for header, batch in batches_of(packed)
    ]
    assert max(sizes) <= 1000 < max(sizes) + 60


def test_leader_epochs_stay_with_their_records() -> None:
    log = lines(10, 0, BatchFields(leader_epoch=1)) + lines(10, 10, BatchFields(leader_epoch=2))
    packed, _ = pack(log)
    assert [(h.partition_leader_epoch, h.record_count) for h, _ in batches_of(packed)] == [
        (1, 10),
        (2, 10),
    ]


def test_batches_of_producers_and_transactions_are_copied() -> None:
    producer = BatchFields(producer_id=7, producer_epoch=0, base_sequence=0)
    theirs = lines(3, 10, producer)
    log = lines(10) + theirs + lines(10, 13)
    packed, _ = pack(log)
    found = [batch for _, batch in batches_of(packed)]
    assert len(found) == 5
    assert b"".join(found[1:4]) == theirs


def test_a_gap_between_offsets_is_not_closed() -> None:
    log = lines(10) + lines(10, 12)
    packed, _ = pack(log)
    assert [(h.base_offset, h.last_offset) for h, _ in batches_of(packed)] == [(0, 9), (12, 21)]


@pytest.mark.parametrize(
    ("magic", "codec", "append_time"), [name for name in KAFKA_SETS if name[0] < 2]
)
def test_messages_of_old_formats_are_copied(magic: int, codec: str, append_time: bool) -> None:
    log = kafka_set(magic, codec, append_time=append_time)
    packed, packer = pack(log)
    assert packer.changes == 0
    assert packed == log


def test_what_does_not_compress_stays_as_it_was() -> None:
    noise = hashlib.shake_128(b"noise").digest(400)
    log = encode_batch([Record(0, 1, None, noise, ())], BatchFields(base_offset=0))
    assert pack(log)[0] == log


def test_damage_is_named_with_its_position() -> None:
    log = bytearray(lines(3))
    log[-1] ^= 1
    builder = IndexBuilder(0, 100, decompress)
    packer = BatchPacker(builder, Compression.ZSTD, None, 1000, decompress)
    with pytest.raises(CorruptRecordError, match="checksum differs") as caught:
        packer.feed(log, 0, len(log))
    assert caught.value.position == len(lines(2))
