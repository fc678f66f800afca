"""Partitions that were not stopped cleanly, for tests that damage their files."""

from tests.fakes import FakeDisk
from tests.log.support import Bench

LINES = [b"line %02d" % n + b"." * (n % 7) for n in range(12)]
GARBAGE = bytes(range(7, 107))
TABLE = "logfs.segments"


def filled(properties: dict[str, str] | None = None, lines: list[bytes] | None = None) -> Bench:
    """A partition whose store was killed after some lines, one batch each."""
    bench = Bench(properties)
    bench.write(*(LINES if lines is None else lines))
    bench.disk.kill()
    return bench


def start(bench: Bench, disk: FakeDisk | None = None) -> Bench:
    """Start the store of a bench on a disk, its own or another."""
    bench.disk = disk or bench.disk
    bench.store = bench.open()
    assert bench.log.offline is None
    return bench


def cut_copies(bench: Bench) -> dict[str, bytes]:
    return {name: bench.file(name) for name in bench.names(".cut")}


def kinds_of_losses(bench: Bench) -> list[str]:
    return [loss.kind for loss in bench.log.losses]


def segmented() -> Bench:
    """A killed partition with several segments, none of them known to be durable."""
    return filled({"internal.segment.bytes": "250"})
