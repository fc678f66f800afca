"""Entries of the offset index and the time index, as Kafka writes them."""

import struct


def encode_offset_entry(relative_offset: int, position: int) -> bytes:
    """Return the 8 bytes of an entry of an offset index."""
    return struct.pack(">ii", relative_offset, position)


def encode_time_entry(timestamp: int, relative_offset: int) -> bytes:
    """Return the 12 bytes of an entry of a time index."""
    return struct.pack(">qi", timestamp, relative_offset)
