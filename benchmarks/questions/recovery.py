"""How fast is a log read through: recovered after a crash, or reindexed after a clean stop."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.data import LogSpec, Opened, build_log, open_log
from benchmarks.results import Row, Samples, at_least, hold
from benchmarks.runner import Bench, alternate, settle, timed_shell

_READ = 'exec cat "$1" > /dev/null'
_BATCHES = (("16 KiB", 150), ("1 MiB", 9600))
"""Name and lines of a batch: a record takes 7 to 9 bytes beside its line."""
_INDEXES = (".index", ".timeindex", ".textindex")


def after_a_crash(bench: Bench) -> Iterator[Row]:
    """A killed process leaves one segment; the next open of the log checks each of its batches."""
    for what, lines in _BATCHES:
        data, log = _build(bench, f"crashed-{lines}", lines, is_closed=False)
        open_it = partial(open_log, data, close=False)
        yield _row(bench, "recovery", f"recovery, batches of {what}", log, open_it)


def of_indexes(bench: Bench) -> Iterator[Row]:
    """The index files of a closed log are deleted; the next open rebuilds them."""
    for what, lines in _BATCHES:
        data, log = _build(bench, f"closed-{lines}", lines, is_closed=True)
        open_it = partial(_open_without_indexes, data, log)
        yield _row(bench, "rebuild", f"index rebuild, batches of {what}", log, open_it)


def _open_without_indexes(data: Path, log: Path) -> Opened:
    for suffix in _INDEXES:
        log.with_suffix(suffix).unlink()
    opened = open_log(data, close=True)
    if not all(log.with_suffix(suffix).exists() for suffix in _INDEXES):
        raise RuntimeError(f"{log}: its indexes have not been recreated")
    return opened


def _build(bench: Bench, name: str, lines: int, *, is_closed: bool) -> tuple[Path, Path]:
    batches = bench.scaled(10_000_000, 2_000_000) // lines
    spec = LogSpec(batch_lines=lines, segment_batches=batches, is_closed=is_closed)
    data = build_log(bench, name, spec)
    settle(bench.directory)
    return data, data / f"{spec.topic}-0" / f"{0:020}.log"


def _row(bench: Bench, question: str, what: str, log: Path, open_it: Callable[[], Opened]) -> Row:
    size_gb = log.stat().st_size / 1e9

    def read() -> Opened:
        seconds, _ = timed_shell(_READ, log)
        return Opened(seconds, seconds)

    ours, theirs = alternate([open_it, read], bench.pairs)
    return hold(
        question,
        what,
        at_least(2, "GB/s"),
        Samples("logfs", "GB/s", tuple(size_gb / run.seconds for run in ours)),
        Samples("cat", "GB/s", tuple(size_gb / run.seconds for run in theirs)),
        Samples("by CPU time", "GB/s", tuple(size_gb / run.cpu_s for run in ours)),
    )
