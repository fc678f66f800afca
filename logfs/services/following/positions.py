"""What is remembered of the positions of a followed partition.

Where a segment is cannot be found out again once an older one is gone, so it is kept: in memory
only (``FollowedPositions``), or in a directory of the cache (``CachedPositions``), which has

    logfs.segments      the segment table, as in a directory of logfs's own; its ``size`` and its
                        identity (``identity.py``) say which file a segment was, and its reservation
                        which positions may have been shown
    logfs.tail          the tail checkpoint: how far the last segment had been read
    logfs.losses        what was lost
    BASE.textindex      text index of a segment; of one that was rewritten BASE.SIZE.textindex

A cache that fails (no room, a disk error) is given up until the next mount: following continues in
memory.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from logfs.disk.vfs import Disk, File, FileStat
from logfs.errors import CorruptIndexError, LogfsError
from logfs.log import names
from logfs.log.host import Host, cache_mark
from logfs.log.indexes.index import Entries
from logfs.log.indexes.indexfile import IndexFile, IndexMode
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.losses import LossFile
from logfs.log.names import FileKind
from logfs.log.segments.segment import Segment
from logfs.log.segments.table import SegmentState, SegmentTable, TableEntry
from logfs.log.writing.reservation import PositionReservation
from logfs.services.following.files import OwnTexts
from logfs.services.following.identity import confirmed, identify
from logfs.services.following.tailcheckpoint import (
    TailCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from logfs.types import Positions

logger = logging.getLogger(__name__)

TAIL_CHECKPOINT = "logfs.tail"


class FollowedPositions:
    """Nothing outlives the mount: positions start at 0 at the next one, under other inodes.

    Attributes:
        table: Its generation goes into the inodes.
        tail: How far the last segment was read before; None if that is not known.
        shown: Positions that no size ever shown exceeds.
        may_have_lost: The machine stopped without warning since: ``shown`` is a bound, not a fact.
    """

    is_cached: ClassVar[bool] = False
    """The positions may include segments from an earlier mount."""
    is_replicated: ClassVar[bool] = True
    """Other brokers may have copies of the log, which a high watermark tells of."""

    def __init__(self, table: SegmentTable, losses: LossFile) -> None:
        self.table = table
        self.losses = losses
        self.tail: TailCheckpoint | None = None
        self.shown = Positions()
        self.may_have_lost = False
        self._texts: dict[int, Entries] = {}

    @property
    def entries(self) -> dict[int, TableEntry]:
        """The segments that were known before, by base offset."""
        return {}

    def text_entries(self, segment: Segment) -> Entries:
        """Return the text index of a sealed segment."""
        return self._texts.get(segment.inode, b"")

    def entry_of_rewritten(self, segment: Segment, size: int) -> TableEntry | None:
        """Return what is known of a segment that others became; None if it has to be compared."""
        return None

    def sealed_by_owner(self, segment: Segment) -> TableEntry | None:
        """Return the end of a segment in the table of a directory of logfs's own; None: not yet."""
        return None

    def begin(self, segment: Segment, entries: bytes) -> None:
        """A segment is followed from now on; its text index has these entries so far."""

    def go_on(self, segment: Segment, count: int) -> None:
        """A segment is followed again, whose text index has a number of entries."""

    def grow(self, entries: bytes, note: TailCheckpoint) -> None:
        """The followed segment has grown by text index entries; the note says how far."""

    def seal(self, segment: Segment, entries: Entries) -> None:
        """A segment has its end."""
        self._texts[segment.inode] = entries

    def replace(self, segment: Segment, entries: bytes) -> None:
        """A segment was rewritten; these are its text index entries."""
        self._texts[segment.inode] = entries

    def store(self, sealed: Sequence[Segment], active: Segment) -> None:
        """These segments are all there is."""
        live = {segment.inode for segment in sealed}
        self._texts = {inode: text for inode, text in self._texts.items() if inode in live}

    def drop(self, segments: Iterable[Segment]) -> None:
        """The oldest segments are gone."""
        for segment in segments:
            self._texts.pop(segment.inode, None)

    def cover(self, active: Segment, ends: Positions) -> None:
        """Make sure that positions up to ``ends`` may be shown."""

    def let_go(self) -> None:
        """Close files until they are needed again: each partition has some, and few are written."""

    def close(self, active: Segment, note: TailCheckpoint | None) -> None:
        """The mount ends."""


