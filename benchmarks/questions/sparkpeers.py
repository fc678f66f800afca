"""How fast does Spark read and write logs, beside its own Kafka source and sink and a broker."""

import json
import shutil
from collections.abc import Iterator

from benchmarks import peers
from benchmarks.data import LogSpec, build_log, call_with, lines_of
from benchmarks.mounts import mount_logfs
from benchmarks.results import Row, at_least, compare, rates
from benchmarks.runner import Bench, settle
from tests.kafka.client import Client

_TOPIC = "lines"
_PARTITIONS = 2
_BATCH_BYTES = 16_384
"""As in ``spark``."""
_SIZES = (("100 B", 1), ("1 KB", 10))


def rows(bench: Bench) -> Iterator[Row]:
    """Scans, then appends, with values of 100 bytes and of 1 KB, in two partitions."""
    for what, repeats in _SIZES:
        yield from _scan(bench, what, repeats)
    for what, repeats in _SIZES:
        yield from _sink(bench, what, len(next(lines_of(repeats))))


def _scan(bench: Bench, what: str, repeats: int) -> Iterator[Row]:
    line_bytes = len(next(lines_of(repeats)))
    batch_lines = _BATCH_BYTES // line_bytes
    spec = LogSpec(
        batch_lines=batch_lines,
        segment_batches=bench.scaled(500_000_000, 100_000_000) // (4 * batch_lines * line_bytes),
        segments=4,
        topic=_TOPIC,
        partitions=_PARTITIONS,
        repeats=repeats,
    )
    data = build_log(bench, "log", spec)
    broker = peers.start_broker(bench)
    Client(broker.bootstrap).create_topic(_TOPIC, _PARTITIONS)
    broker.stop()
    for number in range(_PARTITIONS):
        peers.install_log(broker, _TOPIC, data / f"{_TOPIC}-{number}", number)
    peers.forget_clean_stop(broker)
    broker.start()
    settle(bench.directory)
    arguments = ("scan", data, broker.bootstrap, _TOPIC, str(bench.pairs))
    seconds = json.loads(call_with("benchmarks.sparkkafka", *arguments).splitlines()[-1])
    broker.kill()
    shutil.rmtree(broker.directory)
    shutil.rmtree(data)
    size = spec.lines * line_bytes
    yield compare(
        "spark",
        f"Spark, sum(length(value)), {what}",
        at_least(2, "x Spark's Kafka source"),
        rates("logfs", size, seconds["logfs"]),
        rates("kafka", size, seconds["kafka"]),
        rates("value alone", size, seconds["pruned"]),
    )


def _sink(bench: Bench, what: str, value_bytes: int) -> Iterator[Row]:
    records = bench.scaled(200_000_000, 40_000_000) // value_bytes
    broker = peers.start_broker(bench)
    mount = mount_logfs(bench, bench.directory / "data")
    settle(bench.directory)
    arguments = (bench.directory, mount.point, broker.bootstrap)
    numbers = (str(records), str(value_bytes), str(bench.pairs))
    printed = call_with("benchmarks.sparkkafka", "sink", *arguments, *numbers)
    seconds = json.loads(printed.splitlines()[-1])
    mount.stop()
    broker.kill()
    shutil.rmtree(broker.directory)
    shutil.rmtree(bench.directory / "data")
    size = records * value_bytes
    for name, how in (("alone", "no daemon"), ("daemon", "through a daemon")):
        yield compare(
            "spark",
            f"Spark, append, {what}, {how}",
            at_least(2, "x Spark's Kafka sink"),
            rates("logfs", size, seconds[name]),
            rates("kafka", size, seconds["kafka"]),
            rates("kafka, tuned", size, seconds["tuned"]),
        )
