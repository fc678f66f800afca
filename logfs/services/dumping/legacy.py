"""Messages of the formats v0 and v1 as kafka-dump-log prints them.

    offset: <n> position: <n> CreateTime: <ms> size: <n> magic: 1 compresscodec: none crc: <n>
        isvalid: true                                                                (one line)
    | offset: <n> CreateTime: <ms> keySize: <n> valueSize: <n> isValid: true crc: <n>} key: <text>
        payload: <text>                                                              (one line)

The brace is the tool's own. The formats are those of ``logfs.records.legacy``; a message whose CRC
differs is printed like the others. Source: Kafka DumpLogSegments, AbstractLegacyRecordBatch.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from logfs.errors import CorruptRecordError
from logfs.records._dumping import java_text
from logfs.records.compression import Compression, decompress
from logfs.records.layout import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_MASK,
    LOG_OVERHEAD_BYTES,
    SHORTEST_LENGTH,
)
from logfs.records.legacy import mend_lz4
from logfs.services.dumping.output import DumpOptions

_FRAME = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")


class _Message(NamedTuple):
    """The fields of a message; the size is that of all of it, the timestamp -1 in v0."""

    offset: int
    size_bytes: int
    magic: int
    attributes: int
    crc: int
    is_valid: bool
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> Compression:
        return Compression.of(self.attributes & COMPRESSION_MASK)

    @property
    def time_kind(self) -> str:
        if self.magic == 0:
            return "NoTimestampType"
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME_MASK else "CreateTime"


def legacy_lines(
    data: bytes, position: int, options: DumpOptions
) -> Iterator[tuple[int | None, bool, bytes]]:
    """Print a message and the messages inside it.

    Yields:
        Offset of a record, None for the message itself; whether its CRC fits; the line.

    Raises:
        CorruptRecordError: A message does not decode; no position.
    """
    message = _decode(data)
    line = (
        f"offset: {message.offset} position: {position} {message.time_kind}: {message.timestamp} "
        f"size: {message.size_bytes} magic: {message.magic} "
        f"compresscodec: {message.codec.name.lower()} crc: {message.crc} "
        f"isvalid: {_word(is_true=message.is_valid)}\n"
    )
    yield None, message.is_valid, line.encode()
    if options.records:
        for record in _records(message):
            # Only the outer message is checked; the line shows whether an inner CRC is right.
            yield record.offset, True, _record_line(record, message.time_kind, options)


def largest_legacy_timestamp(data: bytes) -> int:
    """Return the largest timestamp of the records of a message; raise CorruptRecordError."""
    return max(record.timestamp for record in _records(_decode(data)))


def _record_line(record: _Message, time_kind: str, options: DumpOptions) -> bytes:
    parts = []
    if options.metadata:
        head = (
            f"| offset: {record.offset} {time_kind}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
            f"isValid: {_word(is_true=record.is_valid)} crc: {record.crc}}}"
        )
        parts.append(head.encode())
    if options.payloads:
        key, value = record.key, record.value
        if options.parse is not None:
            key, value = options.parse(record.offset, key, value)
        else:
            key, value = java_text(key), java_text(value)
        if key is not None:
            parts += [b" key: " if options.metadata else b"| key: ", key]
        if value is not None:
            parts += [b" payload: ", value]
    return b"".join(parts) + b"\n"


def _size(span: bytes | None) -> int:
    return -1 if span is None else len(span)


def _word(*, is_true: bool) -> str:
    return "true" if is_true else "false"


def _decode(data: bytes) -> _Message:
    offset, length = _FRAME.unpack_from(data)
    magic, attributes = data[16], data[17]
    if magic > 1:
        raise CorruptRecordError(f"unsupported magic {magic}")
    try:
        timestamp, place = -1, 18
        if magic == 1:
            (timestamp,) = _TIMESTAMP.unpack_from(data, place)
            place += _TIMESTAMP.size
        key, place = _span(data, place)
        value, place = _span(data, place)
    except struct.error:
        raise CorruptRecordError(f"a message of {len(data)} bytes ends too early") from None
    crc = _CRC.unpack_from(data, LOG_OVERHEAD_BYTES)[0]
    is_valid = crc == zlib.crc32(data[16:])
    size = LOG_OVERHEAD_BYTES + length
    return _Message(offset, size, magic, attributes, crc, is_valid, timestamp, key, value)


def _span(data: bytes, place: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(data, place)
    place += _LENGTH.size
    if length < 0:
        return None, place
    if length > len(data) - place:
        raise CorruptRecordError(f"a message of {len(data)} bytes ends too early")
    return data[place : place + length], place + length


def _records(message: _Message) -> list[_Message]:
    """Return the records of a message: itself, or those inside it with their true offsets."""
    if not message.codec:
        return [message]
    if message.value is None or message.codec is Compression.ZSTD:
        raise CorruptRecordError("a compressed message without value, or with a codec of v2")
    value = message.value
    if message.magic == 0 and message.codec is Compression.LZ4:
        value = mend_lz4(value)
    inner = [_inner(part, message) for part in _split(bytes(decompress(message.codec, value)))]
    if not inner:
        raise CorruptRecordError("a compressed message without messages inside")
    if message.magic == 0:
        return inner
    first = 0
    if message.offset != 0:  # old librdkafka wrote 0
        first = message.offset - inner[-1].offset
        if first < 0:
            raise CorruptRecordError(
                f"offset {message.offset} is less than the last one inside, {inner[-1].offset}"
            )
    return [record._replace(offset=first + record.offset) for record in inner]


def _inner(data: bytes, wrapper: _Message) -> _Message:
    record = _decode(data)
    if record.codec:
        raise CorruptRecordError("compressed messages inside a compressed message")
    if record.magic == 1 and wrapper.attributes & LOG_APPEND_TIME_MASK:
        return record._replace(timestamp=wrapper.timestamp)
    return record


def _split(data: bytes) -> Iterator[bytes]:
    place = 0
    while len(data) - place >= LOG_OVERHEAD_BYTES:
        _, length = _FRAME.unpack_from(data, place)
        if length < SHORTEST_LENGTH:
            raise CorruptRecordError(f"message length {length} is too small")
        end = place + LOG_OVERHEAD_BYTES + length
        if end > len(data):
            return
        yield data[place:end]
        place = end