class OwnerPositions(FollowedPositions):
    """The positions of a directory that logfs writes, which says itself where everything is."""

    is_replicated = False

    def __init__(self, disk: Disk, directory: str, table: SegmentTable, losses: LossFile) -> None:
        super().__init__(table, losses)
        self._disk = disk
        self._directory = directory

    @property
    def entries(self) -> dict[int, TableEntry]:
        """The contents of the directory's own table by now."""
        try:
            return SegmentTable.load(self._disk, self._directory).entries
        except (LogfsError, FileNotFoundError):
            return self.table.entries

    def entry_of_rewritten(self, segment: Segment, size: int) -> TableEntry | None:
        """Return what the directory says of it, once it speaks of this file."""
        entry = self.sealed_by_owner(segment)
        return None if entry is None or entry.size_bytes != size else entry

    def sealed_by_owner(self, segment: Segment) -> TableEntry | None:
        """Return the entry of a segment, once it is sealed at these positions."""
        entry = self.entries.get(segment.base_offset)
        if entry is None or entry.state is not SegmentState.SEALED:
            return None
        return entry if entry.bases == segment.bases else None

    def text_entries(self, segment: Segment) -> Entries:
        """Return the text index of a sealed segment."""
        if segment.inode in self._texts:
            return super().text_entries(segment)
        return OwnTexts(self._disk).text_entries(segment)


