"""What does a reader of old segments do to readers of new ones.

The older half of a log of sealed segments is not in the page cache, also after a read of all of it.
It is compared with a plain file of the same bytes, all of which stay in memory.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.data import LogSpec, build_log
from benchmarks.mounts import mount_logfs
from benchmarks.results import Row, Samples, at_least, at_most, compare, hold
from benchmarks.runner import Bench, alternate, percentile, settle, timed_shell
from logfs.disk import page_cache

_CAT = 'exec cat "$1" > /dev/null'
_SEGMENTS = 10
_TAIL_BYTES = 1 << 20
_MB = 1_000_000
_LEFT_MB = 0.5
"""What look-ups leave of each segment: they read little, and the kernel a little ahead of them."""
_SCANNER = """
import os, sys
name, *cold = sys.argv[1:]
print(flush=True)
while True:
    for path in cold:
        log = os.open(path, os.O_RDONLY)
        os.posix_fadvise(log, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(log)
    file = os.open(name, os.O_RDONLY)
    while os.read(file, 1 << 20):
        pass
    os.close(file)
"""
"""Reads a log through again and again, each time as cold as it was."""


def rows(bench: Bench) -> Iterator[Row]:
    """How much is in memory after a scan; how long reads of the tail take beside scans."""
    batches = bench.scaled(40_000, 10_000) // _SEGMENTS
    spec = LogSpec(batch_lines=150, segment_batches=batches, segments=_SEGMENTS, is_rolled=True)
    data = build_log(bench, "data", spec)
    logs = sorted((data / f"{spec.topic}-0").glob("*.log"))[:_SEGMENTS]
    cold, hot = logs[: _SEGMENTS // 2], logs[_SEGMENTS // 2 :]
    copy = bench.directory / "plain"
    timed_shell('target=$1; shift; exec cat "$@" > "$target"', copy, *cold)
    settle(bench.directory)
    name = mount_logfs(bench, data).point / spec.topic / "0"
    size = name.stat().st_size

    def scan() -> tuple[float, float]:
        _chill(cold)
        _warm(hot)
        before = _cached(hot)
        timed_shell(_CAT, name)
        return _cached(cold) / _MB, _cached(hot) / before

    def scan_plain() -> tuple[float, float]:
        _chill([copy])
        timed_shell(_CAT, copy)
        return _cached([copy]) / _MB, 1.0

    ours, theirs = alternate([scan, scan_plain], bench.pairs)
    cold_mb = sum(log.stat().st_size for log in cold) / _MB
    yield hold(
        "cold",
        f"left in memory by cat of {cold_mb:.0f} MB that were cold",
        at_most(_LEFT_MB * len(cold), "MB"),
        Samples("logfs", "MB", tuple(left for left, _ in ours)),
        Samples("plain", "MB", tuple(left for left, _ in theirs)),
    )
    yield hold(
        "cold",
        "hot segments still in memory after it",
        at_least(1, "x before"),
        Samples("logfs", "x", tuple(kept for _, kept in ours)),
    )
    read = _tail_reader(name, size)
    scanned, alone = alternate([_while_scanned(name, cold, read), read], bench.pairs)
    yield compare(
        "cold",
        "pread of 1 MiB of the tail beside a reader of what is cold, p50",
        at_most(3, "x alone"),
        Samples("logfs", "us", scanned),
        Samples("alone", "us", alone),
    )


def _tail_reader(name: Path, size: int) -> Callable[[], float]:
    def run() -> float:
        descriptor, times = os.open(name, os.O_RDONLY), []
        try:
            for _ in range(200):
                started = time.perf_counter_ns()
                os.pread(descriptor, _TAIL_BYTES, size - _TAIL_BYTES)
                times.append(time.perf_counter_ns() - started)
        finally:
            os.close(descriptor)
        return percentile(times, 0.5) / 1000

    return run


def _while_scanned(
    name: Path, cold: Sequence[Path], run: Callable[[], float]
) -> Callable[[], float]:
    def measured() -> float:
        command: list[str | Path] = [sys.executable, "-c", _SCANNER, name, *cold]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as scanner:
            assert scanner.stdout is not None
            scanner.stdout.read(1)
            try:
                return run()
            finally:
                scanner.send_signal(signal.SIGKILL)

    return measured


def _chill(paths: Sequence[Path]) -> None:
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _warm(paths: Sequence[Path]) -> None:
    for path in paths:
        timed_shell(_CAT, path)


def _cached(paths: Sequence[Path]) -> int:
    total = 0
    for path in paths:
        with path.open("rb") as file:
            found = page_cache.cached_bytes(file.fileno())
        if found is None:
            raise RuntimeError(f"{path}: the kernel does not say what of it is in memory")
        total += found
    return total
