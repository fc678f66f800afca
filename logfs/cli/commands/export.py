"""``logfs export``: records as Parquet, a directory a day, and into an Iceberg table."""

import json
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.parameters import DIRECTORY, json_option
from logfs.cli.spark_options import (
    SparkRequest,
    chosen_session,
    jobs_option,
    refuse_jobs,
    spark_options,
)
from logfs.cli.terminal import quantities, tables
from logfs.cli.terminal.progress import ProgressLine
from logfs.library.places import locate

if TYPE_CHECKING:
    from logfs.cli.parquet_export import Exported


@click.command()
@click.argument("path")
@click.argument("destination", type=DIRECTORY)
@click.option(
    "--iceberg",
    metavar="CATALOG.NAMESPACE.TABLE",
    help="Add the files to this Iceberg table; create it if it is missing.",
)
@jobs_option("Write N files")
@click.option(
    "--recreated",
    is_flag=True,
    help="Continue with topics that were deleted and created again; default: leave them out.",
)
@click.option(
    "--min-bytes",
    metavar="SIZE",
    type=quantities.size,
    default="0",
    help="Leave what is new in a partition for a later run until it has about this size in the "
    "log, so that frequent runs make no small files; default: 0.",
)
@click.option(
    "--text",
    "text",
    metavar="COLUMN",
    multiple=True,
    type=click.Choice(["key", "value"]),
    help="Write key or value as a string, checked to be UTF-8; default: as bytes. Later runs to "
    "DESTINATION do the same.",
)
@click.option(
    "--compact",
    is_flag=True,
    help="Then merge small files of the partitions in DESTINATION: neighbouring ones of a day, up "
    "to about 128 MB. Not while others read them, see below.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Then read all files of the partitions in DESTINATION again, and compare them with the "
    "log. Exit status 1: problems were found.",
)
@json_option("Print a JSON object.")
@spark_options
def export(  # noqa: PLR0913 - an argument for each option
    path: str,
    destination: str,
    iceberg: str | None,
    jobs: int | None,
    min_bytes: float,
    text: tuple[str, ...],
    *,
    recreated: bool,
    compact: bool,
    verify: bool,
    spark: SparkRequest,
    as_json: bool,
) -> None:
    """Export records to Parquet files in DESTINATION; the next run continues.

    DESTINATION is a directory, or a prefix of an object store: s3://BUCKET/PREFIX, gs://… or az://….
    Credentials come from the environment, as for the tools of the store.

    PATH is a data directory, DATA/TOPIC or DATA/TOPIC/PARTITION, or the same in a mount. A file has
    the records of one day (UTC, by their timestamps) from about 128 MB of a partition:
    DESTINATION/topic=orders/day=2026-11-20/orders-0-START-END.parquet, from offset START up to END.
    Its columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
    timestampType, headers.

    The first run exports all records, later runs new ones. After a kill at any moment the next run
    continues, and no record is missing or exported twice; DESTINATION/_logfs has the state. Records
    of open and aborted transactions are not exported. Nothing is locked or changed in the data
    directory: a daemon or a broker may write to it.

    A topic that was deleted and created again has offsets that are exported already. It is left
    out, and the exit status is 1. With --recreated the run continues with its first record, in
    files whose names end in ~2 (the second topic of that name).

    Needs pyarrow and numpy: 'sudo make install EXTRAS=export', or pip in the environment of logfs.

    With --min-bytes nothing is lost as long as retention keeps the records until they are exported;
    a run without it exports all that is left.

    With --compact small files are merged: run it once an hour or a day. A kill at any moment loses
    no record; the next run continues, also without --compact. While files are merged, and after a
    kill until the next run, a reader may see records twice, or miss a file that it has listed: the
    offsets tell (a record is a topic, a partition and an offset). It conflicts with --iceberg.

    With --iceberg the files are added to a table, each once. pyiceberg's configuration has the
    catalog: ~/.pyiceberg.yaml, or PYICEBERG_CATALOG__PROD__URI in the environment. Needs pyiceberg:
    EXTRAS=iceberg. The files must not be removed.

    With --spark the machines of a cluster write the files; they have PATH and DESTINATION at the
    same paths. 'spark-submit $(logfs spark-job) export PATH DESTINATION' is the same job.

    \b
    Examples:
        logfs export /var/lib/logfs/orders /srv/lake
        logfs export --min-bytes 64MiB /var/lib/logfs /srv/lake
        logfs export --json /var/lib/logfs /srv/lake
        logfs export --compact /var/lib/logfs /srv/lake
        logfs export --verify /var/lib/logfs /srv/lake
        logfs export --text value /var/lib/logfs/orders s3://lake/logs
    """  # noqa: D301 - click's mark for text it does not fill
    refuse_jobs(jobs, spark)
    if compact and iceberg is not None:
        raise click.UsageError("--compact removes files that the table of --iceberg needs")
    from logfs.cli.parquet_export import export_to
    from logfs.library.directory import partitions_named
    from logfs.library.mounted_disk import disk_at, reading_root

    with failures.about(path):
        place = locate(path)
        data = reading_root(place)
        only = partitions_named(disk_at(data), place.address)
    with (
        chosen_session(spark, "logfs export") as session,
        ProgressLine("exported") as shown,
        failures.about(data),
    ):
        done = export_to(
            data,
            only,
            destination,
            session or jobs,
            shown.show,
            iceberg,
            text=text or None,
            with_recreated=recreated,
            min_bytes=round(min_bytes),
            compact=compact,
            verify=verify,
        )
    _report(destination, done, iceberg, as_json=as_json)


