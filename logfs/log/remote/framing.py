"""The frame of a head and of an object of the journal: what it is, its version, its checksum. Pure.

bytes   field     type
0-3     magic
4-7     version   int32     an older logfs refuses a newer object
8-11    length    int32     its meaning is that of the object
last 4  CRC       uint32    CRC-32C of all bytes before
"""

import struct

from logfs.errors import CorruptIndexError, UnsupportedFormatError
from logfs.records.checksum import crc32c

HEADER_BYTES = 12
_HEADER = struct.Struct(">4sii")
_CRC = struct.Struct(">I")


def framed(magic: bytes, version: int, length: int, body: bytes) -> bytes:
    """Return an object."""
    data = _HEADER.pack(magic, version, length) + body
    return data + _CRC.pack(crc32c(data))


def unframed(
    data: bytes, magic: bytes, version: int, noun: str, source: str
) -> tuple[int, memoryview]:
    """Check an object; return the length in its header, and what is between header and checksum.

    Args:
        data: The whole object.
        magic, version: Those that are expected.
        noun: What it should be, for errors: "the head of a partition".
        source: Its address, for errors.

    Raises:
        UnsupportedFormatError: A newer logfs wrote it.
        CorruptIndexError: It is another thing, or damaged.
    """
    if len(data) < _HEADER.size + _CRC.size or data[:4] != magic:
        raise CorruptIndexError(f"{source}: it is not {noun}")
    _, found, length = _HEADER.unpack_from(data)
    if found != version:
        raise UnsupportedFormatError(
            f"{source}: version {found}, this logfs reads version {version}: use a newer logfs"
        )
    checked = memoryview(data)[: -_CRC.size]
    if _CRC.unpack_from(data, len(checked))[0] != crc32c(checked):
        raise CorruptIndexError(f"{source}: its checksum differs, {len(data)} bytes")
    return length, checked[_HEADER.size :]
