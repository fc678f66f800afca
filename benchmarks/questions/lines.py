"""How many lines a second, each in its own write, and what does ``echo >>`` cost.

A line costs little more than its request, so it is compared with the C floor too: see ``floor.c``.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.data import numbered_lines
from benchmarks.mounts import mount_c_floor, mount_floor, mount_logfs
from benchmarks.results import Budget, Row, Samples, at_least, at_most, compare
from benchmarks.runner import Bench, alternate, percentile

_PARTITIONS = 16
_TOPICS = 100
_EXPIRED_S = 1.05
"""After this time the kernel looks a name up again."""
_WRITER = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
line, write = sys.argv[3].encode(), os.write
print(flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    write(descriptor, line)
"""


def capacity(bench: Bench) -> Iterator[Row]:
    """Processes that write as fast as they can: 16 on 16 partitions, 64 on 16, and 16 on one.

    Those of one partition wait for each other, in the kernel, unless each has its own inode.
    """
    point = mount_logfs(bench, bench.directory / "data", f"num.partitions={_PARTITIONS}").point
    (point / "t").mkdir()
    directories = (point / "t", mount_floor(bench).point / "t", mount_c_floor(bench).point / "t")
    lines = bench.scaled(64_000, 16_000)
    for writers, budgets in (
        (16, (at_least(4, "x floor"), at_least(0.6, "x C floor"))),
        (64, (at_least(1, "x floor"),)),
    ):
        names = [str(number % _PARTITIONS) for number in range(writers)]
        runs = [
            _writers([directory / name for name in names], lines // writers)
            for directory in directories
        ]
        found = alternate(runs, bench.pairs)
        title = f"lines a second, {writers} writers, {_PARTITIONS} partitions"
        yield from beside_floors("lines", title, "/s", budgets, found)
    plain = bench.directory / "plain"
    plain.touch()
    files = (point / "t" / "0.in", point / "t" / "0", plain)
    runs = [_writers([file] * _PARTITIONS, lines // _PARTITIONS) for file in files]
    yield compare(
        "lines",
        f"lines a second, {_PARTITIONS} writers, 1 partition, by the name 0.in",
        at_least(2, "x name 0"),
        *(
            Samples(who, "/s", values)
            for who, values in zip(
                ("logfs", "name 0", "plain"), alternate(runs, bench.pairs), strict=True
            )
        ),
    )


def opened(bench: Bench) -> Iterator[Row]:
    """``echo >>``: a file is opened, gets one line and is closed; also with no_native.

    First with names that the kernel knows, then with names that it looks up again, since it has
    kept them for a second. For that each of many topics takes its turn.
    """
    point = mount_logfs(bench, bench.directory / "data").point
    python = mount_logfs(bench, bench.directory / "python", "no_native").point
    for made in (point, python):
        (made / "t").mkdir()
    files = (
        point / "t" / "0",
        mount_floor(bench).point / "t/0",
        mount_c_floor(bench).point / "t/0",
        python / "t" / "0",
    )
    runs = [_opener(file, bench.scaled(2000, 500)) for file in files]
    title = "open, write(2) of one line, close, p50"
    budgets = (at_most(0.3, "x floor"),)
    *found, by_python = alternate(runs, bench.pairs)
    others = Samples("no_native", "us", by_python)
    yield from beside_floors("echo", title, "us", budgets, found, others)
    topics = [[file.parents[1] / f"t{number}" for number in range(_TOPICS)] for file in files]
    for made in (*topics[0], *topics[3]):
        made.mkdir()
    runs = [_patient_opener(found, bench.scaled(6, 3)) for found in topics]
    title = "the same with names that are looked up again, p50"
    *found, by_python = alternate(runs, bench.pairs)
    others = Samples("no_native", "us", by_python)
    # The floor has two names to look up as well, and answers in Python.
    budgets = (at_most(0.7, "x floor"),)
    yield from beside_floors("echo", title, "us", budgets, found, others)


def beside_floors(
    question: str,
    title: str,
    unit: str,
    budgets: Sequence[Budget],
    found: Sequence[tuple[float, ...]],
    *others: Samples,
) -> Iterator[Row]:
    """Yield a row for each budget: beside the floor, and then beside the C floor.

    Args:
        question, title: See ``Row``.
        unit: The unit of the values.
        budgets: One or two.
        found: The values of logfs, of the floor and of the C floor.
        others: What else there is.
    """
    names = ("logfs", "floor", "C floor")
    ours, floor, c_floor = (
        Samples(who, unit, values) for who, values in zip(names, found, strict=True)
    )
    sides = (floor, c_floor), (c_floor, floor)
    for budget, beside in zip(budgets, sides, strict=False):
        what = title if beside[0] is floor else f"{title}, beside the C floor"
        yield compare(question, what, budget, ours, *beside, *others)


def _writers(paths: Sequence[Path], lines: int) -> Callable[[], float]:
    """Return a run of a process for each path, at the same time; it returns lines a second."""

    def run() -> float:
        command = [sys.executable, "-ISc", _WRITER]
        arguments = [str(lines), numbered_lines(0, 1).decode()]
        started = [
            subprocess.Popen(
                [*command, str(path), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for path in paths
        ]
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        started_s = time.perf_counter()
        for process in started:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.close()
        for process in started:
            assert process.stdout is not None
            if process.wait() != 0:
                raise RuntimeError(f"{paths[0]}: a writer failed")
            process.stdout.close()
        return len(paths) * lines / (time.perf_counter() - started_s)

    return run


def _patient_opener(topics: Sequence[Path], times: int) -> Callable[[], float]:
    """Return a run that waits before it opens each file again; it returns p50 in us."""

    def run() -> float:
        openers = [_opener(topic / "0", 1) for topic in topics]
        taken = []
        for _ in range(times):
            taken += [open_once() for open_once in openers]
            time.sleep(_EXPIRED_S)
        return percentile(taken, 0.5)

    return run


def _opener(path: Path, times: int) -> Callable[[], float]:
    """Return a run that appends one line each time it opens a file; it returns p50 in us."""
    line = numbered_lines(0, 1)

    def run() -> float:
        taken = []
        for _ in range(times):
            started = time.perf_counter_ns()
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, line)
            os.close(descriptor)
            taken.append(time.perf_counter_ns() - started)
        return percentile(taken, 0.5) / 1000

    return run
