"""``logfs trim``: delete the records before a point."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.parameters import dry_run_option, json_option
from logfs.cli.terminal import tables
from logfs.library.places import locate_local

if TYPE_CHECKING:
    from logfs.services.retention.trimming import Trimmed


class _TrimCommand(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table of selectors, of which a single point is taken here."""
        from logfs.log.reading.address import SELECTOR_TABLE

        with formatter.section("FROM, the first record to keep"):
            formatter.write_dl([row for row in SELECTOR_TABLE if ".." not in row[0]])


@click.command(cls=_TrimCommand)
@click.argument("path")
@click.option(
    "--now",
    "at_once",
    is_flag=True,
    help="Remove the files at once, also those of earlier deletions, and drop the kernel's cache "
    "of the partition. Default: after file.delete.delay.ms.",
)
@click.option(
    "--even-if-not-forwarded",
    is_flag=True,
    help="Delete also what 'logfs forward' has not sent yet. Default: such records refuse it.",
)
@dry_run_option()
@json_option("Print a JSON array, an object a partition.")
def trim(
    path: str, *, at_once: bool, even_if_not_forwarded: bool, is_preview: bool, as_json: bool
) -> None:
    """Delete the records before a point; Kafka calls this DeleteRecords.

    PATH is DATA/TOPIC/PARTITION@FROM, or DATA/TOPIC@FROM for all partitions; DATA is a data
    directory or a mount point. The records that 'logfs cat PATH' prints are kept. Positions and
    offsets do not change: the deleted records become a hole, also for programs that read there.

    The deletion is durable when the command returns. The files of segments without other records
    are renamed at once and removed after file.delete.delay.ms (a minute), or when the directory is
    next opened. With --now they are removed at once, except what an open fixed name
    (0@earliest..latest and its like) still has to read.

    As in Kafka, only topics whose cleanup.policy contains delete can be trimmed. FROM must not be
    in the future.

    \b
    Examples:
        logfs trim /var/lib/logfs/orders/0@-7d
        logfs trim /var/lib/logfs/orders@2026-11-01 --dry-run
        logfs trim /mnt/logs/orders/0@offset=1500 --now
        logfs trim /mnt/logs/orders@latest
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.client import Daemon
    from logfs.library import owner
    from logfs.library.zones import zone_of
    from logfs.log.store import LogStore
    from logfs.machine.host import system_clock
    from logfs.services.retention.trimming import Trimmed, parse_trim_address, trim_all

    with failures.about(path):
        place = locate_local(path)
        address = parse_trim_address(place.address, zone_of(place))  # before the daemon is asked

        def do(store: LogStore) -> list[Trimmed]:
            numbers = [address.partition]
            if address.partition is None:
                numbers = [*store.partitions(address.topic)]
            logs = [store.partition(address.topic, n) for n in numbers if n is not None]
            return trim_all(
                logs,
                address.keep,
                system_clock().now_ms(),
                at_once=at_once,
                even_if_held=even_if_not_forwarded,
                is_preview=is_preview,
            )

        def ask(daemon: Daemon) -> list[Trimmed]:
            return daemon.trim(
                place.address,
                at_once=at_once,
                even_if_held=even_if_not_forwarded,
                is_preview=is_preview,
            )

        done = owner.act(place, ask, do, failures.progress())
    if as_json:
        click.echo(json.dumps([{"topic": address.topic, **x._asdict()} for x in done], indent=2))
    else:
        would = "would be " if is_preview else ""
        for row in done:
            _show(address.topic, row, would)
        _show_files(sum(x.segments for x in done), sum(x.removed_bytes for x in done), would)
        _warn(path, done, at_once=at_once)


def _warn(path: str, done: "Sequence[Trimmed]", *, at_once: bool) -> None:
    kept_offsets = sum(trimmed.kept_offsets for trimmed in done)
    if kept_offsets:
        failures.warn(
            f"{path}: the disk is full: {kept_offsets} offsets more stay until there is room; "
            + ("make room, then trim again" if at_once else "trim again with --now")
        )
    held_bytes = sum(trimmed.held_bytes for trimmed in done)
    if at_once and held_bytes:
        failures.warn(
            f"{path}: {tables.format_bytes(held_bytes)} are still read through open names with an "
            "end; they go when these are closed"
        )


def _show(topic: str, done: "Trimmed", would: str) -> None:
    count = tables.counted(done.offsets, "offset")
    what = f"{count} {would}deleted" if done.offsets else "nothing before that"
    starts = "would start" if would else "starts"
    click.echo(f"{topic}/{done.partition} {starts} at offset {done.log_start_offset}, {what}")


def _show_files(segments: int, removed_bytes: int, would: str) -> None:
    if segments or removed_bytes:
        removed = f", {tables.format_bytes(removed_bytes)} {would}removed" if removed_bytes else ""
        click.echo(f"{tables.counted(segments, 'segment')} {would}deleted{removed}")