def _report(destination: str, done: "Exported", iceberg: str | None, *, as_json: bool) -> None:
    """Print what was done, and end with an error if something was refused or differs."""
    for one, first, behind in done.lost:
        failures.warn(f"{one}: offsets {first} to {behind - 1} were gone before they were exported")
    _show(destination, done, iceberg, as_json=as_json)
    problems = [*done.refused, *(done.verified.problems if done.verified else ())]
    for problem in problems:
        failures.warn(problem)
    if problems:
        failures.exit_with(failures.FAILED)


def _show(destination: str, done: "Exported", iceberg: str | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_as_json(destination, done), indent=2))
        return
    size = tables.format_bytes(done.size_bytes)
    records, files = (tables.counted(done.records, "record"), tables.counted(done.files, "file"))
    what = f"{records} in {files}, {size}" if done.files else "nothing new"
    added = tables.counted(done.added, "file")
    added = "" if iceberg is None else f"; {added} added to {iceberg}"
    click.echo(f"{destination}: {what}{added}")
    if done.merged is not None:
        before, after = done.merged
        click.echo(f"compacted: {tables.counted(before, 'file')} into {after}")
    if done.verified is not None:
        found = done.verified
        read = tables.counted(found.records, "record"), tables.counted(found.files, "file")
        problems = tables.counted(len(found.problems), "problem") if found.problems else "intact"
        removed = f"; {found.removed} are no longer in the log" if found.removed else ""
        click.echo(f"verified: {read[0]} in {read[1]}, {problems}{removed}")


def _as_json(destination: str, done: "Exported") -> dict[str, Any]:
    return {
        "destination": destination,
        "records": done.records,
        "files": done.files,
        "bytes": done.size_bytes,
        "added": done.added,
        "partitions": [
            {"topic": one.topic, "partition": one.partition, "end": end}
            for one, end in sorted(done.ends.items())
        ],
        "lost": [
            {"topic": one.topic, "partition": one.partition, "start": first, "end": behind}
            for one, first, behind in done.lost
        ],
        "refused": done.refused,
        "compacted": done.merged,
        "verified": None if done.verified is None else done.verified._asdict(),
    }
