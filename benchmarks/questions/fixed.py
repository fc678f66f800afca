"""How fast is a fixed name when it is read again, or a sealed file; does the daemon notice."""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.counting import read_counts
from benchmarks.data import write_lines
from benchmarks.mounts import mount_counted, mount_logfs
from benchmarks.results import Row, Samples, at_least, at_most, compare, hold, rates
from benchmarks.runner import Bench, alternate, shell_run, timed_shell

_CAT = 'exec cat "$1" > /dev/null'
_COUNT_LINES = "import sys; print(sum(1 for line in open(sys.argv[1], 'rb')))"
_COMMANDS = (
    ("wc -l", 'exec wc -l < "$1"'),
    ("awk", """exec awk '{ n += length($0) } END { print n }' "$1" """),
    ("Python lines", f'exec "{sys.executable}" -S -c "{_COUNT_LINES}" "$1"'),
)
_SEGMENT_TEXT = Path(".segments", "t-0", f"{0:020}.txt")
_SEALED = Path(".segments", "t-0", f"{0:020}.log")
_NAMES = (
    ("@earliest..latest", Path("t", "0@earliest..latest")),
    ("a segment's .txt", _SEGMENT_TEXT),
)


def rows(bench: Bench) -> Iterator[Row]:
    """Requests are counted in their own mount; see ``counting``.

    The kernel caches names whose bytes no file has in single pages (FUSE has no larger folios as
    of Linux 6.18; ext4 has them of 2 MiB). How fast those are read again is decided when they are
    filled: 8 to 14 GB/s if pages that follow each other do so in memory, too, 5 to 7 GB/s if not,
    which a handler that does nothing but return bytes shows as well. That depends on what memory
    is free, so these rows differ between runs on one machine; a block size of 64 KiB to 1 MiB
    makes no difference.
    """
    source = bench.directory / "source"
    size = write_lines(source, bench.scaled(256_000_000, 64_000_000))
    data = bench.directory / "data"
    mount = mount_logfs(bench, data, f"log.segment.bytes={size * 3 // 4}")
    (mount.point / "t").mkdir()
    timed_shell('cat "$1" >> "$2"', source, mount.point / "t" / "0")
    for what, name in _NAMES:
        plain = bench.directory / name.name
        timed_shell('cat "$1" > "$2"', mount.point / name, plain)
        yield _row(bench, f"cat of {what}", _CAT, mount.point / name, plain, 0.5)
    what, name = _NAMES[0]
    timed_shell('cmp "$1" "$2"', source, mount.point / name)
    for command, script in _COMMANDS:
        yield _row(bench, f"{command} of {what}", script, mount.point / name, source, 0.7)
    on_disk = data / "t-0" / _SEALED.name
    yield _row(bench, "cat of a sealed .log", _CAT, mount.point / _SEALED, on_disk, 0.8)
    mount.stop()
    yield from _requests(bench, data)


def _row(bench: Bench, what: str, script: str, name: Path, plain: Path, limit: float) -> Row:
    size = plain.stat().st_size
    (_, first), (_, second) = (timed_shell(script, path) for path in (name, plain))
    if first != second:
        raise RuntimeError(f"{script} says {first} of {name}, {second} of {plain}")
    ours, theirs = alternate([shell_run(script, path) for path in (name, plain)], bench.pairs)
    budget = at_least(limit, "x plain")
    return compare("fixed", what, budget, rates("logfs", size, ours), rates("plain", size, theirs))


def _requests(bench: Bench, data: Path) -> Iterator[Row]:
    counts = bench.directory / "counts"
    point = mount_counted(bench, data, counts).point
    before = read_counts(counts)
    timed_shell(_CAT, point / _SEALED)
    found = read_counts(counts)["read"] - before["read"]
    yield hold(
        "fixed",
        "requests of the first cat, a sealed .log",
        at_most(0, "READs"),
        Samples("logfs", "READs", (found,)),
    )
    for what, name in _NAMES:
        rounds = []
        for _ in range(2):
            before = read_counts(counts)
            timed_shell(_CAT, point / name)
            after = read_counts(counts)
            rounds.append({kind: after[kind] - before[kind] for kind in after})
        for kind, unit, limit in (("read", "READs", 0), ("getattr", "GETATTRs", 2)):
            first, again = (Samples("logfs", unit, (found[kind],)) for found in rounds)
            yield hold(
                "fixed",
                f"requests of cat again, {what}",
                at_most(limit, unit),
                again,
                Samples("first cat", unit, first.values),
            )
