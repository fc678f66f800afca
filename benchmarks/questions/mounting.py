"""How long does it take to mount ten thousand sealed segments, and how much memory.

They are in ten partitions.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.data import LINE_BYTES, LogSpec, build_log
from benchmarks.mounts import BenchMount, mount_logfs
from benchmarks.results import Row, Samples, at_most, hold
from benchmarks.runner import Bench, alternate, settle

_PARTITIONS = 10


def rows(bench: Bench) -> Iterator[Row]:
    """From the start of the process until the mount answers; beside it an empty directory."""
    segments = bench.scaled(10_000, 2_000)
    spec = LogSpec(
        batch_lines=10,
        segment_batches=1,
        segments=segments,
        is_rolled=True,
        partitions=_PARTITIONS,
    )
    full, empty = build_log(bench, "full", spec), bench.directory / "empty"
    empty.mkdir()
    settle(bench.directory)

    def run(data: Path) -> tuple[float, float]:
        mount = mount_logfs(bench, data)
        try:
            if data == full:
                _check(mount, spec)
            return mount.start_s, mount.resident_mb()
        finally:
            mount.stop()

    ours, theirs = alternate([lambda: run(full), lambda: run(empty)], bench.pairs)
    for place, what, limit, unit in ((0, "until it answers", 1, "s"), (1, "resident", 150, "MB")):
        yield hold(
            "mount",
            f"mount of {segments:,} segments, {what}",
            at_most(limit, unit),
            Samples("logfs", unit, tuple(found[place] for found in ours)),
            Samples("empty", unit, tuple(found[place] for found in theirs)),
        )


def _check(mount: BenchMount, spec: LogSpec) -> None:
    """Make sure that the segments are there."""
    expected = spec.lines // spec.partitions * LINE_BYTES
    found = (mount.point / spec.topic / "0").stat().st_size
    if found != expected:
        raise RuntimeError(f"{mount.point}: {found} bytes in a partition, expected {expected}")
