"""Whether the entries of an offset index and of a time index fit the batches they speak of.

An index is sparse, and a hint: it need not have an entry anywhere, but those it has must be right.
Fed with chunk after chunk of the log; entries are compared by the thousand, as sets, and looked at
one by one only where that fails.

Wrong entries may be in any order, so they are taken in the order in which the log passes by.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import sub

from logfs.log.indexes.index import OFFSET_INDEX, TIME_INDEX, IndexFormat, without_zero_tail
from logfs.log.verifying.findings import Finding, note
from logfs.log.verifying.walking import Chunk, are_among, int32s
from logfs.records.layout import HEADER_BYTES, MAX_TIMESTAMP_AT, RECORD_COUNT_AT, is_message

REBUILD = "look-ups pass it by; remove the file, and the next start makes it again"
REBUILT = "the next start makes it again"
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
    """Return the whole entries of an index file, and what is wrong with its length.

    Args:
        data: The whole file.
        form: What it is made of.
        name: The file.
        remedy: What to do if it is wrong.
        may_grow: It belongs to the segment that is appended to: unused entries at its end are zero.
    """
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


class OffsetIndexCheck:
    """Checks an offset index.

    Attributes:
        findings: What was found so far.
        positions: File positions that entries name, in order.
    """

    def __init__(
        self,
        name: str,
        data: bytes,
        base_offset: int,
        remedy: str = REBUILD,
        *,
        may_grow: bool,
    ) -> None:
        self._name = name
        self._remedy = remedy
        self._base_offset = base_offset
        entries, self.findings = take_entries(
            data, OFFSET_INDEX, name, remedy, may_grow=may_grow
        )  # fmt: skip
        numbers = int32s(entries)
        self._offsets, places = numbers[::2], numbers[1::2]
        self._entries = bytes(entries)
        self._order = _sorted(places)
        self.positions = _in_order(places, self._order)
        self._done = 0

    def feed(self, chunk: Chunk) -> None:
        """Check the entries that point into a chunk."""
        first = bisect_left(self.positions, chunk.start, self._done)
        self._done = stop = bisect_left(self.positions, chunk.stop, first)
        size = OFFSET_INDEX.entry_bytes
        entries = self._entries[first * size : stop * size]
        if isinstance(self._order, range) and are_among(entries, chunk.offsets, size):
            return
        ends = dict(zip(chunk.places, chunk.ends, strict=True))
        for number, position in zip(
            self._order[first:stop], self.positions[first:stop], strict=True
        ):
            if ends.get(position) != self._offsets[number]:
                self._wrong(number, position, ends.get(position))

    def finish(self, valid_bytes: int, limit_bytes: int) -> None:
        """Check what is left.

        Args:
            valid_bytes: Where the last batch ends.
            limit_bytes: How far apart entries are at most, if none has got lost.
        """
        for n in range(self._done, len(self._order)):
            position = self.positions[n]
            if position >= valid_bytes:
                size = f"the log ends at byte {valid_bytes}"
                self._add(self._order[n], f"it points to byte {position}", size)
        borders = [0, *self.positions, valid_bytes]
        stretches = list(map(sub, borders[1:], borders))
        largest = max(stretches)
        if largest > limit_bytes + _SPARSE_BYTES and not self.findings:
            at = borders[stretches.index(largest)]
            what = f"no entry for {largest} bytes of the log from byte {at} on"
            self.findings.append(note(self._name, what, f"look-ups there are slow: {REBUILD}"))

    def _wrong(self, number: int, position: int, end: int | None) -> None:
        if end is None:
            self._add(number, f"it points to byte {position}", "the start of a batch")
        else:
            found, right = (self._base_offset + n for n in (self._offsets[number], end))
            self._add(number, f"offset {found} for the batch at byte {position}", str(right))

    def _add(self, number: int, problem: str, expected: str) -> None:
        at = number * OFFSET_INDEX.entry_bytes
        problem = f"entry {number}: {problem}"
        self.findings.append(Finding(self._name, at, problem, expected, self._remedy))


class TimeIndexCheck:
    """Checks a time index: up to the offset of an entry no timestamp is larger than the entry's.

    Attributes:
        findings: What was found so far.
    """

    def __init__(
        self,
        name: str,
        data: bytes,
        base_offset: int,
        remedy: str = REBUILD,
        *,
        may_grow: bool,
    ) -> None:
        self._name = name
        self._remedy = remedy
        self._base_offset = base_offset
        self._may_grow = may_grow
        entries, self.findings = take_entries(data, TIME_INDEX, name, remedy, may_grow=may_grow)
        self._entries = bytes(entries)
        offsets = int32s(entries)[_TIME_OFFSET_INT :: TIME_INDEX.entry_bytes // 4]
        self._order = _sorted(offsets)
        self._offsets = _in_order(offsets, self._order)
        self._done = 0
        self._is_proven = True
        self._largest = -1
        self._is_largest_empty = False

    def feed(self, chunk: Chunk) -> None:
        """Check the entries that name an offset of a chunk."""
        first, stop = self._done, bisect_right(self._offsets, chunk.ends[-1], self._done)
        self._done, size = stop, TIME_INDEX.entry_bytes
        entries = self._entries[first * size : stop * size]
        if not (isinstance(self._order, range) and are_among(entries, chunk.times, size)):
            self._is_proven = False
            known = {chunk.times[n : n + size] for n in range(0, len(chunk.times), size)}
            for number in self._order[first:stop]:
                if self._entries[size * number : size * number + size] not in known:
                    self._judge(number, chunk)
        if chunk.times:
            self._largest, offset = _TIME.unpack_from(chunk.times, len(chunk.times) - size)
            place = chunk.places[bisect_left(chunk.ends, offset)]
            self._is_largest_empty = _is_empty(chunk.buffer, chunk.within(place))

    def finish(self, last_offset: int, max_timestamp: int) -> None:
        """Check what is left, the order, and the last entry, which a sealed segment must have."""
        for number in self._order[self._done :]:
            offset = self._base_offset + _TIME.unpack_from(self._entries, 12 * number)[1]
            if offset > last_offset:
                self._add(number, f"offset {offset}", f"{last_offset} at most")
        if self.findings:
            return
        # What they were found among is in order.
        entries = self._entries[-TIME_INDEX.entry_bytes :] if self._is_proven else self._entries
        times = [time for time, _ in _TIME.iter_unpack(entries)]
        for number, (a, b) in enumerate(pairwise(times), 1):
            if a >= b:
                self._add(number, f"timestamp {b} after {a}", "a larger one")
                return
        largest = times[-1] if times else -1
        if not self._may_grow and largest < max_timestamp and not self._is_largest_empty:
            problem = f"the last entry has timestamp {largest}"
            size, remedy = len(self._entries), self._remedy
            self.findings.append(Finding(self._name, size, problem, str(max_timestamp), remedy))

    def _judge(self, number: int, chunk: Chunk) -> None:
        """Judge an entry that is not one that logfs would have written."""
        timestamp, offset = _TIME.unpack_from(self._entries, TIME_INDEX.entry_bytes * number)
        row = bisect_left(chunk.ends, offset)
        if offset < chunk.begins[row]:
            if not chunk.is_behind_damage:
                self._add(number, f"offset {self._base_offset + offset}", "that of a batch")
            return
        end, at = chunk.ends[row], chunk.within(chunk.places[row])
        maxima = (t for t, of in _TIME.iter_unpack(chunk.times) if of <= end)
        largest = max([self._largest, *maxima])
        if is_message(chunk.buffer, at):  # brokers of that time had rules of their own
            is_right = timestamp <= largest
        else:
            own = _INT64.unpack_from(chunk.buffer, at + MAX_TIMESTAMP_AT)[0]
            is_right = timestamp == largest or (offset == end and timestamp == own)
        if not is_right:
            self._add(number, f"timestamp {timestamp}", str(largest))

    def _add(self, number: int, problem: str, expected: str) -> None:
        at = number * TIME_INDEX.entry_bytes
        problem = f"entry {number}: {problem}"
        self.findings.append(Finding(self._name, at, problem, expected, self._remedy))


def _sorted(values: Sequence[int]) -> Sequence[int]:
    """Return the numbers of the entries in the order of their values; a range: they are in it."""
    order = range(len(values))
    if list(values) == sorted(values):
        return order
    return sorted(order, key=values.__getitem__)


def _in_order(values: "array[int]", order: Sequence[int]) -> "array[int]":
    return values if isinstance(order, range) else array("i", (values[n] for n in order))


def _is_empty(buffer: bytearray, at: int) -> bool:
    """Whether compaction has emptied a batch; a broker leaves its timestamp out."""
    return not is_message(buffer, at) and not any(buffer[at + RECORD_COUNT_AT : at + HEADER_BYTES])
