"""``logfs topic``: create, list, describe, alter, delete and restore topics."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logfs.cli import failures
from logfs.cli.escapes import printable
from logfs.cli.parameters import dry_run_option, json_option, settings_option
from logfs.cli.terminal import tables
from logfs.cli.terminal.quantities import format_duration
from logfs.errors import (
    NoSuchTopicError,
    TopicExistsError,
    UnknownNameError,
)
from logfs.library.places import DirectoryKind, Place, kind_of, locate, locate_local
from logfs.types import MAX_PARTITIONS

if TYPE_CHECKING:
    from logfs.library.topics import Topics
    from logfs.services.administration import TopicFacts

T = TypeVar("T")

_PARTITIONS = click.IntRange(1, MAX_PARTITIONS)


class _WithSettings(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print every setting of a topic with its default and its meaning."""
        from logfs.config import TOPIC_KEYS

        with formatter.section("Settings of a topic, Kafka's (and their defaults)"):
            formatter.write_dl(
                [
                    (f"{row.key} ({row.format(row.default) or 'unset'})", row.meaning)
                    for row in TOPIC_KEYS.values()
                    if not row.unused
                ],
                col_max=0,
            )
        kept = ", ".join(row.key for row in TOPIC_KEYS.values() if row.unused)
        formatter.write_paragraph()
        formatter.write_text(f"Kept, but without effect in logfs: {kept}.")


@click.group()
def topic() -> None:
    """Create, list, describe, alter, delete and restore topics.

    PATH is DATA/TOPIC; DATA is a data directory or a mount point. If a daemon serves the directory,
    the daemon makes the change, and the mount shows it at once.

    \b
    In a mount these do the same:
        mkdir MOUNTPOINT/TOPIC                                      create
        touch MOUNTPOINT/TOPIC/3                                    four partitions
        setfattr -n user.logfs.retention.ms -v 86400000 …/TOPIC     alter --config
        setfattr -x user.logfs.retention.ms …/TOPIC                 alter --delete
        rmdir MOUNTPOINT/TOPIC                                      delete one without records
    """  # noqa: D301 - click's mark for text it does not fill


@topic.command(cls=_WithSettings)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--partitions",
    type=_PARTITIONS,
    metavar="N",
    help="Create N partitions; default: num.partitions of the daemon, or 1.",
)
@settings_option("Set a setting; may be given several times.")
@click.option(
    "--if-not-exists", is_flag=True, help="Leave a topic that exists unchanged, without an error."
)
def create(
    paths: Sequence[str],
    partitions: int | None,
    settings: Sequence[tuple[str, str]],
    *,
    if_not_exists: bool,
) -> None:
    """Create the topics PATH.

    The data directory must exist; it contains logs or is empty.

    \b
    Examples:
        logfs topic create /var/lib/logfs/orders
        logfs topic create /var/lib/logfs/orders --partitions 4 --config retention.ms=86400000
        logfs topic create /mnt/logs/users --config cleanup.policy=compact
    """  # noqa: D301
    config = dict(settings)

    def make(path: str) -> None:
        place = locate_local(path, may_begin=True)
        name = _topic_of(place)
        with suppress(*((TopicExistsError,) if if_not_exists else ())):
            _warn(
                path, _change(place, lambda topics: topics.create_topic(name, partitions, config))
            )

    _each(paths, make)


@topic.command("list")
@click.argument("path", default=".")
@json_option("Print a JSON array.")
def list_topics(path: str, *, as_json: bool) -> None:
    """List the topics of the data directory or mount point PATH (default: the current directory).

    A terminal gets a table of topics and their numbers of partitions, a pipe one name a line.
    Topics whose names start with "__", which ls does not show, are listed too.
    """
    with failures.about(path):
        place = locate(path)
        if place.address:
            raise UnknownNameError(
                "expected a data directory or a mount point; "
                "a topic is shown by 'logfs topic describe'"
            )
        sizes = _read(place, lambda topics: topics.topic_sizes())
    if as_json:
        _print_json([{"topic": name, "partitions": count} for name, count in sizes.items()])
    elif sys.stdout.isatty():
        columns = [tables.TableColumn("TOPIC"), tables.TableColumn("PARTITIONS", is_number=True)]
        tables.show_table(columns, [[name, str(count)] for name, count in sizes.items()])
    else:
        for name in sizes:
            click.echo(name)


