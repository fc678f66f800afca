"""What do stat(2) and a listing cost, and what is left when two programs read at the same time."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.data import write_lines
from benchmarks.floor import LISTED
from benchmarks.mounts import mount_floor, mount_logfs
from benchmarks.results import Row, Samples, at_least, at_most, compare, rates
from benchmarks.runner import Bench, alternate, percentile, random_read_us, timed_shell

_SYSTEMS = ("logfs", "floor", "plain")
_ONE, _SEEK, _MANY = 2, 3, 4
"""Times the floor, which answers with the same attributes for every name, found beforehand."""


_SPAN_BYTES, _PIECE_BYTES = 32_000_000, 4096
"""A few batches of 1 MiB."""


def rows(bench: Bench) -> Iterator[Row]:
    """A topic with as many partitions as the floor lists names."""
    source = bench.directory / "source"
    size = write_lines(source, bench.scaled(256_000_000, 64_000_000))
    point = mount_logfs(bench, bench.directory / "data").point
    floor = mount_floor(bench, source).point
    plain = bench.directory / "plain"
    topics = [place / "t" for place in (point, floor, plain)]
    _fill(topics[0], source)
    plain.mkdir()
    _fill(topics[2], source)
    looks = bench.scaled(4000, 1000)
    sides = alternate([_looker(topic / "0", looks) for topic in topics], bench.pairs)
    yield _row("fstat(2) of a growing name, p50", _ONE, "us", sides)
    sides = alternate(
        [
            partial(random_read_us, topic / "0", _PIECE_BYTES, looks, _SPAN_BYTES)
            for topic in topics
        ],
        bench.pairs,
    )
    yield _row("4 KiB at random places in 32 MB of a growing name, p50", _SEEK, "us", sides)
    for what, of_topic in (("names", _names), ("names and stat(2)", _stats)):
        sides = alternate([of_topic(topic) for topic in topics], bench.pairs)
        yield _row(f"{LISTED:,} partitions listed, {what}", _MANY, "ms", sides)
    sides = alternate([_two_cats(topic) for topic in topics], bench.pairs)
    yield compare(
        "look",
        "two cats of two growing names at once",
        at_least(0.5, "x floor"),
        *(rates(system, 2 * size, side) for system, side in zip(_SYSTEMS, sides, strict=True)),
    )


def _fill(topic: Path, source: Path) -> None:
    topic.mkdir()
    for number in reversed(range(LISTED)):  # in logfs the last one makes them all
        (topic / str(number)).touch()
    for number in range(2):
        timed_shell('cat "$1" >> "$2"', source, topic / str(number))


def _row(what: str, limit: float, unit: str, sides: Sequence[Sequence[float]]) -> Row:
    samples = [
        Samples(system, unit, tuple(side)) for system, side in zip(_SYSTEMS, sides, strict=True)
    ]
    return compare("look", what, at_most(limit, "x floor"), *samples)


def _looker(path: Path, count: int) -> Callable[[], float]:
    """Return a run that returns the median of what fstat(2) takes, in us."""

    def run() -> float:
        times = []
        descriptor = os.open(path, os.O_RDONLY)
        try:
            for _ in range(count):
                started = time.perf_counter_ns()
                os.fstat(descriptor)
                times.append(time.perf_counter_ns() - started)
        finally:
            os.close(descriptor)
        return percentile(times, 0.5) / 1000

    return run


def _names(topic: Path) -> Callable[[], float]:
    """Return a run that lists a directory; it returns ms."""

    def run() -> float:
        started = time.perf_counter()
        found = len(os.listdir(topic))
        return _checked(found, started)

    return run


def _stats(topic: Path) -> Callable[[], float]:
    """Return a run that asks for the attributes of all in a directory, as ``ls -l``, in ms."""

    def run() -> float:
        started = time.perf_counter()
        with os.scandir(topic) as entries:
            found = sum(entry.stat().st_nlink > 0 for entry in entries)
        return _checked(found, started)

    return run


def _checked(found: int, started: float) -> float:
    elapsed = time.perf_counter() - started
    if found != LISTED:
        raise RuntimeError(f"{found} names were listed, expected {LISTED}")
    return elapsed * 1000


def _two_cats(topic: Path) -> Callable[[], float]:
    """Return a run that reads two files, each by its own program; it returns seconds."""

    def run() -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            names = [topic / str(number) for number in range(2)]
            list(pool.map(lambda name: timed_shell('exec cat "$1" > /dev/null', name), names))
        return time.perf_counter() - started

    return run
