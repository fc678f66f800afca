"""Messages of formats v0 (Kafka before 0.10) and v1 (before 0.11): read, never written.

    bytes  field         type
    0-7    offset        int64   not covered by the CRC
    8-11   size          int32   bytes after this field; not covered by the CRC
    12-15  CRC           uint32  CRC-32 (IEEE) of bytes 16 to the end
    16     magic         int8    0 or 1
    17     attributes    int8    bits 0-2 codec (none, gzip, snappy, lz4); v1: 3 LogAppendTime
    18-25  timestamp     int64   only in v1
    then   key length    int32   -1: null
           key
           value length  int32   -1: null
           value

Every such message at the top level of a ``.log`` is treated as its own batch: the loops in
``_native`` take it as one that has no headers, no producer and no leader epoch, timestamp -1 in v0.

If there is a codec the message is a *wrapper*: its value is a compressed row of messages, and its
offset that of the last of them. Their offsets are absolute in a v0 wrapper. In a v1 wrapper they
are relative: what has to be added is the wrapper's offset less that of the last message, or 0 if
the wrapper's is 0, as old versions of librdkafka left it. A v1 wrapper with LogAppendTime gives its
timestamp to all of them. So the first offset of a wrapper is known only when it is decompressed,
which walks over headers alone do without: the last one is enough to find an offset. The CRCs of the
messages inside are not checked, as at a broker: the wrapper's covers them.

Source: Kafka LegacyRecord, AbstractLegacyRecordBatch.
"""

from logfs.records.compression import Buffer

_LZ4_FLG_AT = 4
_LZ4_CONTENT_SIZE = 0x08
_LZ4_SHORT_HEADER = 7
_MASK = 0xFFFFFFFF


def mend_lz4(payload: Buffer) -> bytes:
    """Put the right header checksum into an LZ4 frame.

    The producers of v0 computed it over the frame's magic number as well, so every reader of v0
    passes over it. Bytes that are too short to have one come back as they are.

    Source: Kafka Lz4BlockOutputStream.writeHeader (KAFKA-3160).
    """
    frame = bytearray(payload)
    if len(frame) < _LZ4_SHORT_HEADER:
        return bytes(frame)
    at = _LZ4_SHORT_HEADER - 1
    if frame[_LZ4_FLG_AT] & _LZ4_CONTENT_SIZE:
        at += 8
    if at < len(frame):
        frame[at] = _xxh32(frame[_LZ4_FLG_AT:at]) >> 8 & 0xFF
    return bytes(frame)


def _xxh32(data: bytearray) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes."""
    value = 0x165667B1 + len(data)
    words = len(data) // 4 * 4
    for start in range(0, words, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        value = _rotated(value + word * 0xC2B2AE3D, 17) * 0x27D4EB2F & _MASK
    for byte in data[words:]:
        value = _rotated(value + byte * 0x165667B1, 11) * 0x9E3779B1 & _MASK
    value = (value ^ value >> 15) * 0x85EBCA77 & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE3D & _MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return value << bits | value >> 32 - bits