class CachedPositions(FollowedPositions):
    """Kept in a directory of the cache. Make it with ``open``."""

    is_cached = True

    def __init__(
        self,
        disk: Disk,
        directory: str,
        table: SegmentTable,
        losses: LossFile,
        host: Host,
        followed: Disk,
    ) -> None:
        super().__init__(table, losses)
        self._disk = disk
        self._followed = followed
        self._directory = directory
        self._host = host
        self._file: File | None = None
        self._text = ""  # the name of the file, if a segment is followed
        self._file_end = 0
        self._note_file: File | None = None
        self._reservation = PositionReservation(table, cache_mark(host, disk), Positions())
        self._is_new = True
        self._has_failed = False
        self._rewritten: set[int] = set()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        host: Host,
        followed: Disk,
        lose: Callable[[LossFile, str], None],
    ) -> "CachedPositions":
        """Read what is kept of a partition; ``lose`` is told if positions have to start again.

        Args:
            disk: The cache.
            followed: The data directory, where its segments are.

        Raises:
            UnsupportedFormatError: A newer logfs wrote it.
            OSError: The cache cannot be used.
        """
        if not disk.exists(directory):
            disk.make_directory(directory)
        losses = LossFile(disk, directory, read_only=False)
        found = disk.inodes(directory)
        table, problem = None, "is gone" if len(found) > 0 else None
        try:
            table = SegmentTable.load(disk, directory)
        except FileNotFoundError:
            pass
        except CorruptIndexError as error:
            problem = str(error)
        if table is not None and not table.is_damaged:
            positions = cls(disk, directory, table, losses, host, followed)
            positions._is_new = False
            positions._restore()
            return positions
        if table is not None:
            problem = "has lost entries"
        if problem is not None:
            lose(losses, f"the segment table of the cache {problem}: positions start again at 0, "
                         "under new inode numbers")  # fmt: skip
        for name in found:
            if name != names.LOSSES:
                disk.remove(f"{directory}/{name}")
        table = SegmentTable(disk, directory, host.new_id())
        return cls(disk, directory, table, losses, host, followed)

    @property
    def entries(self) -> dict[int, TableEntry]:
        """The segments that were known before, by base offset."""
        return self.table.entries

    def text_entries(self, segment: Segment) -> Entries:
        """Return the text index of a sealed segment."""
        if self._has_failed and segment.inode in self._texts:
            return super().text_entries(segment)
        index = IndexFile(self._disk, self._text_name(segment), TEXT_INDEX, mode=IndexMode.SEALED)
        return index.entries()

    def is_same(self, segment: Segment, found: FileStat) -> bool:
        """Whether a sealed segment that is known is the file that was found under its name.

        False as well if it cannot be read, or its text index cannot.
        """
        entry = self.table.entries[segment.base_offset]
        if found.size != entry.size_bytes:
            return False
        try:
            identity = confirmed(
                entry.boot, self._followed, segment, found, lambda: self.text_entries(segment)
            )
        except (CorruptIndexError, OSError):
            return False
        if identity is not None and identity != entry.boot:
            self._try(lambda: self.table.put(entry._replace(boot=identity)))
        return identity is not None

    def resumed_entries(self, segment: Segment, count: int) -> bytes | None:
        """Return the first entries of the text index of the segment that was read last.

        None if not as many can be read.
        """
        index = IndexFile(
            self._disk, self._text_name(segment), TEXT_INDEX, count=count, mode=IndexMode.FOREIGN
        )
        try:
            return bytes(index.entries())
        except (FileNotFoundError, CorruptIndexError):
            return None

    def begin(self, segment: Segment, entries: bytes) -> None:
        """A segment is followed from now on; its text index has these entries so far."""
        self._try(lambda: self._begin(segment, TEXT_INDEX.header + entries))

    def go_on(self, segment: Segment, count: int) -> None:
        """A segment is followed again, whose text index has a number of entries."""
        self._try(lambda: self._go_on(segment, count))

    def grow(self, entries: bytes, note: TailCheckpoint) -> None:
        """The followed segment has grown by text index entries; the note says how far."""
        self._try(lambda: self._grow(entries, note))

    def seal(self, segment: Segment, entries: Entries) -> None:
        """A segment has its end."""
        self._try(lambda: self._seal(segment, entries))
        if self._has_failed:
            super().seal(segment, entries)

    def replace(self, segment: Segment, entries: bytes) -> None:
        """A segment was rewritten; these are its text index entries."""
        self._rewritten.add(segment.base_offset)
        data = TEXT_INDEX.header + entries
        self._try(lambda: self._disk.replace(self._text_name(segment), data))
        if self._has_failed:
            super().replace(segment, entries)

    def store(self, sealed: Sequence[Segment], active: Segment) -> None:
        """These segments are all there is."""
        self._try(lambda: self._store(sealed, active))

    def drop(self, segments: Iterable[Segment]) -> None:
        """The oldest segments are gone."""
        gone = list(segments)
        super().drop(gone)
        self._try(lambda: self._drop(gone))

    def cover(self, active: Segment, ends: Positions) -> None:
        """Make sure that positions up to ``ends`` may be shown; durable when this returns."""
        if self._is_new:
            self.store((), active)
        if not self._reservation.covers(ends):
            self._try(lambda: self._reservation.sync(self._reservation.note(active, ends)))

    def close(self, active: Segment, note: TailCheckpoint | None) -> None:
        """The mount ends."""
        if note is not None and not self._is_new:
            self._try(lambda: self._close(active, note))
        self.let_go()

    def let_go(self) -> None:
        """Close files until they are needed again: each partition has some, and few are written."""
        self._file = self._note_file = None
        self.table.close()

    def _try(self, call: Callable[[], None]) -> None:
        """Write to the cache, unless it was given up; give it up if that fails."""
        if self._has_failed:
            return
        try:
            call()
        except OSError as error:
            self._has_failed = True
            logger.warning("%s; from now on positions are kept in memory only: those of %s start "
                           "again at the next mount", error, self._directory)  # fmt: skip

    def _begin(self, segment: Segment, data: bytes) -> None:
        self._close_text()
        self._rewritten.discard(segment.base_offset)  # what was rewritten is appended to again
        self._text = self._text_name(segment)
        self._file = self._disk.open(self._text, write=True, create=True)
        self._file.truncate(0)
        self._file.pwrite(data, 0)
        self._file_end = len(data)

    def _go_on(self, segment: Segment, count: int) -> None:
        self._close_text()
        self._text = self._text_name(segment)
        self._file = self._disk.open(self._text, write=True)
        self._file_end = TEXT_INDEX.header_bytes + count * TEXT_INDEX.entry_bytes
        self._file.truncate(self._file_end)

    def _grow(self, entries: bytes, note: TailCheckpoint) -> None:
        if entries and self._text:
            self._open_text().pwrite(entries, self._file_end)
            self._file_end += len(entries)
        self._put_note(note)

    def _seal(self, segment: Segment, entries: Entries) -> None:
        if self._text:
            self._open_text().sync()
            self._close_text()
        identity = identify(self._followed, segment, entries)
        self.table.put(segment.entry(SegmentState.SEALED)._replace(boot=identity))

    def _store(self, sealed: Sequence[Segment], active: Segment) -> None:
        entries = [self._sealed_entry(segment) for segment in sealed]
        self.table.rewrite([*entries, self._reservation.open_entry(active)])
        self._is_new = False
        live = {self._text_name(segment) for segment in (*sealed, active)}
        for name in self._disk.inodes(self._directory):
            path = f"{self._directory}/{name}"
            if name.endswith(FileKind.TEXT_INDEX) and path not in live:
                self._disk.remove(path)

    def _sealed_entry(self, segment: Segment) -> TableEntry:
        """Return the entry of a segment, with the identity that it had if it is not new."""
        entry = segment.entry(SegmentState.SEALED)
        before = self.table.entries.get(segment.base_offset)
        if before is not None and before._replace(boot=entry.boot) == entry:
            return before
        identity = identify(self._followed, segment, self.text_entries(segment))
        return entry._replace(boot=identity)

    def _drop(self, gone: Sequence[Segment]) -> None:
        self.table.put(*(s.entry(SegmentState.DROPPED) for s in gone))
        for segment in gone:
            if self._disk.exists(self._text_name(segment)):
                self._disk.remove(self._text_name(segment))

    def _close(self, active: Segment, note: TailCheckpoint) -> None:
        self._put_note(note)
        for file in (self._note_file, self._open_text() if self._text else None):
            if file is not None:
                file.sync()
        entry = active.entry(SegmentState.CLOSED)
        self.table.put(entry._replace(ends=active.bases.plus(note.lengths)))
        self.table.sync()

    def _restore(self) -> None:
        state = self.table.state
        self.shown = state.reserved
        mark = cache_mark(self._host, self._disk)
        self.may_have_lost = bool(state.boots - {mark})
        self._reservation = PositionReservation(self.table, mark, state.reserved)
        try:
            self.tail = decode_checkpoint(self._disk.read(f"{self._directory}/{TAIL_CHECKPOINT}"))
        except FileNotFoundError:
            self.tail = None
        if self.tail is not None and not self.may_have_lost:
            ends = [entry.ends for entry in state.entries.values() if entry.size_bytes is not None]
            self.shown = self.tail.bases.plus(self.tail.lengths)
            for end in ends:
                self.shown = self.shown.at_least(end)
        for entry in state.entries.values():
            if entry.state is SegmentState.SEALED:
                name = self._name_of(entry.base_offset, entry.size_bytes)
                if self._disk.exists(name):
                    self._rewritten.add(entry.base_offset)

    def _text_name(self, segment: Segment) -> str:
        base_offset = segment.base_offset
        is_rewritten = base_offset in self._rewritten
        return self._name_of(base_offset, segment.size_bytes if is_rewritten else None)

    def _name_of(self, base_offset: int, size: int | None) -> str:
        middle = "" if size is None else f".{size}"
        return f"{self._directory}/{base_offset:020d}{middle}{FileKind.TEXT_INDEX}"

    def _put_note(self, note: TailCheckpoint) -> None:
        if self._note_file is None:
            self._note_file = self._disk.open(
                f"{self._directory}/{TAIL_CHECKPOINT}", write=True, create=True
            )
        self._note_file.pwrite(encode_checkpoint(note), 0)

    def _open_text(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self._text, write=True)
        return self._file

    def _close_text(self) -> None:
        self._file, self._text = None, ""
