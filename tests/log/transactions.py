"""Logs with transactions, and what readers of each isolation level must see of them.

Batches and markers are written as producers and a broker write them: several producers at a time,
each with one transaction open at most.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.partition import PartitionLog
from logfs.log.segments.snapshot import LogPoint
from logfs.records._indexing import find_produced
from logfs.records.batch import BatchFields, decode_header, encode_batch
from logfs.records.compression import Compression
from logfs.records.encoded import EncodedBatch
from logfs.records.record import Record
from logfs.types import IsolationLevel, View
from tests.log.gaps import HoledLog
from tests.log.model import Kept, Model
from tests.log.support import Bench
from tests.records import oracle

_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")
ABORT, COMMIT = 0, 1


def marker(producer_id: int, offset: int, kind: int, timestamp: int) -> bytes:
    """The control batch that ends a transaction. Source: Kafka EndTransactionMarker."""
    record = Record(offset, timestamp, _CONTROL_KEY.pack(0, kind), _CONTROL_VALUE.pack(0, 0), ())
    fields = BatchFields(
        producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True
    )
    return encode_batch([record], fields)


def append_batch(
    log: PartitionLog, data: bytes, lengths: tuple[int, int, int], now_ms: int
) -> None:
    """Append a producer's batch, or a marker, whose records have these lengths."""
    header = decode_header(data)
    batch = EncodedBatch(
        data, header.base_offset, header.last_offset, header.max_timestamp, *lengths
    )
    (produced,) = find_produced(data, 0, len(data), 0)
    appended = log.appender.append_produced(batch, produced, now_ms)
    assert appended == (header.base_offset, header.last_offset, False)


@dataclass
class Producer:
    """A transactional producer.

    Attributes:
        sequence: The sequence of its next record.
        open: Offsets of the open transaction.
    """

    sequence: int = 0
    open: list[int] = field(default_factory=list)


class SeenLog(HoledLog):
    """A log as readers of one isolation level see it; its model knows nothing else."""

    def __init__(self, bench: Bench, model: Model, level: IsolationLevel) -> None:
        self.bench = bench
        self.model = model
        self.level = level


class TransactionLog(HoledLog):
    """A partition with transactions.

    Attributes:
        aborted: Offsets of aborted records.
        transactions: The aborted transactions, by the offsets of their markers.
        watermark: The high watermark; None if it is the log end.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.aborted: set[int] = set()
        self.transactions: list[AbortedTransaction] = []
        self.watermark: int | None = None
        self._producers: dict[int, Producer] = {}

    # What happens to it

    def produce(
        self,
        producer_id: int,
        records: Sequence[Record],
        compression: Compression = Compression.NONE,
    ) -> None:
        """Append a batch to a producer's transaction, which may begin with it."""
        producer = self._producers.setdefault(producer_id, Producer())
        first = self.log.log_end_offset
        placed = [r._replace(offset=first + i) for i, r in enumerate(records)]
        fields = BatchFields(
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=producer.sequence,
            is_transactional=True,
        )
        append_batch(
            self.log, encode_batch(placed, fields), oracle.lengths(placed), self.bench.now_ms
        )
        producer.sequence += len(placed)
        producer.open += [self.model.append(record) for record in placed]
        self.publish()

    def end(self, producer_id: int, kind: int, timestamp: int) -> None:
        """End a producer's transaction, if it has begun."""
        producer = self._producers.setdefault(producer_id, Producer())
        if not producer.open:
            return
        offset = self.log.log_end_offset
        append_batch(
            self.log, marker(producer_id, offset, kind, timestamp), (0, 0, 0), self.bench.now_ms
        )
        self.model.end_offset += 1
        aborted, producer.open = producer.open, []
        if kind == ABORT:
            self.aborted.update(aborted)
            self.transactions.append(
                AbortedTransaction(producer_id, aborted[0], offset, self.stable_offset)
            )
        self.publish()

    def publish(self) -> None:
        """Tell readers of the high watermark; the log knows of transactions by itself."""
        log = self.log
        log.state.snapshot = log.snapshot._replace(
            watermark=None if self.watermark is None else self._point(self.watermark),
        )
        assert log.snapshot.aborted == tuple(self.transactions)
        assert log.last_stable_offset == max(self.stable_offset, log.log_start_offset)
        assert log.snapshot.visible_end(IsolationLevel.READ_COMMITTED) == self._stable

    # What is seen of it

    @property
    def stable_offset(self) -> int:
        """The last stable offset."""
        firsts = [p.open[0] for p in self._producers.values() if p.open]
        return min([*firsts, self.model.end_offset])

    def seen(self, level: IsolationLevel) -> SeenLog:
        """What readers of a level see."""
        model = replace(self.model)
        if level is IsolationLevel.READ_COMMITTED:
            end = self._stable
            model.records = [k for k in model.records if k.record.offset not in self.aborted]
        elif level is IsolationLevel.HIGH_WATERMARK and self.watermark is not None:
            end = self._point(self.watermark)
        else:
            end = LogPoint(model.end_offset, model.end)
        model.end_offset, model.end = end
        model.records = [k for k in model.records if k.record.offset < end.offset]
        return SeenLog(self.bench, model, level)

    def text(self, level: IsolationLevel, view: View = View.TEXT) -> bytes:
        """What ``cat`` prints."""
        visible = self.seen(level).model.visible
        return b"".join(oracle.rendering(view, kept.record) for kept in visible)

    def committed(self) -> list[Kept]:
        """What read_committed shows."""
        return self.seen(IsolationLevel.READ_COMMITTED).model.visible

    @property
    def _stable(self) -> LogPoint:
        return self._point(self.stable_offset)

    def _point(self, offset: int) -> LogPoint:
        behind = (k.positions for k in self.model.records if k.record.offset >= offset)
        return LogPoint(offset, next(behind, self.model.end))
