"""What a shell completes after a command: paths, those inside a data directory too.

Nothing of this is loaded unless a shell asks.
"""

import os
from collections.abc import Iterator
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
        """Offer topics and partitions where no mount shows them; else leave it to the shell."""
        try:
            found = list(islice(_addresses(incomplete), _MOST))
        except OSError:
            found = []
        return [CompletionItem(text) for text in found] or [CompletionItem(incomplete, type="file")]


def complete_paths(command: click.Command) -> None:
    """Let the arguments of a command, and of those below it, be completed as paths."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.type is click.STRING:
            parameter.type = _Address()
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            complete_paths(inner)


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
