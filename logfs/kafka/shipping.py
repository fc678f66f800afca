"""From stored batches to the batches that are sent: which records go where, and how. Pure.

A large batch goes out as it is; only its offsets, its producer and its checksum are other ones.
Small batches are merged, and what was compacted, aborted, or written in an old format is encoded
again. Keys, headers, nulls and timestamps stay in any case.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from logfs.errors import LogfsError
from logfs.records._encoding import encode_records, rebase_batches
from logfs.records._reading import aborted_ranges, decode_batches
from logfs.records.batch import BatchHeader, decode_header
from logfs.records.compression import Compression, decompress
from logfs.records.encoded import Encoded, EncodeOptions, ProducerBatch
from logfs.records.layout import COMPRESSION_MASK, LOG_APPEND_TIME_MASK, MAGIC, size_of
from logfs.records.partitioner import partition_for_key
from logfs.records.produced import MAX_SEQUENCE
from logfs.records.record import Record
from logfs.services.clusters.batches import Piece

_ANY_TIME = 2**63 - 1
_AS_IT_IS_BYTES = 32 * 1024
"""Smaller batches are merged, if more than one is there."""
_MERGED_BYTES = 512 * 1024
"""About how many bytes of small batches are decoded at once."""


@dataclass(slots=True)
class Shaping:
    """How batches are made.

    Attributes:
        producer_id, producer_epoch: The producer id and epoch of the batches.
        most_bytes: Largest batch that the destination takes.
        compression: Codec of all batches; None: each has the one that it has here.
        is_stamped: Records get the time at which they are made into batches.
    """

    producer_id: int
    producer_epoch: int
    most_bytes: int
    compression: Compression | None = None
    is_stamped: bool = False


class Shipment(NamedTuple):
    """A batch to send.

    Attributes:
        first, last: Local offsets of its first and last record.
        records: How many it has.
        newest: Its largest timestamp.
    """

    data: bytes
    first: int
    last: int
    records: int
    newest: int


class RefusedRecordError(Exception):
    """A record that does not fit any batch; ``offset`` is its local one."""

    def __init__(self, offset: int, why: LogfsError) -> None:
        super().__init__(f"offset {offset}: {why}")
        self.offset = offset


class Part(NamedTuple):
    """A part of a piece.

    Attributes:
        whole: A batch that goes out as it is; None: ``records`` are encoded.
        codec: The codec of the first batch that the records are from.
        end: Local offset after all that was looked at.
    """

    whole: bytes | None
    header: BatchHeader | None
    records: list[Record]
    codec: Compression
    end: int


def parts_of(piece: Piece, shaping: Shaping) -> Iterator[Part]:
    """Divide a piece into large batches that go out as they are, and runs of others."""
    buffer, at, first = piece.buffer, piece.start, piece.first
    while at < piece.stop:
        size = size_of(buffer, at)
        header = decode_header(buffer, at)
        is_alone = at + size >= piece.stop
        if (size >= _AS_IT_IS_BYTES or is_alone) and _may_stay(header, size, first, shaping):
            whole = bytes(memoryview(buffer)[at : at + size])
            if not _is_aborted(piece, at, size):
                at, first = at + size, header.last_offset + 1
                yield Part(whole, header, [], Compression.NONE, first)
                continue
        stop = at + size
        while stop < piece.stop and stop - at < _MERGED_BYTES:
            size = size_of(buffer, stop)
            if size >= _AS_IT_IS_BYTES:
                break
            stop += size
        # After damage a later call raises the error.
        records, at, first = decode_batches(
            buffer, at, stop, first, piece.end, decompress, piece.aborted
        )
        codec = Compression(max(header.attributes, 0) & COMPRESSION_MASK)
        yield Part(None, None, records, codec, first)


def shipments_of(
    part: Part, ordinal: int, shaping: Shaping, records: list[Record] | None = None
) -> Iterator[Shipment]:
    """Make batches of a part, or of some of its records.

    Args:
        part: From ``parts_of``.
        ordinal: Number of the first record among all that go to a partition.
        shaping: How.
        records: Those of the part that go to a partition; None: all.

    Raises:
        RefusedRecordError: A record is too large, after the batches before it.
    """
    if part.whole is not None and records is None and part.header is not None:
        found = rebase_batches(part.whole, 0, 0, _options(shaping, ordinal), decompress)
        if found:
            header = part.header
            yield Shipment(
                found[0].data,
                header.base_offset,
                header.last_offset,
                header.record_count,
                found[0].max_timestamp,
            )
            return
    if records is None:
        records = part.records if part.whole is None else records_of(part)
    done = 0
    while done < len(records):
        options = _options(shaping, ordinal + done, part.codec)
        left = records[done:]
        if shaping.is_stamped:
            now_ms = round(time.time() * 1000)
            left = [record._replace(timestamp=now_ms) for record in left]
        encoded: Encoded = encode_records(left, 0, 0, options)
        start = 0
        for batch, end in zip(encoded.batches, encoded.ends, strict=True):
            first, last = left[start].offset, left[end - 1].offset
            data = bytes(8) + batch.data[8:]  # brokers take batches with base offset 0 only
            yield Shipment(data, first, last, end - start, batch.max_timestamp)
            start = end
        done += start
        if encoded.refusal is not None:
            raise RefusedRecordError(records[done].offset, encoded.refusal)


def records_of(part: Part) -> list[Record]:
    """Return the records of a part, also of a batch that would go out as it is."""
    if part.whole is None:
        return part.records
    return decode_batches(part.whole, 0, len(part.whole), 0, _ANY_TIME, decompress, b"")[0]


def partition_for(record: Record, count: int) -> int:
    """Return the partition of a record: by its key as Kafka's producers do, else by its offset."""
    if record.key is None:
        return record.offset % count
    return partition_for_key(record.key, count)


def codec_of(name: str) -> Compression | None:
    """Return a codec by its name; None for ``producer``: batches keep the one that they have."""
    return None if name == "producer" else Compression[name.upper()]


def _may_stay(header: BatchHeader, size: int, first: int, shaping: Shaping) -> bool:
    """Whether a batch can go out as it is."""
    return (
        header.magic == MAGIC
        and not header.is_control
        and header.base_offset >= first
        and header.record_count == header.last_offset_delta + 1
        and not header.attributes & LOG_APPEND_TIME_MASK
        and size <= shaping.most_bytes
        and not shaping.is_stamped
        and (
            shaping.compression is None
            or header.attributes & COMPRESSION_MASK == shaping.compression
        )
    )


def _is_aborted(piece: Piece, at: int, size: int) -> bool:
    return bool(piece.aborted) and bool(aborted_ranges(piece.buffer, at, at + size, piece.aborted))


def _options(shaping: Shaping, ordinal: int, codec: Compression | None = None) -> EncodeOptions:
    chosen = shaping.compression
    if chosen is None:
        chosen = Compression.NONE if codec is None else codec
    return EncodeOptions(
        shaping.most_bytes,
        leader_epoch=-1,
        compression=chosen,
        timestamp_after_max_ms=_ANY_TIME,
        producer=ProducerBatch(
            shaping.producer_id, shaping.producer_epoch, ordinal % (MAX_SEQUENCE + 1)
        ),
    )
