"""Manual pages, made from what ``--help`` prints: ``python -m logfs.cli.manual DIRECTORY``.

    man1/logfs.1          the commands            man1/logfs-mount.1 …   one page for each
    man8/mount.logfs.8    the helper of mount     man5/logfs.toml.5      the file for --config-file
    man7/logfs-address.7  names in a mount

A page for each command, as in git: ``man logfs-mount``, ``man logfs-topic-create``. Packages that
do this know nothing of commands that are loaded when they are called, nor of text that is not to be
filled.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from logfs import __version__
from logfs.cli import mount_file, mount_helper
from logfs.cli.command_index import COMMANDS
from logfs.cli.main import cli
from logfs.log.reading.address import SELECTOR_TABLE, VIEW_TABLE

_WIDTH = 78
_HELP = ["-h", "--help"]
_SEE = ("logfs(1)", "logfs-address(7)", "logfs.toml(5)", "mount.logfs(8)", "systemd.service(5)")
_ADDRESS = "The names in a mount: TOPIC/PARTITION[@FROM[..TO]][.VIEW]"
_FILES = """\\b
/etc/logfs/NAME.toml
    What logfs@NAME.service mounts where; see logfs.toml(5).
DATA/logfs.socket, DATA/logfs.daemon
    How commands find the daemon that owns a data directory.
"""
_STATUS = """\\b
0    done
1    refused or failed: one line on stderr says what, what was expected and what to do
2    wrong use; of 'logfs status' and 'logfs verify', see there, also: the state is not known
130  ended by Ctrl-C
"""
_ENVIRONMENT = """\\b
LOGFS_DEBUG
    1: show tracebacks, as --debug.
LOGFS_DECOMPRESSED_MAX_BYTES
    As --decompressed-max-bytes.
TZ
    The time zone of dates without one where no daemon serves the data directory, and of printed
    times.
CACHE_DIRECTORY, XDG_CACHE_HOME
    Where a read-only mount keeps positions; see cache_dir in logfs-mount(1).
