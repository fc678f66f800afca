"""The producers at an offset, from the newest snapshot before it and the batches after that.

Only headers and markers are read. Used when a log is truncated, and when a partition is loaded
without a snapshot at its log end.

Source: Kafka UnifiedLog.rebuildProducerState, ProducerStateManager.loadFromSnapshot.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from logfs.disk.vfs import Disk
from logfs.errors import CorruptRecordError
from logfs.log.listing import list_partition
from logfs.log.names import FileKind
from logfs.log.producers.snapshots import read_snapshot, remove_snapshot, write_snapshot
from logfs.log.producers.state import ProducerState
from logfs.log.reading.lookup import positions_of_offset
from logfs.log.segments.batches import BatchWalk
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.records._indexing import find_produced
from logfs.records.produced import ProducedBatch
from logfs.types import Positions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Replay:
    """What the producers at an offset are rebuilt from.

    Attributes:
        segments: The segments, each with the bytes of its ``.log`` that hold batches.
        start_offset: The log start offset: earlier records are ignored.
        now_ms, expiration_ms: A producer that wrote nothing for that long is forgotten.
        read_only: A bad snapshot is not removed.
        retained: Producer ids that are not forgotten.
    """

    disk: Disk
    directory: str
    segments: Sequence[tuple[Segment, int]]
    start_offset: int
    now_ms: int
    expiration_ms: int
    read_only: bool = False
    retained: frozenset[int] = frozenset()

    def state_at(self, offset: int, snapshots: set[int]) -> ProducerState:
        """Return the producers at an offset; bad snapshots leave the set and the directory."""
        state, done = self._newest(offset, snapshots)
        first = bisect_right(self.segments, done, key=lambda row: row[0].base_offset) - 1
        for segment, file_end in self.segments[max(first, 0) :]:
            if max(segment.base_offset, done) >= offset:
                break
            for batch in batches_of(segment, file_end):
                if done <= batch.last_offset < offset:
                    state.apply(batch)
        return state

    def _newest(self, offset: int, snapshots: set[int]) -> tuple[ProducerState, int]:
        for at in sorted((at for at in snapshots if at <= offset), reverse=True):
            state = read_snapshot(self.disk, self.directory, at)
            if state is not None:
                state.expire(self.now_ms, self.expiration_ms, self.retained)
                return state, at
            snapshots.discard(at)
            if not self.read_only:
                remove_snapshot(self.disk, self.directory, at)
        return ProducerState(), self.start_offset


def batches_of(segment: Segment, file_end: int) -> Iterator[ProducedBatch]:
    """Return the batches of a segment that have a producer id, up to the first corrupt batch."""
    try:
        for window in BatchWalk(segment.files().log, 0, file_end):
            yield from find_produced(window.buffer, 0, window.stop, window.file_position)
    except CorruptRecordError as error:
        logger.warning("%s: producers after this are not known: %s", segment.name, error)


def rewind_producers(
    replay: Replay, offset: int, state: ProducerState
) -> tuple[ProducerState, int]:
    """Return the producers at the offset a log was truncated to, and of the newest snapshot.

    Source: Kafka ProducerStateManager.truncateAndReload.
    """
    disk, directory = replay.disk, replay.directory
    snapshots = set(list_partition(disk, directory).inodes(FileKind.SNAPSHOT))
    for at in sorted(at for at in snapshots if at > offset):
        remove_snapshot(disk, directory, at)
        snapshots.discard(at)
    # The others do not describe what is appended from now on.
    disk.sync_directory(directory)
    if state.entries:
        state = replay.state_at(offset, snapshots)
    if offset > max(snapshots, default=0):
        file = write_snapshot(disk, directory, offset, state)
        if file is not None:
            file.sync()
            snapshots.add(offset)
    return state, max(snapshots, default=0)


def locate_transactions(state: ProducerState, snapshot: Snapshot) -> None:
    """Look up where the open transactions begin; in a corrupt segment, where that begins."""

    def positions(offset: int) -> Positions:
        try:
            return positions_of_offset(snapshot, offset)
        except CorruptRecordError as error:
            segment = snapshot.segments[max(snapshot.index_of_offset(offset), 0)]
            logger.warning(
                "%s: an open transaction is assumed to begin there: %s", segment.name, error
            )
            return segment.bases.at_least(snapshot.start.positions)

    state.locate(positions)
