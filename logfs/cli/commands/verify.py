"""``logfs verify``: is everything as it was written?"""

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.escapes import printable
from logfs.cli.mount_file import read_mount_file
from logfs.cli.parameters import config_file_option, json_option
from logfs.cli.spark_options import (
    SparkRequest,
    chosen_session,
    jobs_option,
    refuse_jobs,
    spark_options,
)
from logfs.cli.terminal import tables
from logfs.cli.terminal.progress import ProgressLine
from logfs.library.places import locate

if TYPE_CHECKING:
    from logfs.services.verifying.verify import Verified
    from logfs.types import TopicPartition

DAMAGED = 1
UNCHECKED = 2


_MOST_ALIKE = 3
"""Findings in one file, with one remedy, that are printed each."""


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1)
@config_file_option("Check the data directory that this file of 'logfs mount' names.")
@click.option("-q", "--quiet", is_flag=True, help="Print damage only: no notes, no summary.")
@jobs_option("Check N segments")
@json_option("Print a JSON array with an object for each directory.")
@spark_options
def verify(
    paths: tuple[str, ...],
    jobs: int | None,
    *,
    spark: SparkRequest,
    config_file: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Check all files of data directories, topics and partitions.

    PATH is a data directory, DATA/TOPIC or DATA/TOPIC/PARTITION, or the same in a mount. The
    command checks the checksum, header and records of every batch, and that no offset is missing
    before it. It compares every index entry with the log. It also checks the segment table and its
    positions, producers, transactions, leader epochs and checkpoints, and reports unknown files.

    Each finding is a line: the file, the byte or line in it, what is wrong and what was expected,
    and what to do or what the next start repairs. Harmless findings are called notes. If many
    in a file have one remedy, the first three are printed, and the number of the others. The exit
    status is 0 if nothing is damaged, 1 if something is, 2 if the check could not be completed.

    The command locks and changes nothing. A daemon or a broker may write to the directory. Then a
    finding is printed only if three successive checks agree on it.

    A core checks 2 GB/s and more of uncompressed records in the page cache; compressed records take
    the time of decompression. With --spark the machines of a cluster, which have the directory at
    the same path, check the segments; 'spark-submit $(logfs spark-job) verify PATH' does the same.

    \b
    Examples:
        logfs verify /var/lib/logfs
        logfs verify /mnt/logs/orders /mnt/logs/payments/3
        logfs verify --quiet /var/lib/logfs || mail -s 'logfs: damage' root
        logfs verify --json /var/lib/logfs | jq -r '.[].findings[] | .file'
    """  # noqa: D301 - click's mark for text it does not fill
    if config_file is not None and (data := read_mount_file(config_file).data) is not None:
        paths = (*paths, data)
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    refuse_jobs(jobs, spark)
    started_s = time.monotonic()
    try:
        with ProgressLine("checked") as shown:
            found = _verify(_wanted(paths), jobs or 0, spark, shown)
    except Exception as error:  # noqa: BLE001 - damage has its own status
        failures.report(error)
        return UNCHECKED
    if as_json:
        click.echo(json.dumps([_as_json(data, verified) for data, verified in found], indent=2))
    else:
        for data, verified in found:
            _show(data, verified, time.monotonic() - started_s, quiet=quiet)
    return DAMAGED if any(verified.damages for _, verified in found) else 0


def _verify(
    wanted: "dict[str, list[TopicPartition] | None]",
    jobs: int,
    spark: SparkRequest,
    shown: ProgressLine,
) -> "list[tuple[str, Verified]]":
    """Check what is wanted of each data directory."""
    from logfs.cli.verify_data import verify_data, verify_with

    found = []
    with chosen_session(spark, "logfs verify") as session:
        for data, only in wanted.items():
            with failures.about(data):
                if session is None:
                    verified = verify_data(data, only, jobs, shown.show)
                else:
                    from logfs.spark.jobs.verify import SparkVerifier

                    run = SparkVerifier(session, data, shown.show).run
                    verified = verify_with(run, data, only)
                found.append((data, verified))
    return found


def _wanted(paths: tuple[str, ...]) -> "dict[str, list[TopicPartition] | None]":
    """Return which partitions of which data directories are meant; None for all."""
    from logfs.library.directory import data_and_partitions

    wanted: dict[str, list[TopicPartition] | None] = {}
    for path in paths:
        with failures.about(path):
            data, only = data_and_partitions(locate(path))
            before = wanted.setdefault(data, [])
            wanted[data] = None if before is None or only is None else sorted({*before, *only})
    return wanted


def _show(data: str, verified: "Verified", seconds: float, *, quiet: bool) -> None:
    damages = len(verified.damages)
    alike = Counter[tuple[str, str, str]]()
    for finding in verified.damages if quiet else verified.findings:
        kind = finding.level, finding.file, finding.remedy
        alike[kind] += 1
        if alike[kind] <= _MOST_ALIKE:
            click.echo(printable(f"{finding.level}: {data}/{finding}"))
    for (level, file, remedy), count in alike.items():
        if count > _MOST_ALIKE:
            more = f"{count - _MOST_ALIKE} more like these, which --json lists; {remedy}"
            click.echo(printable(f"{level}: {data}/{file}: {more}"))
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