@topic.command()
@click.argument("path")
@click.option("--all", "with_all", is_flag=True, help="Show every setting in effect.")
@json_option("Print a JSON object, including all of .meta.")
def describe(path: str, *, with_all: bool, as_json: bool) -> None:
    """Show the topic PATH: its id, its settings, its retention, its partitions.

    The retention is the one in effect, set or by default: how long and how much is kept.

    Each partition has the first offset that is kept, the offset of the next record, the number of
    segments and their size, the newest timestamp, and its state.
    """
    with failures.about(path):
        place = locate(path)
        name = _topic_of(place)
        facts = _read(place, lambda topics: topics.describe_topic(name))
    if as_json:
        _print_json(_as_json(facts, with_all=with_all))
    else:
        _show(facts, with_all=with_all)
    if not as_json:
        _warn(path, facts.warnings)


@topic.command(cls=_WithSettings)
@click.argument("path")
@settings_option("Set a setting; may be given several times.")
@click.option(
    "--delete",
    "taken_back",
    multiple=True,
    metavar="KEY",
    help="Remove a setting, so that the default applies; may be given several times.",
)
@click.option("--partitions", type=_PARTITIONS, metavar="N", help="Grow to N partitions.")
def alter(
    path: str,
    settings: Sequence[tuple[str, str]],
    taken_back: Sequence[str],
    partitions: int | None,
) -> None:
    """Change settings of the topic PATH, or add partitions.

    \b
    Examples:
        logfs topic alter /var/lib/logfs/orders --config retention.ms=604800000
        logfs topic alter /mnt/logs/orders --delete retention.ms --config segment.ms=3600000
        logfs topic alter /mnt/logs/orders --partitions 8
    """  # noqa: D301
    changes: dict[str, str | None] = dict(settings)
    twice = sorted(changes.keys() & set(taken_back))
    if twice:
        raise click.UsageError(f"{', '.join(twice)}: both in --config and in --delete")
    changes |= dict.fromkeys(taken_back)
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: give --config, --delete or --partitions")
    with failures.about(path):
        place = locate_local(path)
        name = _topic_of(place)
        _warn(path, _change(place, lambda topics: topics.alter_topic(name, changes, partitions)))


@topic.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@click.option(
    "--now",
    "at_once",
    is_flag=True,
    help="Remove the files at once; 'logfs topic undelete' cannot restore the topic then.",
)
@dry_run_option()
def delete(paths: Sequence[str], *, if_exists: bool, at_once: bool, is_preview: bool) -> None:
    """Delete the topics PATH and all their records.

    As in Kafka, the directories are renamed at once and removed after file.delete.delay.ms (a
    minute; log.segment.delete.delay.ms of the daemon). Until then programs that have the files open
    can read them, and 'logfs topic undelete' restores the topic. With --now the files are removed
    at once, except those of a partition that an open fixed name reads: they go when it is closed.
    """

    def remove(path: str) -> None:
        place = locate_local(path)
        name = _topic_of(place)
        with suppress(*((NoSuchTopicError,) if if_exists else ())):
            if is_preview:
                _show_deletion(_change(place, lambda topics: topics.describe_topic(name)))
            else:
                _change(place, lambda topics: topics.delete_topic(name, at_once=at_once))

    _each(paths, remove)


@topic.command()
@click.argument("path")
def undelete(path: str) -> None:
    """Restore the topic PATH, which was deleted less than a minute ago.

    Records, positions, settings, owner and mode are as before. If several topics of this name
    were deleted, the latest is restored. Programs that had it open for appending must reopen it.

    \b
    Examples:
        logfs topic undelete /var/lib/logfs/orders
    """  # noqa: D301
    with failures.about(path):
        place = locate_local(path)
        name = _topic_of(place)
        _change(place, lambda topics: topics.undelete_topic(name))


def _each(paths: Sequence[str], act: Callable[[str], None]) -> None:
    """Act on each path; after an error, report it and continue with the next path."""
    reports = failures.Reports()
    for path in paths:
        with reports.about(path):
            act(path)
    failures.exit_with(reports.status)


def _topic_of(place: Place) -> str:
    """Return the topic that a path names; raise a LogfsError if it is not that of a topic."""
    from logfs.log.reading.address import parse_topic_name

    if len(place.address) == 1:
        return parse_topic_name(place.address[0])
    where = "mount point" if place.is_mount else "data directory"
    if not place.address:
        raise UnknownNameError(f"that is a {where}; expected a topic in it, {place.root}/TOPIC")
    if not place.is_mount and kind_of(place.root) is DirectoryKind.EMPTY:
        missing = f"{place.root}/{place.address[0]}"
        raise UnknownNameError(
            f"{missing} does not exist: 'mkdir {missing}' makes it a data directory for the topic"
        )
    raise UnknownNameError(
        f"expected {place.root}/TOPIC: a topic is directly below the {where}, and this command is "
        "about all of its partitions"
    )


