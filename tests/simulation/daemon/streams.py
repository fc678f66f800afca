"""What a writer has written, and what may be found of it.

After an error a writer does not know what of its last write is in the log: each line of it may be
there, or the beginning of one, but not less of it than earlier writes have returned for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.daemon.child import DefectError


@dataclass
class Stream:
    """What one writer has written since the mount was made.

    Attributes:
        before: The lines that were in the log then.
        sent: The bytes for which write(2) has returned.
        unsure: Those of a write that has not returned.
        durable: How many of the bytes sent a sync has covered.
        least: How many bytes must be there of a line before, by its number; no entry: all.
    """

    before: list[bytes] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)
    unsure: bytes = b""
    durable: int = 0
    least: dict[int, int] = field(default_factory=dict)

    def fail(self) -> None:
        """Note that a call has failed with EIO, and that the program gives up."""
        lines = _lines_of(bytes(self.sent))
        piece = lines.pop() if self.sent and self.sent[-1:] != b"\n" else b""
        self.before += lines
        for line in _lines_of(piece + self.unsure):
            self.least[len(self.before)] = len(piece)
            self.before.append(line)
            piece = b""
        self.sent.clear()
        self.unsure, self.durable = b"", 0

    def find(self, line: bytes, wanted: list[bytes], begin: int) -> int:
        """Return the number of a line that was found, from a number on; -1: it is not wanted."""
        for number in range(begin, len(wanted)):
            least = self.least.get(number)
            if line == wanted[number]:
                return number
            if least is not None and len(line) >= max(least, 1) and wanted[number].startswith(line):
                return number
        return -1

    def misses(self, begin: int, end: int) -> bool:
        """Whether a line between two numbers must be there."""
        return any(self.least.get(number, 1) for number in range(begin, end))

    def first_difference(self, lines: list[bytes], wanted: list[bytes]) -> int | None:
        """Return the number of the first line that is not as wanted; None: none."""
        position = 0
        for number, line in enumerate(lines):
            at = self.find(line, wanted, position)
            if at < 0 or self.misses(position, at):
                return number
            position = at + 1
        return len(lines) if self.misses(position, len(wanted)) else None

    def lines(self) -> list[bytes]:
        """Return all lines that have been sent, the last one perhaps cut."""
        return self.before + _lines_of(bytes(self.sent))

    def possible(self) -> list[bytes]:
        """Return the same with those of a write that has not returned."""
        return self.before + _lines_of(bytes(self.sent) + self.unsure)

    def survive(self, writer: int, lines: list[bytes]) -> int:
        """Compare the lines of a writer after a power cut with what it has written and synced.

        What was synced is there, once and in order, then any part of the rest, in order. A line
        that was being written in pieces may be there once more, up to a piece: its record was not
        synced, and neither was the note that it is a record (``log/writing/unfinished.py``).

        Returns:
            How many such pieces there are.
        """
        wanted = self.possible()
        durable = bytes(self.sent[: self.durable])
        first_unsure = len(self.before) + durable.count(b"\n")
        part, place, pieces = durable[durable.rfind(b"\n") + 1 :], 0, 0
        for number, line in enumerate(lines):
            at = place
            while at < len(wanted) and wanted[at] != line:
                at += 1
            if at == len(wanted):
                if not any(one.startswith(line) for one in wanted[first_unsure:]):
                    raise DefectError(
                        f"writer {writer}: line {number} after a power cut: {line!r:.80}"
                    )
                part = b"" if line.startswith(part) else part
                pieces += 1
                continue
            if place < first_unsure and at > place:
                raise DefectError(
                    f"writer {writer}: line {place} was synced, and a power cut took it"
                )
            part = part if at < first_unsure else b""
            place = at + 1
        if place < first_unsure or part:
            raise DefectError(
                f"writer {writer}: from line {place} on: synced, and a power cut took it"
            )
        return pieces


@dataclass
class Reader:
    """What one reader has read since the mount was made."""

    name: str
    pieces: list[tuple[int, bytes]] = field(default_factory=list)


def writer_of_part(line: bytes, writers: Iterable[int]) -> int:
    """Return the writer of a line that was cut before its number; -1: none."""
    begin = line[:4]
    return next((one for one in writers if begin and (b"w%d n" % one).startswith(begin)), -1)


def _lines_of(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    return lines if lines[-1] else lines[:-1]
