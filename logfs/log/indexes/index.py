"""Offset index and time index: entries as bytes, and binary search in them.

Both are sparse and sorted, without header and checksum: a hint that recovery rebuilds. An entry is
used only if there is a batch with fitting offsets where it points; else the entry before it is
tried. The ``count_…`` functions and the decoders by number serve that walk.

    offset index (.index), 8 bytes
    bytes  field            type
    0-3    relative offset  int32   last offset of a batch - base offset of the segment
    4-7    file position    int32   of that batch's first byte in the .log

    time index (.timeindex), 12 bytes
    bytes  field            type
    0-7    timestamp        int64   largest so far in the segment, epoch ms
    8-11   relative offset  int32   last offset of the first batch that had it - base offset

Pure. The text index is in ``textindex``, the files are in ``indexfile``.
Sources: Kafka OffsetIndex, TimeIndex, AbstractIndex.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from logfs.errors import CorruptIndexError, UnsupportedFormatError
from logfs.log.indexes.paged import PagedEntries
from logfs.types import NO_TIMESTAMP

Entries = bytes | bytearray | memoryview | PagedEntries
"""The entries of an index, one after the other, without a header."""


MARK_BYTES = 8

_OFFSET = struct.Struct(">ii")
_TIME = struct.Struct(">qi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_HEADER = struct.Struct(">4siq")


@dataclass(frozen=True, slots=True)
class IndexFormat:
    """How a kind of index file is laid out: a header or none, then entries of one size."""

    entry_bytes: int
    magic: bytes = b""
    """Four bytes; empty for a file without a header."""
    version: int = 0

    @property
    def header(self) -> bytes:
        """The header: magic, version as int32, eight zero bytes or those of ``header_of``."""
        return _HEADER.pack(self.magic, self.version, 0) if self.magic else b""

    def header_of(self, mark: bytes) -> bytes:
        """Return a header with a mark of eight bytes, by which one file is known again."""
        return self.header[:-MARK_BYTES] + mark

    @property
    def header_bytes(self) -> int:
        """Length of the header."""
        return _HEADER.size if self.magic else 0

    def check_header(self, header: bytes, name: str) -> None:
        """Refuse a header that is not this format's.

        Args:
            header: The first ``header_bytes`` bytes of the file, fewer if it is shorter.

        Raises:
            UnsupportedFormatError: The version is not the one this logfs writes.
            CorruptIndexError: The header is cut off, or has another magic.
        """
        if header == self.header:
            return
        if len(header) < self.header_bytes or header[:4] != self.magic:
            raise CorruptIndexError(
                f"{name}: the header is {header.hex()}, expected {self.header.hex()}"
            )
        version = _HEADER.unpack(header)[1]
        if version != self.version:
            raise UnsupportedFormatError(
                f"{name}: version {version}, "
                f"this logfs reads version {self.version}: use a newer logfs"
            )


OFFSET_INDEX = IndexFormat(_OFFSET.size)
TIME_INDEX = IndexFormat(_TIME.size)


class OffsetPosition(NamedTuple):
    """An offset and the file position of the batch that ends with it."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A timestamp, and an offset: every record with a larger timestamp comes after it."""

    timestamp: int
    offset: int


def decode_offset_entry(entries: Entries, number: int, base_offset: int) -> OffsetPosition:
    """Return entry ``number`` (0 is the first) with its offset made absolute."""
    relative_offset, position = _OFFSET.unpack_from(*place_of(entries, number, _OFFSET.size))
    return OffsetPosition(base_offset + relative_offset, position)


def count_offsets_up_to(entries: Entries, base_offset: int, target: int) -> int:
    """Count the entries with an offset <= ``target``; raise CorruptIndexError for a fragment."""
    return count_up_to(entries, _INT32.unpack_from, _OFFSET.size, 0, target - base_offset)


def lookup_offset(entries: Entries, base_offset: int, target: int) -> OffsetPosition:
    """Find where to start reading for an offset.

    Args:
        entries: Whole 8-byte entries, sorted.
        base_offset: Base offset of the segment.
        target: Any offset; need not be in the index.

    Returns:
        The entry with the largest offset <= ``target``; ``(base_offset, 0)`` if every entry is
        larger or there is none. Entries hold *last* offsets, so a target inside an indexed batch
        gives the entry before it: right, because the scan goes forward.

    Raises:
        CorruptIndexError: The length is not a multiple of 8.

    Source: Kafka OffsetIndex.lookup.
    """
    count = count_offsets_up_to(entries, base_offset, target)
    if count == 0:
        return OffsetPosition(base_offset, 0)
    return decode_offset_entry(entries, count - 1, base_offset)


