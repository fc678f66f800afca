"""Options and arguments of several commands."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from logfs.config.amounts import setting_in_units
from logfs.types import IsolationLevel, View

Command = TypeVar("Command", bound=Callable[..., Any])


class _Directory(click.Path):
    """A text like any other, which a shell completes as the path of a directory."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as in click
        _parameter: click.Parameter | None,
        _context: click.Context | None,
    ) -> Any:  # noqa: ANN401
        """Leave it as it is: whether it is there, and what it is, the commands say better."""
        return value


DIRECTORY = _Directory(file_okay=False)

VIEWS = {"text": View.TEXT, "tsv": View.TSV, "jsonl": View.JSONL}
"""The views by their names on the command line."""


def view_of_suffix(suffix: str) -> View | None:
    """Return the view of a suffix: "" or ".tsv", say; None if it does not render records."""
    return VIEWS["text"] if not suffix else VIEWS.get(suffix.removeprefix("."))


def json_option(meaning: str) -> Callable[[Command], Command]:
    """Return the decorator for ``--json``; the command gets ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=meaning)


def roll_option(done: str) -> Callable[[Command], Command]:
    """Return the decorator for ``--roll``, so that all records can be ``done``."""
    text = f"Start a new segment first, so that all present records can be {done}."
    return click.option("--roll", is_flag=True, help=text)


def dry_run_option(note: str = "") -> Callable[[Command], Command]:
    """Return the option ``--dry-run``, the argument ``is_preview``."""
    text = "Show what the command would do, and change nothing."
    return click.option("--dry-run", "is_preview", is_flag=True, help=f"{text} {note}".strip())


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


def store_options(command: Command) -> Command:
    """Add ``--endpoint``, ``--region`` and ``--config``: the lines of ``logfs.remote``.

    The command gets ``endpoint``, ``region`` and ``settings``; see ``store_settings``.
    """
    for option in (
        settings_option(
            "Set another key of logfs.remote, as freshness.ms=5000; may be given several times."
        ),
        click.option(
            "--region", metavar="NAME", help="The region of the bucket; default: us-east-1."
        ),
        click.option("--endpoint", metavar="URL", help="The server; default: the cloud's own."),
    ):
        command = option(command)
    return command


def store_settings(
    endpoint: str | None, region: str | None, settings: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return the lines of ``logfs.remote`` that the options of a store name."""
    given = {"endpoint": endpoint, "region": region}
    return dict(settings) | {key: value for key, value in given.items() if value is not None}


def config_file_option(meaning: str) -> Callable[[Command], Command]:
    """Return the decorator for ``--config-file FILE``; the command gets ``config_file``."""
    return click.option(
        "--config-file", metavar="FILE", type=click.Path(dir_okay=False), help=meaning
    )


def cluster_options(command: Command) -> Command:
    """Add ``-X KEY=VALUE`` and ``--command-config FILE``: how a Kafka cluster is reached.

    The command gets ``options`` and ``command_config``; see ``cluster_clients.properties_of``.
    """
    setting = click.option(
        "-X",
        "options",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting under librdkafka's name, as for kcat.",
    )
    file = click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="A file of such settings, or one of Kafka's own tools. Passwords belong there.",
    )
    return setting(file(command))


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
            raise click.BadParameter(f"{text!r}: expected KEY=VALUE, as retention.ms=7d")
        pairs.append((key, setting_in_units(key, value)))
    return pairs


def header_option(meaning: str) -> Callable[[Command], Command]:
    """Return the decorator for ``--header NAME=VALUE``; the command gets ``headers``, in bytes."""
    return click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_as_headers,
        help=meaning,
    )


def _as_headers(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> tuple[tuple[bytes, bytes | None], ...]:
    headers = []
    for text in values:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r}: expected NAME=VALUE, as host=web1")
        headers.append((os.fsencode(name), os.fsencode(value)))
    return tuple(headers)
