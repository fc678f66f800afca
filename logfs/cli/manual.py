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

from logfs.cli import mount_file, mount_helper
from logfs.cli.command_index import COMMANDS
from logfs.cli.main import cli
from logfs.cli.manual_environment import environment_of
from logfs.cli.manual_page import (
    Block,
    Heading,
    Item,
    Page,
    Paragraph,
    Synopsis,
    Verbatim,
    source_of,
)
from logfs.log.reading.address import SELECTOR_TABLE, VIEW_TABLE

_WIDTH = 78
_HELP = ["-h", "--help"]
_SEE = ("logfs(1)", "logfs-address(7)", "logfs.toml(5)", "mount.logfs(8)", "systemd.service(5)")
_ADDRESS = "The names in a mount: TOPIC/PARTITION[@FROM[..TO]][.VIEW]"
_ADDRESSES = (
    "grep ERROR /mnt/logs/app/0@-15m",
    "less /mnt/logs/app/0@2026-11-20T10:00..2026-11-20T11:00",
    "cat /mnt/logs/orders/0@offset=-100.jsonl",
    "cat /mnt/logs/orders/0@latest.follow",
    "logfs cat /var/lib/logfs/orders/0@2026-11-20..2026-11-21.tsv",
)
_FILES = (
    Item("/etc/logfs/NAME.toml", "What logfs@NAME.service mounts where; see logfs.toml(5)."),
    Item(
        "DATA/logfs.socket, DATA/logfs.daemon",
        "How commands find the daemon that owns a data directory.",
    ),
)
_STATUS = (
    Item("0", "done"),
    Item("1", "refused or failed: one line on stderr says what, what was expected and what to do"),
    Item("2", "wrong use; of logfs-status(1) and logfs-verify(1) also: the state is not known"),
    Item("130", "ended by Ctrl-C"),
)


def pages() -> tuple[Page, ...]:
    """Return every page; that of a command is before those of the commands in it."""
    helper = mount_helper.mount
    context = click.Context(helper, info_name="mount.logfs", help_option_names=_HELP)
    return (
        *_pages_of(cli, None, "logfs"),
        _page(helper, context, 8),
        _file_page(),
        _address_page(),
    )


def _pages_of(command: click.Command, parent: click.Context | None, name: str) -> Iterator[Page]:
    context = click.Context(command, parent, info_name=name, help_option_names=_HELP)
    yield _page(command, context, 1)
    for inner, below in _commands_in(command, context):
        yield from _pages_of(below, context, inner)


def _commands_in(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield name, below


def _page(command: click.Command, context: click.Context, section: int) -> Page:
    name = context.command_path.replace(" ", "-")
    blocks: list[Block] = [
        Heading("Synopsis"),
        Synopsis(context.command_path, " ".join(command.collect_usage_pieces(context))),
        Heading("Description"),
        *_text(command.help or ""),
    ]
    if options := list(_options(command, context)):
        blocks += [Heading("Options"), *options]
    if command is cli:
        commands = (Item(f"logfs-{name}(1)", entry.sentence) for name, entry in COMMANDS.items())
        blocks += [Heading("Commands"), *commands]
    elif isinstance(command, click.Group):
        blocks += [Heading("Commands"), *_subcommands(command, context)]
    formatter = click.HelpFormatter(width=_WIDTH)
    command.format_epilog(context, formatter)
    if epilog := formatter.getvalue().strip("\n"):
        blocks += [Heading("Notes"), Verbatim(tuple(epilog.splitlines()))]
    if command is cli:
        blocks += [Heading("Exit status"), *_STATUS]
    blocks += [Heading("Environment"), *environment_of(_first_of(context))]
    if command is cli:
        blocks += [Heading("Files"), *_FILES]
    summary = command.get_short_help_str(200).rstrip(".")
    return Page(name, section, summary, tuple(blocks), _see_but(f"{name}({section})"))


def _first_of(context: click.Context) -> str:
    """Return ``topic`` for the context of ``logfs topic create``, and ``logfs`` for its own."""
    first, *others = context.command_path.split()
    return others[0] if others else first


def _see_but(page: str) -> tuple[str, ...]:
    return tuple(other for other in _SEE if other != page)


def _subcommands(group: click.Group, context: click.Context) -> Iterator[Block]:
    for name, command in _commands_in(group, context):
        inner = click.Context(command, context, info_name=name)
        usage = " ".join(command.collect_usage_pieces(inner))
        yield Heading(inner.command_path, is_inner=True)
        yield Synopsis(inner.command_path, usage)
        yield from _text(command.help or "")
        yield from _options(command, inner)


def _options(command: click.Command, context: click.Context) -> Iterator[Item]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            yield Item(*record)


def _file_page() -> Page:
    text = (mount_file.__doc__ or "").replace("``", "")
    title, _, rest = text.partition("\n\n")
    blocks: list[Block] = [Heading("Description"), Paragraph((title,))]
    for paragraph in re.split(r"\n\n(?! )", rest.rstrip()):
        lines = tuple(paragraph.splitlines())
        blocks.append(Verbatim(lines) if paragraph.startswith(" ") else Paragraph(lines))
    summary = title.partition(":")[0].removeprefix("The ")
    return Page("logfs.toml", 5, summary, tuple(blocks), ("logfs-mount(1)", "mount.logfs(8)"))


def _address_page() -> Page:
    blocks: list[Block] = [
        Heading("Synopsis"),
        Synopsis("MOUNTPOINT/TOPIC/PARTITION[@FROM[..TO]][.VIEW]", ""),
        Heading("Description"),
        Paragraph(
            (
                "A name without @ has every record. FROM is inclusive, TO exclusive. The name is",
                "resolved each time it is looked up. Commands take the same names.",
            )
        ),
        Paragraph(
            (
                "TOPIC@FROM[..TO][.VIEW], as orders@-1h.jsonl beside the directory orders, has the",
                "records of all partitions, merged by time, up to the look-up. Its points are",
                "times and offsets, its views .tsv and .jsonl.",
            )
        ),
    ]
    for title, rows in (("Selectors", SELECTOR_TABLE), ("Views", VIEW_TABLE)):
        blocks.append(Heading(title))
        blocks += [Item(example or "(none)", meaning) for example, meaning in rows]
    blocks += [Heading("Examples"), Verbatim(_ADDRESSES)]
    return Page("logfs-address", 7, _ADDRESS, tuple(blocks), _see_but("logfs-address(7)"))


def _text(text: str) -> Iterator[Block]:
    """Give the paragraphs; those that click does not fill begin with a backspace on a line."""
    for paragraph in text.strip("\n").split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() in ("\b", "\\b"):
            yield Verbatim(tuple(textwrap.dedent("\n".join(lines[1:])).splitlines()))
        else:
            yield Paragraph(tuple(line.strip() for line in lines))


def main() -> None:
    """Write all pages below a directory."""
    directory = Path(sys.argv[1])
    for page in pages():
        path = directory / page.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source_of(page), encoding="utf-8")


if __name__ == "__main__":
    main()
