"""A segment: one ``.log`` with its three indexes, described without being opened.

A partition may have ten thousand sealed segments. A ``Segment`` has all that a look-up needs to
choose one of them, from the segment table. Files are opened when a segment is read, and the least
recently used ones are closed again.
"""

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk, File, ReadableBuffer
from logfs.disk.waiting import StoreReadError
from logfs.errors import CorruptIndexError, CorruptRecordError
from logfs.log.indexes import textindex
from logfs.log.indexes.index import OFFSET_INDEX, TIME_INDEX, Entries
from logfs.log.indexes.indexfile import IndexFile, IndexMode
from logfs.log.names import FileKind, FileSuffix, format_deleted_file, format_segment_file
from logfs.log.segments.abortedruns import AbortedRuns
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.records._reading import header_last_offset
from logfs.records.compression import Buffer
from logfs.records.layout import base_offset_of, is_message
from logfs.types import Positions, View

logger = logging.getLogger(__name__)

OPEN_SEGMENTS = 128
"""Sealed segments kept open in a data directory; each takes up to four descriptors."""

KAFKA_FILE_KINDS = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TXN_INDEX,
)
SEGMENT_FILE_KINDS = (*KAFKA_FILE_KINDS, FileKind.TEXT_INDEX)
INDEX_KINDS = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TEXT_INDEX})
"""The indexes that every segment has."""


class SegmentFiles:
    """The files of one segment, opened one by one when they are asked for."""

    def __init__(self, disk: Disk, segment: "Segment", indexes: "SegmentIndexes") -> None:
        self._disk = disk
        self._segment = segment
        self.indexes = indexes
        self._unusable: set[FileKind] = set()

    @cached_property
    def log(self) -> File:
        """The ``.log``; active ones are open for writing."""
        segment = self._segment
        while True:
            name = segment.name
            try:
                is_writable = segment.is_writable
                file = self._disk.open(name, write=is_writable, uncached=not is_writable)
            except FileNotFoundError:
                # Renamed, or about to be: the topic or the segment is being deleted.
                other = segment.file_name(FileKind.LOG, is_deleted=not segment.is_deleted)
                return self._disk.open(other, uncached=True)
            if segment.name == name:
                return file
            file.close()  # renamed meanwhile: that may have been the segment that took its place

    def offset_entries(self) -> Entries:
        """Entries of the offset index."""
        return self._entries(self.indexes.offset, FileKind.OFFSET_INDEX)

    def time_entries(self) -> Entries:
        """Entries of the time index."""
        return self._entries(self.indexes.time, FileKind.TIME_INDEX)

    def text_entries(self) -> Entries:
        """Entries of the text index."""
        return self._entries(self.indexes.text, FileKind.TEXT_INDEX)

    def _entries(self, index: IndexFile, kind: FileKind) -> Entries:
        if kind in self._unusable:
            return b""
        try:
            return self._entries_in_file(index, kind)
        except (FileNotFoundError, StoreReadError):
            raise
        except (CorruptIndexError, OSError) as error:
            return self._without(kind, error)

    def _without(self, kind: FileKind, error: CorruptIndexError | OSError) -> Entries:
        """Continue without an index, if what it says can be found by a scan."""
        if kind is FileKind.TEXT_INDEX and self._segment.has_gaps:
            raise CorruptRecordError(f"{error}: the positions in it are lost") from None
        logger.warning("%s; the segment is scanned instead", error)
        self._unusable.add(kind)
        return b""

    def _entries_in_file(self, index: IndexFile, kind: FileKind) -> Entries:
        try:
            naming = self._segment.naming
            entries = index.entries()
            if self._segment.naming == naming:
                return entries
            # Renamed meanwhile: that may have been of the segment that took its place.
            index.reopen(self._segment.file_name(kind))
            return index.entries()
        except FileNotFoundError:
            is_deleted = self._segment.is_deleted
            for guess in (is_deleted, not is_deleted):
                index.name = self._segment.file_name(kind, is_deleted=guess)
                if self._disk.exists(index.name):
                    break
            return index.entries()


