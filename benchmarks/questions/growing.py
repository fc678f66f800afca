"""How fast is ``cat`` of a growing name whose log is in the page cache."""

from collections.abc import Iterator

from benchmarks.data import write_lines
from benchmarks.mounts import mount_floor, mount_logfs
from benchmarks.results import Row, at_least, compare, rates
from benchmarks.runner import Bench, alternate, shell_run, timed_shell

_CAT = 'exec cat "$1" > /dev/null'


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
