"""``logfs promote``."""

import json

import click

from logfs.cli import failures
from logfs.cli.parameters import json_option, store_options, store_settings
from logfs.cli.terminal import tables
from logfs.errors import moment_of


@click.command()
@click.argument("url")
@click.argument("data")
@store_options
@json_option("Print a JSON object.")
def promote(
    url: str,
    data: str,
    *,
    endpoint: str | None,
    region: str | None,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Continue the logs of the store URL in DATA, after the machine that wrote them was lost.

    DATA is a missing or an empty directory, one of 'logfs standby', or one of this store after
    'logfs remote rejoin'. It gets the same topics, with the same offsets, positions and bytes, and
    then it is the one that writes the store. The data directory that wrote it before is fenced by
    the first step, also if it is still alive: it stores nothing more, and what is appended there is
    not in the store.

    Segments stay in the store until a program reads them. Only records that were in no segment are
    written to DATA, if the other directory had freshness.ms set. The command prints from which
    moment on records may be missing. An interrupted promotion is completed by the same command.
    The mount of a standby becomes writable; programs keep their open files.

    \b
    Examples:
        logfs promote s3://backups/logs /var/lib/logfs
        logfs promote s3://logs/web /srv/logs --endpoint http://127.0.0.1:9000
        logfs mount /var/lib/logfs /mnt/logs
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.promote import promote as promote_store

    chosen = store_settings(endpoint, region, settings)
    with failures.about(url):
        done = promote_store(url, data, chosen, say=lambda text: click.echo(text, err=True))
    promoted = done.promoted
    if as_json:
        facts = {
            "complete_ms": promoted.complete_ms or None,
            "segments": promoted.segments,
            "end_bytes": promoted.end_bytes,
            "partitions": [one._asdict() for one in done.partitions],
            "problems": promoted.problems,
        }
        click.echo(json.dumps(facts, indent=2))
    else:
        columns = [
            tables.TableColumn("PARTITION"),
            tables.TableColumn("END", is_number=True),
            tables.TableColumn("NEWEST RECORD"),
        ]
        rows = [
            [f"{one.topic}/{one.partition}", str(one.end_offset), _moment(one.newest_ms)]
            for one in done.partitions
        ]
        tables.show_table(columns, rows)
        for text in promoted.problems:
            click.echo(f"problem: {text}")
        partitions = tables.counted(len(done.partitions), "partition")
        segments = tables.counted(promoted.segments, "segment")
        size = tables.format_bytes(promoted.end_bytes)
        click.echo(f"{partitions}: {segments} in the store, {size} of records from its journal")
        click.echo(_missing(promoted.complete_ms))
    if promoted.problems:
        failures.exit_with(failures.FAILED)


def _missing(complete_ms: int) -> str:
    if complete_ms:
        return f"Records that were appended since {moment_of(complete_ms)} may be missing"
    return (
        "Records after the last sealed segment of each partition are missing: the directory that "
        "wrote the store had no freshness.ms"
    )


def _moment(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else moment_of(timestamp_ms)
