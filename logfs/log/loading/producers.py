"""The producers and aborted transactions of a partition that is being loaded.

After a clean stop there is a snapshot at the log end, and nothing of the log is read. Otherwise the
newest snapshot before the first recovered segment is read. From there on the scanned batches are
applied. Transaction indexes and snapshots after that point are rebuilt.

Source: Kafka LogLoader.recoverSegment, UnifiedLog.rebuildProducerState,
ProducerStateManager.removeStraySnapshots.
"""

import logging
from collections.abc import Sequence

from logfs.errors import CorruptIndexError
from logfs.log.indexes.txnindex import AbortedTransaction, read_txn_index, write_txn_index
from logfs.log.loading.context import Loader
from logfs.log.names import FileKind
from logfs.log.producers.replay import Replay, batches_of
from logfs.log.producers.snapshots import remove_snapshot, write_snapshot
from logfs.log.producers.state import ProducerState
from logfs.log.segments.segment import Segment
from logfs.records.produced import ABORT, ProducedBatch

logger = logging.getLogger(__name__)


class ProducerLoader:
    """Rebuilds the producers of a partition whose segments are loaded.

    Attributes:
        state: The producers at the log end.
        aborted: The aborted transactions whose markers are kept.
        snapshot_offset: The offset of the newest snapshot; the log start if there is none.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._segments = loader.segments
        self._end_offset = loader.segments[-1].next_offset
        self._start_offset = start = max(loader.start_offset, loader.segments[0].base_offset)
        self._replay = Replay(
            loader.context.disk,
            loader.directory,
            [(segment, segment.size_bytes) for segment in loader.segments],
            start,
            loader.context.now_ms,
            loader.context.producer_expiration_ms,
            loader.context.read_only,
            loader.context.publishing,
        )
        self._is_first_time = False
        self._snapshots = self._usable_snapshots()
        self.snapshot_offset = max(self._snapshots, default=start)
        self.state = ProducerState()
        self.aborted: list[AbortedTransaction] = []

    def load(self) -> None:
        """Fill the attributes, and write the snapshots for the next start."""
        if self._is_first_time:
            offsets = [segment.base_offset for segment in self._segments[-2:]]
            for offset in [*offsets, self._end_offset]:
                self._take_snapshot(offset)
        state, done = ProducerState(), -2
        in_question = self._in_question()
        for number, segment in enumerate(self._segments):
            if segment.base_offset not in in_question:
                continue
            found = self._entries_in_file(segment)
            if found is None:
                if done != number - 1:
                    state = self._state_at(segment.base_offset)
                if self._is_recovered(segment):
                    self._take_snapshot(segment.base_offset, state)
                found, done = self._rebuild(segment, state), number
            self.aborted += found
        if self._is_first_time:
            return
        if done < 0 or any(segment.size_bytes for segment in self._segments[done + 1 :]):
            state = self._state_at(self._end_offset)
        self.state = state
        self._take_snapshot(self._end_offset, state)

    def _in_question(self) -> set[int]:
        """Return base offsets of the segments that have a transaction index, or may need one."""
        loader = self._loader
        has_index = {base for base, kinds in loader.kinds.items() if FileKind.TXN_INDEX in kinds}
        return has_index | loader.recovered | loader.produced.keys()

    def _state_at(self, offset: int) -> ProducerState:
        state = self._replay.state_at(offset, self._snapshots)
        self.snapshot_offset = max(self._snapshots, default=self._start_offset)
        return state

    def _usable_snapshots(self) -> set[int]:
        """Return the offsets of the snapshots that may be used; the others are removed."""
        loader = self._loader
        found = {base for base, kinds in loader.kinds.items() if FileKind.SNAPSHOT in kinds}
        bases = {segment.base_offset for segment in self._segments}
        last_stray = max(found - bases, default=-1)
        kept = {at for at in found if at in bases or at == last_stray > max(bases)}
        is_flushed = loader.context.is_clean and loader.unflushed_entry is None
        self._is_first_time = not kept and is_flushed
        last_offset = min(loader.recovered & bases, default=self._end_offset)
        # Unlike a broker, logfs keeps the snapshot at the start of the first segment: nothing else
        # has the sequence numbers of records that retention removed, and a job may be inside its
        # batch. It also says where an open transaction began.
        first_offset = self._segments[0].base_offset
        kept = {at for at in kept if first_offset <= at <= last_offset}
        if found != kept and not loader.context.read_only:
            for offset in found - kept:
                remove_snapshot(loader.context.disk, loader.directory, offset)
            # They do not describe what is appended from now on: their names have to go for good,
            # which the segment table sees to when it is written.
            loader.has_changed = True
            if loader.deferred is not None:
                loader.context.disk.sync_directory(loader.directory)
        return kept

    def _is_recovered(self, segment: Segment) -> bool:
        return segment.base_offset in self._loader.recovered

    def _entries_in_file(self, segment: Segment) -> list[AbortedTransaction] | None:
        """Read the transaction index of a segment; None if it must be rebuilt."""
        if self._is_recovered(segment):
            return None
        kinds = self._loader.kinds.get(segment.base_offset, set())
        if FileKind.TXN_INDEX not in kinds:
            # Like a broker, which rebuilds nothing of a segment that has its offset index.
            produced = self._loader.produced.get(segment.base_offset, ())
            has_aborted = any(batch.control == ABORT for batch in produced)
            return None if has_aborted and FileKind.OFFSET_INDEX not in kinds else []
        name = segment.file_name(FileKind.TXN_INDEX)
        try:
            return read_txn_index(self._loader.context.disk, name, segment.base_offset)
        except (CorruptIndexError, OSError) as error:
            logger.warning("%s; it is rebuilt", error)
            return None

    def _rebuild(self, segment: Segment, state: ProducerState) -> list[AbortedTransaction]:
        """Apply the batches of a segment, and rewrite its transaction index."""
        produced: Sequence[ProducedBatch] | None
        produced = self._loader.produced.get(segment.base_offset)
        if produced is None:
            produced = list(batches_of(segment, segment.size_bytes))
        entries = [entry for batch in produced if (entry := state.apply(batch)) is not None]
        context = self._loader.context
        has_file = FileKind.TXN_INDEX in self._loader.kinds.get(segment.base_offset, ())
        if (entries or has_file) and not context.read_only:
            write_txn_index(context.disk, segment.file_name(FileKind.TXN_INDEX), entries)
        return entries

    def _take_snapshot(self, offset: int, state: ProducerState | None = None) -> None:
        """Write a snapshot, unless there is one at this offset or after it.

        Only a snapshot at the log end must be durable, if it has entries: a clean stop relies on
        it. The others only save time.
        """
        context = self._loader.context
        if offset <= self.snapshot_offset or context.read_only:
            return
        state = state or ProducerState()
        file = write_snapshot(context.disk, self._loader.directory, offset, state)
        if file is None:
            return
        if state.entries and offset == self._end_offset:
            file.sync()
        file.close()
        self._snapshots.add(offset)
        self.snapshot_offset = offset
