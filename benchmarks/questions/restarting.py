"""How long does a program wait when the daemon is restarted or killed, and what does a line cost.

The program has a file open for appending, and a thousand others for reading. The data are ten
thousand sealed segments.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.data import LogSpec, build_log
from benchmarks.mounts import BenchMount, mount_held, mount_logfs
from benchmarks.results import Row, Samples, at_most, compare, hold
from benchmarks.runner import (
    Bench,
    alternate,
    environment,
    on_one_processor,
    python_command,
    settle,
)

_PARTITIONS = 10
_FILES = 1_000
_LINE = b"x" * 99 + b"\n"
_PAUSE_S = 0.03
"""A write that takes longer is the one that met the restart: the signal has its effect later."""
_PATIENCE_S = 5.0
_QUIET_S = 11.0
"""A reload comes long after a kill, whose recovery changes directories; see ``preloading``."""


def rows(bench: Bench) -> Iterator[Row]:
    """Pauses of a writer, then the price of a line with what is noted for a successor."""
    segments = bench.scaled(10_000, 2_000)
    spec = LogSpec(
        batch_lines=10, segment_batches=1, segments=segments, is_rolled=True, partitions=_PARTITIONS
    )
    data = build_log(bench, "full", spec)
    settle(bench.directory)
    mount = mount_held(bench, data)
    names = [mount.point / spec.topic / str(n % _PARTITIONS) for n in range(_FILES)]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(name.open("rb"))
        file = stack.enter_context(names[0].open("ab", buffering=0))
        file.write(_LINE)

        def longest_write(is_over: Callable[[float], bool]) -> float:
            longest_s = 0.0
            while not is_over(longest_s):
                started_s = time.perf_counter()
                file.write(_LINE)
                longest_s = max(longest_s, time.perf_counter() - started_s)
            settle(bench.directory)
            return longest_s

        def after(number: int) -> float:
            os.kill(_daemon_of(mount), number)
            deadline_s = time.perf_counter() + _PATIENCE_S
            return longest_write(lambda s: s > _PAUSE_S or time.perf_counter() > deadline_s)

        def over_reload() -> float:
            time.sleep(_QUIET_S)
            command = python_command("logfs", "reload", mount.point)
            with subprocess.Popen(command, env=environment()) as process:
                longest_s = longest_write(lambda _: process.poll() is not None)
            if process.returncode:
                raise RuntimeError(f"{mount.point} was not reloaded")
            return longest_s

        runs = [over_reload, lambda: after(signal.SIGUSR2), lambda: after(signal.SIGKILL)]
        pauses = alternate(runs, bench.pairs)
    mount.stop()
    budgets = (("logfs reload", 0.1), ("a restart", 1), ("kill -9", 1))
    for (how, limit_s), found in zip(budgets, pauses, strict=True):
        what = f"pause of a writer, {how}, {_FILES:,} files open, {segments:,} segments"
        yield hold("restart", what, at_most(limit_s, "s"), Samples("logfs", "s", found))
    yield _price(bench)


def _price(bench: Bench) -> Row:
    with on_one_processor():
        held = mount_held(bench, bench.directory / "held")
        plain = mount_logfs(bench, bench.directory / "plain")
        count = bench.scaled(5_000, 1_000)
        for mount in (held, plain):
            (mount.point / "t").mkdir()
        runs = [lambda: _line_us(held.point, count), lambda: _line_us(plain.point, count)]
        ours, theirs = alternate(runs, 3 * bench.pairs)
    return compare(
        "restart",
        "write(2) of one line, p50, in a mount that a holder keeps, one processor",
        at_most(1.03, "x without"),
        Samples("logfs", "us", ours),
        Samples("without", "us", theirs),
    )


def _line_us(point: Path, count: int) -> float:
    """Return the median of the times that appends of a line take, in microseconds."""
    times = []
    with (point / "t" / "0").open("ab", buffering=0) as file:
        for _ in range(count):
            started_s = time.perf_counter()
            file.write(_LINE)
            times.append(time.perf_counter() - started_s)
    return sorted(times)[count // 2] * 1e6


def _daemon_of(holder: BenchMount) -> int:
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    return int(found[0])
