"""What programs have written to a partition, what they were promised, and what may be found of it.

Every line begins with its own number, so that everything found can be told apart: the line
itself, a piece of it, or something that no program wrote. ``Account.learn`` is told what readers
see while everything runs, ``Account.settle`` what they see after a stop. Both raise ``Defect``.

A rule is here once, for the schedules of ``tests.model`` and the sequences of ``tests.simulation``.
Its docstring has the number of the promise in ``logfs/fs/SEMANTICS.md`` that it checks.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from logfs.log.losses import Loss
from logfs.types import View

UID_BYTES = 8
Found = tuple[int, bytes]
"""Position and bytes of a line that a reader sees, without its newline."""


class Look(NamedTuple):
    """What a reader is shown of a partition.

    Attributes:
        found: All lines.
        end: Where they end.
        losses: All that were ever told.
        offline: Why it cannot be written to; None: it can.
        copies: The bytes that recovery has set aside, by the names of the ``.cut`` files.
    """

    found: Sequence[Found]
    end: int
    losses: Sequence[Loss] = ()
    offline: str | None = None
    copies: Mapping[str, bytes] = MappingProxyType({})


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
        offsets: The offset of each position at which a reader has seen a record.
        losses_told: How many losses were told when everything was compared.
    """

    def __init__(self, name: str, view: View) -> None:
        self.name = name
        self.view = view
        self.lines: dict[bytes, Line] = {}
        self.shown = 0
        self.where: dict[int, bytes] = {}
        self.pieces_beside: set[Found] = set()
        self.given_up = self.given_up_most = 0
        self.offsets: dict[int, int] = {}
        self.losses_told = 0
        self._waits = False
        self._untold: list[Line] = []
        self._copies: set[str] = set()
        self._volatile: dict[bytes, Line] = {}
        self._last: dict[int, bytes] = {}

    def add(self, line: Line) -> None:
        """Take a line that is going to be written."""
        self.lines[line.uid] = self._volatile[line.uid] = line

    def flushed(self) -> None:
        """Note that an fsync has covered every record, and the lines of closed files that wait.

        Promise 2: the lines before it are on the disk.
        """
        for uid, line in list(self._volatile.items()):
            if line.position is not None and line.is_promised and not line.is_gone:
                line.is_durable = True
            elif line.is_ended and line.low == line.high:
                line.synced = line.high
            if line.is_durable or line.is_gone:
                del self._volatile[uid]

    def damaged(self, data: bytes) -> None:
        """Note that the disk has lost bytes, synced ones too, in which these lines are."""
        for uid, line in self.lines.items():
            if uid in data:
                line.is_durable, line.synced = False, 0
                self._volatile[uid] = line

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

    @property
    def is_durable(self) -> bool:
        """Whether all that was accepted is in records that a power cut must not take.

        An unfinished line is appended by a recovery too, which may be stopped.
        """
        return all(
            line.is_gone or line.is_durable or not line.high for line in self._volatile.values()
        )

    # While it runs

    def learn(self, found: Iterable[Found], end: int) -> None:
        """Take what readers see from ``shown`` on.

        Promises 1, 2 and 3: each whole line that was accepted is shown once, those of an open file
        in order, nothing else is, and the size never shrinks.
        """
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

    def note_offsets(self, found: Sequence[Found], places: Mapping[int, int]) -> None:
        """Take to which position each offset leads.

        Promise 5: ``@offset=N`` begins at the record of that offset, which stays the same. With
        values that have newlines in them, a record would be several lines.
        """
        # Offsets that are missing lead to the record after them.
        offset_of = {position: offset for offset, position in sorted(places.items())}
        for at, text in found:
            offset = offset_of.get(at)
            if offset is None:
                self.fail(f"no offset of {sorted(places)} leads to {at}: {text!r}")
            known = self.offsets.setdefault(at, offset)
            if known != offset and self.where.get(at) == text:
                self.fail(f"{text!r} at {at} had offset {known}, and has {offset}")

    # After a stop

    def settle(
        self, look: Look, kind: StopKind, *, may_wait: bool = False, has_failed: bool = False
    ) -> None:
        """Compare everything that readers see after a stop, and continue from there.

        Promises 1, 2 and 3: what a write has returned for is there after a kill, what an fsync has
        covered after a power cut; once, whole or as the piece that was written, where it was.
        Promise 7: the partition is not offline. Losses: see ``_settle_losses``.

        Args:
            look: What a reader is shown.
            kind: How it stopped.
            may_wait: Unfinished lines may not be records yet: the disk had no room, or failed.
            has_failed: Writes or reads have failed before.
        """
        was_durable = self.is_durable
        unseen = {uid for uid, line in self.lines.items() if line.position is None}
        lost_before = {uid for uid, line in self.lines.items() if line.is_gone}
        if look.offline is not None:
            self.fail(f"offline: {look.offline}", kind)
        self._settle_lines(look.found, look.end, kind, may_wait=may_wait)
        self._settle_order(unseen, kind)
        lost = [line for uid, line in self.lines.items() if line.is_gone and uid not in lost_before]
        may_lose = has_failed or self._waits or (kind.is_lossy and not was_durable)
        self._untold += [line for line in lost if line.is_promised]
        self._settle_losses(look, kind, may_lose=may_lose, may_wait=may_wait)
        self._waits = may_wait and may_lose  # what had no room is told once there is some
        self.losses_told = len(look.losses)

    def _settle_order(self, unseen: Iterable[bytes], kind: StopKind) -> None:
        """Promise 1: lines of an open file are in the order in which they were written.

        A line that a power cut has taken may be made again of the piece that was kept beside it.
        """
        rows: dict[int, list[Line]] = defaultdict(list)
        for line in (self.lines[uid] for uid in sorted(unseen)):
            may_move = kind.is_lossy and line.lengths
            if line.owner and line.position is not None and not (line.is_gone or may_move):
                rows[line.owner].append(line)
        for first, second in (pair for lines in rows.values() for pair in pairwise(lines)):
            if first.position is None or second.position is None:
                continue
            if first.position > second.position:
                self.fail(f"out of order: {second} before {first}", kind)

    def _settle_losses(self, look: Look, kind: StopKind, *, may_lose: bool, may_wait: bool) -> None:
        """Promise 7: every loss is told, and none that is none.

        After a power cut, or where a write has failed, a store cannot know for which bytes a write
        had returned: what was not durable may be told as a loss even if no write had.
        """
        for loss in look.losses[self.losses_told :]:
            if not (loss.kind in ("cut", "line") and may_lose):
                self.fail(f"a loss that is none: {loss}", kind)
        if may_wait:
            return  # bytes that recovery cuts once there is room are told then
        copies = b"".join(look.copies[name] for name in look.copies if name not in self._copies)
        for line in self._untold:
            if line.uid in copies and not look.losses:
                self.fail(f"a loss that is not told: {line}", kind)
        self._untold.clear()
        self._copies.update(look.copies)

    def check_read_only(self, shown: Sequence[Found], kept: Sequence[Found]) -> None:
        """Promise 7: a read-only mount shows the records that recovery would keep.

        Unfinished lines are an exception: they become records when a directory is next opened for
        writing. So are values that a compaction has replaced: it may be completed by then.

        Args:
            shown: What was shown before the recovery.
            kept: What is there after it.
        """
        left, before = set(kept), set(shown)
        for at, text in shown:
            if (at, text) not in left and self._written(at, text).key is None:
                self.fail(f"read-only, {text!r} is shown at {at}; recovery has not kept it")
        for at, text in kept:
            if (at, text) not in before and not self._written(at, text).lengths:
                self.fail(f"read-only, {text!r} at {at} is not shown, which recovery keeps")

    def _settle_lines(
        self, found: Sequence[Found], end: int, kind: StopKind, *, may_wait: bool
    ) -> None:
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
