"""What monitoring costs: appends while a client reads the metrics ten times a second."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.mounts import mount_logfs
from benchmarks.questions.appending import make_writer
from benchmarks.results import Row, Samples, at_most, compare
from benchmarks.runner import Bench, alternate

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


def _while_scraped(place: Path, run: Callable[[], float]) -> Callable[[], float]:
    def watched() -> float:
        scraper = subprocess.Popen([sys.executable, "-c", _SCRAPER, place])
        try:
            return run()
        finally:
            scraper.kill()
            scraper.wait()

    return watched
