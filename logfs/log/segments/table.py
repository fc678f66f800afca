"""The segment table of a partition: the plain file ``logfs.segments``.

It describes each segment, so that a mount need not open it. Most important are the *bases*: the
positions of the segment's first record in each rendering. Bases cannot be recomputed once an older
segment is gone, so positions restart at 0 if the table is lost.

An empty file is that of a first start that did not end: no positions were stored.

Entries are only appended. The last one for a base offset is valid; one whose checksum differs is
ignored (a torn write). The file is rewritten, by rename, when much of it is outdated.

    header, 32 bytes
    bytes   field              type
    0-3     magic              "LFST"
    4-7     version            int32     1; an older logfs refuses a newer file
    8-23    generation         16 bytes  changes only when positions restart at 0
    24-31   zero

    entry, 136 bytes
    0-7     base offset        int64
    8-11    state              int32     0 open, 1 sealed, 2 closed (at a clean stop), 3 dropped,
                                         4 pending, 5 merged
    12-15   flags              int32     bit 0: the text index has gaps (compaction); bit 1: it
                                         was packed, or would not become smaller by that; bit 2: a
                                         mirror's source had lost the offsets before it
    16-23   next offset        int64     after its last record; open: -1
    24-31   size               int64     of the .log in bytes; open: -1
    32-39   max timestamp      int64     -1 none
    40-47   first timestamp    int64     max timestamp of its first batch, for time rolls; -1 none
    48-71   bases              3 int64   positions (text, tsv, jsonl) at which it begins
    72-95   ends               3 int64   positions at which it ends; open: the *reservation*
    96-119  kept               3 int64   lengths of its records (ends - bases less its gaps)
    120-127 boot               8 bytes   open: mark of the page cache, which differs after a start
                                         of the machine or a mount of the file system; pending: the
                                         mark in the header of its text index; sealed, in a cache:
                                         which file it was (following/identity.py)
    128-131 text index CRC     uint32    CRC-32C of the entries of a text index with gaps;
                                         0 without gaps, or if it is not known
    132-135 CRC                uint32    CRC-32C of bytes 0-131

The **reservation** of the open segment is an upper bound of all sizes that were shown to readers.
It is durable before a larger size is shown. After a stop that may have lost bytes the next record
begins there, so that no position is used twice.

Compaction replaces several segments by one under the base offset of the first. Its entry is
**pending** until the files are in place. After a crash the 8 bytes in the header of the text index
tell whether they are. Then the entry is sealed, and the others are **merged**: removed like dropped
ones, but the log may start before them.
"""

import contextlib
import errno
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from logfs.disk.vfs import DISK_FULL, LARGER_FILE_BYTES, Disk, File
from logfs.errors import CorruptIndexError, UnsupportedFormatError
from logfs.log import names
from logfs.records.checksum import crc32c
from logfs.types import MAX_OFFSET, Positions

VERSION = 1
_MAGIC = b"LFST"
_HEADER = struct.Struct(">4si16s8x")
_BODY = struct.Struct(">qiiqqqq3q3q3q8sI")
_CRC = struct.Struct(">I")
ENTRY_BYTES = _BODY.size + _CRC.size
_HAS_GAPS = 1
_IS_PACKED = 2
_AFTER_GAP = 4


class SegmentState(IntEnum):
    """The state of a segment in the table."""

    OPEN = 0
    SEALED = 1
    CLOSED = 2
    DROPPED = 3
    PENDING = 4
    MERGED = 5


_STATES = {state.value: state for state in SegmentState}


class TableEntry(NamedTuple):
    """One entry; see the format above. ``ends`` of an open segment is the reservation."""

    base_offset: int
    state: SegmentState
    bases: Positions
    ends: Positions
    next_offset: int | None = None
    size_bytes: int | None = None
    max_timestamp: int = -1
    first_timestamp: int = -1
    lengths: Positions = Positions()
    has_gaps: bool = False
    boot: bytes = bytes(8)
    text_crc: int = 0
    is_packed: bool = False
    is_after_gap: bool = False


