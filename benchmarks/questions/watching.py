"""What monitoring and limits cost: metrics, ``logfs top``, the access log, quotas."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.data import numbered_lines
from benchmarks.mounts import mount_logfs
from benchmarks.questions.appending import make_writer
from benchmarks.results import Row, Samples, at_most, compare
from benchmarks.runner import (
    Bench,
    alternate,
    environment,
    on_one_processor,
    percentile,
    python_command,
)

_PARTITIONS = 100
_SCRAPER = """
import socket, sys, time
while True:
    time.sleep(0.1)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(sys.argv[1])
        client.sendall(b"GET /metrics HTTP/1.1\\r\\n\\r\\n")
        while client.recv(1 << 20):
            pass
"""
_SEEN = {"logfs top": 1.5, "quotas of the topic": 1.5, "the access log": 1.5}
"""What is on, and how many times as long a request may take then."""
_ASKED_S = 1.5
"""After so long ``logfs top`` has asked."""
_READ_BYTES = 1 << 20
_QUOTAS = {"bytes": 1 << 60, "producer.byte.rate": 1 << 40}
"""Those that are never reached: what is measured is the check."""


def rows(bench: Bench) -> Iterator[Row]:
    """One line a write(2), in one partition of a hundred, scraped and not."""
    writes = bench.scaled(4000, 1000)
    place = bench.directory / "metrics.socket"
    point = mount_logfs(bench, bench.directory / "data", f"metrics={place}").point
    (point / "t").mkdir()
    (point / "t" / str(_PARTITIONS - 1)).touch()
    write = make_writer(point / "t" / "0", writes, 0.5)
    scraped, alone = alternate([_while_scraped(place, write), write], 2 * bench.pairs)
    yield compare(
        "watch",
        "write(2) of one line while metrics are read, p50",
        at_most(1.5, "x unwatched"),
        Samples("logfs", "us", scraped),
        Samples("unwatched", "us", alone),
    )


def seen(bench: Bench) -> Iterator[Row]:
    """A line a write(2), and open, read, close of a short file: with and without being seen."""
    with on_one_processor():
        yield from _seen(bench)


def _seen(bench: Bench) -> Iterator[Row]:
    writes, opens = bench.scaled(4000, 1000), bench.scaled(2000, 500)
    alone = mount_logfs(bench, bench.directory / "data").point
    log = bench.directory / "access.json"
    logged = mount_logfs(bench, bench.directory / "logged", f"access_log={log}").point
    for topic in (alone / "t", logged / "t", alone / "limited"):
        topic.mkdir()
        (topic / "1").touch()
        for number in ("0", "1"):
            with (topic / number).open("ab") as file:
                file.write(numbered_lines(0, 100))
    for key, value in _QUOTAS.items():
        os.setxattr(alone / "limited", f"user.logfs.logfs.quota.{key}", str(value).encode())
    for title, name, make, count in (
        ("write(2) of one line", "0", _make_line_writer, writes),
        ("open, read, close of 100 lines", "1", _make_opener, opens),
    ):
        run = make(alone / "t" / name, count)
        limited, listed = make(alone / "limited" / name, count), make(logged / "t" / name, count)
        watched = _while_topped(alone, run)
        times, *others = alternate([run, watched, limited, listed], 2 * bench.pairs)
        for (what, budget), side in zip(_SEEN.items(), others, strict=True):
            yield compare(
                "seen",
                f"{title} with {what}, p50",
                at_most(budget, "x without"),
                Samples("logfs", "us", side),
                Samples("without", "us", times),
            )


def _make_line_writer(path: Path, writes: int) -> Callable[[], float]:
    return make_writer(path, writes, 0.5)


def _make_opener(path: Path, opens: int) -> Callable[[], float]:
    """Return what reads a file whole again and again, and gives the median of the times in us."""

    def run() -> float:
        times = []
        gc.disable()
        try:
            for _ in range(opens):
                started = time.perf_counter_ns()
                descriptor = os.open(path, os.O_RDONLY)
                while os.read(descriptor, _READ_BYTES):
                    pass
                os.close(descriptor)
                times.append(time.perf_counter_ns() - started)
        finally:
            gc.enable()
        return percentile(times, 0.5) / 1000

    return run


def _while_topped(point: Path, run: Callable[[], float]) -> Callable[[], float]:
    command = python_command("logfs", "top", point, "--json", "--interval", "60")

    def watched() -> float:
        top = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment())
        try:
            time.sleep(_ASKED_S)
            return run()
        finally:
            top.kill()
            top.wait()

    return watched


def _while_scraped(place: Path, run: Callable[[], float]) -> Callable[[], float]:
    def watched() -> float:
        scraper = subprocess.Popen([sys.executable, "-c", _SCRAPER, place])
        try:
            return run()
        finally:
            scraper.kill()
            scraper.wait()

    return watched
