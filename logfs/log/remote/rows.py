"""``logfs.tiered``: the tiered segments of a partition directory, a plain file.

    header, 44 bytes
    bytes   field              type
    0-3     magic              "LFTR"
    4-7     version            int32     1; an older logfs refuses a newer file
    8-23    topic id           16 bytes  part of the names of the objects
    24-39   generation         16 bytes  of the positions, as in the segment table
    40-43   CRC                uint32    CRC-32C of bytes 0-39

    row, 200 bytes: see ``entries``

Rows are only appended. The last one for a base offset is valid. A row in the state *sealed* is a
tiered segment. One in the state *dropped* is a log start inside a tiered segment: its base offset
and bases are the offset and positions of the first record, so that a start need not ask the store.

The segment table decides which segments there are: a row of a segment that it has dropped is void.
The file may have no rows yet. A row that does not decode at the end of the file is a torn write.
The segment it was for is in the head, from which it is noted again. Anywhere else the file is
damaged, and rebuilt from the head.
"""

import struct
from collections.abc import Iterable
from uuid import UUID

from logfs.disk.vfs import LARGER_FILE_BYTES, Disk
from logfs.errors import CorruptIndexError, UnsupportedFormatError
from logfs.log.names import TIERED
from logfs.log.remote.entries import (
    TIERED_ENTRY_BYTES,
    PartLengths,
    TieredEntry,
    decode_tiered,
    encode_tiered,
)
from logfs.log.segments.snapshot import LogPoint
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.records.checksum import crc32c
from logfs.types import Positions

VERSION = 1
_MAGIC = b"LFTR"
_HEADER = struct.Struct(">4si16s16s")
_CRC = struct.Struct(">I")
HEADER_BYTES = _HEADER.size + _CRC.size
_NO_ID = bytes(16)
_FEW_ROWS = 64
_ROOM_BYTES = 64 << 10
"""Set aside after the rows, so that segments can be noted, and then go, when the disk is full."""


