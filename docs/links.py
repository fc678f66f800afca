"""Checks the links of built pages: each leads to a page and a place in it that exist.

Sphinx checks the links of Markdown. This also finds those of HTML in a document, and what a page
loads from another host.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_TAG = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)\s([^<>]*)>")
_ATTRIBUTE = re.compile(r'\b(href|src|srcset|poster|data|id)="([^"]*)"')
_IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""")


class Link(NamedTuple):
    """Where a page leads.

    Attributes:
        is_loaded: A browser fetches it to show the page, and does not wait for a click.
    """

    target: str
    is_loaded: bool


class _Looks(NamedTuple):
    links: list[Link]
    places: set[str]


def broken_links(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each that loads from another host."""
    return [*_broken_in_pages(site.resolve()), *_loaded_by_styles(site)]


def _broken_in_pages(site: Path) -> Iterator[str]:
    pages = {path: _look_into(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for page, (links, _) in pages.items():
        for link in links:
            if problem := _problem_of(link, page, pages, site):
                yield f"{page.relative_to(site)}: {link.target}: {problem}"


def _loaded_by_styles(site: Path) -> Iterator[str]:
    for path in sorted(site.rglob("*.css")):
        for target in _IN_STYLES.findall(path.read_text("utf-8")):
            yield f"{path.relative_to(site)}: {target}: loaded from another host"


def _problem_of(link: Link, page: Path, pages: dict[Path, _Looks], site: Path) -> str | None:
    parts = urlsplit(link.target)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        if link.is_loaded:
            return "loaded from another host"
        return None if parts.scheme == "https" else "not https"
    path = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
    if not path.is_file() or not path.is_relative_to(site):
        return "no such file"
    fragment = unquote(parts.fragment)
    if fragment and path in pages and fragment not in pages[path].places:
        return "no such place in the page"
    return None


def _look_into(text: str) -> _Looks:
    links, places = list[Link](), set[str]()
    for tag, attributes in _TAG.findall(text):
        for name, value in _ATTRIBUTE.findall(attributes):
            plain = html.unescape(value)
            if name == "id":
                places.add(plain)
            elif name == "srcset":
                links += [Link(one.split()[0], is_loaded=True) for one in plain.split(",")]
            elif plain:
                links.append(Link(plain, is_loaded=tag != "a"))
    return _Looks(links, places)
