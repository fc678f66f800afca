"""How fast are appends that are synced one by one: a line, an fsync, the next line.

The floor syncs nothing: where the disk needs no longer for an fsync than two requests take, the
budget cannot be met by any file system of this kind.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.data import numbered_lines
from benchmarks.mounts import mount_floor, mount_logfs
from benchmarks.results import Row, Samples, at_least, compare
from benchmarks.runner import Bench, alternate

_WRITERS = 8


def rows(bench: Bench) -> Iterator[Row]:
    """One writer; eight on eight partitions; eight on one. Plain: as many ordinary files."""
    point = mount_logfs(bench, bench.directory / "data", f"num.partitions={_WRITERS}").point
    (point / "t").mkdir()
    partitions = [point / "t" / str(n) for n in range(_WRITERS)]
    files = [bench.directory / f"plain-{n}" for n in range(_WRITERS)]
    for file in files:
        file.touch()
    floor = mount_floor(bench).point / "t"
    nothing = [floor / str(n) for n in range(_WRITERS)]
    appends = bench.scaled(1600, 400)
    for what, used, writers_each in (
        ("1 writer", 1, 1),
        ("8 writers, 8 partitions", _WRITERS, 1),
        ("8 writers, 1 partition", 1, _WRITERS),
    ):
        sides = (partitions, files, nothing)
        runs = [_writers(paths[:used] * writers_each, appends) for paths in sides]
        ours, theirs, least = alternate(runs, bench.pairs)
        yield compare(
            "durable",
            f"write and fsync, {what}",
            at_least(0.8, "x plain"),
            Samples("logfs", "/s", ours),
            Samples("plain", "/s", theirs),
            Samples("floor", "/s", least),
        )


def _writers(paths: Sequence[Path], appends: int) -> Callable[[], float]:
    """Return a run of one thread a path; it returns durable appends a second, of all of them."""
    line, share = numbered_lines(0, 1), appends // len(paths)
    # Both calls let go of Python's lock, and what is between them takes a few microseconds.

    def write(path: Path, start: threading.Barrier) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            start.wait()
            for _ in range(share):
                os.write(descriptor, line)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def run() -> float:
        start = threading.Barrier(len(paths) + 1)
        threads = [threading.Thread(target=write, args=(path, start)) for path in paths]
        for thread in threads:
            thread.start()
        start.wait()
        started_s = time.perf_counter()
        for thread in threads:
            thread.join()
        return share * len(paths) / (time.perf_counter() - started_s)

    return run
