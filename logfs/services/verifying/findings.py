"""The findings of a check, each printed as one line."""

import errno
from enum import StrEnum
from typing import NamedTuple

from logfs.disk.vfs import REFUSED


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


def refused(file: str, error: OSError, remedy: str, position: int | None = None) -> Finding:
    """Return the finding for a file that cannot be read; raises an error that is of no file.

    Args:
        file: The file.
        error: From the disk.
        remedy: For a file that is not regular, or too large. What the medium cannot read (EIO) has
            its own.
        position: Where, if it is known.
    """
    if error.errno == errno.EIO:
        return Finding(file, position, f"it cannot be read: {error.strerror}", "", _FAILING)
    if error.errno not in REFUSED:
        raise error
    return Finding(file, None, str(error.strerror), "", remedy)


_FAILING = "the disk is failing: save what can be read, and restore the rest from a backup"
