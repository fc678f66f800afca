"""The lines that the table of programs and the operators' guide tell users to write.

The documents speak of a mount at ``/mnt/logs``; a test has its own. Every row of the table is
asked for by some test: ``test_documents.py`` sees to that.
"""

import re
from pathlib import Path
from typing import NamedTuple

from tests.mounting import ROOT
from tests.transcripts import table_of

PROGRAMS = ROOT / "logfs" / "guides" / "programs.md"
GUIDE = ROOT / "logfs" / "guides" / "operators.md"
_MOUNT_POINT = "/mnt/logs"
_CODE = re.compile(r"`([^`\n]+)`")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Row(NamedTuple):
    """A program, what to write, and what does not work."""

    program: str
    line: str
    instead: str


def rows() -> list[Row]:
    """Return the table of programs."""
    return [Row(*cells) for cells in table_of(PROGRAMS.read_text(), "program")]


def line_for(program: str, point: Path) -> str:
    """Return the code that the table gives for a program, for a mount point of one's own."""
    (row,) = [row for row in rows() if row.program == program]
    (code,) = _CODE.findall(row.line)
    return at(code, point)


def block_with(text: str, point: Path) -> str:
    """Return the block of code in the guide that holds a text."""
    (block,) = [code for _, code in _BLOCK.findall(GUIDE.read_text()) if text in code]
    return at(block, point)


def at(code: str, point: Path) -> str:
    """Return code of the documents for another mount point."""
    return code.replace(_MOUNT_POINT, str(point))
