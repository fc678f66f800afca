"""The examples in the help of a command, to be run on a directory of a test."""

import shlex
from pathlib import Path

import click

_ROOTS = ("/var/lib/logfs", "/mnt/logs", "/var/lib/kafka")


def examples_of(command: click.Command) -> list[str]:
    """Return the command lines that the help text shows."""
    lines = [line.strip() for line in (command.help or "").splitlines()]
    return [line for line in lines if line.startswith(f"logfs {command.name} ")]


def arguments_of(example: str, data: Path) -> list[str]:
    """Return the arguments of a command line, up to its first pipe, on its own directory."""
    words = shlex.split(example)[1:]
    stop = next((n for n, word in enumerate(words) if word in {"|", "||", "&&"}), len(words))
    for root in _ROOTS:
        words = [word.replace(root, str(data)) for word in words]
    return words[:stop]
