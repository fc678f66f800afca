"""CRC-32C, the checksum of record batches, producer snapshots and logfs's own files."""

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes as an unsigned 32-bit number."""
    return int(_crc32c(data))
