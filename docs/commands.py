"""The pages of the manual in Markdown."""

import re
import textwrap
from collections.abc import Collection, Iterator

from logfs.cli.manual_page import Block, Heading, Item, Page, Paragraph, Synopsis, Verbatim

_REFERENCE = re.compile(r"\b([a-z][a-z.-]*\([1-8]\))")
_SPECIAL = re.compile(r"([!-/:-@\[-`{-~])")
_WITHOUT_TITLE = (Heading("Synopsis"), Heading("Description"))


def markdown_of(page: Page, manual: Collection[Page]) -> str:
    """Return a page in the Markdown of MyST.

    Args:
        manual: All pages; those that this one names become links.
    """
    pages = {other.reference: _place_of(other) for other in manual if other is not page}
    lines = [f"# {_title_of(page)}", "", *_program(page.name), ""]
    is_option = False
    for block in page.blocks:
        if isinstance(block, Heading):
            is_option = block == Heading("Options") or block.is_inner
        lines += [*_lines_of(block, pages, is_option=is_option), ""]
    lines += ["## See also", "", ", ".join(_text(name, pages) for name in page.see), ""]
    if page.name == "logfs":
        names = [other.name for other in manual if has_page(other) and _words(other) == 2]
        lines += ["```{toctree}", ":hidden:", "", *names, "```", ""]
    return "\n".join(lines)


def has_page(page: Page) -> bool:
    """Tell whether the site has this page; ``logfs topic create`` is a part of ``logfs topic``."""
    return _words(page) <= 2


def _words(page: Page) -> int:
    return len(_title_of(page).split())


def _title_of(page: Page) -> str:
    commands = [block.command for block in page.blocks if isinstance(block, Synopsis)]
    return commands[0] if page.section in {1, 8} else page.reference


def _place_of(page: Page) -> str:
    if has_page(page):
        return f"{page.name}.md"
    return f"{page.name.rpartition('-')[0]}.md#{page.name}"


def _program(name: str) -> tuple[str, str]:
    return f"```{{program}} {name}", "```"


def _lines_of(block: Block, pages: dict[str, str], *, is_option: bool) -> Iterator[str]:
    match block:
        case Heading(text, True):
            yield from (f"### {_text(text, {})}", "", *_program(text.replace(" ", "-")))
        case Heading(text, _):
            if block not in _WITHOUT_TITLE:
                yield f"## {text}"
        case Synopsis(command, usage):
            yield from ("```text", f"{command} {usage}".rstrip(), "```")
        case Paragraph(lines):
            yield from (_text(line, pages) for line in lines)
        case Verbatim(lines):
            yield from _verbatim(lines)
        case Item(term, meaning) if is_option:
            yield from (f"````{{option}} {term}", _text(meaning, pages), "````")
        case Item(term, meaning):
            yield _text(term, pages) if term in pages else f"`{term}`"
            yield f": {_text(meaning, pages)}"


def _verbatim(lines: tuple[str, ...]) -> Iterator[str]:
    """Give lines as they are; a first line such as "Examples:" is its own paragraph."""
    title, *others = lines
    if others and title.endswith(":") and all(line.startswith(" ") for line in others if line):
        yield from (_text(title, {}), "")
        lines = tuple(textwrap.dedent("\n".join(others)).splitlines())
    yield from ("```text", *lines, "```")


def _text(text: str, pages: dict[str, str]) -> str:
    """Return text that means itself in Markdown; names of pages are links."""
    parts = _REFERENCE.split(text)
    return "".join(
        f"[{part}]({pages[part]})" if part in pages else _SPECIAL.sub(r"\\\1", part)
        for part in parts
    )
