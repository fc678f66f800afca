"""What a partition must be, in the plainest way: a list of records, each with its positions."""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from logfs.records._encoding import encode_lines
from logfs.records.batch import decode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from logfs.types import Positions, View
from tests.log.support import expected_runs, lengths_of
from tests.records.oracle import rendering

_OPTIONS = EncodeOptions(1 << 20)
ZERO = Positions()


@dataclass
class Kept:
    """A record and where it is in each view."""

    record: Record
    positions: Positions

    @property
    def ends(self) -> Positions:
        return self.positions.plus(lengths_of(self.record))


@dataclass
class Line:
    """A line that was written in pieces.

    Attributes:
        states: What it was after each write, while it was unfinished.
        synced: How many of its bytes an fsync has covered while it was unfinished.
        offset: The offset of the record it became; None while it is unfinished.
    """

    view: View
    states: list[bytes] = field(default_factory=list)
    synced: int = 0
    offset: int | None = None

    @property
    def written(self) -> bytes:
        return self.states[-1] if self.states else b""


def parsed(view: View, line: bytes, now_ms: int) -> Record | None:
    """The record that a line becomes; None if the view does not parse it."""
    encoded = encode_lines(view, line, b"\n", 0, 1, 0, now_ms, _OPTIONS)
    if encoded.refusal is not None:
        return None
    (record,) = decode_records(encoded.batches[0].data)
    return record


def content(record: Record) -> bytes:
    """A record as something to count, wherever it is."""
    return rendering(View.JSONL, record._replace(offset=0))


