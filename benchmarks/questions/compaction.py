"""How fast is a log compacted of which all is dirty: read twice, written, durable, in place."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.keyed import CompactionRun, KeyedSpec, build_keyed, compact
from benchmarks.results import Row, Samples, at_least, hold
from benchmarks.runner import Bench, alternate, settle, timed_shell

_READ = 'exec cat "$1"/*.log > /dev/null'
_LOGS = (
    ("16 KiB, each key 10 times", 150, 10),
    ("16 KiB, each key 2 times", 150, 2),
    ("1 MiB, each key 10 times", 9600, 10),
)
"""What is shown, records of a batch, and how often a key comes."""


def rows(bench: Bench) -> Iterator[Row]:
    """The same log again and again, from a copy."""
    for number, (what, batch_records, times) in enumerate(_LOGS):
        records = bench.scaled(5_000_000, 1_000_000)
        spec = KeyedSpec(records=records, batch_records=batch_records, keys=records // times)
        data = build_keyed(bench, f"keyed-{number}", spec)
        yield _row(bench, f"compaction, batches of {what}", data)
        shutil.rmtree(data)


def _row(bench: Bench, what: str, data: Path) -> Row:
    copy = bench.directory / "keyed-copy"

    def clean() -> CompactionRun:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(data, copy)
        settle(bench.directory)
        return compact(copy)

    def read() -> CompactionRun:
        seconds, _ = timed_shell(_READ, next(data.glob("keyed-*")))
        return CompactionRun(seconds, seconds, size, size)

    size = sum(path.stat().st_size for path in data.glob("keyed-*/*.log"))
    ours, theirs = alternate([clean, read], bench.pairs)
    shutil.rmtree(copy)
    return hold(
        "compaction",
        what,
        at_least(700, "MB/s"),
        Samples("logfs", "MB/s", tuple(run.read_bytes / 1e6 / run.seconds for run in ours)),
        Samples("cat", "MB/s", tuple(run.read_bytes / 1e6 / run.seconds for run in theirs)),
        Samples("by CPU time", "MB/s", tuple(run.read_bytes / 1e6 / run.cpu_s for run in ours)),
    )