class SegmentIndexes:
    """The three index files of a segment."""

    def __init__(self, offset: IndexFile, time: IndexFile, text: IndexFile) -> None:
        self.offset = offset
        self.time = time
        self.text = text

    def all(self) -> tuple[IndexFile, IndexFile, IndexFile]:
        """Return offset, time and text index."""
        return self.offset, self.time, self.text


def sealed_indexes(disk: Disk, segment: "Segment") -> SegmentIndexes:
    """Describe the indexes of a sealed segment; opens nothing."""
    return SegmentIndexes(
        IndexFile(
            disk, segment.file_name(FileKind.OFFSET_INDEX), OFFSET_INDEX, mode=IndexMode.SEALED
        ),
        IndexFile(disk, segment.file_name(FileKind.TIME_INDEX), TIME_INDEX, mode=IndexMode.SEALED),
        IndexFile(
            disk,
            segment.file_name(FileKind.TEXT_INDEX),
            textindex.TEXT_INDEX,
            mode=IndexMode.SEALED,
        ),
    )


def active_indexes(
    disk: Disk,
    segment: "Segment",
    config: TopicConfig,
    counts: tuple[int | None, int | None, int | None],
) -> SegmentIndexes:
    """Describe the indexes of the active segment.

    ``counts`` are the entries they hold; None: as many as the trimmed file holds.
    """
    capacity = config.segment_index_bytes
    offset, time, text = counts
    return SegmentIndexes(
        IndexFile(
            disk,
            segment.file_name(FileKind.OFFSET_INDEX),
            OFFSET_INDEX,
            capacity_bytes=capacity,
            count=offset,
        ),
        IndexFile(
            disk,
            segment.file_name(FileKind.TIME_INDEX),
            TIME_INDEX,
            capacity_bytes=capacity,
            count=time,
        ),
        IndexFile(disk, segment.file_name(FileKind.TEXT_INDEX), textindex.TEXT_INDEX, count=text),
    )


def write_indexes(
    disk: Disk, segment: "Segment", *entries: ReadableBuffer, is_durable: bool = True
) -> None:
    """Write index files, in the order of ``SegmentIndexes.all``; all or (OSError) none."""
    kinds = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TEXT_INDEX)
    forms = (OFFSET_INDEX, TIME_INDEX, textindex.TEXT_INDEX)
    names = [segment.file_name(kind) for kind in kinds[: len(entries)]]
    for name in names:
        _remove_if_there(disk, name)
    try:
        for name, form, data in zip(names, forms, entries, strict=False):
            file = disk.open(name, write=True, create=True)
            file.pwrite(form.header + bytes(data), 0)
            if is_durable:
                file.sync()
            file.close()
    except OSError:
        for name in names:
            with contextlib.suppress(OSError):
                _remove_if_there(disk, name)
        raise


def sync_indexes(disk: Disk, segment: "Segment") -> None:
    """Make the index files of a segment durable."""
    for index in sealed_indexes(disk, segment).all():
        with contextlib.closing(disk.open(index.name, write=True)) as file:
            file.sync()


def _remove_if_there(disk: Disk, name: str) -> None:
    if disk.exists(name):
        disk.remove(name)


class OpenSegments:
    """The sealed segments of a data directory that are open, least recently used first."""

    def __init__(self, disk: Disk, capacity: int = OPEN_SEGMENTS) -> None:
        self._disk = disk
        self._capacity = capacity
        self._files: OrderedDict[Segment, SegmentFiles] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def get(
        self, segment: "Segment", make: Callable[["Segment"], SegmentFiles] | None = None
    ) -> SegmentFiles:
        """Return the files of a segment; they stay open while a caller holds them.

        ``make`` makes them if they are not ordinary ones.
        """
        with self._lock:
            files = self._files.get(segment)
            if files is None:
                files = self._files[segment] = (make or self._open)(segment)
                if len(self._files) > self._capacity:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(segment)
            return files

    def _open(self, segment: "Segment") -> SegmentFiles:
        return SegmentFiles(self._disk, segment, sealed_indexes(self._disk, segment))

    def forget(self, segment: "Segment") -> None:
        """Close a segment, unless a caller holds its files."""
        with self._lock:
            self._files.pop(segment, None)


