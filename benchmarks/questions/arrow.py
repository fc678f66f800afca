"""How fast does a log become Arrow record batches, beside lines read by ``pyarrow.csv``."""

import json
import shutil
from collections.abc import Iterator

from benchmarks.data import LogSpec, build_log, call_with, lines_of, write_text
from benchmarks.results import Row, at_least, compare, rates
from benchmarks.runner import Bench, settle

_BATCH_LINES = 160
"""About 16 KiB, what a producer sends at a time."""


def rows(bench: Bench) -> Iterator[Row]:
    """The sum of the lengths of 100-byte lines, in one process and one thread."""
    total = bench.scaled(10_000_000, 2_000_000)
    spec = LogSpec(batch_lines=_BATCH_LINES, segment_batches=total // _BATCH_LINES // 4, segments=4)
    data, text = build_log(bench, "log", spec), bench.directory / "lines.txt"
    write_text(text, spec)
    settle(bench.directory)
    printed = call_with("benchmarks.arrowscan", data, text, str(bench.pairs))
    seconds = json.loads(printed.splitlines()[-1])
    size = spec.lines * len(next(lines_of(1)))
    csv = rates("pyarrow.csv", size, seconds["csv"])
    kinds = (("all", "all columns"), ("value", "value alone"), ("text", "value as text"))
    for name, columns in kinds:
        yield compare(
            "arrow",
            f"logfs.scan, {columns}, 100-byte lines",
            at_least(1, "x pyarrow.csv"),
            rates("logfs", size, seconds[name]),
            csv,
        )
    shutil.rmtree(data)
    text.unlink()
