"""How fast is a growing name whose log is in the page cache: by ``cat``, and in small pieces."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.data import write_lines
from benchmarks.mounts import mount_c_floor, mount_floor, mount_logfs
from benchmarks.results import Budget, Row, Samples, at_least, at_most, compare, rates
from benchmarks.runner import Bench, alternate, random_read_us, shell_run, timed_shell

_CAT = 'exec cat "$1" > /dev/null'
_AWK = """exec awk 'END { print NR }' "$1" > /dev/null"""
_SMALL = (
    ("dd bs=4k", 'exec dd if="$1" of=/dev/null bs=4k status=none'),
    ("dd bs=16k", 'exec dd if="$1" of=/dev/null bs=16k status=none'),
    ("wc -l", 'exec wc -l < "$1" > /dev/null'),
)
"""Programs that read few KiB at a time: each read is a request."""
_PAIRS = 5
_PIECE = 4096
_READS = 1000
_PAUSE_S = 0.2


def rows(bench: Bench) -> Iterator[Row]:
    """The floor serves the same bytes from memory."""
    source = bench.directory / "source"
    write_lines(source, bench.scaled(512_000_000, 128_000_000))
    data = bench.directory / "data"
    mount = mount_logfs(bench, data)
    partition = mount.point / "t" / "0"
    partition.parent.mkdir()
    timed_shell('cat "$1" >> "$2" && cmp "$1" "$2"', source, partition)
    floor = mount_floor(bench, source).point
    names = (partition, floor / "t" / "0", source)
    in_c = (partition, mount_c_floor(bench, source).point / "t" / "0", source)
    yield _measure("cat of a growing name", _CAT, in_c, at_least(0.55, "x C floor"), bench.pairs)
    yield _in_large_pieces(bench, names)
    yield from _in_small_pieces(bench, names, "a growing name")
    yield from _beside_no_native(bench, source, partition)
    mount.stop()
    mount_logfs(bench, data, "keep_awake")
    yield from _in_small_pieces(bench, names, "a growing name, -o keep_awake")


def _beside_no_native(bench: Bench, source: Path, partition: Path) -> Iterator[Row]:
    """The same log in a second mount, whose reads go through Python."""
    other = mount_logfs(bench, bench.directory / "other", "no_native").point / "t" / "0"
    other.parent.mkdir()
    timed_shell('cat "$1" >> "$2"', source, other)
    pairs = min(bench.pairs, _PAIRS)
    for program, script, view, limit in (
        ("cat", _CAT, "", 1.2),
        ("cat", _CAT, ".tsv", 1),
        ("cat", _CAT, ".jsonl", 1),
        ("wc -l", _SMALL[-1][1], ".tsv", 1),
    ):
        paths = [path.with_name(f"0{view}") for path in (partition, other)]
        size = paths[0].stat().st_size
        ours, theirs = alternate([_alone(shell_run(script, path)) for path in paths], pairs)
        yield compare(
            "cat",
            f"{program} of a growing name{view and ', ' + view}, natively",
            at_least(limit, "x no_native"),
            rates("logfs", size, ours),
            rates("no_native", size, theirs),
        )
    plain, theirs, least = alternate(
        [
            _alone(partial(random_read_us, path, _PIECE, _READS))
            for path in (partition, other, source)
        ],
        pairs,
    )
    yield compare(
        "cat",
        f"a read of {_PIECE} bytes at random, p50",
        at_most(1.1, "x no_native"),
        Samples("logfs", "us", plain),
        Samples("no_native", "us", theirs),
        Samples("plain", "us", least),
    )


def _in_large_pieces(bench: Bench, names: tuple[Path, ...]) -> Row:
    """GNU awk reads 1 MiB at a time, as the file system asks, and spends its time on the lines.

    So it is compared with itself on a plain file: requests are a small part of its time.
    """
    budget = at_least(0.5, "x plain")
    pairs = min(bench.pairs, _PAIRS)
    return _measure("awk of a growing name", _AWK, names, budget, pairs)


def _in_small_pieces(bench: Bench, names: tuple[Path, ...], what: str) -> Iterator[Row]:
    """A request through Python is what the floor is made of; what is read ahead needs none.

    What is left is to wake the reader's processor, which sleeps during each request: in a virtual
    machine that takes longer than all the rest of it, unless ``keep_awake`` is given.
    """
    for program, script in _SMALL:
        budget = at_least(3, "x floor")
        yield _measure(f"{program} of {what}", script, names, budget, min(bench.pairs, _PAIRS))


def _measure(what: str, script: str, names: tuple[Path, ...], budget: Budget, pairs: int) -> Row:
    """Return the row of a script run on a name of logfs, on the floor, and on the plain file."""
    size = names[-1].stat().st_size
    ours, theirs, ordinary = alternate([_alone(shell_run(script, name)) for name in names], pairs)
    logfs, floor, plain = (
        rates(name, size, seconds)
        for name, seconds in (
            ("logfs", ours),
            ("C floor" if budget.unit == "x C floor" else "floor", theirs),
            ("plain", ordinary),
        )
    )
    if budget.unit == "x plain":
        return compare("cat", what, budget, logfs, plain, floor)
    return compare("cat", what, budget, logfs, floor, plain)


def _alone(run: Callable[[], float]) -> Callable[[], float]:
    """Return a run that begins when processors may sleep again: see ``keep_awake``."""

    def alone() -> float:
        time.sleep(_PAUSE_S)
        return run()

    return alone