class Segment:
    """One segment. Once it is sealed only its name changes, when it is deleted.

    Attributes:
        ends: Positions at which it ends (sealed; the end of an active one is in the snapshot).
        next_offset, size_bytes, max_timestamp, first_timestamp: See the segment table (sealed).
        lengths: Lengths of its records without gaps (sealed).
        is_packed: It was packed, or would not become smaller by that.
        text_crc: CRC-32C of the entries of its text index, if it has gaps; 0 if not known.
        is_after_gap: The source of a mirror has lost the offsets before it.
        pinned_files: Set while the segment is active, its indexes are only in memory, or its files
            have no names any more.
        is_padded: Its ``.log`` was extended to the maximum size (``preallocate``) and is not
            trimmed to its records yet.
        is_gone: Another process deleted its files, and no open file has them.
        inode: Inode of its ``.log`` where another process may replace that file; else 0.
        pins: How many open fixed names will still read it.
        rewrites: How often compaction has replaced it since the start.
        swapped: Which of its files still have the suffix ``.swap``, in a read-only store.
        deleted_copy: Number that distinguishes deleted segments with the same base offset.
    """

    __slots__ = (
        "_gaps",
        "_opened",
        "aborted_runs",
        "base_offset",
        "bases",
        "deleted_copy",
        "directory",
        "ends",
        "first_timestamp",
        "has_gaps",
        "inode",
        "is_after_gap",
        "is_deleted",
        "is_gone",
        "is_packed",
        "is_padded",
        "is_writable",
        "lengths",
        "max_timestamp",
        "next_offset",
        "pinned_files",
        "pins",
        "rewrites",
        "size_bytes",
        "swapped",
        "text_crc",
    )

    def __init__(
        self, opened: OpenSegments, directory: str, base_offset: int, bases: Positions
    ) -> None:
        self._opened = opened
        self._gaps: list[int] | None = None
        self.directory = directory
        self.base_offset = base_offset
        self.bases = bases
        self.ends = bases
        self.next_offset = base_offset
        self.size_bytes = 0
        self.max_timestamp = -1
        self.first_timestamp = -1
        self.lengths = Positions()
        self.has_gaps = False
        self.is_packed = False
        self.text_crc = 0
        self.is_after_gap = False
        self.inode = 0
        self.is_deleted = False
        self.is_padded = False
        self.is_gone = False
        self.is_writable = False
        self.pinned_files: SegmentFiles | None = None
        self.pins = 0
        self.rewrites = 0
        self.aborted_runs: AbortedRuns | None = None
        self.swapped: frozenset[FileKind] = frozenset()
        self.deleted_copy = 0

    @classmethod
    def from_entry(cls, opened: OpenSegments, directory: str, entry: TableEntry) -> "Segment":
        """Describe a sealed segment from its table entry."""
        segment = cls(opened, directory, entry.base_offset, entry.bases)
        segment.ends = entry.ends
        segment.next_offset = entry.next_offset or entry.base_offset
        segment.size_bytes = entry.size_bytes or 0
        segment.max_timestamp = entry.max_timestamp
        segment.first_timestamp = entry.first_timestamp
        segment.lengths = entry.lengths
        segment.has_gaps = entry.has_gaps
        segment.text_crc = entry.text_crc
        segment.is_packed = entry.is_packed
        segment.is_after_gap = entry.is_after_gap
        return segment

    def entry(self, state: SegmentState) -> TableEntry:
        """Return the table entry of a segment whose end is known."""
        return TableEntry(
            self.base_offset,
            state,
            self.bases,
            self.ends,
            self.next_offset,
            self.size_bytes,
            self.max_timestamp,
            self.first_timestamp,
            self.lengths,
            self.has_gaps,
            text_crc=self.text_crc,
            is_packed=self.is_packed,
            is_after_gap=self.is_after_gap,
        )

    @property
    def name(self) -> str:
        """The name of its ``.log`` below the data directory."""
        return self.file_name(FileKind.LOG)

    @property
    def naming(self) -> tuple[str, bool, int, frozenset[FileKind]]:
        """The values that ``file_name`` depends on."""
        return self.directory, self.is_deleted, self.deleted_copy, self.swapped

    def file_name(self, kind: FileKind, *, is_deleted: bool | None = None) -> str:
        """The name of one of its files below the data directory; the present one by default."""
        if self.is_deleted if is_deleted is None else is_deleted:
            name = format_deleted_file(self.base_offset, kind, self.deleted_copy)
        else:
            suffix = FileSuffix.SWAP if kind in self.swapped else FileSuffix.NONE
            name = format_segment_file(self.base_offset, kind, suffix)
        return f"{self.directory}/{name}"

    def successor(self, entry: TableEntry) -> "Segment":
        """Return the segment that replaces this one, and perhaps others after it."""
        segment = Segment.from_entry(self._opened, self.directory, entry)
        segment.rewrites = self.rewrites + 1
        return segment

    def files(self) -> SegmentFiles:
        """Return its files; they stay open while a caller holds them."""
        return self.pinned_files or self._opened.get(self)

    def close_files(self) -> None:
        """Close its files, except those that a caller holds."""
        self.pinned_files = None
        self._gaps = None
        self._opened.forget(self)

    def next_gap(self, view: View, length: int) -> textindex.Gap | None:
        """Find the gap around or after a position relative to the segment."""
        entries = self.files().text_entries()
        return textindex.next_gap(entries, view, length, self.gap_numbers(entries))

    def gaps(self, view: View) -> list[textindex.Gap]:
        """Return its gaps, positions relative to the segment."""
        if not self.has_gaps:
            return []
        entries = self.files().text_entries()
        return textindex.gaps(entries, view, self.gap_numbers(entries))

    def gap_numbers(self, entries: Entries) -> list[int]:
        """Return which entries of the text index begin a gap.

        Raises:
            CorruptRecordError: The text index is damaged. Without it the positions after the first
                gap are not known.
        """
        if self._gaps is None:
            self._gaps = self._find_gaps(bytes(entries))
        return self._gaps

    def checked_text_entries(self) -> bytes:
        """Return all entries of the text index of a segment with gaps.

        Raises:
            CorruptRecordError: See ``gap_numbers``.
        """
        data = bytes(self.files().text_entries())
        self._gaps = self._find_gaps(data)
        return data

    def _find_gaps(self, entries: bytes) -> list[int]:
        try:
            if self.text_crc:
                textindex.check_crc(entries, self.text_crc)
            return textindex.find_gaps(entries)
        except CorruptIndexError as error:
            raise self._lost_positions(str(error)) from None

    def check_holds(self, entry: textindex.TextEntry, batch: Buffer) -> None:
        """Check an entry of the text index against its batch; raise CorruptRecordError."""
        offset = self.base_offset + entry.relative_offset
        first = base_offset_of(batch)
        if offset > header_last_offset(batch, 0) or not (is_message(batch) or first <= offset):
            raise self._lost_positions(
                f"the batch at byte {entry.file_position} of the .log begins with offset {first}; "
                f"expected one with offset {offset}",
                entry.file_position,
            )

    def _lost_positions(self, problem: str, position: int | None = None) -> CorruptRecordError:
        name = self.file_name(FileKind.TEXT_INDEX)
        return CorruptRecordError(
            f"{name}: {problem}: the positions in it are lost; run logfs verify", position, name
        )
