"""What several commands take on the command line."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from logfs.types import IsolationLevel

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_option(meaning: str) -> Callable[[Command], Command]:
    """Return the decorator for ``--config KEY=VALUE``; the command gets ``settings``, pairs."""
    return click.option(
        "--config",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_take_apart,
        help=meaning,
    )


def isolation_option(meaning: str) -> Callable[[Command], Command]:
    """Return the decorator for ``--isolation-level``; the command gets ``level``, None without."""
    return click.option(
        "--isolation-level",
        "level",
        type=click.Choice([level.value for level in IsolationLevel]),
        callback=_as_level,
        help=meaning,
    )


def _as_level(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> IsolationLevel | None:
    return None if text is None else IsolationLevel(text)


def _take_apart(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> list[tuple[str, str]]:
    """Split texts at the first "="; what a key may be is for the store to say."""
    pairs = []
    for text in values:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not key or not equals:
            raise click.BadParameter(f"{text!r}: expected KEY=VALUE, as retention.ms=86400000")
        pairs.append((key, value))
    return pairs
