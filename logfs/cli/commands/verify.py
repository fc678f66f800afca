"""``logfs verify``: is everything as it was written?"""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.configfile import read_mount_file
from logfs.cli.parameters import config_file_option
from logfs.cli.terminal import tables
from logfs.library.places import locate

if TYPE_CHECKING:
    from logfs.log.verifying.looks import Verified
    from logfs.types import TopicPartition

DAMAGED = 1
UNCHECKED = 2
_SHOWN_EVERY_S = 0.1


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1)
@config_file_option("Check the data directory that this file of 'logfs mount' names.")
@click.option("-q", "--quiet", is_flag=True, help="Print damage only: no notes, no summary.")
@click.option(
    "-j",
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    help="Check N segments at the same time; without it, one a core.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object a directory.")
def verify(
    paths: tuple[str, ...],
    jobs: int | None,
    *,
    config_file: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Check that everything in data directories, topics and partitions is as it was written.

    PATH is a data directory, DATA/TOPIC or DATA/TOPIC/PARTITION; a mount point will do in its
    place. Of every batch the checksum, the header and the records are checked, and that offsets go
    on without a hole; of every index each entry against the log; then the segment table and the
    positions in it, producers, transactions, leader epochs and checkpoints, and what else lies
    about.

    Every finding is a line: the file, the byte or line in it, what is wrong and what was expected,
    and what to do or what the next start does by itself. What is only good to know is called a
    note. The exit status is 0 if nothing is damaged, 1 if something is, 2 if that could not be
    found out.

    Nothing is locked or changed: a daemon or a broker may be writing to the directory, and what is
    just being written is no damage. Of such a directory a finding counts that is there in three
    looks.

    A core checks 2 GB/s and more of uncompressed records that are in the page cache; compressed
    ones take as long as it takes to decompress them.

    \b
    Examples:
        logfs verify /var/lib/logfs
        logfs verify /mnt/logs/orders /mnt/logs/payments/3
        logfs verify --quiet /var/lib/logfs || mail -s 'logfs: damage' root
        logfs verify --json /var/lib/logfs | jq -r '.[].findings[] | .file'
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli.verifying import verify_data

    if config_file is not None and (data := read_mount_file(config_file).data) is not None:
        paths = (*paths, data)
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    started_s, shown = time.monotonic(), _Progress()
    found: list[tuple[str, Verified]] = []
    try:
        for data, only in _wanted(paths).items():
            with failures.about(data):
                found.append((data, verify_data(data, only, jobs or 0, shown.show)))
    except Exception as error:  # noqa: BLE001 - damage has a status of its own
        shown.clear()
        debug = bool(getattr(click.get_current_context().obj, "debug", False))
        failures.report(error, debug=debug)
        return UNCHECKED
    shown.clear()
    if as_json:
        click.echo(json.dumps([_as_json(data, verified) for data, verified in found], indent=2))
    else:
        for data, verified in found:
            _show(data, verified, time.monotonic() - started_s, quiet=quiet)
    return DAMAGED if any(verified.damages for _, verified in found) else 0


def _wanted(paths: tuple[str, ...]) -> "dict[str, list[TopicPartition] | None]":
    """Return which partitions of which data directories are meant; None for all."""
    from logfs.cli.topics.named import data_and_partitions

    wanted: dict[str, list[TopicPartition] | None] = {}
    for path in paths:
        with failures.about(path):
            data, only = data_and_partitions(locate(path))
            before = wanted.setdefault(data, [])
            wanted[data] = None if before is None or only is None else sorted({*before, *only})
    return wanted


class _Progress:
    """One line on a terminal that is written again and again."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._last_s = self._started_s = time.monotonic()
        self._width = 0

    def show(self, done: int, total: int) -> None:
        now_s = time.monotonic()
        if not self._is_shown or now_s < self._last_s + _SHOWN_EVERY_S:
            return
        self._last_s = now_s
        rate = tables.format_bytes(int(done / (now_s - self._started_s)))
        sizes = " of ".join(map(tables.format_bytes, (done, total)))
        text = f"{100 * done // max(total, 1):3}%  {sizes} checked, {rate}/s"
        click.echo(f"\r{text.ljust(self._width)}", nl=False, err=True)
        self._width = len(text)

    def clear(self) -> None:
        if self._width:
            click.echo(f"\r{' ' * self._width}\r", nl=False, err=True)
            self._width = 0


def _show(data: str, verified: "Verified", seconds: float, *, quiet: bool) -> None:
    damages = len(verified.damages)
    for finding in verified.damages if quiet else verified.findings:
        click.echo(f"{finding.level}: {data}/{finding}")
    if quiet:
        return
    parts = [
        _count(verified.partitions, "partition"),
        _count(verified.segments, "segment"),
        _count(verified.batches, "batch", "batches"),
        _count(verified.records, "record"),
    ]
    rate = tables.format_bytes(int(verified.size_bytes / max(seconds, 1e-3)))
    size = tables.format_bytes(verified.size_bytes)
    verdict = _count(damages, "damage") if damages else "no damage"
    click.echo(f"{data}: {', '.join(parts)}, {size} in {seconds:.1f} s ({rate}/s): {verdict}")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _as_json(data: str, verified: "Verified") -> dict[str, Any]:
    return {
        "data": data,
        "partitions": verified.partitions,
        "segments": verified.segments,
        "batches": verified.batches,
        "records": verified.records,
        "bytes": verified.size_bytes,
        "damages": len(verified.damages),
        "findings": [finding._asdict() for finding in verified.findings],
    }
