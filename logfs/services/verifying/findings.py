"""The findings of a check, each printed as one line."""

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How bad it is."""

    DAMAGE = "damage"
    """Data differs from what was written, or is missing."""
    NOTE = "note"
    """Information; nothing has to be done."""


class Finding(NamedTuple):
    """One finding.

    Attributes:
        file: Relative to the data directory.
        position: Byte in that file; None for the whole file.
        expected: What is right; "" if ``problem`` makes that clear.
        remedy: What to do, or what the next start does by itself.
        level: How bad it is.
        line: Number of the line in a text file, from 1.
    """

    file: str
    position: int | None
    problem: str
    expected: str
    remedy: str
    level: Level = Level.DAMAGE
    line: int | None = None

    @property
    def place(self) -> tuple[str, int | None, int | None]:
        """Where it is. Findings of two rounds at one place are the same finding."""
        return self.file, self.position, self.line

    def __str__(self) -> str:
        """Return the line that is printed."""
        where = self.file
        if self.position is not None:
            where += f": byte {self.position}"
        elif self.line is not None:
            where += f": line {self.line}"
        expected = f", expected {self.expected}" if self.expected else ""
        return f"{where}: {self.problem}{expected}; {self.remedy}"


def note(file: str, what: str, remedy: str) -> Finding:
    """Return a finding that is not damage."""
    return Finding(file, None, what, "", remedy, Level.NOTE)
