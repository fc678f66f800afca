"""``logfs group``: list, describe, reset and delete consumer groups."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from logfs.cli import failures
from logfs.cli.group_tables import format_age, format_commit, format_lag, show_positions
from logfs.cli.parameters import json_option
from logfs.cli.terminal import tables
from logfs.cli.terminal.tables import TableColumn
from logfs.errors import NoSuchGroupError, UnknownNameError
from logfs.library.places import Place, locate

if TYPE_CHECKING:
    from logfs.library.group_lags import GroupLag
    from logfs.library.groups import Groups
    from logfs.library.writer import Writer

T = TypeVar("T")

_JSON = json_option("Print a JSON array.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print what would change; change nothing.")


class _WithSelectors(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the points that the command takes: those of addresses, without ranges and bytes."""
        from logfs.log.reading.address import SELECTOR_TABLE

        rows = [row for row in SELECTOR_TABLE if ".." not in row[0] and "@byte=" not in row[0]]
        with formatter.section("FROM, the first record that the group will read"):
            formatter.write_dl(rows)


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups.

    A group is a name with a position in each partition that it reads. 'logfs tail --group NAME' and
    the consumer of the library commit positions, and a path PARTITION@group=NAME begins there. They
    are kept as Kafka keeps them, in the topic __consumer_offsets. The groups of a running broker
    can be listed and described; only the broker can change them.

    DATA is a data directory or a mount point.
    """


@group.command("list")
@click.argument("path", metavar="DATA", default=".")
@_JSON
def list_groups(path: str, *, as_json: bool) -> None:
    """List the consumer groups of DATA: their partitions, their lag, their last commit.

    Default: the current directory. LAG is the number of offsets from the positions to the ends of
    the partitions, and LAG-TIME the age of the oldest record that the group has not read.
    """
    with failures.about(path):
        found = _lags(path)
    rows = [_summary(name, lags) for name, lags in found.items()]
    if as_json:
        keys = ("group", "partitions", "lag", "lag_seconds", "committed_ms")
        click.echo(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
        return
    columns = [
        TableColumn("GROUP"),
        *(TableColumn(name, is_number=True) for name in ("PARTITIONS", "LAG")),
        *(TableColumn("LAG-TIME"), TableColumn("COMMITTED")),
    ]
    tables.show_table(
        columns,
        [
            [name, str(count), format_lag(lag), format_age(seconds), format_commit(committed_ms)]
            for name, count, lag, seconds, committed_ms in rows
        ],
    )


@group.command()
@click.argument("path", metavar="DATA")
@click.argument("name")
@_JSON
def describe(path: str, name: str, *, as_json: bool) -> None:
    """Show the positions of the group NAME in DATA.

    POSITION is the offset of the next record that the group will read, and END that of the next
    record that will be appended. LAG is the difference, without records that were deleted. LAG-TIME
    is the age of the record at POSITION. "-" is unknown, as for a topic that does not exist here.
    """
    with failures.about(path):
        lags = _lags(path, name)[name]
    show_positions(lags, as_json=as_json)


@group.command(cls=_WithSelectors)
@click.argument("name")
@click.argument("paths", metavar="PATH@FROM...", nargs=-1, required=True)
@_DRY_RUN
def reset(name: str, paths: Sequence[str], *, dry_run: bool) -> None:
    """Set the positions of the group NAME: the group continues at FROM.

    PATH is DATA/TOPIC, for all partitions of the topic, or DATA/TOPIC/PARTITION. The next record
    that the group reads in a partition is the first one that 'logfs cat PATH@FROM' prints. If the
    group does not exist, the command creates it. Stop the consumers of the group before: a running
    consumer commits its own position again.

    \b
    Examples:
        logfs group reset billing /var/lib/logfs/orders@earliest
        logfs group reset billing /var/lib/logfs/orders/0@offset=1500
        logfs group reset billing /mnt/logs/orders@-1h --dry-run
        logfs group reset trial /mnt/logs/orders@group=billing
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.group_points import offsets_at

    for path in paths:
        with failures.about(path):
            place = locate(path)
            offsets = offsets_at(place)
            if not dry_run:
                _change(
                    place,
                    lambda groups, writer: groups.commit(writer, name, offsets),  # noqa: B023
                )
            for one, offset in offsets.items():
                click.echo(
                    f"{one}: {'would continue' if dry_run else 'continues'} at offset {offset}"
                )


@group.command()
@click.argument("name")
@click.argument("path")
@_DRY_RUN
def delete(name: str, path: str, *, dry_run: bool) -> None:
    """Delete the positions of the group NAME in PATH.

    PATH is DATA for all of them, DATA/TOPIC or DATA/TOPIC/PARTITION. A group without positions does
    not exist any more.

    \b
    Examples:
        logfs group delete billing /var/lib/logfs
        logfs group delete billing /mnt/logs/orders
    """  # noqa: D301
    with failures.about(path):
        place = locate(path)
        topic, number, *more = *place.address, "", ""
        if any(more) or (number and not number.isdecimal()):
            raise UnknownNameError("expected a data directory, TOPIC or TOPIC/PARTITION in one")

        def remove(groups: "Groups", writer: "Writer") -> None:
            found = groups.group(name)
            if found is None:
                raise _no_group(name)
            gone = [
                one
                for one in sorted(found.positions)
                if topic in {"", one.topic} and number in {"", str(one.partition)}
            ]
            if not dry_run:
                groups.remove(writer, name, gone)
            for one in gone:
                click.echo(f"{one}: position {found.positions[one].offset} deleted")

        _change(place, remove)


def _change(place: Place, act: "Callable[[Groups, Writer], T]") -> T:
    from logfs.library.groups import Groups
    from logfs.library.writer import Writer

    root = place._replace(address=())
    with Writer.of(root) as writer, Groups(root) as groups:
        return act(groups, writer)


def _root(path: str) -> Place:
    place = locate(path)
    if place.address:
        raise UnknownNameError(f"expected a data directory or a mount point, {place.root}")
    return place


def _lags(path: str, name: str | None = None) -> "dict[str, list[GroupLag]]":
    """Return the positions of all groups, or of one, by group.

    Raises:
        NoSuchGroupError: There is no such group.
    """
    from logfs.library.group_lags import group_lags
    from logfs.library.groups import Groups
    from logfs.library.owner import shown_level

    place = _root(path)
    with Groups(place) as groups:
        found = groups.groups()
        if name is not None:
            if name not in found:
                raise _no_group(name)
            found = {name: found[name]}
        lags: dict[str, list[GroupLag]] = {key: [] for key in found}
        for row in group_lags(place, found, shown_level(place)):
            lags[row.group].append(row)
    return lags


def _no_group(name: str) -> NoSuchGroupError:
    return NoSuchGroupError(f"no consumer group {name}; 'logfs group list DATA' shows all")


def _summary(
    name: str, lags: "list[GroupLag]"
) -> tuple[str, int, int | None, float | None, int | None]:
    known = [row.lag for row in lags if row.lag is not None]
    seconds = [lag.seconds for lag in known if lag.seconds is not None]
    return (
        name,
        len(lags),
        sum(lag.records for lag in known) if len(known) == len(lags) else None,
        max(seconds, default=None),
        max((row.position.committed_ms for row in lags), default=None),
    )
