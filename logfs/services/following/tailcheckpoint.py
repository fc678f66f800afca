"""How far the end of a followed log had been read: ``logfs.tail`` in the cache directory.

It is written in place before readers see what it speaks of, so it is right after a kill of the
process; after a power cut an old one, or none, is found.

    bytes   field                  type
    0-3     magic                  "LFTN"
    4-7     version                int32    1
    8-15    base offset            int64    of the segment that is appended to
    16-23   file end               int64    bytes of its .log that were accounted for
    24-31   next offset            int64    after the last record
    32-39   max timestamp          int64    -1 none
    40-47   its offset             int64    last offset of the first batch that had it
    48-55   first timestamp        int64    of the first batch, -1 none
    56-63   last time entry        int64    timestamp of the last time index entry, -1 none
    64-87   bases                  3 int64  positions at which the segment begins
    88-111  lengths                3 int64  from there to where the next record will be
    112-119 text entries           int64    that belong to what was accounted for
    120-127 flags                  int64    bit 0: the text index has gaps
    128-135 last batch             int64    file position of it, -1 none
    136-156 its first bytes        21 bytes up to its CRC; -1: only the leader epoch before the
                                   segment, in its place in a header; zeros: not known
    157-160 CRC                    uint32   CRC-32C of bytes 0-156
"""

import struct
from typing import NamedTuple

from logfs.records.checksum import crc32c
from logfs.records.layout import CRC_START, LEADER_EPOCH_AT, MAGIC, leader_epoch_of
from logfs.types import Positions

VERSION = 1
MARK_BYTES = CRC_START
_MAGIC = b"LFTN"
_BODY = struct.Struct(">4si14qqq21s")
_CRC = struct.Struct(">I")
CHECKPOINT_BYTES = _BODY.size + _CRC.size
_HAS_GAPS = 1


class TailCheckpoint(NamedTuple):
    """See the format above."""

    base_offset: int
    file_end: int
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    first_timestamp: int
    last_time_entry: int
    bases: Positions
    lengths: Positions
    text_entries: int
    has_gaps: bool
    mark_position: int
    mark: bytes

    @property
    def leader_epoch(self) -> int:
        """The leader epoch at the end of the log; -1 if it has none, or it is not known."""
        return leader_epoch_of(self.mark) if self.mark else -1


def mark_of_epoch(leader_epoch: int) -> bytes:
    """Return what is in the place of a mark where a segment has no batch: a leader epoch."""
    if leader_epoch < 0:
        return b""
    return bytes(LEADER_EPOCH_AT) + leader_epoch.to_bytes(4, "big") + bytes([MAGIC])


def encode_checkpoint(note: TailCheckpoint) -> bytes:
    """Return the bytes of a note."""
    body = _BODY.pack(
        _MAGIC,
        VERSION,
        *note[:7],
        *note.bases,
        *note.lengths,
        note.text_entries,
        _HAS_GAPS if note.has_gaps else 0,
        note.mark_position,
        note.mark,
    )
    return body + _CRC.pack(crc32c(body))


def decode_checkpoint(data: bytes) -> TailCheckpoint | None:
    """Decode a note; None if it is torn or of another version."""
    if len(data) < CHECKPOINT_BYTES:
        return None
    body = data[: _BODY.size]
    if _CRC.unpack_from(data, _BODY.size)[0] != crc32c(body):
        return None
    magic, version, *fields = _BODY.unpack(body)
    if magic != _MAGIC or version != VERSION:
        return None
    mark = fields[16].rstrip(b"\0") if fields[15] < 0 else fields[16]
    return TailCheckpoint(
        fields[0],
        fields[1],
        fields[2],
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        Positions(*fields[7:10]),
        Positions(*fields[10:13]),
        fields[13],
        bool(fields[14] & _HAS_GAPS),
        fields[15],
        mark,
    )
