"""The transaction index of a segment: the aborted transactions whose markers stand in it.

    entry, 34 bytes, appended in the order of the markers; no checksum
    bytes  field               type
    0-1    version             int16   0
    2-9    producer id         int64
    10-17  first offset        int64   of the transaction's first batch in this partition
    18-25  last offset         int64   of the ABORT marker
    26-33  last stable offset  int64   when the marker was written

Pure. Source: Kafka AbortedTxn, TransactionIndex.
"""

import struct
from typing import NamedTuple

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
    """Decode a whole file; a last entry that is cut is passed over.

    Raises:
        CorruptIndexError: An entry has another version.
    """
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
        if version != VERSION:
            raise CorruptIndexError(f"transaction index: version {version}, expected {VERSION}")
        entries.append(AbortedTransaction(*fields))
    return entries
