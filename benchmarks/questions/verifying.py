"""How fast is everything checked that can be: one core, records that are in the page cache."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.data import LogSpec, Opened, build_log, verify_log
from benchmarks.results import Row, Samples, at_least, hold
from benchmarks.runner import Bench, alternate, settle, timed_shell

_READ = 'exec cat "$1"/*/*.log > /dev/null'
_BATCHES = (("16 KiB", 150), ("1 MiB", 9600))
"""Name and lines of a batch: a record takes 7 to 9 bytes beside its line."""


def rows(bench: Bench) -> Iterator[Row]:
    """``logfs verify`` with one process, of two segments that were stopped cleanly."""
    for what, lines in _BATCHES:
        batches = bench.scaled(10_000_000, 2_000_000) // lines // 2
        spec = LogSpec(batch_lines=lines, segment_batches=batches, segments=2)
        data = build_log(bench, f"verified-{lines}", spec)
        settle(bench.directory)
        yield _row(bench, f"verify, batches of {what}", data)


def _row(bench: Bench, what: str, data: Path) -> Row:
    size_gb = sum(log.stat().st_size for log in data.glob("*/*.log")) / 1e9

    def read() -> Opened:
        seconds, _ = timed_shell(_READ, data)
        return Opened(seconds, seconds)

    def check() -> Opened:
        return verify_log(data)

    ours, theirs = alternate([check, read], bench.pairs)
    return hold(
        "verify",
        what,
        at_least(2, "GB/s"),
        Samples("logfs", "GB/s", tuple(size_gb / run.seconds for run in ours)),
        Samples("cat", "GB/s", tuple(size_gb / run.seconds for run in theirs)),
        Samples("by CPU time", "GB/s", tuple(size_gb / run.cpu_s for run in ours)),
    )
