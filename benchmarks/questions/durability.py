"""How fast are appends that are synced one by one: a line, an fsync, the next line.

And how much do the fsyncs of one partition delay the appends of another.

The floor syncs nothing. If the disk needs no longer for an fsync than two requests take, no file
system of this kind can meet the budget compared with a plain file. So there is a second budget,
compared with the time of the disk plus the time of the requests ("plain + floor").

Eight writers on one file are hard beside either: those of a plain file share fsyncs, and of a file
of FUSE the kernel holds the inode's lock over each append and each fsync, so they mostly come in
pairs, one fsync each. By the name ``0.in`` each writer has its own inode.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.data import numbered_lines
from benchmarks.mounts import mount_floor, mount_logfs
from benchmarks.questions.appending import make_writer
from benchmarks.results import Row, Samples, at_least, at_most, compare
from benchmarks.runner import Bench, alternate

_WRITERS = 8
_SYNCER = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
print(flush=True)
while True:
    os.write(descriptor, sys.argv[2].encode())
    os.fsync(descriptor)
"""


def rows(bench: Bench) -> Iterator[Row]:
    """One writer; eight on eight partitions; eight on one. Plain: as many ordinary files."""
    floor = mount_floor(bench).point / "t"
    for options, how in (((), ""), (("no_native",), ", -o no_native")):
        yield from _rows(bench, options, how, floor)


def _rows(bench: Bench, options: Sequence[str], how: str, floor: Path) -> Iterator[Row]:
    data = bench.directory / f"data{len(options)}"
    point = mount_logfs(bench, data, f"num.partitions={_WRITERS}", *options).point
    (point / "t").mkdir()
    partitions = [point / "t" / str(n) for n in range(_WRITERS)]
    files = [bench.directory / f"plain-{n}" for n in range(_WRITERS)]
    for file in files:
        file.touch()
    nothing = [floor / str(n) for n in range(_WRITERS)]
    appends = bench.scaled(1600, 400)
    writer_names = [partitions[0].with_name("0.in")]
    for what, names, used, writers_each, limit in (
        ("1 writer", partitions, 1, 1, 0.6),
        ("8 writers, 8 partitions", partitions, _WRITERS, 1, 0.6),
        ("8 writers, 1 partition", partitions, 1, _WRITERS, 0.2),
        ("8 writers, 1 partition, by the name 0.in", writer_names, 1, _WRITERS, 0.4),
    ):
        sides = (names, files, nothing)
        runs = [_writers(paths[:used] * writers_each, appends) for paths in sides]
        ours, theirs, least = (
            Samples(who, "/s", found)
            for who, found in zip(
                ("logfs", "plain", "floor"), alternate(runs, bench.pairs), strict=True
            )
        )
        title = f"write and fsync, {what}{how}"
        yield compare("durable", title, at_least(limit, "x plain"), ours, theirs, least)
        both = 1 / (1 / theirs.median + 1 / least.median)
        yield compare(
            "durable",
            f"{title}, beside the disk and the floor",
            at_least(0.8, "x plain + floor"),
            ours,
            Samples("plain + floor", "/s", (both,)),
        )


def beside(bench: Bench) -> Iterator[Row]:
    """One line a write(2) into one partition, while another one is in fsync all the time."""
    writes = bench.scaled(4000, 1000)
    point = mount_logfs(bench, bench.directory / "data", "num.partitions=2").point
    (point / "t").mkdir()
    plain = [bench.directory / f"plain-{n}" for n in range(2)]
    for file in plain:
        file.touch()
    mine, other = (point / "t" / str(n) for n in range(2))
    write, write_plain = (make_writer(path, writes, 0.99) for path in (mine, plain[0]))
    runs = [_while_synced(other, write), write, _while_synced(plain[1], write_plain)]
    synced, alone, ordinary = alternate(runs, 2 * bench.pairs)
    yield compare(
        "beside",
        "write(2) of one line beside another partition's fsyncs, p99",
        at_most(3, "x alone"),
        Samples("logfs", "us", synced),
        Samples("alone", "us", alone),
        Samples("plain", "us", ordinary),
    )


def _while_synced(path: Path, run: Callable[[], float]) -> Callable[[], float]:
    """Return a run beside a process that appends to a file and syncs it, without a pause."""

    def measured() -> float:
        with subprocess.Popen(
            [sys.executable, "-c", _SYNCER, path, numbered_lines(0, 1)], stdout=subprocess.PIPE
        ) as syncer:
            assert syncer.stdout is not None
            syncer.stdout.read(1)
            try:
                return run()
            finally:
                syncer.kill()

    return measured


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
