"""Whether the entries of a text index fit the records before them, and where its gaps are.

What an entry says is the length of all records before one, plus the gaps before it. The
lengths are known from the log. So an entry says how long the gaps so far are together, and that may
only grow where a pair of entries notes a gap.
"""

from array import array
from bisect import bisect_left
from itertools import pairwise

from logfs.errors import CorruptIndexError, CorruptRecordError, UnsupportedFormatError
from logfs.log.indexes.textindex import TEXT_INDEX, TextEntry, decode_text_entry
from logfs.log.verifying.findings import Finding
from logfs.log.verifying.indexes import REBUILD, take_entries
from logfs.log.verifying.walking import Chunk, are_among, int32s
from logfs.records._native import Renderer
from logfs.records.compression import decompress
from logfs.types import Positions, View

LOST = (
    "positions in this compacted segment are wrong from there on: restore the file and "
    "logfs.segments from a backup; without it the next start may give positions again"
)
_ENTRY = TEXT_INDEX.entry_bytes


class TextIndexCheck:
    """Checks a text index.

    Attributes:
        findings: What was found so far.
        size_bytes: Of the file.
        gaps: Length of all gaps so far.
        is_loose: Something in front was not readable: the next entry says how long it was.
    """

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
        self._name = name
        self.base_offset = base_offset
        self._may_have_gaps = may_have_gaps
        self._remedy = remedy
        self.size_bytes = len(data)
        self.gaps = Positions()
        self.is_loose = False
        self.findings: list[Finding] = []
        self._entries = memoryview(b"")
        self._positions = array("i")
        self._next = 0
        self._before: TextEntry | None = None
        header = TEXT_INDEX.header_bytes
        try:
            TEXT_INDEX.check_header(data[:header], name)
        except UnsupportedFormatError as error:
            remedy = "use a newer logfs, or restore the file"
            self.findings.append(Finding(name, 4, str(error), "", remedy))
        except CorruptIndexError as error:
            self.findings.append(Finding(name, 0, str(error), "", self._remedy))
        else:
            found = take_entries(data, TEXT_INDEX, name, remedy, may_grow=may_grow)
            self._entries, self.findings = found
            self._take_positions()

    def _take_positions(self) -> None:
        self._positions = int32s(self._entries)[1 :: _ENTRY // 4]
        if list(self._positions) == sorted(self._positions):
            return
        for number, (a, b) in enumerate(pairwise(self._positions), 1):
            if a > b:
                self.add(number, f"it points to byte {b}", f"{a} or a later one")
                del self._positions[number:]
                return

    def feed(self, chunk: Chunk) -> None:
        """Check the entries that point into a chunk."""
        self.is_loose |= chunk.is_behind_damage
        first = bisect_left(self._positions, chunk.start, self._next)
        self._next = stop = bisect_left(self._positions, chunk.stop, first)
        if first == stop:
            return
        if not (self.is_loose or any(self.gaps) or self.findings):
            entries = bytes(self._entries[first * _ENTRY : stop * _ENTRY])
            if are_among(entries, chunk.texts, _ENTRY):
                self._before = self.entry(stop - 1)
                return
        _Chunk(self, chunk).check(first, stop)

    def finish(self, valid_bytes: int) -> None:
        """Check what is left."""
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

    def add(self, number: int, problem: str, expected: str) -> None:
        """Add a finding about an entry."""
        at = TEXT_INDEX.header_bytes + number * _ENTRY
        problem = f"entry {number}: {problem}"
        self.findings.append(Finding(self._name, at, problem, expected, self._remedy))

    def entry(self, number: int) -> TextEntry:
        """Return an entry."""
        return decode_text_entry(self._entries, number)


class _Chunk:
    """Looks at the entries of one chunk one by one."""

    def __init__(self, check: TextIndexCheck, chunk: Chunk) -> None:
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
