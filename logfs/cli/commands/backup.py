"""``logfs backup`` and ``logfs restore``."""

import json
import sys
from collections.abc import Sequence

import click

from logfs.cli import failures
from logfs.cli.terminal import tables
from logfs.errors import UnknownNameError
from logfs.library.places import locate

_TOPICS = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this; may be given several times.",
)


@click.command()
@click.argument("source")
@click.argument("destination")
@_TOPICS
@click.option(
    "--previous",
    metavar="PATH",
    help="An earlier backup, or a directory of backups, of which the newest whole one counts: "
    "files that are the same there are linked from there instead of being copied.",
)
@click.option("--copy", "copies", is_flag=True, help="Copy also what could be linked.")
@click.option("--verify", "must_verify", is_flag=True, help="Read it back, as 'logfs verify'.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest, a JSON object.")
def backup(  # noqa: PLR0913 - what there is on the command line
    source: str,
    destination: str,
    *,
    topics: Sequence[str],
    previous: str | None,
    copies: bool,
    must_verify: bool,
    as_json: bool,
) -> None:
    """Back up the data directory SOURCE into the directory DESTINATION.

    SOURCE is a data directory or a mount point; whether a daemon serves it does not matter, and
    nothing stops meanwhile. DESTINATION, which is made, becomes a data directory of its own: with
    the offsets, the positions and the records that each partition of SOURCE had at one moment, and
    stopped cleanly. It is read-only: it can be mounted with '-o ro', read by every command, and
    restored; nothing is appended to it.

    On the file system of SOURCE a backup takes a moment and no room but for the newest segment of
    each partition: segments that are sealed are linked (hard links). Such a backup survives
    deletion, retention, compaction and mistakes, not the disk: for that, DESTINATION lies on
    another one, or --copy is given. Elsewhere they are copied; with --previous only what is new.

    All of it is durable when the command returns. One that was interrupted is no data directory
    yet, every command says so; the same command again completes it. Partitions that could not be
    backed up, or read back with --verify, are named, and the exit status is 1.

    \b
    Examples:
        logfs backup /var/lib/logfs /var/backups/logfs/monday
        logfs backup /mnt/logs /backup/$(date +%F) --previous /backup
        logfs backup /var/lib/logfs /backup/orders --topic orders --verify
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.backup import Wanted, take_backup
    from logfs.library.owner import data_directory

    with failures.about(source):
        place = locate(source)
        if place.address:
            raise UnknownNameError(
                "expected a data directory or a mount point; single topics with '--topic'"
            )
        data = data_directory(place)
    with failures.about(destination), _Progress() as progress:
        wanted = Wanted(topics, previous, is_copy=copies)
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
        click.echo(f"{len(made.partitions)} partitions, {size}; {copied} copied")
    for problem in problems:
        failures.warn(f"{destination}: {problem}")
    if problems:
        failures.give_up(failures.FAILED)


@click.command()
@click.argument("source", metavar="BACKUP")
@click.argument("data")
@_TOPICS
def restore(source: str, data: str, *, topics: Sequence[str]) -> None:
    """Restore the backup BACKUP into the data directory DATA.

    DATA is missing or empty; with --topic it may hold other topics, if no daemon serves it. Nothing
    that is there is ever replaced. Everything is copied (sharing blocks where the file system can),
    so that the backup stays what it is, whatever becomes of DATA.

    Offsets and positions are those of the backup; records that came later are not there, and what
    is appended next takes their offsets and positions. Programs that have saved a position after
    the end have to be reset.

    A restore that was interrupted leaves a directory that nothing opens, or in one that held other
    topics nothing that counts; the same command again completes it.

    \b
    Examples:
        logfs restore /backup/2026-11-20 /var/lib/logfs
        logfs restore /backup/2026-11-20 /var/lib/logfs --topic orders
        logfs restore /backup/2026-11-20 /tmp/look && logfs cat /tmp/look/orders/0@2026-11-19
    """  # noqa: D301
    from logfs.library.backup import check_backup, restore_backup

    with failures.about(source):
        place = locate(source)
        if place.address or place.is_mount:
            raise UnknownNameError("expected a backup, a directory that 'logfs backup' made")
        check_backup(place.root, data, topics)
    with failures.about(data), _Progress() as progress:
        done = restore_backup(place.root, data, topics, say=progress.say, count=progress.count)
    topics_done = len({topic for topic, _ in done})
    copied = tables.format_bytes(progress.copied)
    click.echo(f"{len(done)} partitions of {topics_done} topics; {copied} copied")


def _damages(destination: str, progress: "_Progress") -> list[str]:
    """Read a backup as 'logfs verify' does; returns what is damaged."""
    from logfs.cli.verify_data import verify_data

    def show(done: int, total: int) -> None:
        sizes = " of ".join(map(tables.format_bytes, (done, total)))
        progress.say(f"{sizes} read back")

    return [str(finding) for finding in verify_data(destination, None, 0, show).damages]


class _Progress:
    """A line on the terminal that says how far it is; nothing anywhere else.

    Attributes:
        copied: Bytes copied so far.
    """

    def __init__(self) -> None:
        self.copied = 0
        self._text = ""
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> "_Progress":
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
