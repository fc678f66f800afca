"""What a log knows of its producers, in the plainest way: by reading every batch from the first."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from logfs.errors import (
    CorruptIndexError,
)
from logfs.log.indexes.txnindex import AbortedTransaction, decode_txn_index
from logfs.log.names import FileKind, parse_segment_file
from logfs.log.partition import PartitionLog
from logfs.log.producers.snapshots import decode_snapshot
from logfs.log.producers.state import ProducerEntry
from logfs.log.writing.producerbatches import Appended
from logfs.records.batch import BatchHeader, decode_records
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from tests.fakes import START_MS, FakeDisk
from tests.log.support import Bench, batches_in

ABORT = b"\0\0\0\0"
WRAP = 2**31


@dataclass
class Known:
    """One producer id.

    Attributes:
        batches: Sequence numbers (first, last) and offsets (first, last) of this epoch.
        open: First offset of the open transaction.
    """

    epoch: int = -1
    coordinator_epoch: int = -1
    timestamp: int = -1
    open: int | None = None
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)

    @property
    def row(self) -> tuple[int | None, ...]:
        """What a snapshot holds of it."""
        last = self.batches[-1] if self.batches else (-1, -1, -1, -1)
        kept = (last[1], last[3], last[3] - last[2])
        return (self.epoch, self.coordinator_epoch, self.timestamp, self.open, *kept)


class History:
    """The producers of a log, batch by batch."""

    def __init__(self, log: Iterable[tuple[BatchHeader, bytes]] = ()) -> None:
        self.known: dict[int, Known] = {}
        self.aborted: list[AbortedTransaction] = []
        for header, data in log:
            self.add(header, data)

    def add(self, header: BatchHeader, data: bytes) -> None:
        if header.producer_id < 0:
            return
        one = self.known.setdefault(header.producer_id, Known())
        if header.producer_epoch != one.epoch:
            one.batches, one.epoch = [], header.producer_epoch
        if header.is_control:
            self._end(header.producer_id, one, header, data)
            return
        one.timestamp = header.max_timestamp
        last = (header.base_sequence + header.last_offset_delta) % WRAP
        one.batches.append((header.base_sequence, last, header.base_offset, header.last_offset))
        if header.is_transactional and one.open is None:
            one.open = header.base_offset

    def _end(self, producer_id: int, one: Known, header: BatchHeader, data: bytes) -> None:
        (record,) = decode_records(data)
        one.timestamp = record.timestamp
        one.coordinator_epoch = int.from_bytes((record.value or b"")[2:6], "big")
        first, one.open = one.open, None
        if first is not None and record.key == ABORT:
            others = [k.open for k in self.known.values() if k.open is not None]
            stable = min(others, default=header.base_offset + 1)
            entry = AbortedTransaction(producer_id, first, header.base_offset, stable)
            self.aborted.append(entry)

    @property
    def rows(self) -> dict[int, tuple[int | None, ...]]:
        return {producer_id: one.row for producer_id, one in self.known.items()}

    @property
    def unstable(self) -> int | None:
        return min((one.open for one in self.known.values() if one.open is not None), default=None)


def batches_of(disk: FakeDisk, log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    """Every batch of a log as it lies on the disk."""
    found = []
    for number, segment in enumerate(log.snapshot.segments):
        data = disk.read(segment.name)[: log.snapshot.end_of(number)[2]]
        found += [(b, data[at : at + b.size_bytes]) for at, b in batches_in(data)]
    return found


def rows_of(entries: Iterable[ProducerEntry]) -> dict[int, tuple[int | None, ...]]:
    rows: dict[int, tuple[int | None, ...]] = {}
    for e in entries:
        last = e.batches[-1] if e.batches else None
        kept = (-1, -1, 0) if last is None else (last.last_sequence, last.last_offset, last[2])
        rows[e.producer_id] = (
            e.epoch, e.coordinator_epoch, e.last_timestamp, e.transaction_offset, *kept
        )  # fmt: skip
    return rows


def rows_in(log: PartitionLog) -> dict[int, tuple[int | None, ...]]:
    """What a log knows of its producers."""
    return rows_of(log.producers.entries.values())


def known_in(log: PartitionLog, producer_id: int) -> Known:
    """What a log knows of one producer."""
    entry = log.producers.entries.get(producer_id)
    if entry is None:
        return Known()
    batches = [(b.first_sequence, b.last_sequence, b.first_offset, b.last_offset)
               for b in entry.batches]  # fmt: skip
    open_since = entry.transaction_offset
    return Known(entry.epoch, entry.coordinator_epoch, entry.last_timestamp, open_since, batches)


def snapshots_in(disk: FakeDisk, directory: str) -> dict[int, dict[int, tuple[int | None, ...]]]:
    """The producer snapshots on the disk, by offset; a power cut may leave torn ones."""
    found = {}
    for name, _ in disk.list(directory):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1:] == (FileKind.SNAPSHOT, ""):
            with contextlib.suppress(CorruptIndexError):
                entries = decode_snapshot(disk.read(f"{directory}/{name}"), name)
                found[parsed.base_offset] = rows_of(entries)
    return found


def txn_indexes_in(disk: FakeDisk, log: PartitionLog) -> list[AbortedTransaction]:
    """The entries of all transaction indexes; each is in the segment of its marker."""
    found: list[AbortedTransaction] = []
    for number, segment in enumerate(log.snapshot.segments):
        name = segment.file_name(FileKind.TXN_INDEX)
        entries = decode_txn_index(disk.read(name)) if disk.exists(name) else []
        end = log.snapshot.end_of(number)[1]
        assert all(segment.base_offset <= entry.last_offset < end for entry in entries)
        found += entries
    return found


def check_against_replay(disk: FakeDisk, log: PartitionLog) -> History:
    """Compare what a log that lost nothing at its start knows with a replay of all of it."""
    batches = batches_of(disk, log)
    history = History(batches)
    assert rows_in(log) == history.rows
    assert log.snapshot.aborted == tuple(history.aborted)
    assert txn_indexes_in(disk, log) == history.aborted
    unstable = log.snapshot.unstable
    assert (None if unstable is None else unstable.offset) == history.unstable
    for offset, rows in snapshots_in(disk, log.directory).items():
        before = [row for row in batches if row[0].last_offset < offset]
        assert rows == History(before).rows, f"the snapshot at {offset}"
    return history


def check_aborted_after_trim(log: PartitionLog, history: History) -> None:
    """Compare the aborted transactions of a trimmed log with a replay of what is left of it.

    A transaction that began in a removed segment keeps its first offset while a snapshot has
    it. The replay knows only its first batch that is left, or none.
    """
    kept = log.snapshot.segments[0].base_offset
    known = {(a.producer_id, a.last_offset): a.first_offset for a in log.snapshot.aborted}
    replayed = {(a.producer_id, a.last_offset): a.first_offset for a in history.aborted}
    for key, first in replayed.items():
        if first >= log.log_start_offset:
            assert key in known
    for key, first in known.items():
        assert first < kept or first == replayed.get(key)


def records(*values: bytes) -> list[Record]:
    return [Record(0, START_MS, None, value, ()) for value in values]


def write(
    bench: Bench,
    sequence: int,
    *values: bytes,
    producer_id: int = 7,
    epoch: int = 0,
    transactional: bool = False,
) -> Appended:
    """Append the records of a producer as a batch."""
    producer = ProducerBatch(producer_id, epoch, sequence, transactional)
    return bench.log.append_records(records(*values), bench.now_ms, producer)


def end(bench: Bench, *, commit: bool, producer_id: int = 7, epoch: int = 0) -> int:
    return bench.log.appender.end_transaction(
        producer_id, epoch, commit=commit, coordinator_epoch=0, now_ms=bench.now_ms
    )
