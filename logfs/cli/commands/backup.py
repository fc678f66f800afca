"""``logfs backup`` and ``logfs restore``."""

import json
import sys
from collections.abc import Sequence

import click

from logfs.cli import failures
from logfs.cli.parameters import dry_run_option, json_option
from logfs.cli.terminal import tables
from logfs.errors import UnknownNameError
from logfs.library.places import locate_local

TOPICS = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this; may be given several times.",
)


@click.command()
@click.argument("source")
@click.argument("destination")
@TOPICS
@click.option(
    "--previous",
    metavar="PATH",
    help="Link files that are the same in an earlier backup instead of copying them. PATH is a "
    "backup, or a directory of backups, whose newest complete one is used.",
)
@click.option(
    "--with-remote",
    is_flag=True,
    help="Copy also the segments that only the object store has. Without it they stay in the "
    "store, and the backup needs them there.",
)
@click.option("--copy", "copies", is_flag=True, help="Copy files also where they could be linked.")
@click.option(
    "--verify", "must_verify", is_flag=True, help="Check the backup as 'logfs verify' does."
)
@json_option("Print the manifest, a JSON object.")
def backup(  # noqa: PLR0913 - what there is on the command line
    source: str,
    destination: str,
    *,
    topics: Sequence[str],
    previous: str | None,
    with_remote: bool,
    copies: bool,
    must_verify: bool,
    as_json: bool,
) -> None:
    """Back up the data directory SOURCE into the directory DESTINATION.

    SOURCE is a data directory or a mount point; a daemon that serves it continues meanwhile. The
    command creates DESTINATION as a data directory. It contains the offsets, positions and records
    that each partition of SOURCE had at one moment, and is read-only. It can be mounted with
    '-o ro', read by every command, and restored.

    On the file system of SOURCE, sealed segments are hard links, so a backup takes a moment and
    room for the newest segment of each partition alone. Such a backup survives deletion, retention,
    compaction and mistakes, but not the loss of the disk: for that use another disk, or --copy.
    Elsewhere segments are copied; with --previous only new ones.

    A directory with an object store: the manifest logfs.backup lists under "needs" the objects that
    the backup needs, and each partition has a copy of its head. When retention removes such an
    object, the backup lacks its records. With --with-remote the backup needs no store.

    The backup is durable when the command returns. No command opens an interrupted backup; the same
    command again completes it. Partitions that could not be backed up, or read with --verify, are
    named, and the exit status is 1.

    \b
    Examples:
        logfs backup /var/lib/logfs /var/backups/logfs/monday
        logfs backup /mnt/logs /backup/$(date +%F) --previous /backup
        logfs backup /var/lib/logfs /backup/orders --topic orders --verify
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.backup import BackupOptions, take_backup
    from logfs.library.owner import data_directory

    with failures.about(source):
        place = locate_local(source)
        if place.address:
            raise UnknownNameError(
                "expected a data directory or a mount point; single topics with '--topic'"
            )
        data = data_directory(place)
    with failures.about(destination), CopyProgress() as progress:
        wanted = BackupOptions(topics, previous, copies, with_remote)
        made = take_backup(data, destination, wanted, say=progress.say, count=progress.count)
        problems = [*made.problems, *(_damages(destination, progress) if must_verify else ())]
    if as_json:
        rows = [row._asdict() for row in made.partitions]
        click.echo(
            json.dumps({**made._asdict(), "partitions": rows, "problems": problems}, indent=2)
        )
    else:
        size = tables.format_bytes(sum(row.size_bytes for row in made.partitions))
        copied = tables.format_bytes(progress.copied)
        needs = f"; {len(made.needs)} objects of {made.store} are needed" if made.needs else ""
        click.echo(f"{len(made.partitions)} partitions, {size}; {copied} copied{needs}")
    if made.store_warning:
        failures.warn(f"{destination}: the heads of the store are not in it: {made.store_warning}")
    for problem in problems:
        failures.warn(f"{destination}: {problem}")
    if problems:
        failures.exit_with(failures.FAILED)


@click.command()
@click.argument("source", metavar="BACKUP")
@click.argument("data")
@TOPICS
@dry_run_option()
def restore(source: str, data: str, *, topics: Sequence[str], is_preview: bool) -> None:
    """Restore the backup BACKUP into the data directory DATA.

    DATA is missing or empty; with --topic it may contain other topics, if no daemon serves it. No
    file in it is ever replaced. Everything is copied (sharing blocks where the file system can), so
    later changes of DATA do not change the backup.

    Offsets and positions are those of the backup. Records that came later are missing, and new
    records take their offsets and positions. Programs that saved a later position must be reset.

    No command opens the directory of an interrupted restore; where DATA had other topics, the
    incomplete ones are ignored. The same command again completes it.

    \b
    Examples:
        logfs restore /backup/2026-11-20 /var/lib/logfs
        logfs restore /backup/2026-11-20 /var/lib/logfs --topic orders --dry-run
        logfs restore /backup/2026-11-20 /tmp/look && logfs cat /tmp/look/orders/0@2026-11-19
    """  # noqa: D301
    from logfs.library.backup import check_backup, plan_restore, restore_backup

    with failures.about(source):
        place = locate_local(source)
        if place.address or place.is_mount:
            raise UnknownNameError("expected a backup, a directory that 'logfs backup' made")
        check_backup(place.root, data, topics)
    with failures.about(data), CopyProgress() as progress:
        if is_preview:
            plan = plan_restore(place.root, data, topics)
            done, copied_bytes = plan.partitions, plan.size_bytes
        else:
            done = restore_backup(place.root, data, topics, say=progress.say, count=progress.count)
            copied_bytes = progress.copied
    partitions = tables.counted(len(done), "partition")
    topics_done = tables.counted(len({topic for topic, _ in done}), "topic")
    copied = f"{tables.format_bytes(copied_bytes)} {'would be ' if is_preview else ''}copied"
    click.echo(f"{partitions} of {topics_done}; {copied}")


def _damages(destination: str, progress: "CopyProgress") -> list[str]:
    """Read a backup as 'logfs verify' does; returns what is damaged."""
    from logfs.cli.verify_data import verify_data

    def show(done: int, total: int) -> None:
        sizes = " of ".join(map(tables.format_bytes, (done, total)))
        progress.say(f"{sizes} read back")

    return [str(finding) for finding in verify_data(destination, None, 0, show).damages]


class CopyProgress:
    """A line on the terminal that says how far it is; nothing anywhere else."""

    def __init__(self) -> None:
        self.copied = 0
        self._text = ""
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> "CopyProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def say(self, text: str) -> None:
        """Show what is being done."""
        self._text = text
        self._show()

    def count(self, size: int) -> None:
        """Count bytes that were copied."""
        self.copied += size
        self._show()

    def _show(self) -> None:
        if self._is_shown:
            line = f"{tables.format_bytes(self.copied)} copied; {self._text}"
            click.echo(f"\r\x1b[K{line[:100]}", nl=False, err=True)