@dataclass
class Model:
    """A partition.

    Attributes:
        records: Everything that was not truncated or lost; what is below ``start`` is not seen.
        end, end_offset: Where the next record is.
        shown: The largest sizes ever seen.
        flushed: Offsets below it are durable.
        lines: Every line that was ever unfinished.
        set_aside: How many of them became losses.
    """

    records: list[Kept] = field(default_factory=list)
    end: Positions = ZERO
    end_offset: int = 0
    start: int = 0
    shown: Positions = ZERO
    flushed: int = 0
    lines: list[Line] = field(default_factory=list)
    set_aside: int = 0

    @property
    def visible(self) -> list[Kept]:
        return [kept for kept in self.records if kept.record.offset >= self.start]

    # What happens to it.

    def append(self, record: Record) -> int:
        """Add a record at the end; returns its offset."""
        placed = record._replace(offset=self.end_offset)
        self.records.append(Kept(placed, self.end))
        self.end = self.records[-1].ends
        self.end_offset += 1
        return placed.offset

    def write(self, line: Line, data: bytes, now_ms: int) -> Line:
        """Take the bytes of a write that were accepted; returns the line that is unfinished now."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            record = parsed(line.view, line.written + piece, now_ms)
            assert record is not None, "a line was accepted that does not parse"
            line.offset = self.append(record)
            line = Line(line.view)
        if rest:
            if not line.states:
                self.lines.append(line)
            line.states.append(line.written + rest)
        return line

    def close(self, line: Line, now_ms: int) -> None:
        """End a file: its line becomes a record, or a loss."""
        if not line.states or line.offset is not None:
            return
        record = parsed(line.view, line.written, now_ms)
        if record is None:
            self.lines.remove(line)
            self.set_aside += 1
        else:
            line.offset = self.append(record)

    def truncate(self, offset: int, batch_base: int) -> None:
        """Cut the log before the batch that holds an offset."""
        self.records = [k for k in self.records if k.record.offset < min(offset, batch_base)]
        self.end_offset = offset
        self.flushed = min(self.flushed, batch_base)
        for line in self.lines:
            if line.offset is not None and line.offset >= batch_base:
                line.synced = 0

    def stop(self, found: Sequence[Record], now_ms: int) -> None:
        """After a kill: after what was there, every unfinished line once, in any order."""
        waiting: dict[bytes, list[Line]] = {}
        for line in [line for line in self.lines if line.offset is None]:
            record = parsed(line.view, line.written, now_ms)
            if record is None:
                self.lines.remove(line)
                self.set_aside += 1
            else:
                waiting.setdefault(content(record), []).append(line)
        for record in found:
            lines = waiting.get(content(record))
            assert lines, f"no program wrote {record}, or it is there twice"
            lines.pop().offset = self.append(record)
        assert not any(waiting.values()), f"lost: {waiting}"

    def lose(self, found: Sequence[Kept], end_offset: int, bases: Container[int]) -> list[Record]:
        """After a power cut: what is left is in its place, and all that is durable is left.

        A prefix of each segment is left of what was not durable: one may have lost its end while
        the next one is whole, as in Kafka; ``bases`` are where segments begin.

        Returns:
            The records after it: unfinished lines.
        """
        visible = {kept.record.offset: kept for kept in self.visible}
        count = 0
        while count < len(found) and visible.get(found[count].record.offset) == found[count]:
            count += 1
        kept, behind = list(found[:count]), [kept.record for kept in found[count:]]
        offsets = [k.record.offset for k in kept]
        order = {offset: number for number, offset in enumerate(visible)}
        for before, after in pairwise(offsets):
            assert order[after] == order[before] + 1 or after in bases, f"{after} follows {before}"
        lost = [offset for offset in visible if offset < self.flushed and offset not in offsets]
        assert not lost, f"{lost} are lost, but were flushed"
        first = behind[0].offset if behind else end_offset
        self.records = [k for k in self.records if k.record.offset < self.start] + kept
        self.end_offset = first
        self.flushed = min(self.flushed, first)
        return behind

    def resume_lines(self, behind: Sequence[Record], now_ms: int) -> None:
        """After a power cut: unfinished lines are records, if synced once, else at most once.

        The record of a line may be lost, then what was synced of the line is a record. A line that
        was never synced may be there beside its record, if that was not flushed either: nothing
        was promised of it, and to sync it first would make every write wait.
        """
        left = Counter(map(content, behind))
        # Not those below the end: a segment may have lost its end while one after it is there.
        present = {kept.record.offset for kept in self.records}
        lines, self.lines = self.lines, []
        found: dict[bytes, list[Line]] = {}
        for line in lines:
            has_record = line.offset in present
            if has_record:
                self.lines.append(line)
            is_flushed = line.offset is not None and line.offset < self.flushed
            if has_record and (line.synced or is_flushed):
                continue
            records = [parsed(line.view, s, now_ms) for s in line.states if len(s) >= line.synced]
            there = [content(r) for r in records if r is not None and left[content(r)]]
            if there:
                left[there[-1]] -= 1
                found.setdefault(there[-1], []).append(replace(line))
            elif line.synced and all(records):
                raise AssertionError(f"{line} was synced and is lost, of {behind}")
        assert not +left, f"no program wrote this, or it is there twice: {+left}"
        for record in behind:
            line = found[content(record)].pop()
            line.offset = self.append(record)
            self.lines.append(line)

    # What readers see of it.

    def runs(self, view: View) -> list[tuple[int, bytes]]:
        return expected_runs(view, ((k.record, k.positions) for k in self.visible))

    def next_kept(self, view: View, position: int) -> int | None:
        """The first kept position at or after one; None if there is none."""
        for kept in self.visible:
            if position < kept.ends[view]:
                return max(position, kept.positions[view])
        return None

    def bytes_at(self, view: View, position: int) -> bytes:
        """What is from a kept position on, up to the next hole."""
        for begin, data in self.runs(view):
            if begin <= position < begin + len(data):
                return data[position - begin :]
        return b""

    def position_of(self, view: View, offset: int) -> int | None:
        """Where the first record at or after an offset is."""
        found = (k.positions[view] for k in self.visible if k.record.offset >= offset)
        return next(found, None)

    def offset_for_time(self, timestamp: int) -> int | None:
        found = (k.record.offset for k in self.visible if k.record.timestamp >= timestamp)
        return next(found, None)
