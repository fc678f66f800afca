"""Deleted segments: renamed at once, removed after a delay, kept while a reader has them pinned.

Source: Kafka LocalLog.deleteSegmentFiles (``file.delete.delay.ms``).
"""

from collections.abc import Sequence

from logfs.disk.vfs import DISK_FULL, Disk
from logfs.errors import DeletedError
from logfs.log.names import FileKind
from logfs.log.segments.segment import SEGMENT_FILE_KINDS, Segment, SegmentFiles

_REMOVED_KINDS = (*SEGMENT_FILE_KINDS, FileKind.SNAPSHOT)
"""The files that are removed with a segment: its own, and the producer snapshot at its start."""


class DeletedSegments:
    """The deleted segments of one partition that still have files. Under its lock."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[int, Segment]] = []

    @property
    def segments(self) -> list[Segment]:
        """The segments that still have files."""
        return [segment for _, segment in self._waiting]

    def add(self, segment: Segment, due_ms: int, *, is_replaced: bool = False) -> None:
        """Rename the files of a segment; they may be removed from ``due_ms`` on.

        On a disk that has no room for the new names the files are removed at once.

        Args:
            segment: The segment.
            due_ms: Clock.
            is_replaced: Another segment has the same base offset: the producer snapshot stays.
        """
        # Not a number from the waiting segments: the files of those taken may not be removed yet.
        segment.deleted_copy = segment.rewrites
        kinds = SEGMENT_FILE_KINDS if is_replaced else _REMOVED_KINDS
        try:
            for kind in kinds:
                old = segment.file_name(kind)
                if self._disk.exists(old):
                    self._disk.rename(old, segment.file_name(kind, is_deleted=True))
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._remove_at_once(segment, kinds, has_own_names=True)
            return
        segment.is_deleted = True
        segment.close_files()
        self._waiting.append((due_ms, segment))

    def remove_at_once(self, segments: Sequence[Segment]) -> None:
        """Remove the files of added segments at once, to free the room that their names take."""
        for segment in segments:
            if any(segment is row[1] for row in self._waiting):
                self._waiting = [row for row in self._waiting if row[1] is not segment]
                self._remove_at_once(segment, SEGMENT_FILE_KINDS, has_own_names=False)

    def _remove_at_once(
        self, segment: Segment, kinds: Sequence[FileKind], *, has_own_names: bool
    ) -> None:
        """Remove the files of a segment; for its readers they are opened first.

        Args:
            segment: The segment.
            kinds: Which files.
            has_own_names: Some files may still have the names of a segment in use.
        """
        files = _opened(segment) if segment.pins else None
        segment.is_deleted = True
        segment.close_files()
        segment.pinned_files = files
        for kind in kinds:
            for is_deleted in (True, False) if has_own_names else (True,):
                _remove_if_there(self._disk, segment.file_name(kind, is_deleted=is_deleted))

    def hasten(self, now_ms: int) -> tuple[int, int]:
        """Make all of them due; returns the bytes of those not pinned and of those pinned."""
        self._waiting = [(min(at, now_ms), segment) for at, segment in self._waiting]
        sizes = [0, 0]
        for _, segment in self._waiting:
            sizes[segment.pins > 0] += segment.size_bytes
        return sizes[0], sizes[1]

    def take_due(self, now_ms: int) -> list[Segment]:
        """Return the due segments without pins, and forget them; see ``remove_files``."""
        due = [s for at, s in self._waiting if at <= now_ms and not s.pins]
        self._waiting = [row for row in self._waiting if row[1] not in due]
        return due

    def pin(self, segments: Sequence[Segment], live: Sequence[Segment]) -> None:
        """Keep the files of segments until ``unpin``.

        Args:
            segments: The segments that an open file will read.
            live: The segments of the log.

        Raises:
            DeletedError: The files of one are removed already; none is pinned.
        """
        present = {id(s) for s in live} | {id(s) for _, s in self._waiting}
        for segment in segments:
            if id(segment) not in present:
                raise DeletedError(f"{segment.name}: the segment has been deleted")
        for segment in segments:
            segment.pins += 1


def remove_files(disk: Disk, segment: Segment) -> None:
    """Remove the files of a deleted segment. This may take long: call it without the lock."""
    for kind in _REMOVED_KINDS:
        _remove_if_there(disk, segment.file_name(kind))


def _opened(segment: Segment) -> SegmentFiles:
    """Return the files of a segment, open, with its indexes in memory."""
    files = segment.files()
    files.log.size()
    for entries in (files.offset_entries, files.time_entries, files.text_entries):
        entries()
    return files


def _remove_if_there(disk: Disk, name: str) -> None:
    if disk.exists(name):
        disk.remove(name)


def unpin(segments: Sequence[Segment]) -> None:
    """Undo ``DeletedSegments.pin``."""
    for segment in segments:
        segment.pins -= 1
