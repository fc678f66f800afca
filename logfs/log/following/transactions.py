"""The transactions of a followed log: which were aborted, which is the oldest one open.

As the log grows they follow from its batches. Where following begins in the middle, or a log was
cut, they come from what the broker keeps of them: transaction indexes and producer snapshots.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from logfs.disk.vfs import Disk
from logfs.errors import CorruptIndexError
from logfs.log.indexes.txnindex import AbortedTransaction, read_txn_index
from logfs.log.listing import list_partition
from logfs.log.names import FileKind
from logfs.log.producers.replay import Replay, locate_transactions
from logfs.log.producers.state import ProducerState
from logfs.log.segments.snapshot import Snapshot
from logfs.records.produced import ProducedBatch

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Transactions:
    """Under the lock of the partition.

    Attributes:
        expiration_ms: Kafka's ``producer.id.expiration.ms``.
        state: The producers at the log end.
    """

    disk: Disk
    expiration_ms: int = 86_400_000
    state: ProducerState = field(default_factory=ProducerState)

    def follow(self, snapshot: Snapshot, produced: Iterable[ProducedBatch]) -> Snapshot:
        """Take batches into account that were appended; the snapshot shows them already."""
        ended = [entry for batch in produced if (entry := self.state.apply(batch)) is not None]
        locate_transactions(self.state, snapshot)
        return snapshot.with_transactions((*snapshot.aborted, *ended), self.state.unstable)

    def look_up(self, snapshot: Snapshot, directory: str, now_ms: int) -> Snapshot:
        """Find out what the broker keeps of the transactions of a log."""
        files = list_partition(self.disk, directory)
        indexed = files.inodes(FileKind.TXN_INDEX)
        snapshots = set(files.inodes(FileKind.SNAPSHOT))
        aborted: list[AbortedTransaction] = []
        for segment in snapshot.segments:
            if segment.base_offset in indexed:
                name = segment.file_name(FileKind.TXN_INDEX)
                aborted += self._aborted_in(name, segment.base_offset)
        segments = [(s, snapshot.end_of(n)[2]) for n, s in enumerate(snapshot.segments)]
        if not snapshots:
            segments = segments[-1:]  # the log is as long as it may be
        replay = Replay(
            self.disk,
            directory,
            segments,
            snapshot.start.offset,
            now_ms,
            self.expiration_ms,
            read_only=True,
        )
        self.state = replay.state_at(snapshot.end.offset, snapshots)
        known = tuple(entry for entry in aborted if entry.last_offset < snapshot.end.offset)
        return self.follow(snapshot._replace(aborted=known), ())

    def _aborted_in(self, name: str, base_offset: int) -> list[AbortedTransaction]:
        try:
            return read_txn_index(self.disk, name, base_offset)
        except (CorruptIndexError, FileNotFoundError) as error:
            logger.warning("%s: aborted transactions in it are not known", error)
            return []