def _flags_of(entry: TableEntry) -> int:
    return (
        (_HAS_GAPS if entry.has_gaps else 0)
        | (_IS_PACKED if entry.is_packed else 0)
        | (_AFTER_GAP if entry.is_after_gap else 0)
    )


def encode_entry(entry: TableEntry) -> bytes:
    """Return the 136 bytes of an entry."""
    body = _BODY.pack(
        entry.base_offset,
        entry.state,
        _flags_of(entry),
        -1 if entry.next_offset is None else entry.next_offset,
        -1 if entry.size_bytes is None else entry.size_bytes,
        entry.max_timestamp,
        entry.first_timestamp,
        *entry.bases,
        *entry.ends,
        *entry.lengths,
        entry.boot,
        entry.text_crc,
    )
    return body + _CRC.pack(crc32c(body))


@dataclass(slots=True)
class TableState:
    """The combined content of the entries of a table.

    Attributes:
        entries: The last entry of each segment, by base offset, without dropped ones.
        dropped: Base offsets of segments that were dropped.
        pending: Entries of compacted segments that may or may not be in place.
        reserved: No size ever shown exceeds it. Replaced entries are included: a power cut may keep
            the last unsynced entry and lose the one before it.
        boots: Marks of the page caches in use at appends since the last clean stop.
        has_reservation: Some entry had a bound of the shown sizes, even if it was replaced later.
    """

    entries: dict[int, TableEntry] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    pending: dict[int, TableEntry] = field(default_factory=dict)
    reserved: Positions = field(default_factory=Positions)
    boots: set[bytes] = field(default_factory=set)
    has_reservation: bool = False

    def note(self, entry: TableEntry) -> None:
        """Add one more entry."""
        # Normally the ends of later entries are larger.
        self.reserved = entry.ends.at_least(self.reserved)
        self.has_reservation |= entry.state in (SegmentState.OPEN, SegmentState.CLOSED)
        if entry.state is SegmentState.PENDING:
            self.pending[entry.base_offset] = entry
            return
        self.pending.pop(entry.base_offset, None)
        if entry.state in (SegmentState.DROPPED, SegmentState.MERGED):
            self.entries.pop(entry.base_offset, None)
            if entry.state is SegmentState.DROPPED:
                self.dropped.add(entry.base_offset)
            return
        self.entries[entry.base_offset] = entry
        self.dropped.discard(entry.base_offset)
        if entry.state is SegmentState.OPEN:
            self.boots.add(entry.boot)
        elif entry.state is SegmentState.CLOSED:
            self.reserved = entry.ends
            self.boots.clear()


def encode_table(generation: bytes, entries: Iterable[TableEntry]) -> bytes:
    """Return the bytes of a table with these entries; the generation has 16 bytes."""
    return _HEADER.pack(_MAGIC, VERSION, generation) + b"".join(map(encode_entry, entries))


class DecodedTable(NamedTuple):
    """A whole table file.

    Attributes:
        data: The bytes that were decoded: the header and whole entries.
        state: What they say.
        end: Where the last valid entry ends.
        is_damaged: Some entries are invalid.
        known_below: Entries of smaller base offsets are as in the file that was known before.
    """

    data: bytes
    state: TableState
    end: int
    is_damaged: bool
    known_below: int = 0


def decode_table(data: bytes, known: DecodedTable | None = None) -> DecodedTable:
    """Decode a whole table file, without its header.

    Args:
        data: The bytes of the file.
        known: An earlier file. If this one begins with its bytes, only the rest is decoded, and the
            state of ``known`` becomes the new one.

    Raises:
        CorruptIndexError: An entry decodes to a state that does not exist although its CRC fits.
    """
    whole = max(len(data) - _HEADER.size, 0) // ENTRY_BYTES * ENTRY_BYTES + _HEADER.size
    known_below = MAX_OFFSET + 1
    if known is None or not data.startswith(known.data):
        known = DecodedTable(data[: _HEADER.size], TableState(), _HEADER.size, is_damaged=False)
        known_below = 0
    state, end, is_damaged = known.state, known.end, known.is_damaged
    for position, entry in _decode_entries(data, len(known.data)):
        if entry is None:
            is_damaged = True
        else:
            end = position + ENTRY_BYTES
            state.note(entry)
            known_below = min(known_below, entry.base_offset)
    return DecodedTable(data[:whole], state, end, is_damaged, known_below)


