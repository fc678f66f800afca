"""The transaction index of a segment: the aborted transactions whose markers are in it.

    entry, 34 bytes, appended in the order of the markers; no checksum
    bytes  field               type
    0-1    version             int16   0
    2-9    producer id         int64
    10-17  first offset        int64   of the transaction's first batch in this partition
    18-25  last offset         int64   of the ABORT marker
    26-33  last stable offset  int64   when the marker was written

There is a file only where a transaction was aborted.

Source: Kafka AbortedTxn, TransactionIndex.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from logfs.disk.vfs import LARGER_FILE_BYTES, Disk, File
from logfs.errors import CorruptIndexError

VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """One entry: batches of the producer in [first offset, last offset) were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(entry: AbortedTransaction) -> bytes:
    """Return the 34 bytes of an entry."""
    return _ENTRY.pack(VERSION, *entry)


def decode_txn_index(data: bytes) -> list[AbortedTransaction]:
    """Decode a file, but not a cut last entry; raise CorruptIndexError for another version."""
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
        if version != VERSION:
            raise CorruptIndexError(f"transaction index: version {version}, expected {VERSION}")
        entries.append(AbortedTransaction(*fields))
    return entries


def append_aborted(file: File, entry: AbortedTransaction) -> None:
    """Append an entry to a transaction index; OSError: a part of it may be there."""
    size = file.size()
    file.pwrite(encode_aborted(entry), size - size % ENTRY_BYTES)


def read_txn_index(disk: Disk, name: str, base_offset: int) -> list[AbortedTransaction]:
    """Read the transaction index of a segment.

    Raises:
        CorruptIndexError: It does not decode, or names a marker before the segment.

    Source: Kafka TransactionIndex.sanityCheck.
    """
    entries = decode_txn_index(disk.read(name, LARGER_FILE_BYTES))
    for entry in entries:
        if entry.last_offset < base_offset:
            raise CorruptIndexError(f"{name}: an entry of offset {entry.last_offset}")
    return entries


def write_txn_index(disk: Disk, name: str, entries: Sequence[AbortedTransaction]) -> None:
    """Rewrite a transaction index, its bytes durable on return; without entries remove it."""
    if disk.exists(name):
        disk.remove(name)
    if not entries:
        return
    file = disk.open(name, write=True, create=True)
    file.pwrite(b"".join(map(encode_aborted, entries)), 0)
    file.sync()
    file.close()
