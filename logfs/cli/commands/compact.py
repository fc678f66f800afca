"""``logfs compact``: keep only the last record of each key, now."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.parameters import dry_run_option
from logfs.cli.spark_options import SparkRequest, chosen_session, spark_options
from logfs.cli.terminal import tables
from logfs.cli.terminal.progress import ProgressLine
from logfs.library.places import locate_local

if TYPE_CHECKING:
    from logfs.services.compaction.manual import Compacted
    from logfs.services.compaction.offsetmap import FindKeys


@click.command()
@click.argument("path")
@click.option(
    "--roll",
    is_flag=True,
    help="Start a new segment first, so that all present records can be compacted.",
)
@dry_run_option("It reads and writes as much. It cannot be used with --roll.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object a partition.")
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
    from logfs.library import owner
    from logfs.log.store import LogStore
    from logfs.machine.host import system_clock
    from logfs.services.compaction.manual import (
        Compacted,
        compact_now,
        logs_of,
        preview_compaction,
        watched,
    )
    from logfs.services.compaction.tools import tools_for

    if is_preview and roll:
        raise click.UsageError("--dry-run: --roll starts a segment, which is a change itself")
    with failures.about(path):
        place = locate_local(path)
        topic, number = parse_topic_or_partition(place.address)

        def do(store: LogStore) -> list[Compacted]:
            clock = system_clock()
            tools = tools_for(store.config, store.new_id, clock.monotonic_s, time.sleep)
            done = []
            with _finding(spark, place.root) as find:
                for log in logs_of(store, topic, number):
                    now_ms, told = clock.now_ms(), watched(tools, log, show_progress)
                    if is_preview:
                        done.append(preview_compaction(log, now_ms, told, find))
                    else:
                        done.append(compact_now(log, now_ms, told, find, roll=roll))
            return done

        def ask(daemon: Daemon) -> list[Compacted]:
            if spark.is_wanted:
                raise LockedError(
                    "a daemon owns the directory, and --spark needs to: unmount it meanwhile, or "
                    "leave --spark out, so that the daemon compacts it in several rounds"
                )
            if is_preview:
                return daemon.preview_compact(topic, number, progress=show_progress)
            return daemon.compact(topic, number, roll=roll, progress=show_progress)

        done = owner.act(place, ask, do, failures.progress())
    if as_json:
        click.echo(json.dumps([{"topic": topic, **x._asdict()} for x in done], indent=2))
    else:
        for row in done:
            click.echo(_sentence(topic, row, "would become" if is_preview else "became"))


def show_progress(text: str) -> None:
    """Print a line about the progress, on a terminal only."""
    if sys.stderr.isatty():
        failures.warn(text)


def parse_topic_or_partition(names: Sequence[str]) -> tuple[str, int | None]:
    """Return the topic, and the partition; None: all partitions."""
    from logfs.errors import UnknownNameError
    from logfs.log.reading.address import parse_topic_name

    if not 1 <= len(names) <= 2 or (len(names) == 2 and not names[1].isdecimal()):
        raise UnknownNameError("expected a partition, TOPIC/PARTITION, or a topic, TOPIC")
    return parse_topic_name(names[0]), int(names[1]) if len(names) == 2 else None


@contextmanager
def _finding(spark: SparkRequest, data: str) -> "Iterator[FindKeys]":
    """Yield the function that finds the last records of keys, in this process or in a Spark job."""
    from logfs.services.compaction.offsetmap import find_keys

    with chosen_session(spark, "logfs compact") as session:
        if session is None:
            yield find_keys
            return
        from logfs.spark.jobs.compact import SparkKeys

        with ProgressLine("read for their keys") as shown:
            yield SparkKeys(session, data, shown.show).find


def _sentence(topic: str, done: "Compacted", became: str) -> str:
    name = f"{topic}/{done.partition}"
    if not done.rounds:
        return f"{name}: nothing to compact: all of it is in the active segment (see --roll)"
    before, after = map(tables.format_bytes, (done.read_bytes, done.written_bytes))
    return (
        f"{name}: {done.read_records} records {became} {done.written_records}, {before} {after}; "
        f"clean up to offset {done.end_offset}"
    )
