"""What is known of one tiered segment: 200 bytes, the same in a head and in ``logfs.tiered``. Pure.

    bytes    field             type
    0-135    table entry       the entry of the segment in the segment table, sealed
    136-151  segment id        16 bytes  part of the names of its objects
    152-159  mtime             int64     of the .log, epoch milliseconds
    160-187  lengths           7 int32   of the parts of the .indexes object, in their order
    188-191  CRC of .log       uint32    CRC-32C of the whole object
    192-195  CRC of .indexes   uint32    the same
    196-199  CRC               uint32    CRC-32C of bytes 0-195

The parts of the ``.indexes`` object, one after the other: offset index, time index, producer
snapshot at the *end* of the segment, leader epochs up to its end, transaction index, text index,
and the CRC-32C of each MiB of the ``.log`` (4 bytes each, big endian). The indexes are trimmed.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from logfs.disk.remote.overlay import Checks
from logfs.errors import CorruptIndexError
from logfs.log.segments.table import ENTRY_BYTES, TableEntry, decode_entry, encode_entry
from logfs.records.checksum import crc32c

TIERED_ENTRY_BYTES = 200
BLOCK_BYTES = 1 << 20
"""Bytes of a .log that one CRC covers."""
_REST = struct.Struct(">16sq7iII")
_CRC = struct.Struct(">I")
_BLOCK_CRCS = 6
"""Number of the part with the CRCs of the blocks."""


class PartLengths(NamedTuple):
    """Bytes of each part of an ``.indexes`` object, in the order of the parts."""

    offset: int = 0
    time: int = 0
    snapshot: int = 0
    epochs: int = 0
    txn: int = 0
    text: int = 0
    block_crcs: int = 0

    def start_of(self, part: int) -> int:
        """Return the first byte of the part of this number."""
        return sum(self[:part])


class TieredEntry(NamedTuple):
    """One tiered segment; see the format above."""

    entry: TableEntry
    segment_id: bytes
    mtime_ms: int
    lengths: PartLengths
    log_crc: int
    indexes_crc: int

    @property
    def indexes_checks(self) -> Checks:
        """How its ``.indexes`` object is checked, whichever part of it is read."""
        return Checks(whole=self.indexes_crc)

    def log_checks(self, indexes_key: str) -> Checks:
        """Return how its ``.log`` object is checked; takes the key of its ``.indexes``."""
        lengths = self.lengths
        if not lengths.block_crcs:
            return Checks()
        start = lengths.start_of(_BLOCK_CRCS)
        return Checks(blocks=(indexes_key, sum(lengths), self.indexes_crc, start))

    @property
    def base_offset(self) -> int:
        """The offset in its names."""
        return self.entry.base_offset

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.entry.next_offset or self.entry.base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of its .log."""
        return self.entry.size_bytes or 0


def encode_tiered(entry: TieredEntry) -> bytes:
    """Return the 200 bytes of an entry."""
    rest = _REST.pack(
        entry.segment_id, entry.mtime_ms, *entry.lengths, entry.log_crc, entry.indexes_crc
    )
    body = encode_entry(entry.entry) + rest
    return body + _CRC.pack(crc32c(body))


def decode_tiered(data: bytes, position: int, source: str) -> TieredEntry:
    """Decode the entry at a position.

    Args:
        data: At least ``TIERED_ENTRY_BYTES`` from the position on.
        position: First byte of the entry.
        source: The file or object, for the error.

    Raises:
        CorruptIndexError: Its checksum differs, or a field cannot have its value.
    """
    body = data[position : position + TIERED_ENTRY_BYTES - _CRC.size]
    if _CRC.unpack_from(data, position + len(body))[0] != crc32c(body):
        raise CorruptIndexError(f"{source}: the entry at byte {position} has another checksum")
    segment_id, mtime_ms, *rest = _REST.unpack_from(body, ENTRY_BYTES)
    *lengths, log_crc, indexes_crc = rest
    entry = decode_entry(body[:ENTRY_BYTES])
    if entry.next_offset is None or entry.size_bytes is None or min(lengths) < 0:
        raise CorruptIndexError(f"{source}: the entry at byte {position} is of no sealed segment")
    return TieredEntry(entry, segment_id, mtime_ms, PartLengths(*lengths), log_crc, indexes_crc)


def decode_all(data: bytes, position: int, source: str) -> Iterator[TieredEntry]:
    """Decode entries from a position up to the end of ``data``.

    Raises:
        CorruptIndexError: See ``decode_tiered``; or the last entry is cut off.
    """
    if (len(data) - position) % TIERED_ENTRY_BYTES:
        raise CorruptIndexError(f"{source}: its last entry is cut off")
    for start in range(position, len(data), TIERED_ENTRY_BYTES):
        yield decode_tiered(data, start, source)