def _read(place: Place, act: "Callable[[Topics], T]") -> T:
    from logfs.library.topics import read_topics

    return read_topics(place, act)


def _change(place: Place, act: "Callable[[Topics], T]") -> T:
    from logfs.library.writer import Writer

    with Writer(place, failures.progress(), is_durable=True) as writer:
        return writer.change_topics(act)


def _warn(path: str, warnings: Sequence[str]) -> None:
    for warning in warnings:
        failures.warn(f"{path}: warning: {warning}")


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _as_json(facts: "TopicFacts", *, with_all: bool) -> Mapping[str, object]:
    effective = {"effective_config": dict(facts.effective)} if with_all else {}
    return {
        "topic": facts.name,
        "topic_id": facts.topic_id,
        "config": dict(facts.config),
        **effective,
        "warnings": list(facts.warnings),
        "partitions": list(facts.partitions),
    }


def _show(facts: "TopicFacts", *, with_all: bool) -> None:
    total = sum(meta["size_bytes"] for meta in facts.partitions)
    click.echo(f"topic       {facts.name}")
    click.echo(f"id          {facts.topic_id or 'none'}")
    click.echo(f"partitions  {len(facts.partitions)}")
    click.echo(f"size        {tables.format_bytes(total)}")
    for number, (key, value) in enumerate(sorted(facts.config.items())):
        click.echo(printable(f"{'' if number else 'config':<12}{key}={value}"))
    if not facts.config:
        click.echo("config      nothing set, the defaults apply")
    click.echo(f"retention   {_retention(facts.effective)}")
    click.echo()
    tables.show_table(
        [
            tables.TableColumn("PARTITION", is_number=True),
            tables.TableColumn("LOG-START-OFFSET", is_number=True),
            tables.TableColumn("LOG-END-OFFSET", is_number=True),
            tables.TableColumn("SEGMENTS", is_number=True),
            tables.TableColumn("SIZE", is_number=True),
            tables.TableColumn("NEWEST"),
            tables.TableColumn("STATE"),
        ],
        [_partition_row(meta) for meta in facts.partitions],
    )
    if with_all:
        click.echo()
        for key, value in facts.effective.items():
            click.echo(f"{key}={value}" + ("" if key in facts.config else "  (default)"))


def _show_deletion(facts: "TopicFacts") -> None:
    """Print what is deleted with a topic."""
    partitions = tables.counted(len(facts.partitions), "partition")
    offsets = sum(meta["log_end_offset"] - meta["log_start_offset"] for meta in facts.partitions)
    size = tables.format_bytes(sum(meta["size_bytes"] for meta in facts.partitions))
    click.echo(
        f"{facts.name} would be deleted: {partitions}, {tables.counted(offsets, 'offset')}, {size}"
    )


def _retention(effective: Mapping[str, str]) -> str:
    """Return which records are removed with the settings in effect."""
    policies = [policy for policy in effective.get("cleanup.policy", "").split(",") if policy]
    limits = []
    if "delete" in policies:
        if (most_ms := int(effective.get("retention.ms", -1))) >= 0:
            limits.append(f"{format_duration(most_ms / 1000)} (retention.ms)")
        if (most_bytes := int(effective.get("retention.bytes", -1))) >= 0:
            size = tables.format_bytes(most_bytes)
            limits.append(f"{size} for each partition (retention.bytes)")
    if "compact" in policies:
        limits.append("the last record of each key (cleanup.policy)")
    return ", ".join(limits) or "unlimited: records are never removed"


def _partition_row(meta: Mapping[str, Any]) -> list[str]:
    newest = meta["max_timestamp"]
    losses = len(meta["losses"])
    state = "ok" if meta["offline"] is None else f"offline: {meta['offline']}"
    if losses:
        state += f", {tables.counted(losses, 'loss')}, see {meta['partition']}.meta"
    return [
        str(meta["partition"]),
        str(meta["log_start_offset"]),
        str(meta["log_end_offset"]),
        str(meta["segments"]),
        tables.format_bytes(meta["size_bytes"]),
        "-" if newest is None else tables.format_time(newest),
        state,
    ]
