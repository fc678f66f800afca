"""``logfs compact``: keep only the last record of each key, now."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.parameters import dry_run_option, json_option, roll_option
from logfs.cli.spark_options import SparkRequest, chosen_session, spark_options
from logfs.cli.terminal import tables
from logfs.cli.terminal.progress import ProgressLine

if TYPE_CHECKING:
    from logfs.library.rewriting import Done, Rewrite
    from logfs.services.compaction.manual import Compacted


@click.command()
@click.argument("path")
@roll_option("compacted")
@dry_run_option("It reads and writes as much. It cannot be used with --roll.")
@json_option("Print a JSON array, an object a partition.")
@spark_options
def compact(path: str, *, spark: SparkRequest, roll: bool, is_preview: bool, as_json: bool) -> None:
    """Keep only the last record of each key.

    PATH is DATA/TOPIC/PARTITION, or DATA/TOPIC for all its partitions; DATA is a data directory or
    a mount point. The topic's cleanup.policy must contain compact. A daemon compacts by itself when
    more than min.cleanable.dirty.ratio of a log is new; this command compacts now.

    As in Kafka, compaction leaves alone the active segment, records younger than
    min.compaction.lag.ms, and those of open transactions. A record with a key and no value (a
    tombstone) is removed delete.retention.ms after its first compaction. Offsets and positions do
    not change: removed records become holes. A crash at any moment loses no record that is kept.

    If the keys do not fit into memory (log.cleaner.dedupe.buffer.size), compaction takes several
    rounds. With --spark a cluster, which has the directory at the same path, finds the last record
    of every key at once, and this command rewrites the log. No daemon may serve the directory
    then. 'spark-submit $(logfs spark-job) compact PATH' is the same job.

    \b
    Examples:
        logfs compact /var/lib/logfs/prices/0
        logfs compact /var/lib/logfs/prices --dry-run
        logfs compact /mnt/logs/prices --roll
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.client import Daemon
    from logfs.errors import LockedError
    from logfs.library.rewriting import rewrite_now
    from logfs.services.compaction.manual import Compacted, check_compactable

    if is_preview and roll:
        raise click.UsageError("--dry-run: --roll starts a segment, which is a change itself")

    def ask(daemon: Daemon, topic: str, number: int | None) -> list[Compacted]:
        if spark.is_wanted:
            raise LockedError(
                "a daemon owns the directory, and --spark needs to: unmount it meanwhile, or "
                "leave --spark out, so that the daemon compacts it in several rounds"
            )
        if is_preview:
            return daemon.preview_compact(topic, number, progress=show_progress)
        return daemon.compact(topic, number, roll=roll, progress=show_progress)

    opened = partial(_rewriting, spark, roll=roll, is_preview=is_preview)
    with failures.about(path):
        topic, done = rewrite_now(
            path, ask, check_compactable, opened, show_progress, failures.progress()
        )
    became = "would become" if is_preview else "became"
    print_done(topic, done, partial(_sentence, became), as_json=as_json)


def show_progress(text: str) -> None:
    """Print a line about the progress, on a terminal only."""
    if sys.stderr.isatty():
        failures.warn(text)


def print_done(
    topic: str, done: "Iterable[Done]", sentence: "Callable[[str, Done], str]", *, as_json: bool
) -> None:
    """Print what was done to each partition, as sentences or as JSON."""
    if as_json:
        click.echo(json.dumps([{"topic": topic, **row._asdict()} for row in done], indent=2))
        return
    for row in done:
        click.echo(sentence(f"{topic}/{row.partition}", row))


@contextmanager
def _rewriting(
    spark: SparkRequest, data: str, *, roll: bool, is_preview: bool
) -> "Iterator[Rewrite[Compacted]]":
    """Yield what compacts a log; the keys are found in this process or in a Spark job."""
    from logfs.services.compaction.manual import compact_now, preview_compaction
    from logfs.services.compaction.offsetmap import find_keys

    rewrite = preview_compaction if is_preview else partial(compact_now, roll=roll)
    with chosen_session(spark, "logfs compact") as session:
        if session is None:
            yield partial(rewrite, find=find_keys)
            return
        from logfs.spark.jobs.compact import SparkKeys

        with ProgressLine("read for their keys") as shown:
            yield partial(rewrite, find=SparkKeys(session, data, shown.show).find)


def _sentence(became: str, name: str, done: "Compacted") -> str:
    if not done.rounds:
        return f"{name}: nothing to compact: all of it is in the active segment (see --roll)"
    before, after = map(tables.format_bytes, (done.read_bytes, done.written_bytes))
    return (
        f"{name}: {done.read_records} records {became} {done.written_records}, {before} {after}; "
        f"clean up to offset {done.end_offset}"
    )
