"""The files of a segment in a directory that another process writes.

Files are read with pread, never mapped: they may be cut at any moment, and to touch a mapped page
after the end of a file is fatal (SIGBUS). A name may be for another file from one moment to the
next, so a ``.log`` is used only if it is the one that the segment describes. When it has been
replaced or deleted it is found as ``.deleted`` until it is gone for good.

The offset and time index are the broker's, a hint like all indexes. The text index is logfs's own.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from logfs.disk.vfs import Disk, File
from logfs.disk.waiting import StoreReadError
from logfs.errors import CorruptIndexError, CorruptRecordError
from logfs.log.host import Host
from logfs.log.indexes.index import OFFSET_INDEX, TIME_INDEX, Entries
from logfs.log.indexes.indexfile import IndexFile, IndexMode
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.names import FileKind
from logfs.log.segments.segment import OpenSegments, Segment, SegmentFiles, sealed_indexes
from logfs.services.following.entries import GrowingEntries, read_sparse

if TYPE_CHECKING:
    from logfs.log.loading.context import LoadContext

logger = logging.getLogger(__name__)

_OPEN_SEGMENTS = 64
"""Kept open in a data directory: their indexes take memory, not pages of a file."""


class TextSource(Protocol):
    """The path of the text index of a sealed segment."""

    def text_entries(self, segment: Segment) -> Entries:
        """Return the entries; empty if there are none.

        Raises:
            CorruptIndexError, OSError: They are lost.
        """
        ...


class OwnTexts:
    """The text indexes of a directory of logfs's own, which another process may be changing."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def text_entries(self, segment: Segment) -> Entries:
        """Return the text index of a sealed segment: read, not mapped."""
        name = segment.file_name(FileKind.TEXT_INDEX)
        return IndexFile(self._disk, name, TEXT_INDEX, mode=IndexMode.FOREIGN).entries()


class FollowedFiles(SegmentFiles):
    """The files of one sealed segment."""

    def __init__(self, disk: Disk, segment: Segment, texts: TextSource) -> None:
        super().__init__(disk, segment, sealed_indexes(disk, segment))
        self._texts = texts

    @cached_property
    def log(self) -> File:
        """The ``.log``, open for reading.

        Raises:
            FileNotFoundError: It is gone for good; from now on readers take it for a hole.
        """
        file = open_log(self._disk, self._segment)
        if file is None:
            self._segment.is_deleted = self._segment.is_gone = True
            raise FileNotFoundError(f"{self._segment.name} has been deleted or replaced")
        return file

    def offset_entries(self) -> memoryview:
        """Entries of the offset index."""
        return self._offset

    def time_entries(self) -> memoryview:
        """Entries of the time index."""
        return self._time

    def text_entries(self) -> Entries:
        """Entries of the text index."""
        return self._text

    @cached_property
    def _offset(self) -> memoryview:
        return self._sparse(FileKind.OFFSET_INDEX, OFFSET_INDEX.entry_bytes)

    @cached_property
    def _time(self) -> memoryview:
        return self._sparse(FileKind.TIME_INDEX, TIME_INDEX.entry_bytes)

    @cached_property
    def _text(self) -> Entries:
        try:
            return self._texts.text_entries(self._segment)
        except StoreReadError:
            raise
        except (CorruptIndexError, OSError) as error:
            if self._segment.has_gaps:
                raise CorruptRecordError(f"{error}: the positions in it are lost") from None
            return self._scanned(error)

    def _sparse(self, kind: FileKind, entry_bytes: int) -> memoryview:
        try:
            return memoryview(read_sparse(self._disk, self._segment.file_name(kind), entry_bytes))
        except StoreReadError:
            raise
        except OSError as error:
            return self._scanned(error)

    def _scanned(self, error: Exception) -> memoryview:
        """Continue without an index: a scan finds what it says."""
        if not isinstance(error, (CorruptIndexError, FileNotFoundError)):
            logger.warning("%s; the segment is scanned instead", error)
        return memoryview(b"")


class GrowingFiles(FollowedFiles):
    """The files of the segment that is appended to; its indexes are in memory."""

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        texts: TextSource,
        log: File,
        entries: tuple[Entries, Entries, Entries] = (b"", b"", b""),
    ) -> None:
        super().__init__(disk, segment, texts)
        self.log = log
        self.offset, self.time, self.text = map(GrowingEntries, entries)

    def append(self, entries: tuple[bytes, bytes, bytes]) -> None:
        """Append to all three indexes."""
        for index, new in zip((self.offset, self.time, self.text), entries, strict=True):
            if new:
                index.append(new)

    def all_entries(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return the entries of all three indexes."""
        return self.offset.entries(), self.time.entries(), self.text.entries()

    def offset_entries(self) -> memoryview:
        """Entries of the offset index."""
        return self.offset.entries()

    def time_entries(self) -> memoryview:
        """Entries of the time index."""
        return self.time.entries()

    def text_entries(self) -> memoryview:
        """Entries of the text index."""
        return self.text.entries()


class FollowedSegments(OpenSegments):
    """The sealed segments of a directory that are open; fewer, since indexes take memory."""

    def __init__(self, disk: Disk, capacity: int) -> None:
        super().__init__(disk, min(capacity, _OPEN_SEGMENTS))

    def of(self, texts: TextSource) -> "OwnedSegments":
        """Return a view of them for one log, whose text indexes are kept somewhere."""
        return OwnedSegments(self._disk, self, texts)

    def _open(self, segment: Segment) -> SegmentFiles:
        return FollowedFiles(self._disk, segment, OwnTexts(self._disk))


class OwnedSegments(OpenSegments):
    """Those of one log."""

    def __init__(self, disk: Disk, shared: FollowedSegments, texts: TextSource) -> None:
        super().__init__(disk)
        self._shared = shared
        self._texts = texts

    def get(
        self, segment: Segment, make: Callable[[Segment], SegmentFiles] | None = None
    ) -> SegmentFiles:
        """Return the files of a segment; they are open as long as they are referenced."""
        return self._shared.get(segment, make or self._open)

    def forget(self, segment: Segment) -> None:
        """Close a segment unless its files are referenced elsewhere."""
        self._shared.forget(segment)

    def _open(self, segment: Segment) -> SegmentFiles:
        return FollowedFiles(self._disk, segment, self._texts)


def open_log(disk: Disk, segment: Segment) -> File | None:
    """Open the ``.log`` of a segment wherever it is by now; None if it is gone."""
    for is_deleted in (segment.is_deleted, not segment.is_deleted):
        try:
            file = disk.open(segment.file_name(FileKind.LOG, is_deleted=is_deleted))
        except FileNotFoundError:
            continue
        if segment.inode in {0, file.inode()}:
            return file
        file.close()
    return None


@dataclass(frozen=True, slots=True)
class FollowContext:
    """A data directory that is followed; positions are kept in ``cache``, or in memory (None).

    Attributes:
        loading: Gives, at a time, what is known before a partition is loaded.
    """

    disk: Disk
    host: Host
    opened: FollowedSegments
    cache: Disk | None
    loading: "Callable[[int], LoadContext]"
    used: set[str] = field(default_factory=set)
