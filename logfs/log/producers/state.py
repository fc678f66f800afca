"""The producers of a partition: the rules of idempotent and transactional writes.

Kept for each producer id: its epoch, the last batches, and the open transaction.

    duplicate     same epoch and the same sequence numbers as one of the last five batches: it is
                  in the log already, and its offsets are returned
    epoch         older than the last one: refused, since another instance has taken over
    sequence      follows the last one, 0 after 2**31 - 1; 0 in a new epoch; any number from an
                  unknown producer
    transaction   opened by its first batch, closed by a marker; all batches between must be
                  transactional

A marker closes the transaction and may bring a new epoch, which forgets the batches. A transaction
that was aborted becomes an entry of the transaction index.

``apply`` takes batches that are in the log. They were checked when they were written, so it accepts
every batch.

Pure. Source: Kafka ProducerStateManager, ProducerStateEntry, ProducerAppendInfo.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from logfs.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.segments.snapshot import LogPoint
from logfs.records.produced import (
    ABORT,
    DATA,
    MAX_SEQUENCE,
    NO_MARKER,
    NO_SEQUENCE,
    ProducedBatch,
    add_to_sequence,
)
from logfs.types import NO_TIMESTAMP, Positions

BATCHES_KEPT = 5
NO_EPOCH = -1


class WrittenBatch(NamedTuple):
    """A batch that a producer wrote; ``offset_delta`` is its last offset less its first."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of its first record."""
        return add_to_sequence(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class LastRecord(NamedTuple):
    """The last record of a producer. Compaction keeps its batch, at least empty, for the sequence.

    Attributes:
        last_data_offset: The offset of its last record; None if no batch of its epoch is
            known.
    """

    last_data_offset: int | None
    epoch: int


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer id; -1 means not known yet."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    transaction_offset: int | None = None
    """Offset of the first record of the open transaction."""
    batches: deque[WrittenBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def begin_epoch(self, epoch: int) -> None:
        """Forget the batches of another epoch."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


class ProducerState:
    """The producers of one partition. One owner; calls do not overlap."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self.entries = {entry.producer_id: entry for entry in entries}
        self._open = {
            entry.producer_id: entry.transaction_offset
            for entry in self.entries.values()
            if entry.transaction_offset is not None
        }
        self._positions: dict[int, Positions] = {}

    def find_duplicate(self, batch: ProducedBatch) -> WrittenBatch | None:
        """Return the batch in the log that this one repeats; None if it does not repeat one.

        Source: Kafka ProducerStateEntry.findDuplicateBatch.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        wanted = batch.base_sequence, batch.last_sequence
        for written in entry.batches:
            if (written.first_sequence, written.last_sequence) == wanted:
                return written
        return None

    def check(self, batch: ProducedBatch) -> None:
        """Check a batch or marker that is about to be appended; nothing changes.

        Raises:
            InvalidProducerEpochError: It comes from an older epoch.
            OutOfOrderSequenceError: Its sequence number is not the next one.
            InvalidTxnStateError: It is not transactional, and a transaction is open.
            TransactionCoordinatorFencedError: A newer coordinator has written a marker.

        Source: Kafka ProducerAppendInfo.appendDataBatch, appendEndTxnMarker.
        """
        entry = self.entries.get(batch.producer_id) or ProducerEntry(batch.producer_id)
        producer = f"producer {batch.producer_id} at offset {batch.base_offset}"
        if batch.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"{producer}: epoch {batch.producer_epoch} is over, the last one is {entry.epoch}: "
                "another instance of the producer has taken over"
            )
        if batch.control == DATA:
            _check_sequence(entry, batch, producer)
            if entry.transaction_offset is not None and not batch.is_transactional:
                raise InvalidTxnStateError(
                    f"{producer}: a transaction is open since offset {entry.transaction_offset}: "
                    "expected transactional records, or its end first"
                )
        elif batch.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"{producer}: a marker of coordinator epoch {batch.coordinator_epoch}, the last "
                f"seen is {entry.coordinator_epoch}"
            )

    def apply(
        self, batch: ProducedBatch, positions: Positions | None = None
    ) -> AbortedTransaction | None:
        """Update the state with a batch or marker that is in the log.

        Args:
            positions: Positions of its first record; None if not known, see ``locate``.

        Returns:
            The entry of the transaction index, if a transaction was aborted.
        """
        if batch.control == NO_MARKER:
            return None
        entry = self.entries.setdefault(batch.producer_id, ProducerEntry(batch.producer_id))
        if batch.control != DATA:
            return self._end_transaction(entry, batch)
        entry.begin_epoch(batch.producer_epoch)
        delta = batch.last_offset - batch.base_offset
        entry.batches.append(
            WrittenBatch(batch.last_sequence, batch.last_offset, delta, batch.max_timestamp)
        )
        entry.last_timestamp = batch.max_timestamp
        if batch.is_transactional and entry.transaction_offset is None:
            entry.transaction_offset = self._open[batch.producer_id] = batch.base_offset
            if positions is not None:
                self._positions[batch.base_offset] = positions
        return None

    def _end_transaction(
        self, entry: ProducerEntry, marker: ProducedBatch
    ) -> AbortedTransaction | None:
        first_offset = self._open.pop(entry.producer_id, None)
        entry.begin_epoch(marker.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.max_timestamp
        entry.transaction_offset = None
        if first_offset is None:
            return None
        self._positions.pop(first_offset, None)
        if marker.control != ABORT:
            return None
        stable = min(self._open.values(), default=marker.base_offset + 1)
        return AbortedTransaction(entry.producer_id, first_offset, marker.base_offset, stable)

    def locate(self, positions_of_offset: Callable[[int], Positions]) -> None:
        """Look up the positions of the open transactions that are not known yet."""
        for offset in self._open.values():
            if offset not in self._positions:
                self._positions[offset] = positions_of_offset(offset)

    @property
    def unstable(self) -> LogPoint | None:
        """Where the oldest open transaction begins; None if none is open.

        Source: Kafka ProducerStateManager.firstUnstableOffset; with one replica a transaction is
        over once its marker is written.
        """
        if not self._open:
            return None
        offset = min(self._open.values())
        return LogPoint(offset, self._positions.get(offset, Positions()))

    def last_records(self) -> dict[int, LastRecord]:
        """Return the last record of each producer.

        Source: Kafka UnifiedLog.lastRecordsOfActiveProducers.
        """
        return {
            producer_id: LastRecord(e.batches[-1].last_offset if e.batches else None, e.epoch)
            for producer_id, e in self.entries.items()
        }

    def next_sequence(self, producer_id: int) -> int:
        """Return the next sequence number of a producer; 0 if the producer is not known."""
        entry = self.entries.get(producer_id)
        if entry is None or not entry.batches:
            return 0
        return add_to_sequence(entry.last_sequence, 1)

    def expire(
        self, now_ms: int, expiration_ms: int, retained: Container[int] = frozenset()
    ) -> None:
        """Forget the producers that were idle for long and have no open transaction.

        Source: Kafka ProducerStateManager.isProducerExpired.
        """
        for producer_id, entry in list(self.entries.items()):
            is_idle = now_ms - entry.last_timestamp >= expiration_ms
            if is_idle and entry.transaction_offset is None and producer_id not in retained:
                del self.entries[producer_id]


def _check_sequence(entry: ProducerEntry, batch: ProducedBatch, producer: str) -> None:
    """Check the sequence number of a batch. Source: Kafka ProducerAppendInfo.checkSequence."""
    if entry.epoch == NO_EPOCH:
        return
    if batch.producer_epoch != entry.epoch or entry.last_sequence == MAX_SEQUENCE:
        expected = 0
    else:
        expected = entry.last_sequence + 1
    if batch.base_sequence != expected:
        raise OutOfOrderSequenceError(
            f"{producer}: sequence {batch.base_sequence} of epoch {batch.producer_epoch}, expected "
            f"{expected} (last: {entry.last_sequence} of epoch {entry.epoch})"
        )
