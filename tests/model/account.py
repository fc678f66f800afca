"""What programs have written to a partition, what they were promised, and what may be found of it.

Every line begins with its own number, so that everything found can be told apart: the line
itself, a piece of it, or something that no program wrote. ``Account.learn`` is told what readers
see while everything runs, ``Account.settle`` what they see after a stop. Both raise ``Defect``.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from logfs.types import View

UID_BYTES = 8
Found = tuple[int, bytes]
"""Position and bytes of a line that a reader sees, without its newline."""


class Defect(AssertionError):  # noqa: N818 - it is what the model is looking for
    """The store has broken a promise."""


class StopKind(StrEnum):
    """How everything stops."""

    KILL = "kill"
    POWER = "power cut"
    CACHE = "file system gone and back"

    @property
    def is_lossy(self) -> bool:
        """Whether what was not synced may be gone."""
        return self is not StopKind.KILL


@dataclass(eq=False)
class Line:
    """A line that a program writes.

    Attributes:
        uid: Its number.
        data: Its bytes, without the newline.
        key: The key of its record, in a topic that is compacted.
        owner: The open file it is written through; 0: whole lines at once.
        low, high: How many bytes, with the newline, were accepted for certain and perhaps.
        lengths: How many bytes were accepted while it was unfinished.
        synced: How many of these an fsync has covered.
        is_durable: Its record was synced.
        is_ended: Its file was closed: what was accepted becomes a record.
        is_pending: It is published by a job that tries again until it hears that it is done.
        is_gone: It was lost, as it may be.
        position: Where its record is, once a reader has seen it.
    """

    uid: bytes
    data: bytes
    key: bytes | None = None
    owner: int = 0
    low: int = 0
    high: int = 0
    lengths: set[int] = field(default_factory=set)
    synced: int = 0
    is_durable: bool = False
    is_ended: bool = False
    is_pending: bool = False
    is_gone: bool = False
    position: int | None = None

    @property
    def full(self) -> int:
        """Its bytes with the newline."""
        return len(self.data) + 1

    @property
    def is_promised(self) -> bool:
        """Whether a write has returned for all of it."""
        return self.low == self.full

    def accept(self, count: int) -> None:
        """Note that exactly so many bytes of it are accepted by now."""
        self.low = self.high = count
        if 0 < count < self.full:
            self.lengths.add(count)

    def offer(self, count: int) -> None:
        """Note that so many bytes of it may be accepted by now."""
        self.high = max(self.high, count)
        if 0 < self.high < self.full:
            self.lengths.add(self.high)

    def end(self) -> None:
        """Note that its file is being closed: no more of it comes."""
        self.is_ended = True
        if self.low == self.high < self.full:
            self.become(self.low)

    def become(self, count: int) -> None:
        """Note that its first bytes are the whole line by now."""
        self.data = self.data[:count]
        self.low = self.high = self.full

    def __repr__(self) -> str:
        facts = [f"{self.data!r} accepted {self.low}..{self.high} of {self.full}"]
        facts += [f"pieces {sorted(self.lengths)}, {self.synced} synced"] if self.lengths else []
        facts += [name for name in ("is_durable", "is_ended", "is_pending", "is_gone")
                  if getattr(self, name)]  # fmt: skip
        return f"<{', '.join(facts)}, at {self.position}>"


class Account:
    """What is known of one partition.

    Attributes:
        view: The rendering its lines are written and read in.
        lines: Every line by its number.
        shown: The largest end that a reader has seen.
        where: What was at each position that a reader has seen.
        pieces_beside: Pieces that a power cut has kept beside their lines.
        given_up, given_up_most: Records before this position are gone for certain, perhaps.
    """

    def __init__(self, name: str, view: View) -> None:
        self.name = name
        self.view = view
        self.lines: dict[bytes, Line] = {}
        self.shown = 0
        self.where: dict[int, bytes] = {}
        self.pieces_beside: set[Found] = set()
        self.given_up = self.given_up_most = 0
        self._volatile: dict[bytes, Line] = {}
        self._last: dict[int, bytes] = {}

    def add(self, line: Line) -> None:
        """Take a line that is going to be written."""
        self.lines[line.uid] = self._volatile[line.uid] = line

    def flushed(self) -> None:
        """Note that an fsync has covered every record that a reader has seen."""
        for uid, line in list(self._volatile.items()):
            if line.position is not None and line.is_promised and not line.is_gone:
                line.is_durable = True
            if line.is_durable or line.is_gone:
                del self._volatile[uid]

    def gives_up(self, position: int) -> None:
        """Note that records before a position are being removed."""
        self.given_up_most = max(self.given_up_most, position)

    def gave_up(self, position: int) -> None:
        """Note that they are, durably."""
        self.given_up = max(self.given_up, position)

    @property
    def is_promised(self) -> bool:
        """Whether a power cut must not take all of it."""
        return any(line.is_durable or line.synced for line in self.lines.values())

    # While it runs

    def learn(self, found: Iterable[Found], end: int) -> None:
        """Take what readers see from ``shown`` on."""
        if end < self.shown:
            self.fail(f"it ends at {end}, and {self.shown} bytes had been shown")
        for at, text in found:
            line = self._written(at, text)
            if line.position is not None or line.is_gone:
                self.fail(f"a second time at {at}: {text!r} of {line}")
            if text != line.data:
                if not (line.is_ended and len(text) in line.lengths and line.low <= len(text)):
                    self.fail(f"a piece at {at}: {text!r} of {line}")
                line.become(len(text))
            if line.owner and not line.is_ended:
                if self._last.get(line.owner, b"") > line.uid:
                    self.fail(f"out of order at {at}: {text!r}")
                self._last[line.owner] = line.uid
            self._note(line, at, text)
        self.shown = max(self.shown, end)

    def _written(self, at: int, text: bytes) -> Line:
        line = self.lines.get(text.rpartition(b"\t")[2][:UID_BYTES])
        if line is None or not line.data.startswith(text):
            self.fail(f"at {at} is {text!r}, which no program wrote ({line})")
        if text == line.data and line.high < line.full and len(text) not in line.lengths:
            self.fail(f"at {at} is {text!r}, which was not written yet: {line}")
        return line

    def _note(self, line: Line, at: int, text: bytes) -> None:
        line.position = at
        line.low = line.high = line.full
        self.where[at] = text

    # After a stop

    def settle(
        self, found: Sequence[Found], end: int, kind: StopKind, *, may_wait: bool = False
    ) -> None:
        """Compare everything that readers see after a stop, and continue from there.

        Args:
            found: All lines.
            end: Where they end.
            kind: How it stopped.
            may_wait: Unfinished lines may not be records yet: the disk had no room, or failed.
        """
        if end < self.shown:
            self.fail(f"it ends at {end}, and {self.shown} bytes had been shown", kind)
        places: dict[bytes, list[Found]] = defaultdict(list)
        newest: dict[bytes, int] = {}
        for at, text in found:
            line = self._written(at, text)
            if line.key is not None:
                newest[line.key] = max(at, newest.get(line.key, 0))
            if (at, text) in self.pieces_beside:
                continue
            known = self.where.get(at)
            if known != text and (known is not None or at < self.shown):
                self.fail(f"position {at} was {known!r} and is {text!r} of {line}", kind)
            places[line.uid].append((at, text))
        for line in list(self.lines.values()):
            there = places.get(line.uid, [])
            if len(there) > 1:
                there = self._settle_beside(line, there, kind)
            if there:
                self._settle_found(line, *there[0], kind)
            elif self._is_removed(line, newest):
                line.is_gone = line.is_gone or not (may_wait and line.lengths)
            else:
                self._settle_missing(line, kind, may_wait)
        self.shown = max(self.shown, end)
        self._last.clear()

    def _settle_beside(self, line: Line, there: list[Found], kind: StopKind) -> list[Found]:
        """A power cut may keep a piece of a line that no fsync covered beside the record.

        Returns:
            Where the record is; the piece is its own line from now on.
        """
        # Of a line that was ended, the piece is the line.
        whole = [found for found in there if found[1] == line.data][:1]
        pieces = [found for found in there if len(found[1]) in line.lengths and found not in whole]
        is_promised = not kind.is_lossy or line.is_durable or line.synced
        if is_promised or len(whole) != 1 or len(pieces) != 1 or len(there) != 2:
            self.fail(f"{len(there)} times: {there} of {line}", kind)
        self.pieces_beside.add(pieces[0])
        return whole

    def _settle_found(self, line: Line, at: int, text: bytes, kind: StopKind) -> None:
        if line.is_gone:
            # A removal that a kill interrupted may be undone: no call had returned for it.
            may_return = kind.is_lossy and line.position == at < self.given_up_most
            if not may_return or line.key is not None:
                self.fail(f"was lost, and is back at {at}: {line}", kind)
            line.is_gone = False
        is_given_up = line.position is not None and line.position + line.full <= self.given_up
        if at + len(text) < self.given_up or (is_given_up and at != line.position):
            self.fail(f"was given up, and is back at {at}: {line}", kind)
        if text != line.data:
            self._check_piece(line, text, kind)
            line.become(len(text))
        # A record that was lost is made again of the line that was kept beside it.
        may_move = kind.is_lossy and (line.lengths or line.is_pending) and not line.is_durable
        if line.position not in (None, at) and not may_move:
            self.fail(f"was at {line.position} and is at {at}: {line}", kind)
        self._note(line, at, text)

    def _check_piece(self, line: Line, text: bytes, kind: StopKind) -> None:
        count = len(text)
        if count not in line.lengths:
            self.fail(f"a piece that was never written: {text!r} of {line}", kind)
        if line.is_durable or count < line.synced:
            self.fail(f"more was synced than {text!r} of {line}", kind)
        if not kind.is_lossy and count < line.low:
            self.fail(f"more was accepted than {text!r} of {line}", kind)

    def _is_removed(self, line: Line, newest: dict[bytes, int]) -> bool:
        """Whether retention or compaction may have removed the record."""
        if line.position is None:
            return False
        if line.key is not None:
            return newest.get(line.key, -1) > line.position
        return line.position < self.given_up_most

    def _settle_missing(self, line: Line, kind: StopKind, may_wait: bool) -> None:
        if line.is_gone or (line.is_pending and (kind.is_lossy or not line.is_promised)):
            return
        if may_wait and not line.is_durable and (line.lengths or kind.is_lossy):
            if line.lengths:
                line.position = None
            return
        if line.is_durable or line.synced or (line.low and not kind.is_lossy):
            self.fail(f"lost: {line}", kind)
        line.is_gone = True

    def fail(self, what: str, kind: StopKind | None = None) -> NoReturn:
        """Raise a defect of this partition."""
        raise Defect(f"{self.name}{f', after a {kind}' if kind else ''}: {what}")
