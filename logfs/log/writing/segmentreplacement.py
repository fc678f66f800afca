"""Putting a compacted or packed segment in the place of those it was made from, safe at every step.

    1  the new files are whole and durable, called ``.cleaned``; a pending entry is in the table
    2  ``.cleaned`` becomes ``.swap``                     a stop before that is over undoes it,
    3  the files of the old segments become ``.deleted``  a stop from then on completes it
    4  ``.swap`` is taken off, that of the text index last: what is in the range of a ``.log.swap``
       and not called so itself is taken for a file of an old segment
    5  the new entry is sealed, the old ones are merged

The names are made durable after each step, so that a power cut cannot keep a later one without an
earlier one. Positions do not change. Readers that are in the middle of an old segment continue in
its files until they get to the end of what they have in memory, then in the new one.

Source: Kafka LocalLog.replaceSegments. Loading: ``loading.swaps``.
"""

import logging
from collections.abc import Sequence

from logfs.disk.vfs import DISK_FULL
from logfs.errors import CleaningAbortedError
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.names import FileKind, FileSuffix, format_segment_file
from logfs.log.segments.segment import KAFKA_FILE_KINDS, SEGMENT_FILE_KINDS, Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.log.writing.segmentremoval import SegmentRemoval
from logfs.log.writing.state import PartitionState

logger = logging.getLogger(__name__)


class SegmentReplacement:
    """Replaces segments of a partition by what compaction or packing makes of them."""

    def __init__(self, state: PartitionState, removal: SegmentRemoval) -> None:
        self._state = state
        self._removal = removal

    def replace(
        self,
        snapshot: Snapshot,
        old: Sequence[Segment],
        entry: TableEntry,
        aborted: Sequence[AbortedTransaction],
        now_ms: int,
    ) -> Segment:
        """Replace neighbouring sealed segments by one whose files are called ``.cleaned``.

        Args:
            snapshot: The state that was compacted.
            entry: Describes the new one, under the base offset of the first; ``boot`` is the mark
                of its text index.
            aborted: The contents of its transaction index.

        Raises:
            CleaningAbortedError: The log has changed meanwhile; nothing was replaced.
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
            OSError: Nothing was replaced, or the log is offline; loading it says which.
        """
        state = self._state
        with state.lock:
            state.check_writable()
            state.finish_loading()
            first = self._place_of(snapshot, old)
            state.settle_lines(old[-1].next_offset)
            with state.offline_on_failure("write", but_not_full=True):
                state.table.put(entry._replace(state=SegmentState.PENDING))
            with state.offline_on_failure("fsync"):
                state.table.sync()
                state.disk.sync_directory(state.directory)
            base_offset = entry.base_offset
            self._take_up(base_offset)
            with state.offline_on_failure("compaction"):
                state.disk.sync_directory(state.directory)
                due_ms = now_ms + state.config.file_delete_delay_ms
                for segment in old:
                    self._removal.deleted.add(segment, due_ms, is_replaced=segment is old[0])
                state.disk.sync_directory(state.directory)
                for kinds in (KAFKA_FILE_KINDS, [FileKind.TEXT_INDEX]):
                    self._put_in_place(base_offset, kinds, old)
                    state.disk.sync_directory(state.directory)
                self._note_replaced(entry, old)
            new = old[0].successor(entry)
            self._show(first, len(old), new, aborted)
            return new

    def note_packed(self, segment: Segment) -> None:
        """Note in the segment table that packing would not make a sealed segment smaller.

        Raises:
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
            OSError: The table has no note; with another error than ENOSPC the log is offline.
        """
        state = self._state
        with state.lock:
            state.check_writable()
            state.finish_loading()
            if not any(segment is other for other in state.snapshot.segments[:-1]):
                return  # removed or replaced meanwhile
            entry = segment.entry(SegmentState.SEALED)._replace(is_packed=True)
            with state.offline_on_failure("write", but_not_full=True):
                state.table.put(entry)
            segment.is_packed = True

    def _place_of(self, snapshot: Snapshot, old: Sequence[Segment]) -> int:
        """Return the index of the first segment, if all of them are as they were."""
        state = self._state
        segments = state.snapshot.segments
        first = state.snapshot.index_of_offset(old[0].base_offset)
        is_same = first >= 0 and all(
            a is b for a, b in zip(segments[first : first + len(old)], old, strict=False)
        )
        if state.tier is not None and any(s.base_offset in state.tier.entries for s in old):
            raise CleaningAbortedError(
                f"{state.topic_partition}: a segment from offset {old[0].base_offset} on is in the "
                "object store, which keeps it as it is"
            )
        if (
            state.snapshot.truncations != snapshot.truncations
            or not is_same
            or len(segments) <= first + len(old)
        ):
            raise CleaningAbortedError(
                f"{state.topic_partition}: its segments from offset {old[0].base_offset} on have "
                "changed while they were compacted; that starts again"
            )
        return first

    def _take_up(self, base_offset: int) -> None:
        """Rename the ``.cleaned`` files to ``.swap``, or none of them if that needs room."""
        state = self._state
        with state.offline_on_failure("compaction", but_not_full=True):
            try:
                self._rename(base_offset, SEGMENT_FILE_KINDS, FileSuffix.CLEANED, FileSuffix.SWAP)
            except OSError as error:
                if error.errno in DISK_FULL:
                    # One is still called .cleaned, so a stop in between undoes it as well.
                    for kind in SEGMENT_FILE_KINDS:
                        name = self._name(base_offset, kind, FileSuffix.SWAP)
                        if state.disk.exists(name):
                            state.disk.remove(name)
                raise

    def _put_in_place(
        self, base_offset: int, kinds: Sequence[FileKind], old: Sequence[Segment]
    ) -> None:
        """Take the ``.swap`` off; if the names need room, those of the old files make it."""
        try:
            self._rename(base_offset, kinds, FileSuffix.SWAP, FileSuffix.NONE)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._removal.deleted.remove_at_once(old)
            self._rename(base_offset, kinds, FileSuffix.SWAP, FileSuffix.NONE)

    def _name(self, base_offset: int, kind: FileKind, suffix: FileSuffix) -> str:
        return f"{self._state.directory}/{format_segment_file(base_offset, kind, suffix)}"

    def _rename(
        self, base_offset: int, kinds: Sequence[FileKind], old: FileSuffix, new: FileSuffix
    ) -> None:
        """Change the suffix of files of a segment."""
        for kind in kinds:
            name = self._name(base_offset, kind, old)
            if self._state.disk.exists(name):
                self._state.disk.rename(name, self._name(base_offset, kind, new))

    def _note_replaced(self, entry: TableEntry, old: Sequence[Segment]) -> None:
        entries = [entry._replace(boot=bytes(8))]
        entries += [segment.entry(SegmentState.MERGED) for segment in old[1:]]
        # After a kill the pending entry says the same, together with the mark.
        self._state.table.put_or_owe(*entries)

    def _show(
        self, first: int, count: int, new: Segment, aborted: Sequence[AbortedTransaction]
    ) -> None:
        snapshot = self._state.snapshot
        segments = snapshot.segments
        stop = segments[first + count].base_offset
        left = (
            *(a for a in snapshot.aborted if a.last_offset < new.base_offset),
            *aborted,
            *(a for a in snapshot.aborted if a.last_offset >= stop),
        )
        segments = (*segments[:first], new, *segments[first + count :])
        changed = snapshot.changed(segments, snapshot.start, snapshot.end)
        self._state.snapshot = changed._replace(aborted=left)
