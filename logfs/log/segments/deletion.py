"""Segments that were deleted: renamed at once, removed later, kept while somebody reads them.

Source: Kafka LocalLog.deleteSegmentFiles (``file.delete.delay.ms``).
"""

from collections.abc import Sequence

from logfs.disk.vfs import Disk
from logfs.errors import DeletedError
from logfs.log.names import FileKind
from logfs.log.segments.segment import SEGMENT_FILE_KINDS, Segment

_GOES_WITH_IT = (*SEGMENT_FILE_KINDS, FileKind.SNAPSHOT)
"""The files that go with a segment: its own, and the producer snapshot taken where it begins."""


class DeletedSegments:
    """The deleted segments of one partition whose files are still there. Under its lock."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[int, Segment]] = []

    @property
    def segments(self) -> list[Segment]:
        """The segments whose files are still there."""
        return [segment for _, segment in self._waiting]

    def add(self, segment: Segment, due_ms: int, *, is_replaced: bool = False) -> None:
        """Rename the files of a segment; they may be removed from ``due_ms`` on.

        Args:
            segment: The segment.
            due_ms: Clock.
            is_replaced: Another segment begins where it did, so the producer snapshot stays.
        """
        # Not by what is waiting: of those that were taken files may still be about to be removed.
        segment.deleted_copy = segment.rewrites
        for kind in SEGMENT_FILE_KINDS if is_replaced else _GOES_WITH_IT:
            old = segment.file_name(kind)
            if self._disk.exists(old):
                self._disk.rename(old, segment.file_name(kind, is_deleted=True))
        self._take(segment, due_ms)

    def add_unrenamed(self, segment: Segment, due_ms: int) -> None:
        """Do the same after ``add`` has failed, for a directory that has no room for a name.

        What is not read goes at once; of the rest the files keep their names until they go, so no
        other segment may get the base offset of this one.
        """
        segment.keeps_name = True
        self._take(segment, due_ms)
        if not segment.pins:
            self._waiting.pop()
            remove_files(self._disk, segment)

    def _take(self, segment: Segment, due_ms: int) -> None:
        segment.is_deleted = True
        segment.close_files()
        self._waiting.append((due_ms, segment))

    def hasten(self, now_ms: int) -> tuple[int, int]:
        """Make all of them due; returns the bytes of those not pinned and of those pinned."""
        self._waiting = [(min(at, now_ms), segment) for at, segment in self._waiting]
        sizes = [0, 0]
        for _, segment in self._waiting:
            sizes[segment.pins > 0] += segment.size_bytes
        return sizes[0], sizes[1]

    def take_due(self, now_ms: int) -> list[Segment]:
        """Take the segments that are due and that no open file has pinned; see ``remove_files``."""
        due = [s for at, s in self._waiting if at <= now_ms and not s.pins]
        self._waiting = [row for row in self._waiting if row[1] not in due]
        return due

    def pin(self, segments: Sequence[Segment], live: Sequence[Segment]) -> None:
        """Keep the files of segments until ``unpin``.

        Args:
            segments: What an open file will read.
            live: The segments of the log.

        Raises:
            DeletedError: The files of one are gone already; none is pinned.
        """
        present = {id(s) for s in live} | {id(s) for _, s in self._waiting}
        for segment in segments:
            if id(segment) not in present:
                raise DeletedError(f"{segment.name}: the segment has been deleted")
        for segment in segments:
            segment.pins += 1


def remove_files(disk: Disk, segment: Segment) -> None:
    """Remove the files of a deleted segment. May take long, so not under the lock."""
    for kind in _GOES_WITH_IT:
        for is_deleted in (True, False) if segment.keeps_name else (True,):
            name = segment.file_name(kind, is_deleted=is_deleted)
            if disk.exists(name):
                disk.remove(name)


def unpin(segments: Sequence[Segment]) -> None:
    """Undo ``DeletedSegments.pin``."""
    for segment in segments:
        segment.pins -= 1
