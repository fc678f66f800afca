"""What a check has to say: one line a finding."""

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How bad it is."""

    DAMAGE = "damage"
    """Something is not as it was written, or is missing."""
    NOTE = "note"
    """Good to know; nothing has to be done."""


class Finding(NamedTuple):
    """One finding.

    Attributes:
        file: Relative to the data directory.
        position: Byte in that file, or None where it concerns the whole of it.
        problem: What is wrong.
        expected: What should be there; "" where that goes without saying.
        remedy: What to do, or what the next start does by itself.
        level: How bad it is.
        line: Number of the line, from 1, in a file of text.
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
        """Where it is, by which the same finding is known again."""
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
    """Return a finding that is no damage."""
    return Finding(file, None, what, "", remedy, Level.NOTE)
