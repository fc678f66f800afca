"""What a reader of committed records sees of a log by offset: up to where, and what was aborted.

Which transactions are open follows from the newest producer snapshot and the batches after it;
which were aborted is in the transaction indexes.
"""

import logging
from collections.abc import Iterator

from logfs.disk.vfs import Disk
from logfs.errors import CorruptIndexError
from logfs.log.indexes.txnindex import AbortedTransaction, read_txn_index
from logfs.log.names import FileKind, FileSuffix, format_segment_file
from logfs.log.producers.replay import Replay
from logfs.log.producers.state import ProducerState
from logfs.log.reading.lookup import offset_hint
from logfs.log.scanning.listing import SegmentNames
from logfs.log.segments.batches import BatchWalk
from logfs.log.segments.snapshot import LogPoint, Snapshot
from logfs.records._native import find_produced
from logfs.records.produced import ProducedBatch
from logfs.types import Positions

logger = logging.getLogger(__name__)

_EXPIRATION_MS = 86_400_000
"""Kafka's default of ``producer.id.expiration.ms``; open transactions do not expire."""
_NOWHERE = Positions()


class Committed:
    """The transactions of one partition, followed as it grows."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._state: ProducerState | None = None
        self._done = 0

    def forget(self) -> None:
        """The log has been truncated: what is known of its end may be wrong."""
        self._state = None

    def look_up(self, snapshot: Snapshot, names: SegmentNames, now_ms: int) -> Snapshot:
        """Return a snapshot that knows its transactions."""
        state = self._state_at_end(snapshot, names, now_ms)
        unstable = state.unstable
        first, end = snapshot.segments[0].base_offset, snapshot.end.offset
        aborted = read_aborted(self._disk, self._directory, names, first, end)
        return snapshot._replace(
            aborted=tuple(sorted(aborted, key=lambda entry: entry.last_offset)),
            unstable=None if unstable is None else LogPoint(unstable.offset, _NOWHERE),
        )

    def _state_at_end(self, snapshot: Snapshot, names: SegmentNames, now_ms: int) -> ProducerState:
        end = snapshot.end.offset
        if self._state is None:
            segments = [(s, snapshot.end_of(n)[2]) for n, s in enumerate(snapshot.segments)]
            if not names.snapshots:
                segments = segments[-1:]  # the log is as long as it may be
            replay = Replay(
                self._disk,
                self._directory,
                segments,
                snapshot.start.offset,
                now_ms,
                _EXPIRATION_MS,
                read_only=True,
            )
            self._state = replay.state_at(end, set(names.snapshots))
        else:
            for batch in _batches_between(snapshot, self._done, end):
                self._state.apply(batch)
        self._done = end
        return self._state


def read_aborted(
    disk: Disk, directory: str, names: SegmentNames, start: int, end: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that may have records in ``[start, end)``.

    Source: Kafka UnifiedLog.collectAbortedTransactions.
    """
    found: list[AbortedTransaction] = []
    before = [base for base in names.logs if base <= start]
    for base_offset in names.logs:
        if base_offset in names.indexed and (not before or base_offset >= before[-1]):
            suffix = FileSuffix.SWAP if base_offset in names.swapped else FileSuffix.NONE
            name = f"{directory}/{format_segment_file(base_offset, FileKind.TXN_INDEX, suffix)}"
            try:
                entries = read_txn_index(disk, name, base_offset)
            except CorruptIndexError as error:
                logger.warning("%s: aborted transactions in it are not known", error)
                continue
            found += [e for e in entries if e.last_offset >= start and e.first_offset < end]
    return found


def _batches_between(snapshot: Snapshot, start: int, end: int) -> Iterator[ProducedBatch]:
    for number in range(max(snapshot.index_of_offset(start), 0), len(snapshot.segments)):
        segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
        position = offset_hint(segment, start, file_end)
        for window in BatchWalk(segment.files().log, position, file_end):
            for batch in find_produced(window.buffer, 0, window.stop, window.file_position):
                if start <= batch.last_offset < end:
                    yield batch
