"""Whether the entries of the index files of a segment agree with its batches.

An index is sparse, and a hint: it need not have an entry anywhere, but its entries must be right.
The checks get chunk after chunk of the log. They compare entries by the thousand, as sets, and
one by one only if that fails. Wrong entries may be in any order, so they are sorted first.

An entry of a text index is the length of all records before it, plus the gaps before it. The
lengths are known from the log. So an entry tells the length of all gaps before it, which may only
grow where a pair of entries describes a gap.

Without an entry of the transaction index, a reader of committed records gets aborted ones.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import sub
from typing import ClassVar

from logfs.disk.vfs import LARGER_FILE_BYTES, Disk
from logfs.errors import CorruptIndexError, CorruptRecordError, UnsupportedFormatError
from logfs.log.indexes.index import OFFSET_INDEX, TIME_INDEX, IndexFormat, without_zero_tail
from logfs.log.indexes.textindex import TEXT_INDEX, TextEntry, decode_text_entry
from logfs.log.indexes.txnindex import (
    ENTRY_BYTES,
    VERSION,
    AbortedTransaction,
    decode_txn_index,
)
from logfs.log.names import FileKind, format_segment_file
from logfs.log.producers.snapshots import decode_snapshot, snapshot_name
from logfs.log.producers.state import ProducerState
from logfs.records._indexing import IndexBuilder
from logfs.records._rendering import Renderer
from logfs.records.compression import decompress
from logfs.records.layout import HEADER_BYTES, MAX_TIMESTAMP_AT, RECORD_COUNT_AT, is_message
from logfs.records.produced import ABORT, ProducedBatch
from logfs.services.verifying.findings import Finding, note
from logfs.services.verifying.walking import IndexedBatches, are_among, int32s
from logfs.types import Positions, View

REBUILD = "look-ups work without it; remove the file, and the next start rebuilds it"
REBUILT = "the next start rebuilds it"
_TIME = struct.Struct(">qi")
_TIME_OFFSET_INT = 2
_INT64 = struct.Struct(">q")
_SPARSE_BYTES = 1 << 20


def take_entries(
    data: bytes,
    form: IndexFormat,
    name: str,
    remedy: str,
    *,
    may_grow: bool,
) -> tuple[memoryview, list[Finding]]:
    """Return the entries of an index file; at its end zeros may be, if it may grow."""
    header_bytes, entry_bytes = form.header_bytes, form.entry_bytes
    body = memoryview(data)[header_bytes:]
    rest = len(body) % entry_bytes
    whole = body[: len(body) - rest]
    used = without_zero_tail(whole, entry_bytes)
    if may_grow or len(used) == len(body):
        return used, []
    if rest:
        problem, expected = f"{len(body)} bytes of entries", f"a multiple of {entry_bytes}"
        at = header_bytes + len(whole)
    else:
        unused = (len(whole) - len(used)) // entry_bytes
        problem, expected = f"{unused} entries of zeros at the end of a sealed index", "none"
        at = header_bytes + len(used)
    return used, [Finding(name, at, problem, expected, remedy)]


class _EntriesCheck:
    """Checks the entries of an index file; ``findings`` has what is wrong."""

    form: ClassVar[IndexFormat]

    def __init__(
        self, name: str, data: bytes, base_offset: int, remedy: str, *, may_grow: bool
    ) -> None:
        self._name = name
        self._remedy = remedy
        self._may_grow = may_grow
        self.base_offset = base_offset
        self._entries, self.findings = take_entries(
            data, self.form, name, remedy, may_grow=may_grow
        )

    def add(self, number: int, problem: str, expected: str) -> None:
        """Add a finding about an entry."""
        at = self.form.header_bytes + number * self.form.entry_bytes
        problem = f"entry {number}: {problem}"
        self.findings.append(Finding(self._name, at, problem, expected, self._remedy))


class OffsetIndexCheck(_EntriesCheck):
    """Checks an offset index."""

    form = OFFSET_INDEX

    def __init__(
        self, name: str, data: bytes, base_offset: int, remedy: str = REBUILD, *, may_grow: bool
    ) -> None:
        super().__init__(name, data, base_offset, remedy, may_grow=may_grow)
        entries = self._entries
        numbers = int32s(entries)
        self._offsets, places = numbers[::2], numbers[1::2]
        self._order = _sorted(places)
        self.positions = _in_order(places, self._order)
        self._done = 0

    def feed(self, chunk: IndexedBatches) -> None:
        """Check the entries that point into a chunk."""
        first = bisect_left(self.positions, chunk.start, self._done)
        self._done = stop = bisect_left(self.positions, chunk.stop, first)
        size = OFFSET_INDEX.entry_bytes
        entries = bytes(self._entries[first * size : stop * size])
        if isinstance(self._order, range) and are_among(entries, chunk.offsets, size):
            return
        ends = dict(zip(chunk.places, chunk.ends, strict=True))
        for number, position in zip(
            self._order[first:stop], self.positions[first:stop], strict=True
        ):
            if ends.get(position) != self._offsets[number]:
                self._wrong(number, position, ends.get(position))

    def finish(self, valid_bytes: int, limit_bytes: int) -> None:
        """Check what is left, up to the last batch, and how far entries lie apart."""
        for n in range(self._done, len(self._order)):
            position = self.positions[n]
            if position >= valid_bytes:
                size = f"the log ends at byte {valid_bytes}"
                self.add(self._order[n], f"it points to byte {position}", size)
        borders = [0, *self.positions, valid_bytes]
        stretches = list(map(sub, borders[1:], borders))
        largest = max(stretches)
        if largest > limit_bytes + _SPARSE_BYTES and not self.findings:
            at = borders[stretches.index(largest)]
            what = f"no entry for {largest} bytes of the log from byte {at} on"
            self.findings.append(note(self._name, what, f"look-ups there are slow: {REBUILD}"))

    def _wrong(self, number: int, position: int, end: int | None) -> None:
        if end is None:
            self.add(number, f"it points to byte {position}", "the start of a batch")
        else:
            found, right = (self.base_offset + n for n in (self._offsets[number], end))
            self.add(number, f"offset {found} for the batch at byte {position}", str(right))


class TimeIndexCheck(_EntriesCheck):
    """Checks a time index: up to the offset of an entry no timestamp is larger than the entry's."""

    form = TIME_INDEX

    def __init__(
        self, name: str, data: bytes, base_offset: int, remedy: str = REBUILD, *, may_grow: bool
    ) -> None:
        super().__init__(name, data, base_offset, remedy, may_grow=may_grow)
        offsets = int32s(self._entries)[_TIME_OFFSET_INT :: TIME_INDEX.entry_bytes // 4]
        self._order = _sorted(offsets)
        self._offsets = _in_order(offsets, self._order)
        self._done = 0
        self._is_proven = True
        self._largest = -1
        self._is_largest_empty = False

    def feed(self, chunk: IndexedBatches) -> None:
        """Check the entries with an offset in a chunk."""
        first, stop = self._done, bisect_right(self._offsets, chunk.ends[-1], self._done)
        self._done, size = stop, TIME_INDEX.entry_bytes
        entries = bytes(self._entries[first * size : stop * size])
        if not (isinstance(self._order, range) and are_among(entries, chunk.times, size)):
            self._is_proven = False
            known = {chunk.times[n : n + size] for n in range(0, len(chunk.times), size)}
            for number in self._order[first:stop]:
                if bytes(self._entries[size * number : size * number + size]) not in known:
                    self._judge(number, chunk)
        if chunk.times:
            self._largest, offset = _TIME.unpack_from(chunk.times, len(chunk.times) - size)
            place = chunk.places[bisect_left(chunk.ends, offset)]
            self._is_largest_empty = _is_empty(chunk.buffer, chunk.within(place))

    def finish(self, last_offset: int, max_timestamp: int) -> None:
        """Check the remaining entries, the order, and the last entry of a sealed segment."""
        for number in self._order[self._done :]:
            offset = self.base_offset + _TIME.unpack_from(self._entries, 12 * number)[1]
            if offset > last_offset:
                self.add(number, f"offset {offset}", f"{last_offset} at most")
        if self.findings:
            return
        # Entries found among the chunks' own are in order.
        entries = self._entries[-TIME_INDEX.entry_bytes :] if self._is_proven else self._entries
        times = [time for time, _ in _TIME.iter_unpack(entries)]
        for number, (a, b) in enumerate(pairwise(times), 1):
            if a >= b:
                self.add(number, f"timestamp {b} after {a}", "a larger one")
                return
        largest = times[-1] if times else -1
        if not self._may_grow and largest < max_timestamp and not self._is_largest_empty:
            problem = f"the last entry has timestamp {largest}"
            size, remedy = len(self._entries), self._remedy
            self.findings.append(Finding(self._name, size, problem, str(max_timestamp), remedy))

    def _judge(self, number: int, chunk: IndexedBatches) -> None:
        """Check an entry that logfs would not have written."""
        timestamp, offset = _TIME.unpack_from(self._entries, TIME_INDEX.entry_bytes * number)
        row = bisect_left(chunk.ends, offset)
        if offset < chunk.begins[row]:
            if not chunk.is_after_damage:
                self.add(number, f"offset {self.base_offset + offset}", "that of a batch")
            return
        end, at = chunk.ends[row], chunk.within(chunk.places[row])
        maxima = (t for t, of in _TIME.iter_unpack(chunk.times) if of <= end)
        largest = max([self._largest, *maxima])
        if is_message(chunk.buffer, at):  # brokers of that time had their own rules
            is_right = timestamp <= largest
        else:
            own = _INT64.unpack_from(chunk.buffer, at + MAX_TIMESTAMP_AT)[0]
            is_right = timestamp == largest or (offset == end and timestamp == own)
        if not is_right:
            self.add(number, f"timestamp {timestamp}", str(largest))


def _sorted(values: Sequence[int]) -> Sequence[int]:
    """Return the numbers of the entries in the order of their values; a range if in order."""
    order = range(len(values))
    if list(values) == sorted(values):
        return order
    return sorted(order, key=values.__getitem__)


def _in_order(values: "array[int]", order: Sequence[int]) -> "array[int]":
    return values if isinstance(order, range) else array("i", (values[n] for n in order))


def _is_empty(buffer: bytearray, at: int) -> bool:
    """Whether compaction has emptied a batch; a broker does not index its timestamp."""
    return not is_message(buffer, at) and not any(buffer[at + RECORD_COUNT_AT : at + HEADER_BYTES])


LOST = (
    "positions in this compacted segment are wrong from there on: restore the file and "
    "logfs.segments from a backup; without them the next start may assign other positions"
)
_ENTRY = TEXT_INDEX.entry_bytes


class TextIndexCheck(_EntriesCheck):
    """Checks a text index.

    Attributes:
        gaps: Length of all gaps so far.
        is_loose: Bytes before were not readable; the next entry tells the length of their text.
    """

    form = TEXT_INDEX

    def __init__(
        self,
        name: str,
        data: bytes,
        base_offset: int,
        remedy: str = REBUILD,
        *,
        may_grow: bool,
        may_have_gaps: bool,
    ) -> None:
        super().__init__(name, data, base_offset, remedy, may_grow=may_grow)
        self._may_have_gaps = may_have_gaps
        self.size_bytes = len(data)
        self.gaps = Positions()
        self.is_loose = False
        self._positions = array("i")
        self._next = 0
        self._before: TextEntry | None = None
        try:
            TEXT_INDEX.check_header(data[: TEXT_INDEX.header_bytes], name)
        except UnsupportedFormatError as error:
            self._refuse(Finding(name, 4, str(error), "", "use a newer logfs, or restore the file"))
        except CorruptIndexError as error:
            self._refuse(Finding(name, 0, str(error), "", remedy))
        else:
            self._take_positions()

    def _refuse(self, finding: Finding) -> None:
        self._entries, self.findings = memoryview(b""), [finding]

    def _take_positions(self) -> None:
        self._positions = int32s(self._entries)[1 :: _ENTRY // 4]
        if list(self._positions) == sorted(self._positions):
            return
        for number, (a, b) in enumerate(pairwise(self._positions), 1):
            if a > b:
                self.add(number, f"it points to byte {b}", f"{a} or a later one")
                del self._positions[number:]
                return

    def feed(self, chunk: IndexedBatches) -> None:
        """Check the entries that point into a chunk."""
        self.is_loose |= chunk.is_after_damage
        first = bisect_left(self._positions, chunk.start, self._next)
        self._next = stop = bisect_left(self._positions, chunk.stop, first)
        if first == stop:
            return
        if not (self.is_loose or any(self.gaps) or self.findings):
            entries = bytes(self._entries[first * _ENTRY : stop * _ENTRY])
            if are_among(entries, chunk.texts, _ENTRY):
                self._before = self.entry(stop - 1)
                return
        _TextEntries(self, chunk).check(first, stop)

    def finish(self, valid_bytes: int) -> None:
        """Check the remaining entries."""
        rest = bisect_left(self._positions, valid_bytes, self._next)
        if rest < len(self._positions) and not self.findings:
            position = self._positions[rest]
            ends = f"the log ends at byte {valid_bytes}"
            self.add(rest, f"it points to byte {position}", ends)

    def check(self, number: int, entry: TextEntry, lengths: Positions) -> None:
        """Check an entry, given the lengths of all records before it."""
        before, self._before = self._before, entry
        gaps = entry.lengths.minus(lengths)
        is_pair = before is not None and before[:2] == entry[:2]
        if gaps == self.gaps:
            return
        if self.is_loose:
            self.is_loose = False
        elif is_pair and self._may_have_gaps and min(gaps.minus(self.gaps)) >= 0:
            pass
        else:
            right = tuple(lengths.plus(self.gaps))
            or_gap = " if the gap before it is right" if any(self.gaps) else ""
            self.add(number, f"lengths {tuple(entry.lengths)}", f"{right}{or_gap}")
            return
        self.gaps = gaps

    def entry(self, number: int) -> TextEntry:
        """Return an entry."""
        return decode_text_entry(self._entries, number)


class _TextEntries:
    """Checks the entries of a text index in one chunk one by one."""

    def __init__(self, check: TextIndexCheck, chunk: IndexedBatches) -> None:
        self._check = check
        self._chunk = chunk
        sizes = [b - a for a, b in pairwise((*chunk.places, chunk.stop))]
        rows = zip(chunk.places, chunk.begins, chunk.ends, sizes, strict=True)
        self._rows = {row[0]: (number, *row[1:]) for number, row in enumerate(rows)}
        self._renderers: tuple[int, list[Renderer]] = (-1, [])
        self._within = Positions()

    def check(self, first: int, stop: int) -> None:
        for number in range(first, stop):
            entry = self._check.entry(number)
            row = self._rows.get(entry.file_position)
            if row is None:
                what = f"it points to byte {entry.file_position}"
                self._check.add(number, what, "the start of a batch")
                continue
            batch, begin, end, size = row
            if not begin <= entry.relative_offset <= end:
                base = self._check.base_offset
                what = f"offset {base + entry.relative_offset} in the batch at byte "
                right = f"{base + begin} to {base + end}"
                self._check.add(number, f"{what}{entry.file_position}", right)
                continue
            lengths = decode_text_entry(self._chunk.texts, batch).lengths
            if entry.relative_offset > begin:
                within = self._lengths_before(entry, size)
                if within is None:
                    what = f"offset {self._check.base_offset + entry.relative_offset}"
                    self._check.add(number, what, "that of a record")
                    continue
                lengths = lengths.plus(within)
            self._check.check(number, entry, lengths)

    def _lengths_before(self, entry: TextEntry, size: int) -> Positions | None:
        """Return the lengths of a batch's records before one; None if there is no such."""
        position, renderers = self._renderers
        offset = self._check.base_offset + entry.relative_offset
        if position != entry.file_position or renderers[0].next_offset > offset:
            renderers = [Renderer(view, decompress) for view in View]
            start = self._chunk.within(entry.file_position)
            for renderer in renderers:
                renderer.load(self._chunk.buffer, start, start + size)
            self._renderers = entry.file_position, renderers
            self._within = Positions()
        try:
            passed = [renderer.skip_to_offset(offset) for renderer in renderers]
        except CorruptRecordError:
            return None
        self._within = self._within.plus((passed[0], passed[1], passed[2]))
        return self._within if renderers[0].next_offset == offset else None


_REMEDY = (
    "readers of committed records may be shown aborted ones; remove the index files of this "
    "segment, and the next start rebuilds them"
)


class TransactionCheck:
    """Checks a transaction index."""

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
            pass  # transactions that started before the segment are not known

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
        """Apply the producers' batches of the last chunk."""
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
        """Compare the index with the log, which ends at ``next_offset``."""
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
            return f"it starts at offset {entry.first_offset}", f"{entry.last_offset} at most"
        expected = self._expected.get(entry.last_offset)
        if self._is_compacted or expected is None or not self._knows_before:
            return None
        if entry == expected:
            return None
        return f"{tuple(entry)}", f"{tuple(expected)}"
