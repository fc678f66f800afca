"""``logfs compact``: keep only the last record of each key, now."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.spark_options import SparkRequest, chosen_session, spark_options
from logfs.cli.terminal import tables
from logfs.cli.terminal.progress import ProgressLine
from logfs.library.places import locate

if TYPE_CHECKING:
    from logfs.log.compaction.manual import Compacted
    from logfs.log.compaction.offsetmap import FindKeys


@click.command()
@click.argument("path")
@click.option(
    "--roll",
    is_flag=True,
    help="Begin a new segment first: what is in the active one is not compacted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object a partition.")
@spark_options
def compact(path: str, *, spark: SparkRequest, roll: bool, as_json: bool) -> None:
    """Keep only the last record of each key.

    PATH is DATA/TOPIC/PARTITION, or DATA/TOPIC for every partition of the topic, with the data
    directory or a mount point in front. The topic's cleanup.policy must have compact. A daemon
    compacts by itself when more than min.cleanable.dirty.ratio of a log is new; this does it now.

    As in Kafka the active segment is left alone, and records that are younger than
    min.compaction.lag.ms or belong to a transaction that is still open. A record with a key and no
    value (a tombstone) goes delete.retention.ms after it was first compacted.

    Offsets and positions stay: what is removed becomes a hole. A crash at any moment leaves every
    record that is to be kept, once.

    A log with more keys than fit into memory (log.cleaner.dedupe.buffer.size) is gone through in
    several rounds. With --spark a cluster, which has the directory at the same path, finds the
    last record of every key at once, and this command rewrites the log: it must own the directory,
    so no daemon may serve it meanwhile. 'spark-submit $(logfs spark-job) compact PATH' is the same
    job.

    \b
    Examples:
        logfs compact /var/lib/logfs/prices/0
        logfs compact /mnt/logs/prices --roll
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.client import Daemon
    from logfs.errors import LockedError
    from logfs.library import owner
    from logfs.log.compaction.manual import Compacted, compact_now, logs_of, watched
    from logfs.log.compaction.tools import tools_for
    from logfs.log.store import LogStore
    from logfs.machine.host import system_clock

    def say(text: str) -> None:
        if sys.stderr.isatty():
            failures.warn(text)

    with failures.about(path):
        place = locate(path)
        topic, number = _parse(place.address)

        def do(store: LogStore) -> list[Compacted]:
            clock = system_clock()
            tools = tools_for(store.config, store.new_id, clock.monotonic_s, time.sleep)
            with _finding(spark, place.root) as find:
                return [
                    compact_now(log, clock.now_ms(), watched(tools, log, say), find, roll=roll)
                    for log in logs_of(store, topic, number)
                ]

        def ask(daemon: Daemon) -> list[Compacted]:
            if spark.is_wanted:
                raise LockedError(
                    "a daemon owns the directory, and --spark has to: unmount it for that time, or "
                    "leave --spark out, and the daemon compacts it in as many rounds as it takes"
                )
            return daemon.compact(topic, number, roll=roll, progress=say)

        done = owner.act(place, ask, do, failures.progress())
    if as_json:
        click.echo(json.dumps([{"topic": topic, **x._asdict()} for x in done], indent=2))
    else:
        for row in done:
            click.echo(_sentence(topic, row))


def _parse(names: Sequence[str]) -> tuple[str, int | None]:
    """Return the topic and, if it is named, the partition."""
    from logfs.errors import UnknownNameError
    from logfs.log.reading.address import parse_topic_name

    if not 1 <= len(names) <= 2 or (len(names) == 2 and not names[1].isdecimal()):
        raise UnknownNameError("expected a partition, TOPIC/PARTITION, or a topic, TOPIC")
    return parse_topic_name(names[0]), int(names[1]) if len(names) == 2 else None


@contextmanager
def _finding(spark: SparkRequest, data: str) -> "Iterator[FindKeys]":
    """Give what finds the last records of keys: this process, or a Spark job."""
    from logfs.log.compaction.offsetmap import find_keys

    with chosen_session(spark, "logfs compact") as session:
        if session is None:
            yield find_keys
            return
        from logfs.spark.jobs.compact import SparkKeys

        with ProgressLine("read for their keys") as shown:
            yield SparkKeys(session, data, shown.show).find


def _sentence(topic: str, done: "Compacted") -> str:
    name = f"{topic}/{done.partition}"
    if not done.rounds:
        return f"{name}: nothing to compact: all of it is in the active segment (see --roll)"
    before, after = map(tables.format_bytes, (done.read_bytes, done.written_bytes))
    return (
        f"{name}: {done.read_records} records became {done.written_records}, {before} {after}; "
        f"clean up to offset {done.end_offset}"
    )
