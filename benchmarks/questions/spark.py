"""How fast does Spark scan a log, beside its text source and ``read_arrow``; do two cores help."""

import json
import shutil
from collections.abc import Iterator

from benchmarks.data import (
    LINE_BYTES,
    LogSpec,
    build_log,
    call_with,
    lines_of,
    repeat_partition,
    write_text,
)
from benchmarks.results import Row, at_least, compare, rates
from benchmarks.runner import Bench, settle

_BATCH_BYTES = 16_384
"""What a producer sends at a time. Source: Kafka ProducerConfig, ``batch.size``."""

_MOST_ROUNDS = 3

_PARTITIONS = 5
"""The partitions of the log that a job verifies."""


def rows(bench: Bench) -> Iterator[Row]:
    """``sum(length(value))`` over lines of 100 bytes and of 1 KB, in two partitions."""
    for what, repeats in (("100-byte lines", 1), ("1 KB lines", 10)):
        line_bytes = len(next(lines_of(repeats)))
        batch_lines = _BATCH_BYTES // line_bytes
        total_bytes = bench.scaled(1_000_000_000, 200_000_000)
        spec = LogSpec(
            batch_lines=batch_lines,
            segment_batches=total_bytes // (4 * batch_lines * line_bytes),
            segments=4,
            partitions=2,
            repeats=repeats,
        )
        yield from _rows(bench, what, spec, line_bytes)


def jobs(bench: Bench) -> Iterator[Row]:
    """``logfs verify --spark`` of segments of compressed records, on one core and on two.

    One core takes about 5 s: where it takes 1.8, a fifth of what two cores take goes into what
    Spark does around every task. The partitions have the same files, since lines take longer to be
    compressed than to be checked.
    """
    lines, segments = 10_000, 4
    total = bench.scaled(12_000_000, 4_000_000)
    spec = LogSpec(
        batch_lines=lines,
        segment_batches=total // lines // segments,
        segments=segments,
        compression="gzip",
    )
    data = build_log(bench, "log", spec)
    repeat_partition(data, spec, _PARTITIONS)
    settle(bench.directory)
    printed = call_with("benchmarks.sparkjob", data, _rounds(bench))
    seconds = json.loads(printed.splitlines()[-1])
    size = spec.lines * LINE_BYTES * _PARTITIONS
    one, two = (rates(f"{n} core{'s' * (n > 1)}", size, seconds[str(n)]) for n in (1, 2))
    yield compare(
        "jobs", "Spark, verify job on two cores, gzip", at_least(1.6, "x one core"), two, one
    )
    shutil.rmtree(data)


def _rounds(bench: Bench) -> str:
    """Queries of several seconds vary less than everything else here, and take the most time."""
    return str(min(bench.pairs, _MOST_ROUNDS))


def _rows(bench: Bench, what: str, spec: LogSpec, line_bytes: int) -> Iterator[Row]:
    data, text = build_log(bench, "log", spec), bench.directory / "lines.txt"
    write_text(text, spec)
    settle(bench.directory)
    printed = call_with("benchmarks.sparkscan", data, text, _rounds(bench))
    seconds = json.loads(printed.splitlines()[-1])
    size = spec.lines * line_bytes
    theirs = rates("text", size, seconds["text"])
    for name, columns in (("logfs", "all columns"), ("pruned", "value alone")):
        ours = rates("logfs", size, seconds[name])
        yield compare(
            "spark",
            f"Spark, sum(length(value)), {what}, {columns}",
            at_least(1, "x text"),
            ours,
            theirs,
        )
    for name, beside, columns in (
        ("arrow", "logfs", "all columns"),
        ("arrow_value", "pruned", "value alone"),
    ):
        yield compare(
            "spark",
            f"read_arrow, {what}, {columns}",
            at_least(1, "x Spark's scan of the log"),
            rates("logfs", size, seconds[name]),
            rates("Spark", size, seconds[beside]),
        )
    shutil.rmtree(data)
    text.unlink()
