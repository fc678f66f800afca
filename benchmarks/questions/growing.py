"""How fast is a growing name whose log is in the page cache: by ``cat``, and in small pieces."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.data import write_lines
from benchmarks.mounts import mount_floor, mount_logfs
from benchmarks.results import Row, at_least, compare, rates
from benchmarks.runner import Bench, alternate, shell_run, timed_shell

_CAT = 'exec cat "$1" > /dev/null'
_SMALL = (
    ("dd bs=4k", 'exec dd if="$1" of=/dev/null bs=4k status=none'),
    ("dd bs=16k", 'exec dd if="$1" of=/dev/null bs=16k status=none'),
    ("wc -l", 'exec wc -l < "$1" > /dev/null'),
    ("awk", """exec awk 'END { print NR }' "$1" > /dev/null"""),
)
"""Programs that read few KiB at a time: each read is a request."""
_PAIRS = 5


def rows(bench: Bench) -> Iterator[Row]:
    """The floor serves the same bytes from memory."""
    source = bench.directory / "source"
    size = write_lines(source, bench.scaled(512_000_000, 128_000_000))
    point = mount_logfs(bench, bench.directory / "data").point
    (point / "t").mkdir()
    timed_shell('cat "$1" >> "$2" && cmp "$1" "$2"', source, point / "t" / "0")
    floor = mount_floor(bench, source).point
    names = (point / "t" / "0", floor / "t" / "0", source)
    ours, theirs, ordinary = alternate([shell_run(_CAT, name) for name in names], bench.pairs)
    yield compare(
        "cat",
        "cat of a growing name",
        at_least(0.5, "x floor"),
        rates("logfs", size, ours),
        rates("floor", size, theirs),
        rates("plain", size, ordinary),
    )
    yield from _in_small_pieces(bench, names)


def _in_small_pieces(bench: Bench, names: tuple[Path, ...]) -> Iterator[Row]:
    """A request through Python is what the floor is made of; what is read ahead needs none."""
    size = names[-1].stat().st_size
    for what, script in _SMALL:
        ours, theirs, ordinary = alternate(
            [shell_run(script, name) for name in names], min(bench.pairs, _PAIRS)
        )
        yield compare(
            "cat",
            f"{what} of a growing name",
            at_least(4, "x floor"),
            rates("logfs", size, ours),
            rates("floor", size, theirs),
            rates("plain", size, ordinary),
        )
