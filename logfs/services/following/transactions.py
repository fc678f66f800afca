"""The transactions of a log that another process writes: which were aborted, which are open.

As the log grows they follow from its batches. Where following begins in the middle, or a log was
truncated, they come from the files of the broker: transaction indexes and producer snapshots.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from logfs.disk.vfs import Disk
from logfs.errors import CorruptIndexError
from logfs.log.indexes.txnindex import AbortedTransaction, read_txn_index
from logfs.log.names import FileKind, FileSuffix, format_segment_file
from logfs.log.producers.replay import Replay, locate_transactions
from logfs.log.producers.state import ProducerState
from logfs.log.reading.lookup import offset_hint
from logfs.log.segments.batches import BatchWalk
from logfs.log.segments.snapshot import LogPoint, Snapshot
from logfs.records._indexing import find_produced
from logfs.records.produced import ProducedBatch
from logfs.services.following.listing import SegmentNames, list_names
from logfs.types import Positions

logger = logging.getLogger(__name__)

_EXPIRATION_MS = 86_400_000
"""Kafka's default of ``producer.id.expiration.ms``; open transactions do not expire."""


@dataclass(slots=True)
class Transactions:
    """The transactions of a followed log, with positions. Under the lock of the partition."""

    disk: Disk
    expiration_ms: int = _EXPIRATION_MS
    state: ProducerState = field(default_factory=ProducerState)

    def follow(self, snapshot: Snapshot, produced: Iterable[ProducedBatch]) -> Snapshot:
        """Apply batches that were appended; the snapshot shows them already."""
        ended = [entry for batch in produced if (entry := self.state.apply(batch)) is not None]
        locate_transactions(self.state, snapshot)
        return snapshot.with_transactions((*snapshot.aborted, *ended), self.state.unstable)

    def look_up(
        self,
        snapshot: Snapshot,
        directory: str,
        now_ms: int,
        names: SegmentNames | None = None,
        known: tuple[AbortedTransaction, ...] = (),
    ) -> Snapshot:
        """Return a snapshot with the transactions that the files of the broker name.

        Args:
            names: The files to read; None: all that are there now.
            known: The facts of files that are not read again, before those of the others.
        """
        names, end = names or list_names(self.disk, directory), snapshot.end.offset
        start = snapshot.segments[0].base_offset
        aborted = read_aborted(self.disk, directory, names, start, end, ignore_missing=True)
        self.state = _producers_at_end(
            self.disk, directory, snapshot, names, now_ms, self.expiration_ms
        )
        found = tuple(entry for entry in aborted if entry.last_offset < end)
        return self.follow(snapshot._replace(aborted=(*known, *found)), ())


class OffsetTransactions:
    """The transactions of one partition by offset alone, for readers that know no positions."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._state: ProducerState | None = None
        self._done = 0

    def forget(self) -> None:
        """Forget the producers, because the log was truncated."""
        self._state = None

    def look_up(self, snapshot: Snapshot, names: SegmentNames, now_ms: int) -> Snapshot:
        """Return a snapshot with its transactions."""
        unstable = self._state_at_end(snapshot, names, now_ms).unstable
        first, end = snapshot.segments[0].base_offset, snapshot.end.offset
        aborted = read_aborted(self._disk, self._directory, names, first, end)
        return snapshot._replace(
            aborted=tuple(sorted(aborted, key=lambda entry: entry.last_offset)),
            unstable=None if unstable is None else LogPoint(unstable.offset, Positions()),
        )

    def _state_at_end(self, snapshot: Snapshot, names: SegmentNames, now_ms: int) -> ProducerState:
        end = snapshot.end.offset
        if self._state is None:
            self._state = _producers_at_end(
                self._disk, self._directory, snapshot, names, now_ms, _EXPIRATION_MS
            )
        else:
            for batch in _batches_between(snapshot, self._done, end):
                self._state.apply(batch)
        self._done = end
        return self._state


def read_aborted(
    disk: Disk,
    directory: str,
    names: SegmentNames,
    start: int,
    end: int,
    *,
    ignore_missing: bool = False,
) -> list[AbortedTransaction]:
    """Return the aborted transactions that may have records in ``[start, end)``.

    Args:
        ignore_missing: Log a warning for an index that has just been deleted, instead of raising.

    Raises:
        FileNotFoundError: An index has just been deleted.

    Source: Kafka UnifiedLog.collectAbortedTransactions.
    """
    found: list[AbortedTransaction] = []
    before = [base for base in names.logs if base <= start]
    ignored = (CorruptIndexError, FileNotFoundError) if ignore_missing else (CorruptIndexError,)
    for base_offset in names.logs:
        if base_offset in names.indexed and (not before or base_offset >= before[-1]):
            suffix = FileSuffix.SWAP if base_offset in names.swapped else FileSuffix.NONE
            name = f"{directory}/{format_segment_file(base_offset, FileKind.TXN_INDEX, suffix)}"
            try:
                entries = read_txn_index(disk, name, base_offset)
            except ignored as error:
                logger.warning("%s: aborted transactions in it are not known", error)
                continue
            found += [e for e in entries if e.last_offset >= start and e.first_offset < end]
    return found


def _producers_at_end(
    disk: Disk,
    directory: str,
    snapshot: Snapshot,
    names: SegmentNames,
    now_ms: int,
    expiration_ms: int,
) -> ProducerState:
    """Return the producers at the log end, from the newest producer snapshot on."""
    segments = [(s, snapshot.end_of(n)[2]) for n, s in enumerate(snapshot.segments)]
    if not names.snapshots:
        segments = segments[-1:]  # the log may be of any length
    start = snapshot.start.offset
    replay = Replay(disk, directory, segments, start, now_ms, expiration_ms, read_only=True)
    return replay.state_at(snapshot.end.offset, set(names.snapshots))


def _batches_between(snapshot: Snapshot, start: int, end: int) -> Iterator[ProducedBatch]:
    for number in range(max(snapshot.index_of_offset(start), 0), len(snapshot.segments)):
        segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
        position = offset_hint(segment, start, file_end)
        for window in BatchWalk(segment.files().log, position, file_end):
            for batch in find_produced(window.buffer, 0, window.stop, window.file_position):
                if start <= batch.last_offset < end:
                    yield batch
