"""The state of transactions while compaction reads a log.

Records of an aborted transaction are removed at once, with or without a key. A marker stays until
no batch of its transaction is left, and then until its delete horizon has passed. An aborted
transaction stays in the transaction index as long as one of its batches is in the log.

Pure. Source: Kafka CleanedTransactionMetadata.
"""

import heapq
from collections.abc import Iterable

from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.records.batch import BatchHeader
from logfs.records.record import Record

_ABORT = 0
_COMMIT = 1
_TYPE = slice(2, 4)
"""In the key of a control record: int16 version, int16 type."""


class CleanedTransactions:
    """The transactions that are open at the current batch, and the aborted ones with batches."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions with batches in the next segment; adding twice is harmless."""
        for transaction in transactions:
            heapq.heappush(self._coming, (transaction.first_offset, transaction))

    def read_batch(self, header: BatchHeader) -> bool:
        """Apply a transactional batch with data; returns whether it was aborted."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if producer_id in self._aborted:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def read_marker(self, header: BatchHeader, records: list[Record]) -> bool:
        """Apply a control batch; returns whether no batch of its transaction is left."""
        self._begin_up_to(header.last_offset)
        if not records:
            return True
        kind = int.from_bytes((records[0].key or b"")[_TYPE], "big", signed=True)
        producer_id = header.producer_id
        if kind == _ABORT:
            transaction = self._aborted.pop(producer_id, None)
            if transaction is not None and producer_id in self._seen:
                self._seen.discard(producer_id)
                self.kept.append(transaction)
                return False
            return True
        if kind == _COMMIT:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heapq.heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, transaction)
