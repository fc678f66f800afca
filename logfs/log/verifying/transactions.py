"""Whether the transaction index of a segment has the aborted transactions that end in it.

Without an entry a reader of committed records is shown what was aborted.
"""

from logfs.disk.vfs import LARGER_FILE_BYTES, Disk
from logfs.errors import CorruptIndexError
from logfs.log.indexes.txnindex import (
    ENTRY_BYTES,
    VERSION,
    AbortedTransaction,
    decode_txn_index,
)
from logfs.log.names import FileKind, format_segment_file
from logfs.log.producers.snapshots import decode_snapshot, snapshot_name
from logfs.log.producers.state import ProducerState
from logfs.log.verifying.findings import Finding
from logfs.records._native import IndexBuilder
from logfs.records.produced import ABORT, ProducedBatch

_REMEDY = (
    "readers of committed records may be shown aborted ones; remove the index files of this "
    "segment, and the next start makes them again"
)


class TransactionCheck:
    """Checks a transaction index.

    Attributes:
        findings: What was found before the log was read.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        data: bytes,
        *,
        is_compacted: bool,
    ) -> None:
        self._name = f"{directory}/{format_segment_file(base_offset, FileKind.TXN_INDEX)}"
        self._base_offset = base_offset
        self._is_compacted = is_compacted
        self._state = ProducerState()
        self._knows_before = base_offset == 0
        self._markers: dict[int, int] = {}
        self._expected: dict[int, AbortedTransaction] = {}
        self.findings: list[Finding] = []
        self._entries = self._decode(data)
        snapshot = snapshot_name(directory, base_offset)
        try:
            self._state = ProducerState(
                decode_snapshot(disk.read(snapshot, LARGER_FILE_BYTES), snapshot)
            )
            self._knows_before = True
        except (FileNotFoundError, CorruptIndexError):
            pass  # what began before the segment cannot be told

    def _decode(self, data: bytes) -> list[AbortedTransaction]:
        rest = len(data) % ENTRY_BYTES
        if rest:
            problem, right = f"{len(data)} bytes", f"a multiple of {ENTRY_BYTES}"
            at = len(data) - rest
            self.findings.append(Finding(self._name, at, problem, right, _REMEDY))
        entries = []
        for at in range(0, len(data) - rest, ENTRY_BYTES):
            try:
                entries += decode_txn_index(data[at : at + ENTRY_BYTES])
            except CorruptIndexError:
                version = int.from_bytes(data[at : at + 2], "big", signed=True)
                problem = f"version {version}"
                self.findings.append(Finding(self._name, at, problem, str(VERSION), _REMEDY))
                return []
        return entries

    def feed(self, builder: IndexBuilder) -> None:
        """Take the batches of producers into account that a scan has met."""
        for batch in builder.produced:
            self._apply(batch)
        builder.produced.clear()

    def _apply(self, batch: ProducedBatch) -> None:
        entry = self._state.apply(batch)
        if batch.control == ABORT:
            self._markers[batch.base_offset] = batch.producer_id
        if entry is not None:
            self._expected[entry.last_offset] = entry

    def finish(self, next_offset: int) -> list[Finding]:
        """Compare; ``next_offset`` is where the segment ends."""
        if self.findings:
            return []
        findings = []
        for number, entry in enumerate(self._entries):
            wrong = self._problem_of(entry)
            if wrong is not None:
                at, problem = number * ENTRY_BYTES, f"entry {number}: {wrong[0]}"
                findings.append(Finding(self._name, at, problem, wrong[1], _REMEDY))
        found = {entry.last_offset for entry in self._entries}
        for offset, entry in self._expected.items():
            if offset not in found and not self._is_compacted:
                problem = f"no entry for the transaction that producer {entry.producer_id} aborted"
                right = f"{tuple(entry)}"
                at = len(self._entries) * ENTRY_BYTES
                findings.append(Finding(self._name, at, problem, right, _REMEDY))
        return findings

    def _problem_of(self, entry: AbortedTransaction) -> tuple[str, str] | None:
        producer_id = self._markers.get(entry.last_offset)
        if producer_id != entry.producer_id:
            found = "none" if producer_id is None else f"one of producer {producer_id}"
            return (
                f"an abort by producer {entry.producer_id} at offset {entry.last_offset}",
                f"{found} there",
            )
        if entry.first_offset > entry.last_offset:
            return f"it begins at offset {entry.first_offset}", f"{entry.last_offset} at most"
        expected = self._expected.get(entry.last_offset)
        if self._is_compacted or expected is None or not self._knows_before:
            return None
        if entry == expected:
            return None
        return f"{tuple(entry)}", f"{tuple(expected)}"