"""


def pages() -> dict[str, str]:
    """Return every page: its path below a directory of manuals, and its source."""
    context = click.Context(cli, info_name="logfs", help_option_names=_HELP)
    found: dict[str, str] = {}
    names = cli.list_commands(context)
    for name in names:
        command = cli.get_command(context, name)
        assert command is not None
        if not command.hidden:
            found |= _pages_of(command, click.Context(command, context, info_name=name))
    commands = [f"logfs-{name}(1)\n    {COMMANDS[name].sentence}" for name in names]
    more = {
        "commands": "\n".join(["\\b", *commands]),
        "exit status": _STATUS,
        "environment": _ENVIRONMENT,
        "files": _FILES,
    }
    found["man1/logfs.1"] = _page(cli, context, 1, more)
    context = click.Context(
        mount_helper.mount, info_name="mount.logfs", help_option_names=["-h", "--help"]
    )
    found["man8/mount.logfs.8"] = _page(mount_helper.mount, context, 8)
    found["man5/logfs.toml.5"] = _file_page()
    found["man7/logfs-address.7"] = _address_page()
    return found


def _pages_of(command: click.Command, context: click.Context) -> dict[str, str]:
    """Return the page of a command, and those of the commands in it."""
    name = context.command_path.replace(" ", "-")
    found = {f"man1/{name}.1": _page(command, context, 1)}
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            below = command.get_command(context, inner)
            assert below is not None
            found |= _pages_of(below, click.Context(below, context, info_name=inner))
    return found


def _page(
    command: click.Command,
    context: click.Context,
    section: int,
    more: dict[str, str] | None = None,
) -> str:
    name = context.command_path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        *_head(name, section, command.get_short_help_str(200)),
        ".SH SYNOPSIS",
        f".B {_escape(context.command_path)}",
        _escape(usage),
        ".SH DESCRIPTION",
        *_text(command.help or ""),
        *_options(command, context),
    ]
    if isinstance(command, click.Group) and command is not cli:
        lines += _subcommands(command, context)
    formatter = click.HelpFormatter(width=_WIDTH)
    command.format_epilog(context, formatter)
    if epilog := formatter.getvalue().strip("\n"):
        lines += [".SH NOTES", *_unfilled(epilog.splitlines())]
    for title, text in (more or {}).items():
        lines += [f".SH {title.upper()}", *_text(text)]
    return "\n".join([*lines, *_see_also(f"{name}({section})")])


def _see_also(page: str) -> list[str]:
    return [".SH SEE ALSO", _escape(", ".join(other for other in _SEE if other != page)), ""]


def _subcommands(group: click.Group, context: click.Context) -> Iterator[str]:
    yield ".SH COMMANDS"
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, context, info_name=name)
        usage = " ".join(command.collect_usage_pieces(inner))
        yield f".SS {_escape(f'{inner.command_path} {usage}')}"
        yield from _text(command.help or "")
        yield from _options(command, inner, heading=False)


def _options(
    command: click.Command, context: click.Context, *, heading: bool = True
) -> Iterator[str]:
    records = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and (record := parameter.get_help_record(context)) is not None
    ]
    if records and heading:
        yield ".SH OPTIONS"
    for names, meaning in records:
        yield ".TP"
        yield f".B {_escape(names)}"
        yield _escape(meaning)


def _file_page() -> str:
    text = (mount_file.__doc__ or "").replace("``", "")
    title, _, rest = text.partition("\n\n")
    lines = _head("logfs.toml", 5, title.partition(":")[0].removeprefix("The "))
    lines += [".SH DESCRIPTION", _escape(title)]
    for paragraph in re.split(r"\n\n(?! )", rest.rstrip()):
        block = paragraph.splitlines()
        lines += _unfilled(block) if paragraph.startswith(" ") else [".PP", *map(_escape, block)]
    return "\n".join([*lines, ".SH SEE ALSO", _escape("logfs-mount(1), mount.logfs(8)"), ""])


def _address_page() -> str:
    lines = [
        *_head("logfs-address", 7, _ADDRESS),
        ".SH DESCRIPTION",
        _escape("A name without @ has every record. FROM is inclusive, TO exclusive. The name is"),
        _escape("resolved each time it is looked up. Commands take the same names."),
    ]
    for title, rows in (("selectors", SELECTOR_TABLE), ("views", VIEW_TABLE)):
        lines.append(f".SH {title.upper()}")
        for example, meaning in rows:
            lines += [".TP", f".B {_escape(example or '(none)')}", _escape(meaning)]
    return "\n".join([*lines, *_see_also("logfs-address(7)")])


def _head(name: str, section: int, summary: str) -> list[str]:
    return [
        f'.TH "{_escape(name.upper())}" {section} "" "logfs {__version__}" "Manual of logfs"',
        ".SH NAME",
        rf"{_escape(name)} \- {_escape(summary.rstrip('.'))}",
    ]


def _text(text: str) -> Iterator[str]:
    """Write paragraphs; those that click does not fill begin with a backspace on a line."""
    for paragraph in text.strip("\n").split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() in ("\b", "\\b"):
            yield from _unfilled(_outdented(lines[1:]))
        else:
            yield ".PP"
            yield from (_escape(line.strip()) for line in lines)


def _outdented(lines: list[str]) -> list[str]:
    """Return lines without the indentation that all of them have."""
    return textwrap.dedent("\n".join(lines)).splitlines()


def _unfilled(lines: list[str]) -> list[str]:
    return [".PP", ".nf", *map(_escape, lines), ".fi"]


def _escape(line: str) -> str:
    text = line.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    return rf"\&{text}" if text.startswith(".") else text


def main() -> None:
    """Write all pages below a directory."""
    directory = Path(sys.argv[1])
    for name, source in pages().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