def decode_entries(data: bytes, position: int) -> list[TableEntry]:
    """Return the valid entries of a table file from a position on."""
    return [entry for _, entry in _decode_entries(data, position) if entry is not None]


def _decode_entries(data: bytes, start: int) -> Iterator[tuple[int, TableEntry | None]]:
    """Return each entry from a position on, with where it begins; None for an invalid one."""
    for position in range(start, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        body = data[position : position + _BODY.size]
        is_valid = _CRC.unpack_from(data, position + _BODY.size)[0] == crc32c(body)
        yield position, _decode_body(body) if is_valid else None


def decode_entry(data: bytes) -> TableEntry:
    """Decode the 136 bytes of an entry.

    Raises:
        CorruptIndexError: Its checksum differs, or it has a state that does not exist.
    """
    body = data[: _BODY.size]
    if len(data) != ENTRY_BYTES or _CRC.unpack_from(data, _BODY.size)[0] != crc32c(body):
        raise CorruptIndexError("segment table: the checksum of an entry differs")
    return _decode_body(body)


def _decode_body(body: bytes) -> TableEntry:
    # By position: a table has ten thousand entries, and keywords take as long as all the rest.
    (
        base_offset, number, flags, next_offset, size_bytes, max_timestamp, first_timestamp,
        a, b, c, d, e, f, g, h, i, boot, text_crc,
    ) = _BODY.unpack(body)  # fmt: skip
    state = _STATES.get(number)
    if state is None:
        raise CorruptIndexError(f"segment table: state {number} is not known")
    is_open = state is SegmentState.OPEN
    return TableEntry(
        base_offset, state, Positions(a, b, c), Positions(d, e, f),
        None if is_open else next_offset, None if is_open else size_bytes,
        max_timestamp, first_timestamp, Positions(g, h, i), bool(flags & _HAS_GAPS), boot, text_crc,
        bool(flags & _IS_PACKED), bool(flags & _AFTER_GAP),
    )  # fmt: skip


class SegmentTable:
    """The open table file of one partition. One owner; only ``sync`` may overlap other calls.

    Attributes:
        generation: See the header.
        state: What the entries say.
        is_damaged: Some entries were invalid when it was loaded.
        known_below: When it was loaded; see ``DecodedTable``.
    """

    def __init__(
        self, disk: Disk, directory: str, generation: bytes, state: TableState | None = None
    ) -> None:
        self._disk = disk
        self._name = f"{directory}/{names.SEGMENT_TABLE}"
        self.generation = generation
        self.state = state or TableState()
        self.is_damaged = False
        self.known_below = 0
        self._file: File | None = None
        self._end = 0
        self._has_rest = True
        self._unsynced: object | None = None
        self._owed: tuple[TableEntry, ...] = ()

    @classmethod
    def load(cls, disk: Disk, directory: str, known: DecodedTable | None = None) -> "SegmentTable":
        """Read the table of a partition directory; opens nothing for writing.

        ``known`` is what it was before: see ``decode_table``.

        Raises:
            FileNotFoundError: There is none, or it is only marked; see ``mark``.
            CorruptIndexError: Its header does not decode.
            UnsupportedFormatError: A newer logfs wrote it.
        """
        data = disk.read(f"{directory}/{names.SEGMENT_TABLE}", LARGER_FILE_BYTES)
        return cls.decode(disk, directory, data, known)

    @classmethod
    def decode(
        cls, disk: Disk, directory: str, data: bytes, known: DecodedTable | None = None
    ) -> "SegmentTable":
        """Make a table of the bytes of its file; see ``load`` for what it raises."""
        name = f"{directory}/{names.SEGMENT_TABLE}"
        if not data:
            raise FileNotFoundError(errno.ENOENT, "a first start has only marked it", name)
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise CorruptIndexError(f"{name}: not a segment table (its header does not decode)")
        _, version, generation = _HEADER.unpack_from(data)
        if version != VERSION:
            raise UnsupportedFormatError(
                f"{name}: version {version}, this logfs reads version {VERSION}: use a newer logfs"
            )
        decoded = decode_table(data, known)
        table = cls(disk, directory, generation, decoded.state)
        table._end, table.is_damaged = decoded.end, decoded.is_damaged
        table.known_below = decoded.known_below
        return table

    @property
    def entries(self) -> dict[int, TableEntry]:
        """The last entry of each segment, by base offset."""
        return self.state.entries

    @classmethod
    def create(
        cls, disk: Disk, directory: str, generation: bytes, entries: Iterable[TableEntry]
    ) -> "SegmentTable":
        """Write a new table, durable when this returns."""
        table = cls(disk, directory, generation)
        table.rewrite(entries)
        return table

    @staticmethod
    def mark(disk: Disk, directory: str) -> None:
        """Note durably that a first start has begun: its text indexes mean no lost table."""
        disk.open(f"{directory}/{names.SEGMENT_TABLE}", write=True, create=True).close()
        disk.sync_directory(directory)

    def put(self, *entries: TableEntry) -> None:
        """Append entries. They survive a kill of the process at once, a power cut after ``sync``.

        Raises:
            OSError: None of them is in the table. Bytes of them that cannot be truncated now are
                truncated by the next call. ENOSPC may mean that loading had no room for the table.
        """
        if not self._end:
            raise OSError(errno.ENOSPC, "there was no room for the table", self._name)
        data = b"".join(map(encode_entry, (*self._owed, *entries)))
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._name, write=True)
        if self._has_rest:
            file.truncate(self._end)
        self._has_rest = True
        try:
            file.pwrite(data, self._end)
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(self._end)  # a backup may read the file before the next call
            raise
        self._has_rest = False
        self._unsynced = object()
        self._end += len(data)
        self._owed = ()
        self._note(entries)

    def put_or_owe(self, *entries: TableEntry) -> bool:
        """Append entries; False: the disk is full, so the next ``put`` appends them.

        Raises:
            OSError: The disk has failed.
        """
        try:
            self.put(*entries)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._owed += entries
            self._note(entries)
        return not self._owed

    @property
    def owes(self) -> bool:
        """Whether entries wait for room on the disk."""
        return bool(self._owed)

    def sync(self) -> None:
        """Make all entries put before the call durable. Any thread, also during other calls."""
        unsynced, file = self._unsynced, self._file
        if unsynced is None:
            return
        if file is None:
            file = self._disk.open(self._name, write=True)
        file.sync()
        if self._unsynced is unsynced:
            self._unsynced = None

    def moved_to(self, directory: str) -> None:
        """Use the new name of the partition directory from now on."""
        self._name = f"{directory}/{names.SEGMENT_TABLE}"

    def rewrite(self, entries: Iterable[TableEntry]) -> None:
        """Replace the file by one with only these entries, durable when this returns."""
        kept = list(entries)
        data = encode_table(self.generation, kept)
        self.close()
        self._disk.replace(self._name, data)
        self._end, self._unsynced, self._owed = len(data), None, ()
        self.state = TableState()
        self._note(kept)

    def shrink(self) -> None:
        """Rewrite the file if most of it is outdated, unless the disk is full.

        Raises:
            OSError: The disk failed; the content of the file is unchanged.
        """
        is_wasteful = self._end > _HEADER.size + ENTRY_BYTES * (4 * len(self.entries) + 64)
        if is_wasteful and not self.state.pending:
            try:
                self.rewrite(sorted(self.entries.values()))
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise

    def close(self) -> None:
        """Close the file; the table can be used again. A concurrent ``sync`` keeps it open."""
        self._file = None
        self._has_rest = True

    def _note(self, entries: Iterable[TableEntry]) -> None:
        for entry in entries:
            self.state.note(entry)
