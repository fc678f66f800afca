"""A process that adds up the lengths of lines, from a log and from a text file, in turn.

    python -m benchmarks.arrowscan LOG TEXT ROUNDS

LOG is a data directory, read with ``logfs.scan``; TEXT is a plain file with the same lines, read
with ``pyarrow.csv``, a block at a time like the log. Prints the seconds of every run as JSON, by
what was read: ``csv``, ``all`` (all columns), ``value`` (the value alone), ``text`` (checked to be
UTF-8).
"""

import json
import sys
import time
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import logfs
from benchmarks.runner import alternate

_BLOCK_BYTES = 4 << 20


def main(log: str, text: str, rounds: int) -> None:
    """Run the sums in turn and print how long each took."""
    sums: dict[str, Callable[[], int]] = {
        "csv": lambda: total(lines_of(text)),
        "all": lambda: total(logfs.scan(log).read_arrow()),
        "value": lambda: total(logfs.scan(log, columns=["value"]).read_arrow()),
        "text": lambda: total(logfs.scan(log, columns=["value"], text=True).read_arrow()),
    }
    found = alternate([timed(one) for one in sums.values()], rounds)
    totals = {length for runs in found for _, length in runs}
    if len(totals) != 1:
        raise RuntimeError(f"the lengths add up to {sorted(totals)}")
    times = zip(sums, ([seconds for seconds, _ in runs] for runs in found), strict=True)
    print(json.dumps(dict(times)), flush=True)


def total(batches: Iterable[pa.RecordBatch]) -> int:
    """Add up the lengths of the values of record batches."""
    return sum(pc.sum(pc.binary_length(batch.column("value"))).as_py() for batch in batches)


def lines_of(path: str) -> pa.csv.CSVStreamingReader:
    """Return the lines of a file as one column of bytes, read with one thread."""
    return pa.csv.open_csv(
        path,
        pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=["value"]),
        pa.csv.ParseOptions(delimiter="\x01", quote_char=False),
        pa.csv.ConvertOptions(column_types={"value": pa.binary()}),
    )


def timed(one: Callable[[], int]) -> Callable[[], tuple[float, int]]:
    """Return a run that tells its seconds and the sum."""

    def run() -> tuple[float, int]:
        started_s = time.perf_counter()
        length = one()
        return time.perf_counter() - started_s, length

    return run


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
