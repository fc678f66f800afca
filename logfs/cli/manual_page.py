"""A page of the manual as blocks of text, and its source for man(1).

The same blocks become a page of the site: ``docs/commands.py``.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from logfs import __version__


class Heading(NamedTuple):
    """A title, or with ``is_inner`` one of a part of a section."""

    text: str
    is_inner: bool = False


class Synopsis(NamedTuple):
    """A command and what may follow it."""

    command: str
    usage: str


class Paragraph(NamedTuple):
    """Lines that are filled."""

    lines: tuple[str, ...]


class Verbatim(NamedTuple):
    """Lines that stay as they are."""

    lines: tuple[str, ...]


class Item(NamedTuple):
    """A term of a list and its meaning."""

    term: str
    meaning: str


Block: TypeAlias = Heading | Synopsis | Paragraph | Verbatim | Item


class Page(NamedTuple):
    """A page of the manual.

    Attributes:
        section: 1: commands, 5: files, 7: conventions, 8: commands for root.
        summary: One line for whatis(1).
        see: Related pages, ``logfs-cat(1)``.
    """

    name: str
    section: int
    summary: str
    blocks: tuple[Block, ...]
    see: tuple[str, ...]

    @property
    def reference(self) -> str:
        """The name by which other pages refer to it."""
        return f"{self.name}({self.section})"

    @property
    def path(self) -> str:
        """The path of the page below a directory of manuals."""
        return f"man{self.section}/{self.name}.{self.section}"


def source_of(page: Page) -> str:
    """Return a page in the language of man(1)."""
    lines = [
        f'.TH "{_escape(page.name.upper())}" {page.section} "" "logfs {__version__}" '
        '"Manual of logfs"',
        ".SH NAME",
        rf"{_escape(page.name)} \- {_escape(page.summary)}",
    ]
    for block in page.blocks:
        lines += _lines_of(block)
    return "\n".join([*lines, ".SH SEE ALSO", _escape(", ".join(page.see)), ""])


def _lines_of(block: Block) -> Iterator[str]:
    match block:
        case Heading(text, is_inner):
            yield f".SS {_escape(text)}" if is_inner else f".SH {text.upper()}"
        case Synopsis(command, usage):
            yield f".B {_escape(command)}"
            yield from _escaped([usage] if usage else [])
        case Paragraph(lines):
            yield ".PP"
            yield from _escaped(lines)
        case Verbatim(lines):
            yield from (".PP", ".nf", *_escaped(lines), ".fi")
        case Item(term, meaning):
            yield from (".TP", f".B {_escape(term)}", _escape(meaning))


def _escaped(lines: Iterable[str]) -> Iterator[str]:
    return map(_escape, lines)


def _escape(line: str) -> str:
    text = line.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    return rf"\&{text}" if text.startswith(".") else text
