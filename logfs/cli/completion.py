"""What a shell completes after a command: paths, views, settings of topics, options of mounts.

Nothing of this is loaded unless a shell asks.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from logfs.library import places
from logfs.log import names

_MOST = 200


class _Address(click.Path):
    """A path below a data directory or a mount point."""

    def shell_complete(
        self, _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer topics and partitions where no mount shows them, views everywhere."""
        if re.fullmatch(r"(.*/)?[0-9]+\.[a-z]*", incomplete):
            return _starting(_views(incomplete), incomplete)
        try:
            found = list(islice(_addresses(incomplete), _MOST))
        except OSError:
            found = []
        return [CompletionItem(text) for text in found] or [CompletionItem(incomplete, type="file")]


class _Words(click.types.StringParamType):
    """One of some words, or any other text."""

    def __init__(self, words: Callable[[str], Iterable[str]]) -> None:
        self._words = words

    def shell_complete(
        self, _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the words that start so."""
        return _starting(self._words(incomplete), incomplete)


def complete_parameters(command: click.Command) -> None:
    """Let the parameters of a command, and of the commands in it, be completed."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.type is click.STRING:
            parameter.type = _Address()
        elif parameter.name in _WORDS:
            parameter.type = _Words(_WORDS[parameter.name])
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            complete_parameters(inner)


def _starting(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _views(incomplete: str) -> Iterator[str]:
    from logfs.log.reading.address import Suffix

    number, _, _ = incomplete.rpartition(".")
    return (number + view for view in Suffix if view and not view.is_in)


def _topic_settings(_incomplete: str) -> Iterator[str]:
    from logfs.config import TOPIC_KEYS

    return (row.key for row in TOPIC_KEYS.values() if not row.unused)


def _mount_options(incomplete: str) -> Iterator[str]:
    from logfs.fs.options import option_names

    before = incomplete.rpartition(",")[0]
    return (f"{before}," * bool(before) + name for name in option_names())


_WORDS: dict[str | None, Callable[[str], Iterable[str]]] = {
    "settings": lambda incomplete: (f"{key}=" for key in _topic_settings(incomplete)),
    "taken_back": _topic_settings,
    "options": _mount_options,
}
"""The words that are offered for an option, by the name of its parameter."""


def _addresses(incomplete: str) -> Iterator[str]:
    """Return what begins so: ``DATA/TOPIC`` and ``DATA/TOPIC/PARTITION``."""
    head, _, topic = incomplete.rpartition("/")
    outer, _, inner = head.rpartition("/")
    for directory, part in ((head, topic), (outer, f"{inner}/{topic}")):
        root = directory or ("/" if incomplete.startswith("/") else ".")
        if places.kind_of(os.path.realpath(root)) is not places.DirectoryKind.DATA:
            continue
        prefix = f"{directory}/" if "/" in incomplete else ""
        parsed = [names.parse_partition_directory(entry.name) for entry in Path(root).iterdir()]
        found = {(each.topic, each.partition) for each in parsed if each is not None}
        texts = {name for name, _ in found} | {f"{name}/{number}" for name, number in found}
        yield from (prefix + text for text in sorted(texts) if text.startswith(part))
