"""``logfs offsets``: which offsets the ends of partitions, or moments in them, are."""

import json
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.parameters import DIRECTORY, isolation_option, json_option
from logfs.cli.terminal import tables
from logfs.library.places import locate

if TYPE_CHECKING:
    from logfs.library.offset_queries import Answer
    from logfs.types import IsolationLevel


@click.command()
@click.argument("path", default=".")
@click.option(
    "--time",
    "times",
    metavar="TIME",
    multiple=True,
    help="Look up this alone: a time as in selectors (2026-11-20T10:00, -15m, now, epoch "
    "milliseconds), earliest, latest or max-timestamp; may be given several times.",
)
@click.option(
    "--checkpoint",
    metavar="DIRECTORY",
    type=DIRECTORY,
    help="Print where the streaming query of Spark with this checkpoint is, and its lag; conflicts "
    "with --time and --as-kafka.",
)
@click.option("--as-kafka", is_flag=True, help="Print the answers of a broker; see above.")
@isolation_option("What to look up; default: what the daemon's mount shows, else all records.")
@json_option("Print a JSON array.")
def offsets(
    path: str,
    times: tuple[str, ...],
    level: "IsolationLevel | None",
    checkpoint: str | None,
    *,
    as_kafka: bool,
    as_json: bool,
) -> None:
    """Print the offsets of times in a partition, a topic or a whole data directory.

    PATH is DATA, DATA/TOPIC or DATA/TOPIC/PARTITION; DATA is a data directory or a mount point.
    Default: the current directory. Without --time the command prints the first offset that is kept
    (earliest), the offset of the next record (latest), and the record with the largest timestamp.

    The offset of a time is that of the first readable record at or after it, or "-". Kafka's
    ListOffsets (offsetsForTimes, kafka-get-offsets) sometimes gives the offset of a transaction
    marker or of an aborted record instead. It gives none if compaction has emptied a batch or a
    segment before the record. --as-kafka prints the broker's answer. The isolation level
    high_watermark is then Kafka's read_uncommitted.

    With --checkpoint POSITION is the offset of the next record of the query, after its last
    completed batch, LAG the number of offsets after it, and LAG-TIME the age of the record there.

    The command reads the files, locks and changes nothing, and does not ask a daemon.

    \b
    Examples:
        logfs offsets /var/lib/logfs --time earliest --time latest
        logfs offsets /var/lib/logfs/orders
        logfs offsets /var/lib/logfs/orders/0 --time 2026-11-20T10:00 --time -15m
        logfs offsets /mnt/logs/payments --isolation-level read_committed --json
        logfs offsets /var/lib/logfs --checkpoint /srv/checkpoints/clicks
        logfs offsets /var/lib/kafka/payments/3 --time 1700000000000 --as-kafka
    """  # noqa: D301 - click's mark for text it does not fill
    if checkpoint is not None:
        if times or as_kafka:
            raise click.UsageError("--checkpoint excludes --time and --as-kafka")
        _show_checkpoint(path, checkpoint, level, as_json=as_json)
        return
    from logfs.library.offset_queries import ask

    with failures.about(path):
        place = locate(path)
        answers, unanswered = ask(place, times, level, as_kafka=as_kafka)
    if as_json:
        click.echo(json.dumps([_as_json(answer) for answer in answers], indent=2))
    else:
        _show(answers, has_topics=not place.address)
    for error in unanswered:
        failures.warn(f"{path}: {failures.explain(error)}")
    failures.exit_with(failures.FAILED if unanswered else 0)


def _show_checkpoint(
    path: str, checkpoint: str, level: "IsolationLevel | None", *, as_json: bool
) -> None:
    from logfs.cli.group_tables import show_positions
    from logfs.library.directory import partitions_named
    from logfs.library.mounted_disk import reading_disk
    from logfs.library.owner import shown_level
    from logfs.library.spark_checkpoint import checkpoint_lags, read_checkpoint

    with failures.about(checkpoint):
        positions = read_checkpoint(checkpoint)
    with failures.about(path):
        place = locate(path)
        named = partitions_named(reading_disk(place), place.address)
        wanted = {one: at for one, at in positions.items() if named is None or one in named}
        lags = checkpoint_lags(place, checkpoint, wanted, level or shown_level(place))
    show_positions(lags, as_json=as_json)


def _as_json(answer: "Answer") -> dict[str, Any]:
    found = answer.found
    return {
        "topic": answer.topic,
        "partition": answer.partition,
        "time": answer.time,
        "offset": None if found is None else found.offset,
        "timestamp": None if found is None else found.timestamp,
    }


def _show(answers: "list[Answer]", *, has_topics: bool) -> None:
    columns = [tables.TableColumn("TOPIC")] if has_topics else []
    columns += [
        tables.TableColumn("PARTITION", is_number=True),
        tables.TableColumn("TIME"),
        tables.TableColumn("OFFSET", is_number=True),
        tables.TableColumn("TIMESTAMP"),
    ]
    rows = [
        [
            *([answer.topic] if has_topics else []),
            str(answer.partition),
            answer.time,
            "-" if answer.found is None else str(answer.found.offset),
            "-" if answer.found is None else _time(answer.found.timestamp),
        ]
        for answer in answers
    ]
    tables.show_table(columns, rows)


def _time(timestamp: int | None) -> str:
    """Write a timestamp so that it can be used as a TIME again."""
    return "-" if timestamp is None else tables.format_time(timestamp, "milliseconds")
