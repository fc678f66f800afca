"""How fast are appends without fsync: whole requests, and one line a write."""

import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.data import LINE_BYTES, numbered_lines, write_lines
from benchmarks.mounts import mount_c_floor, mount_floor, mount_logfs
from benchmarks.questions.lines import beside_floors
from benchmarks.results import Row, Samples, at_least, at_most, compare, rates
from benchmarks.runner import Bench, alternate, percentile, settle, shell_run, timed_shell

_APPEND = 'exec cat "$1" >> "$2"'


def by_cat(bench: Bench) -> Iterator[Row]:
    """``cat FILE >>``: every run fills a new file, or a new data directory, which is then removed.

    So all runs take the same pages for the page cache. In a virtual machine pages that were never
    used cost more than all the rest.

    A request of 1 MiB takes 900 us. The floor has 300 of them, the encoder 180, and pwrite 180
    once blocks are set aside (250 before); the rest is Python's, whose caches a MiB has swept out.
    """
    source = bench.directory / "source"
    size = write_lines(source, bench.scaled(256_000_000, 64_000_000))
    settle(bench.directory)

    def logfs() -> float:
        data = bench.directory / "data"
        mount = mount_logfs(bench, data)
        (mount.point / "t").mkdir()
        seconds, _ = timed_shell(_APPEND, source, mount.point / "t" / "0")
        appended = (mount.point / "t" / "0").stat().st_size
        mount.stop()
        shutil.rmtree(data)
        if appended != size:
            raise RuntimeError(f"{appended} bytes in the log, expected {size}")
        return seconds

    def plain() -> float:
        target = bench.directory / "plain"
        target.touch()
        seconds, _ = timed_shell(_APPEND, source, target)
        target.unlink()
        return seconds

    floor = mount_floor(bench).point / "t" / "0"
    runs = [logfs, plain, shell_run(_APPEND, source, floor)]
    ours, theirs, least = alternate(runs, bench.pairs)
    yield compare(
        "append",
        "cat FILE >>",
        at_least(0.5, "x plain"),
        rates("logfs", size, ours),
        rates("plain", size, theirs),
        rates("floor", size, least),
    )


def line_by_line(bench: Bench) -> Iterator[Row]:
    """One line a write(2): the median of the writes of a run; and with ``-o no_native``."""
    writes = bench.scaled(4000, 1000)
    mounts = [mount_logfs(bench, bench.directory / "data")]
    mounts.append(mount_logfs(bench, bench.directory / "python", "no_native"))
    for mount in mounts:
        (mount.point / "t").mkdir()
    floor = mount_floor(bench).point
    plain = bench.directory / "plain"
    plain.touch()
    c_floor = mount_c_floor(bench).point
    points = [*(mount.point for mount in mounts), floor, c_floor]
    files = [*(point / "t" / "0" for point in points), plain]
    runs = [make_writer(path, writes, 0.5) for path in files]
    native, python, *floors, last = alternate(runs, 2 * bench.pairs)
    ordinary, title = Samples("plain", "us", last), "write(2) of one line, p50"
    limits = at_most(0.5, "x floor"), at_most(1.5, "x C floor")
    yield from beside_floors("line", title, "us", limits, (native, *floors), ordinary)
    title += ", -o no_native"
    by_python = (at_most(2, "x floor"),)
    yield from beside_floors("line", title, "us", by_python, (python, *floors), ordinary)


def make_writer(path: Path, writes: int, part: float) -> Callable[[], float]:
    """Return what appends lines, one a write, and gives the time in us within which a part were."""
    line = numbered_lines(0, 1)

    def run() -> float:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        times = []
        gc.disable()
        try:
            for _ in range(writes):
                started = time.perf_counter_ns()
                done = os.write(descriptor, line)
                times.append(time.perf_counter_ns() - started)
                if done != LINE_BYTES:
                    raise RuntimeError(f"{path}: write(2) returned {done}")
        finally:
            gc.enable()
            os.close(descriptor)
        return percentile(times, part) / 1000

    return run
