"""How long does open(2) take at a moment or an offset; does it depend on the log's length."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from benchmarks.data import FIRST_MS, LINE_BYTES, NUMBERED_LINES, LogSpec, build_log, numbered_lines
from benchmarks.mounts import mount_floor, mount_logfs
from benchmarks.results import Row, Samples, at_most, compare
from benchmarks.runner import Bench, alternate, percentile, settle

_BATCH_LINES = 10
_SEGMENTS = 1000
_SYSTEMS = ("logfs", "1 segment", "floor")
_FLAT = 1.5
"""So many times slower is still flat, given how p99 varies."""


def rows(bench: Bench) -> Iterator[Row]:
    """The same lines in one segment and in a thousand; the floor opens any name."""
    batches = bench.scaled(100, 20)
    many = LogSpec(batch_lines=_BATCH_LINES, segment_batches=batches, segments=_SEGMENTS)
    one = LogSpec(batch_lines=_BATCH_LINES, segment_batches=batches * _SEGMENTS)
    logs = [build_log(bench, name, spec) for name, spec in (("many", many), ("one", one))]
    settle(bench.directory)
    directories = [mount_logfs(bench, log).point / many.topic for log in logs]
    directories.append(mount_floor(bench).point / many.topic)
    opens = bench.scaled(2000, 500)
    for what, name_of in (("a timestamp", _at_timestamp), ("an offset", _at_offset)):
        for directory in directories[:2]:
            for n in range(0, many.lines, many.lines // _SEGMENTS):
                _check(directory, name_of(n), n)
        names = [name_of(n) for n in _places(many.lines, opens)]
        results = alternate([_opener(d, names) for d in directories], bench.pairs)
        sides = [_samples(system, found) for system, found in zip(_SYSTEMS, results, strict=True)]
        (ours, ours_p50), single, floor = sides
        title = f"open at {what}, p99"
        yield compare("open", title, at_most(3, "x floor"), ours, *floor, ours_p50)
        yield compare("open", f"{title}, flat", at_most(_FLAT, "x 1 segment"), ours, *single)


def _samples(system: str, found: Sequence[tuple[float, float]]) -> tuple[Samples, Samples]:
    p50, p99 = zip(*found, strict=True)
    return Samples(system, "us", p99), Samples(f"{system} p50", "us", p50)


def _at_timestamp(offset: int) -> str:
    return f"0@{FIRST_MS + offset // _BATCH_LINES}"


def _at_offset(offset: int) -> str:
    return f"0@offset={offset}"


def _places(lines: int, count: int) -> list[int]:
    """Return numbers of lines that begin a batch: all that a timestamp can name."""
    random = Random(1)
    return [random.randrange(0, lines, _BATCH_LINES) for _ in range(count)]


def _check(directory: Path, name: str, number: int) -> None:
    """Make sure that what is opened begins where it should."""
    with (directory / name).open("rb", buffering=0) as file:
        line = file.read(LINE_BYTES)
    if line != numbered_lines(number % NUMBERED_LINES, 1):
        raise RuntimeError(f"{directory / name} begins with {line!r}, expected line {number}")


def _opener(directory: Path, names: list[str]) -> Callable[[], tuple[float, float]]:
    """Return a run that opens every name; it returns p50 and p99."""
    paths = [str(directory / name) for name in names]

    def run() -> tuple[float, float]:
        times = []
        for path in paths:
            started = time.perf_counter_ns()
            descriptor = os.open(path, os.O_RDONLY)
            times.append(time.perf_counter_ns() - started)
            os.close(descriptor)
        return percentile(times, 0.5) / 1000, percentile(times, 0.99) / 1000

    return run