def lookup_upper_bound(entries: Entries, base_offset: int, position: int) -> int | None:
    """Find an offset that no batch before a file position exceeds.

    Returns:
        The offset of the first entry whose file position is >= ``position``; None if there is none.

    Source: Kafka OffsetIndex.fetchUpperBoundOffset.
    """
    number = count_up_to(entries, _INT32.unpack_from, _OFFSET.size, 4, position - 1)
    if number * _OFFSET.size == len(entries):
        return None
    return decode_offset_entry(entries, number, base_offset).offset


def count_offset_entries_below(entries: Entries, base_offset: int, offset: int) -> int:
    """Count the entries of an offset index that stay when the log is truncated to ``offset``."""
    return count_offsets_up_to(entries, base_offset, offset - 1)


def decode_time_entry(entries: Entries, number: int, base_offset: int) -> TimestampOffset:
    """Return entry ``number`` (0 is the first) with its offset made absolute."""
    timestamp, relative_offset = _TIME.unpack_from(*place_of(entries, number, _TIME.size))
    return TimestampOffset(timestamp, base_offset + relative_offset)


def count_timestamps_up_to(entries: Entries, target: int) -> int:
    """Count the entries with a timestamp <= ``target``; raise CorruptIndexError for a fragment."""
    return count_up_to(entries, _INT64.unpack_from, _TIME.size, 0, target)


def lookup_timestamp(entries: Entries, base_offset: int, target: int) -> TimestampOffset:
    """Find where to start looking for a moment.

    Returns:
        The entry with the largest timestamp <= ``target``: every record with a larger timestamp
        comes after its offset. ``(NO_TIMESTAMP, base_offset)`` if every entry is larger or there is
        none.

    Raises:
        CorruptIndexError: The length is not a multiple of 12.

    Source: Kafka TimeIndex.lookup.
    """
    count = count_timestamps_up_to(entries, target)
    if count == 0:
        return TimestampOffset(NO_TIMESTAMP, base_offset)
    return decode_time_entry(entries, count - 1, base_offset)


def count_time_entries_below(entries: Entries, base_offset: int, offset: int) -> int:
    """Count the entries of a time index that stay when the log is truncated to ``offset``."""
    return count_up_to(entries, _INT32.unpack_from, _TIME.size, 8, offset - base_offset - 1)


def without_zero_tail(entries: memoryview, entry_bytes: int) -> memoryview:
    """Leave out the unused entries of a preallocated file, and a fragment of an entry at its end.

    A used entry of an offset index is never all zeros, since a segment's first batch is not
    indexed. In a time index it can be (timestamp 0 at the base offset); leaving that one out is
    harmless.
    """
    low, high = 0, len(entries) // entry_bytes
    zeros = bytes(entry_bytes)
    while low < high:
        middle = (low + high) >> 1
        if entries[middle * entry_bytes : (middle + 1) * entry_bytes] == zeros:
            high = middle
        else:
            low = middle + 1
    return entries[: low * entry_bytes]


def count_up_to(
    entries: Entries,
    unpack_from: Callable[[Any, int], tuple[int]],
    stride: int,
    field: int,
    target: int,
) -> int:
    """Count the entries whose field is <= ``target``, by bisection.

    Args:
        entries: Whole entries of ``stride`` bytes, not decreasing in the field.
        unpack_from: That of the Struct of this one field.
        stride: Size of an entry in bytes.
        field: Position of the field in an entry.
        target: Any integer.

    Raises:
        CorruptIndexError: The length is not a multiple of ``stride``.
    """
    high, rest = divmod(len(entries), stride)
    if rest:
        raise CorruptIndexError(
            f"an index of {len(entries)} bytes is not a multiple of {stride} bytes"
        )
    if isinstance(entries, PagedEntries):
        return entries.count_up_to(unpack_from, field, target)
    low = 0
    while low < high:
        middle = (low + high) >> 1
        if unpack_from(entries, middle * stride + field)[0] <= target:
            low = middle + 1
        else:
            high = middle
    return low


def place_of(
    entries: Entries, number: int, stride: int
) -> tuple[bytes | bytearray | memoryview, int]:
    """Return bytes that hold an entry, and its position in them.

    Args:
        entries: Whole entries of ``stride`` bytes.
        stride: Size of an entry in bytes.

    Raises:
        CorruptIndexError: The file with the entries has become shorter.
    """
    if isinstance(entries, PagedEntries):
        return entries.place(number)
    return entries, number * stride
