"""``logfs du``: how much of the disk topics and partitions take."""

import json
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.parameters import json_option
from logfs.cli.terminal import tables
from logfs.library.places import locate

if TYPE_CHECKING:
    from collections.abc import Callable

    from logfs.library.disk_use import DiskUse, Use

_COLUMNS = ("DISK", "LOG", "INDEX", "OTHER", "KEPT", "SHOWN")


@click.command(context_settings={"help_option_names": ["--help"]})
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("-h", "--human-readable", "human", is_flag=True, help="Print sizes as 1.5MiB.")
@click.option(
    "-a",
    "--all",
    "every",
    is_flag=True,
    help="Print a line for each partition, not only for each topic.",
)
@json_option("Print a JSON array, an object a line.")
def du(paths: tuple[str, ...], *, human: bool, every: bool, as_json: bool) -> int:
    """Print the disk usage of topics and partitions, in bytes.

    PATH is a data directory, DATA/TOPIC or DATA/TOPIC/PARTITION, or the same in a mount; default:
    the current directory. A data directory is printed by topics, a topic by partitions.

    \b
        DISK    blocks of all files, without holes
        LOG     blocks of the records, a part of DISK
        INDEX   blocks of the offset, time, transaction and text indexes
        OTHER   blocks of deleted files that are not removed yet, of snapshots and tables
        KEPT    length of the retained values, with a newline after each
        SHOWN   size of the file in a mount: positions never go back, so it only grows
        REMOTE  objects in the object store of the data directory; only where it has one

    du(1) prints the sum of SHOWN for a mount, and knows no topics in a data directory. A file with
    several names (a backup's hard links) is added once. KEPT and SHOWN are "-" in a directory that
    logfs has never written to. A directory that cannot be read is named, and the exit status is 1.

    \b
    Examples:
        logfs du /var/lib/logfs
        logfs du -h /mnt/logs/orders
        logfs du --json /var/lib/logfs | jq -r 'max_by(.disk).name'
    """  # noqa: D301 - click's mark for text it does not fill
    rows: list[tuple[str, Use]] = []
    unreadable: list[str] = []
    for path in paths or (".",):
        with failures.about(path):
            rows += _rows(path, every=every, unreadable=unreadable)
    for text in unreadable:
        failures.warn(text)
    status = failures.FAILED if unreadable else 0
    if as_json:
        click.echo(json.dumps([_as_json(name, use) for name, use in rows], indent=2))
        return status
    form = tables.format_bytes if human else str
    has_store = any(use.remote for _, use in rows)
    columns = [
        tables.TableColumn("NAME"),
        *(tables.TableColumn(name, is_number=True) for name in _COLUMNS),
        *([tables.TableColumn("REMOTE", is_number=True)] if has_store else []),
    ]
    lines = [[name, *_cells(use, form, has_store=has_store)] for name, use in rows]
    tables.show_table(columns, lines)
    return status


def _rows(path: str, *, every: bool, unreadable: list[str]) -> "list[tuple[str, Use]]":
    from logfs.library.directory import data_and_partitions
    from logfs.library.disk_use import Use, disk_use

    place = locate(path)
    data, only = data_and_partitions(place)
    found = disk_use(data, only)
    unreadable += found.unreadable
    by_partition = every or only is not None
    rows: dict[str, Use] = {}
    total = Use(kept=0, shown=0)
    for topic_partition, use in found.partitions.items():
        name = str(topic_partition) if by_partition else topic_partition.topic
        rows.setdefault(name, Use(kept=0, shown=0)).add(use)
        total.add(use)
    ordered = sorted(rows.items(), key=lambda row: _in_order(row[0]))
    return [*ordered, *(_rest(found, total) if only is None else [])]


def _in_order(name: str) -> tuple[str, int]:
    topic, _, number = name.partition("/")
    return topic, int(number or 0)


def _rest(found: "DiskUse", total: "Use") -> "list[tuple[str, Use]]":
    """Return the lines after the topics: what else there is, and all of it."""
    rest = []
    for name, use in (("(deleted)", found.deleted), ("(root)", found.root)):
        total.other += use.disk
        if use.disk:
            rest.append((name, use))
    return [*rest, ("(total)", total)]


def _cells(use: "Use", form: "Callable[[int], str]", *, has_store: bool) -> list[str]:
    sizes = [use.disk, use.log, use.index, use.other, use.kept, use.shown]
    sizes += [use.remote] if has_store else []
    return ["-" if size is None else form(size) for size in sizes]


def _as_json(name: str, use: "Use") -> dict[str, Any]:
    return {
        "name": name,
        "disk": use.disk,
        "log": use.log,
        "index": use.index,
        "other": use.other,
        "kept": use.kept,
        "shown": use.shown,
        "remote": use.remote,
    }
