"""Where the fields of a batch header are, for everything in Python that reads headers.

    bytes  field                   type
    0-7    base offset             int64   of the first record; not covered by the CRC
    8-11   batch length            int32   bytes after this field; not covered by the CRC
    12-15  partition leader epoch  int32   not covered by the CRC
    16     magic                   int8    2
    17-20  CRC                     uint32  CRC-32C of bytes 21 to the end
    21-22  attributes              int16   bits 0-2 codec, 3 LogAppendTime, 4 transactional,
                                           5 control, 6 delete horizon
    23-26  last offset delta       int32   last offset - base offset
    27-34  base timestamp          int64   of the first record; the delete horizon if bit 6 is set
    35-42  max timestamp           int64   of all records if bit 3 is set
    43-50  producer id             int64   -1: none
    51-52  producer epoch          int16   -1: none
    53-56  base sequence           int32   -1: none
    57-60  record count            int32   0 only after compaction
    61-    records                         as one stream, compressed if there is a codec

A message of format v0 or v1 has its offset, size and magic at the same places; ``legacy`` describes
the rest of it. The functions take the first bytes of either and check nothing. They read offsets
as unsigned numbers: a damaged, negative one is larger than any offset.

Source: Kafka DefaultRecordBatch, Records.
"""

from logfs.records.compression import Buffer

LENGTH_AT = 8
LOG_OVERHEAD_BYTES = 12
"""Base offset and batch length, which the batch length does not include."""
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
UP_TO_MAGIC_BYTES = 17
CRC_AT = 17
CRC_START = 21
"""The start of the bytes that the CRC covers; it covers all to the end of the batch."""
CODEC_AT = 22
"""The lower byte of the attributes."""
LAST_OFFSET_DELTA_AT = 23
FIRST_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
RECORD_COUNT_AT = 57
HEADER_BYTES = 61

MAGIC = 2
SHORTEST_LENGTH = 14
"""Smallest batch length of any magic. Source: Kafka LegacyRecord.RECORD_OVERHEAD_V0."""
SHORTEST_BATCH_BYTES = LOG_OVERHEAD_BYTES + SHORTEST_LENGTH
"""A message of format v0 without key and value."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_LEADER_EPOCH = -1
NO_OFFSET = 2**63 - 1
"""Larger than the offset of any record: the largest log end offset."""
MAX_RELATIVE_OFFSET = 2**31 - 1
"""The largest in a segment: indexes hold an int32. Source: Kafka LogSegment."""


def base_offset_of(buf: Buffer, at: int = 0) -> int:
    """Return the base offset of a batch; of a message its own, or the last one inside it."""
    return int.from_bytes(buf[at : at + LENGTH_AT], "big")


def size_of(buf: Buffer, at: int = 0) -> int:
    """Return how many bytes a batch says it has in all; of a damaged one any int32 plus 12."""
    length = buf[at + LENGTH_AT : at + LOG_OVERHEAD_BYTES]
    return LOG_OVERHEAD_BYTES + int.from_bytes(length, "big", signed=True)


def is_message(buf: Buffer, at: int = 0) -> bool:
    """Tell whether these are the first bytes of a message of format v0 or v1."""
    return buf[at + MAGIC_AT] < MAGIC


def leader_epoch_of(buf: Buffer, at: int = 0) -> int:
    """Return the leader epoch of a batch; -1 for a message, which has none."""
    if is_message(buf, at):
        return NO_LEADER_EPOCH
    return int.from_bytes(buf[at + LEADER_EPOCH_AT : at + MAGIC_AT], "big", signed=True)


def crc_of(buf: Buffer, at: int = 0) -> int:
    """Return the CRC that a batch (not a message) holds."""
    return int.from_bytes(buf[at + CRC_AT : at + CRC_START], "big")


def last_offset_delta_of(buf: Buffer, at: int = 0) -> int:
    """Return how far the last offset of a batch is from its first; 0 for a message."""
    if is_message(buf, at):
        return 0
    delta = buf[at + LAST_OFFSET_DELTA_AT : at + LAST_OFFSET_DELTA_AT + 4]
    return int.from_bytes(delta, "big")


def first_timestamp_of(buf: Buffer, at: int = 0) -> int:
    """Return the timestamp of the first record of a batch (not a message); -1 for none."""
    return int.from_bytes(buf[at + FIRST_TIMESTAMP_AT : at + MAX_TIMESTAMP_AT], "big", signed=True)


def max_timestamp_of(buf: Buffer, at: int = 0) -> int:
    """Return the largest timestamp of a batch (not a message); -1 for none."""
    return int.from_bytes(
        buf[at + MAX_TIMESTAMP_AT : at + MAX_TIMESTAMP_AT + 8], "big", signed=True
    )


def next_offset_of(buf: Buffer, at: int = 0) -> int:
    """Return the offset after the last record of a batch."""
    return base_offset_of(buf, at) + last_offset_delta_of(buf, at) + 1
