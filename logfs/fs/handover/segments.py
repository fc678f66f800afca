"""Deleted segments that fixed names read: a successor keeps their files until these are closed.

    text    DIRECTORY  COPY  ENTRY     with tabs between them; ENTRY is that of the segment table

The files have names that a start removes, other than those which are noted here. A fixed name is
restored with the segments of its look-up: later deletions are undone, the last one first.
"""

from hashlib import blake2b

from logfs.fs.handover.describing import TAB, segments_digest
from logfs.fs.handover.journal import Journal
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogPoint, Snapshot
from logfs.log.writing.segmentremoval import DeletedFiles
from logfs.types import View


class SegmentNotes:
    """The notes of one partition; see ``DeletedNotes``. Any thread."""

    def __init__(self, journal: Journal, directory: str) -> None:
        self._journal = journal
        self._directory = directory

    def note(self, files: DeletedFiles) -> None:
        """Note a segment."""
        text = TAB.join((self._directory, *files.encode()))
        self._journal.deleted_segment(self._number(files), text)

    def forget(self, files: DeletedFiles) -> None:
        """Drop the note of a segment, if there is one."""
        self._journal.deleted_segment(self._number(files), "")

    def _number(self, files: DeletedFiles) -> int:
        name = f"{self._directory} {files.entry.base_offset} {files.copy}"
        return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def deleted_in(journal: Journal, directory: str) -> list[DeletedFiles]:
    """Return the segments of a partition that are noted, in the order of their deletion."""
    rows = [text.split(TAB) for text in journal.deleted.values()]
    return [DeletedFiles.decode(copy, entry) for place, copy, entry in rows if place == directory]


def look_back(
    snapshot: Snapshot, deleted: list[Segment], view: View, between: tuple[int, int], digest: str
) -> tuple[Snapshot, tuple[Segment, ...]] | None:
    """Return the log as it was when a range had segments with a checksum; None if some are gone.

    Args:
        snapshot: The log now.
        deleted: The deleted segments that still have files, in the order of their deletion.
        view: The view of the range.
        between: Its positions.
        digest: See ``segments_digest``.

    Returns:
        The log, which starts with its first segment, and the segments of the range.
    """
    present = {segment.base_offset: segment for segment in snapshot.segments}
    for undone in (None, *reversed(deleted)):
        if undone is not None:
            present[undone.base_offset] = undone
        segments = tuple(present[base] for base in sorted(present))
        start = LogPoint(segments[0].base_offset, segments[0].bases)
        earlier = snapshot.changed(segments, start, snapshot.end)
        found = earlier.segments_between(view, *between)
        if segments_digest(found, view) == digest:
            return earlier, found
    return None
