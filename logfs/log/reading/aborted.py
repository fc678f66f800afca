"""Which records belong to aborted transactions, and which positions those take.

A batch was aborted if it is transactional, no control batch, and lies between the first offset and
the marker of an aborted transaction of its producer. Aborted records keep their positions: to a
reader that is not shown them they are holes. Where those are is looked up once for each transaction
and segment, by the batch headers between its first record and its marker; only the records of a
window in which aborted ones were found are measured.

Source: Kafka CompletedFetch.nextFetchedRecord, by which a consumer leaves them out.
"""

import contextlib
from collections.abc import Collection

from logfs.errors import CorruptRecordError
from logfs.log.indexes import textindex
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.reading.lookup import lengths_after, offset_hint
from logfs.log.segments.abortedruns import AbortedRuns, Run, transaction_table
from logfs.log.segments.batches import BatchWalk, Window
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.records._reading import aborted_ranges, find_offset, measure
from logfs.records.compression import decompress
from logfs.records.layout import NO_OFFSET
from logfs.types import Positions


def known_runs(snapshot: Snapshot, index: int) -> AbortedRuns | None:
    """Return the runs of aborted records in a segment if they are known; reads memory only."""
    runs = snapshot.segments[index].aborted_runs
    if runs is None or runs.truncations != snapshot.truncations:
        return None
    if runs.source is snapshot.aborted:
        return runs
    return None if snapshot.aborted_in(index) - runs.known else _kept(snapshot, index, runs)


def aborted_runs(snapshot: Snapshot, index: int) -> AbortedRuns:
    """Return the runs of aborted records in a segment; looks up those that are not known yet.

    Raises:
        CorruptRecordError: The segment has gaps and its text index is damaged.
    """
    segment = snapshot.segments[index]
    runs = segment.aborted_runs
    if runs is None or runs.truncations != snapshot.truncations:
        runs = AbortedRuns(snapshot.truncations)
    new = snapshot.aborted_in(index) - runs.known
    if new:
        found = _Scan(segment, snapshot.end_of(index)).runs_of(new)
        runs = runs.with_runs(snapshot.aborted, runs.known | new, found)
        segment.aborted_runs = runs
        return runs
    return _kept(snapshot, index, runs)


def _kept(snapshot: Snapshot, index: int, runs: AbortedRuns) -> AbortedRuns:
    """Note that runs hold for the aborted transactions of a snapshot as well."""
    noted = AbortedRuns(runs.truncations, snapshot.aborted, runs.known, runs.begins, runs.ends)
    snapshot.segments[index].aborted_runs = noted
    return noted


class _Scan:
    """A search for the records of aborted transactions in one segment."""

    def __init__(self, segment: Segment, end: tuple[Positions, int, int]) -> None:
        self._segment = segment
        self._ends, _, self._file_end = end
        self._window = Window()
        # The lengths before a place in the window, once they are known.
        self._place: int | None = None
        self._lengths = Positions()

    def runs_of(self, transactions: Collection[AbortedTransaction]) -> list[Run]:
        """Find where the records of transactions lie."""
        segment = self._segment
        table = transaction_table(transactions)
        first = min(transaction.first_offset for transaction in transactions)
        last = max(transaction.last_offset for transaction in transactions)
        position = offset_hint(segment, max(first, segment.base_offset), self._file_end)
        walk = BatchWalk(segment.files().log, position, self._file_end)
        runs: list[Run] = []
        while walk.position < self._file_end:
            position = walk.position
            try:
                self._window = window = next(walk)
                ranges = aborted_ranges(window.buffer, 0, window.stop, table)
            except CorruptRecordError:
                walk.position = self._after(position)
                continue
            self._place = None
            for begin, end, base_offset, last_offset in ranges:
                run = self._lengths_at(begin, base_offset), self._lengths_at(end, last_offset + 1)
                if run[0] != run[1]:
                    runs.append(run)
            if find_offset(window.buffer, 0, window.stop, last) < window.stop:
                break
        return runs

    def _lengths_at(self, place: int, offset: int) -> Positions:
        """Return the lengths before a place in the window; called for places in order.

        Args:
            place: The start of a batch, or the end of the one before it.
            offset: The offset of the first record after it, or smaller.
        """
        lengths = None
        if self._place is not None and not self._segment.has_gaps:
            # What lies after a corrupt batch has to be counted back from the index.
            with contextlib.suppress(CorruptRecordError):
                buffer = self._window.buffer
                between = measure(buffer, self._place, place, NO_OFFSET, decompress)
                lengths = self._lengths.plus(between)
        if lengths is None:
            lengths = lengths_after(self._segment, offset, self._ends, self._file_end)
        self._place, self._lengths = place, lengths
        return lengths

    def _after(self, corrupt: int) -> int:
        """Return where batches can be found again after a header that makes no sense."""
        entry = textindex.first_entry_after(self._segment.files().text_entries(), corrupt)
        return self._file_end if entry is None else entry.file_position