class TieredRows:
    """The rows of one partition directory. One owner at a time; durable when a method returns.

    Attributes:
        topic_id: Part of the names of the objects.
        generation: The generation of the positions.
        entries: The tiered segments by base offset, in their order.
        starts: Positions of log starts that were noted, by offset.
        is_torn: The last rows of the file did not decode when it was read.
    """

    def __init__(self, disk: Disk, directory: str, topic_id: UUID, generation: bytes) -> None:
        self._disk = disk
        self.directory = directory
        self.topic_id = topic_id
        self.generation = generation
        self.entries: dict[int, TieredEntry] = {}
        self.starts: dict[int, Positions] = {}
        self.is_torn = False
        self._end = 0

    @property
    def name(self) -> str:
        """The name of the file below the data directory."""
        return f"{self.directory}/{TIERED}"

    @classmethod
    def load(cls, disk: Disk, directory: str) -> "TieredRows | None":
        """Read the file of a partition directory; None if there is none.

        Args:
            disk: The local disk.
            directory: The partition directory.

        Raises:
            CorruptIndexError: It does not decode.
            UnsupportedFormatError: A newer logfs wrote it.
        """
        name = f"{directory}/{TIERED}"
        try:
            data = disk.read(name, LARGER_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return cls.decode(disk, directory, data)

    @classmethod
    def decode(cls, disk: Disk, directory: str, data: bytes) -> "TieredRows":
        """Make the rows of the bytes of the file; see ``load`` for what it raises."""
        name = f"{directory}/{TIERED}"
        if len(data) < HEADER_BYTES or data[:4] != _MAGIC:
            raise CorruptIndexError(f"{name}: it is no list of tiered segments")
        _, version, topic_id, generation = _HEADER.unpack_from(data)
        if version != VERSION:
            raise UnsupportedFormatError(
                f"{name}: version {version}, this logfs reads version {VERSION}: use a newer logfs"
            )
        if _CRC.unpack_from(data, _HEADER.size)[0] != crc32c(data[: _HEADER.size]):
            raise CorruptIndexError(f"{name}: the checksum of its header differs")
        rows = cls(disk, directory, UUID(bytes=topic_id), generation)
        rows._end = HEADER_BYTES
        problem: CorruptIndexError | None = None
        for position in range(HEADER_BYTES, len(data) - TIERED_ENTRY_BYTES + 1, TIERED_ENTRY_BYTES):
            try:
                entry = decode_tiered(data, position, name)
            except CorruptIndexError as error:
                problem = problem or error
                continue
            if problem is not None:
                raise problem  # rows come after it: that is no torn write
            rows._note(entry)
            rows._end = position + TIERED_ENTRY_BYTES
        rows.is_torn = problem is not None
        rows._sort()
        return rows

    @property
    def next_offset(self) -> int | None:
        """The offset after the last tiered record; None if there is no tiered segment."""
        last = next(reversed(self.entries.values()), None)
        return None if last is None else last.next_offset

    def add(self, entries: Iterable[TieredEntry]) -> None:
        """Note more tiered segments, by base offset and after those that are there.

        Raises:
            OSError: Perhaps none of them is noted.
        """
        self._append(list(entries))

    def make_room(self) -> None:
        """Make the file if it is not there, and have blocks set aside for more rows, if possible.

        Raises:
            OSError: There is no file: the disk is full.
        """
        if not self._end:
            self.rewrite()
        file = self._disk.open(self.name, write=True)
        try:
            file.make_room(self._end, _ROOM_BYTES)
        finally:
            file.close()

    def note_start(self, start: LogPoint) -> None:
        """Note a log start inside a tiered segment; see ``add`` for errors."""
        if self.starts.get(start.offset) != start.positions:
            self._append([_start_row(*start)])

    def forget_below(self, base_offset: int) -> list[TieredEntry]:
        """Forget the segments before a base offset, which the log has dropped; returns them.

        Only in memory: the segment table has them as dropped. See ``shrink``.
        """
        gone = [entry for base, entry in self.entries.items() if base < base_offset]
        self.entries = {base: row for base, row in self.entries.items() if base >= base_offset}
        return gone

    def forget_all(self) -> list[TieredEntry]:
        """Forget all segments; in memory only."""
        gone, self.entries = list(self.entries.values()), {}
        return gone

    def shrink(self, start: LogPoint) -> None:
        """Rewrite the file if most of its rows are void.

        Args:
            start: The log start; others that were noted are not needed any more.

        Raises:
            OSError: The file is as before.
        """
        size = HEADER_BYTES + TIERED_ENTRY_BYTES * (2 * len(self.entries) + _FEW_ROWS)
        if self._end > size:
            positions = self.starts.get(start.offset)
            self.starts = {} if positions is None else {start.offset: positions}
            self.rewrite()

    def restore(self, entries: Iterable[TieredEntry]) -> None:
        """Note segments that were lost from the file; see ``rewrite`` for errors."""
        for entry in entries:
            self._note(entry)
        self._sort()
        self.rewrite()

    def rewrite(self) -> None:
        """Replace the file by one with only these rows; OSError: it is as before."""
        starts = [_start_row(offset, positions) for offset, positions in self.starts.items()]
        rows = b"".join(map(encode_tiered, [*self.entries.values(), *starts]))
        header = _HEADER.pack(_MAGIC, VERSION, self.topic_id.bytes, self.generation)
        data = header + _CRC.pack(crc32c(header)) + rows
        self._disk.replace(self.name, data)
        self._end = len(data)

    def _append(self, added: list[TieredEntry]) -> None:
        if not added:
            return
        if not self._end:
            for entry in added:
                self._note(entry)
            self._sort()
            try:
                self.rewrite()
            except OSError:
                self.entries, self.starts = {}, {}
                raise
            return
        data = b"".join(map(encode_tiered, added))
        file = self._disk.open(self.name, write=True)
        try:
            if file.size() != self._end:  # else it would give back what was set aside
                file.truncate(self._end)
            file.pwrite(data, self._end)
            file.sync()
        finally:
            file.close()
        self._end += len(data)
        for entry in added:
            self._note(entry)

    def _note(self, row: TieredEntry) -> None:
        if row.entry.state is SegmentState.DROPPED:
            self.starts[row.base_offset] = row.entry.bases
        else:
            self.entries[row.base_offset] = row

    def _sort(self) -> None:
        self.entries = dict(sorted(self.entries.items()))


def _start_row(offset: int, positions: Positions) -> TieredEntry:
    row = TableEntry(offset, SegmentState.DROPPED, positions, positions, offset, 0)
    return TieredEntry(row, _NO_ID, 0, PartLengths(), 0, 0)
