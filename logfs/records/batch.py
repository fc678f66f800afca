"""Record batches, format v2: whole batches to records and back. ``layout`` describes the header.

A record: length varint, attributes int8 (0), timestamp delta varlong, offset delta varint, key,
value, header count varint, headers; bytes are a varint length (-1: null) and that many bytes.
Varints are zig-zag. The loops over records are native code.

Messages of formats v0 and v1 are read as batches, too: see ``legacy``.

Source: Kafka DefaultRecordBatch, DefaultRecord.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from logfs.errors import CorruptRecordError
from logfs.records._encoding import encode_payload
from logfs.records._reading import decode_messages, decode_payload
from logfs.records.checksum import crc32c
from logfs.records.compression import Buffer, Compression, compress, decompress
from logfs.records.layout import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_AT,
    CRC_START,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_MASK,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_MASK,
)
from logfs.records.record import Record
from logfs.types import NO_TIMESTAMP

MIN_BATCH_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES


NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")

_MESSAGE = struct.Struct(">qiIbb")
_MESSAGE_TIMESTAMP = struct.Struct(">q")
_MESSAGE_OVERHEAD_BYTES = (26, 34)
_MESSAGE_CRC_START = 16
_MESSAGE_ATTRIBUTES = (COMPRESSION_MASK, COMPRESSION_MASK | LOG_APPEND_TIME_MASK)
UNKNOWN_COUNT = -1


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The 61 bytes of a batch header, as they stand there; see the module for the fields.

    A message of format v0 or v1 (see ``magic``) has -1 in the fields that it lacks. In a
    compressed one the base offset is that of the last message inside, and the record count is
    ``UNKNOWN_COUNT``.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record it was written with, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after it."""
        return self.last_offset + 1

    @property
    def compression(self) -> Compression:
        """Codec of the records; raise CorruptRecordError if no codec has this number."""
        return Compression.of(self.attributes & COMPRESSION_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Whether max timestamp is the timestamp of every record."""
        return bool(self.attributes & LOG_APPEND_TIME_MASK)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, which no consumer sees."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop its tombstones or marker; None if that is not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


@dataclass(frozen=True, slots=True)
class BatchFields:
    """What a batch says beside its records; the defaults are a plain producer's.

    Attributes:
        compression: Codec; a batch without records is never compressed.
        compression_level: In the codec's own scale; None is Kafka's default.
        leader_epoch: -1 if none.
        producer_id: With epoch and sequence, of an idempotent producer; -1 if none.
        producer_epoch: -1 if none.
        base_sequence: -1 if none.
        is_transactional: Belongs to a transaction.
        is_control: Holds a control record.
        is_log_append_time: Max timestamp is the timestamp of every record.
        delete_horizon_ms: Goes where the base timestamp is.
        base_offset: None is the first record's offset.
        last_offset: None is the last record's offset.
        max_timestamp: None is the largest of the records.
    """

    compression: Compression = Compression.NONE
    compression_level: int | None = None
    leader_epoch: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    is_log_append_time: bool = False
    delete_horizon_ms: int | None = None
    base_offset: int | None = None
    last_offset: int | None = None
    max_timestamp: int | None = None

    @property
    def attributes(self) -> int:
        """The attributes of the header, the codec aside."""
        return (
            LOG_APPEND_TIME_MASK * self.is_log_append_time
            | TRANSACTIONAL_MASK * self.is_transactional
            | CONTROL_MASK * self.is_control
            | DELETE_HORIZON_MASK * (self.delete_horizon_ms is not None)
        )


PLAIN_FIELDS = BatchFields()


def decode_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of a batch. The CRC is not checked, nor that the batch is whole.

    Raises:
        CorruptRecordError: It is cut, too short for a v2 batch, or of another magic.
    """
    if position < 0 or len(buf) - position <= _MESSAGE_CRC_START:
        raise CorruptRecordError(f"batch header at position {position} is cut", position)
    magic = buf[position + _MESSAGE_CRC_START]
    least = _MESSAGE_OVERHEAD_BYTES[0] if magic < MAGIC else HEADER_BYTES
    if len(buf) - position < least:
        raise CorruptRecordError(f"batch header at position {position} is cut", position)
    if magic < MAGIC:
        return _decode_message_header(buf, position)
    header = BatchHeader(*_HEADER.unpack_from(buf, position))
    if header.magic != MAGIC:
        raise CorruptRecordError(
            f"batch at position {position}: unsupported magic {header.magic}", position
        )
    if header.batch_length < MIN_BATCH_LENGTH:
        raise CorruptRecordError(
            f"batch at position {position}: batch length {header.batch_length} is too small",
            position,
        )
    return header


def _decode_message_header(buf: Buffer, position: int) -> BatchHeader:
    offset, length, crc, magic, attributes = _MESSAGE.unpack_from(buf, position)
    if length + LOG_OVERHEAD_BYTES < _MESSAGE_OVERHEAD_BYTES[magic]:
        raise CorruptRecordError(
            f"batch at position {position}: batch length {length} is too small", position
        )
    attributes &= _MESSAGE_ATTRIBUTES[magic]
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _MESSAGE_TIMESTAMP.unpack_from(buf, position + _MESSAGE.size)
    return BatchHeader(
        offset,
        length,
        NO_LEADER_EPOCH,
        magic,
        crc,
        attributes,
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        UNKNOWN_COUNT if attributes & COMPRESSION_MASK else 1,
    )


def decode_records(buf: Buffer, position: int = 0) -> list[Record]:
    """Check and decode a whole batch, control batches included; raise CorruptRecordError."""
    header = decode_header(buf, position)
    batch = memoryview(buf)[position : position + header.size_bytes]
    try:
        return _decode_batch(header, batch)
    except CorruptRecordError as error:
        raise CorruptRecordError(f"batch at position {position}: {error}", position) from error


def _decode_batch(header: BatchHeader, batch: memoryview) -> list[Record]:
    if len(batch) < header.size_bytes:
        raise CorruptRecordError(f"cut after {len(batch)} of {header.size_bytes} bytes")
    is_message = header.magic < MAGIC
    computed = zlib.crc32(batch[_MESSAGE_CRC_START:]) if is_message else crc32c(batch[CRC_START:])
    if computed != header.crc:
        raise CorruptRecordError(
            f"checksum differs: stored {header.crc:#010x}, computed {computed:#010x}"
        )
    if is_message:
        return decode_messages(batch, decompress)
    if header.record_count < 0:
        raise CorruptRecordError(f"{header.record_count} records")
    if header.record_count == 0:
        return []
    payload: Buffer = batch[HEADER_BYTES:]
    if header.compression:
        payload = decompress(header.compression, payload)
    return decode_payload(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )


def encode_batch(records: Sequence[Record], fields: BatchFields = PLAIN_FIELDS) -> bytes:
    """Encode records as one batch of any size, keeping their offsets and timestamps.

    Args:
        records: Offsets increasing; gaps are allowed. Without any, ``fields`` has to say
            ``base_offset`` and ``last_offset``: a batch that compaction emptied.

    Raises:
        ValueError: No records and no offsets.

    Source: Kafka MemoryRecordsBuilder, DefaultRecordBatch.writeEmptyHeader.
    """
    base_offset, last_offset = _offset_range(records, fields)
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if fields.delete_horizon_ms is not None:
        base_timestamp = fields.delete_horizon_ms
    max_timestamp = fields.max_timestamp
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    codec = fields.compression if records else Compression.NONE
    payload = compress(
        codec, encode_payload(records, base_offset, base_timestamp), fields.compression_level
    )
    batch = bytearray(HEADER_BYTES) + payload
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        fields.leader_epoch,
        MAGIC,
        0,
        fields.attributes | codec,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        len(records),
    )
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def _offset_range(records: Sequence[Record], fields: BatchFields) -> tuple[int, int]:
    base_offset, last_offset = fields.base_offset, fields.last_offset
    if records:
        if base_offset is None:
            base_offset = records[0].offset
        if last_offset is None:
            last_offset = records[-1].offset
    if base_offset is None or last_offset is None:
        raise ValueError("a batch without records needs base_offset and last_offset")
    return base_offset, last_offset
