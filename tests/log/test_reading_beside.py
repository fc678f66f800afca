"""Readers beside retention, trim, roll and compaction: a read between any two disk operations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from logfs.services.compaction.rounds import clean
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from logfs.services.views.files import GrowingFile
from logfs.types import View
from tests.fakes import FakeDisk
from tests.log import foreign
from tests.log.compaction import COMPACT, dirty_range_of, tools
from tests.log.support import Bench, lines_of

pytestmark = pytest.mark.allow_log("fell behind retention")

SMALL = {"internal.segment.bytes": "400", "index.interval.bytes": "100"}
LINES = 16
CHANGING = {"pwrite", "rename", "remove", "sync", "truncate"}
READ_BYTES = 37


def line(number: int, view: View) -> bytes:
    key = b"k%d\t" % (number % 5) if view is View.TSV else b""
    return key + b"%03d " % number + b"." * (number * 7 % 41)


def number_of(text: bytes) -> int:
    return int(text.rsplit(b"\t", 1)[-1][:3])


@dataclass
class Follower:
    """One open file, read as the daemon reads it: first what is in memory, then the rest."""

    file: GrowingFile
    data: bytearray = field(default_factory=bytearray)

    def read(self, size: int = READ_BYTES) -> bool:
        """Read one piece; False at the end."""
        out = memoryview(bytearray(size))
        self.file.may_block = False
        got = self.file.read_into(out, len(self.data))
        if self.file.would_block:
            self.file.may_block = True
            got += self.file.read_into(out[got:], len(self.data) + got)
        self.data += out[:got]
        return got > 0

    def read_all(self) -> None:
        while self.read():
            pass


@dataclass
class Change:
    """Something that replaces what readers see."""

    view: View
    properties: dict[str, str]
    make: Callable[[Bench], object]


def retention(bench: Bench) -> None:
    assert apply_retention(bench.log, bench.now_ms).segments > 1


def trim_now(bench: Bench) -> None:
    assert trim(bench.log, LINES * 2 // 3, bench.now_ms, at_once=True).segments > 1


def compaction(bench: Bench) -> None:
    before = bench.log.snapshot.segments
    for _ in range(2):  # the second time small segments become one
        clean(bench.log, dirty_range_of(bench.log, 0, bench.now_ms), bench.now_ms, tools())
    assert len(bench.log.snapshot.segments) < len(before)


def roll(bench: Bench) -> None:
    bench.log.roll(bench.now_ms)
    bench.write(line(LINES, View.TEXT))


def truncation(bench: Bench) -> None:
    bench.log.truncate_to(LINES // 2, bench.now_ms)
    bench.write(line(LINES, View.TEXT))


CHANGES = {
    "retention": Change(View.TEXT, {"retention.bytes": "500", "retention.ms": "-1"}, retention),
    "retention of everything": Change(View.TEXT, {"retention.bytes": "0"}, retention),
    "trim --now": Change(View.TEXT, {}, trim_now),
    "compaction": Change(View.TSV, COMPACT, compaction),
    "roll": Change(View.TEXT, {}, roll),
    "truncation": Change(View.TEXT, {}, truncation),
}


def filled(change: Change) -> Bench:
    bench = Bench(SMALL | change.properties)
    writer = bench.writer(change.view)
    for number in range(LINES):
        writer.write(line(number, change.view) + b"\n", bench.now_ms)
    writer.close(bench.now_ms)
    bench.log.flush()
    return bench


def followers(bench: Bench, view: View) -> list[Follower]:
    """Readers that stand everywhere: at ends of segments, of records, and inside of records."""
    ends = [segment.ends[view] for segment in bench.log.snapshot.segments[:-1]]
    end = bench.log.snapshot.end.positions[view]
    places = {0, *ends, *range(11, end, 97), end}
    found = []
    for place in sorted(places):
        follower = Follower(GrowingFile(bench.log, view, 0))
        while left := max(place - len(follower.data), 0):
            assert follower.read(min(READ_BYTES, left))
        found.append(follower)
    return found


def operations(disk: FakeDisk, run: Callable[[], object]) -> int:
    """Return how many disk operations something takes."""
    begun = disk.counts.total()
    run()
    return disk.counts.total() - begun


def at_operation(disk: FakeDisk, number: int, act: Callable[[], object]) -> None:
    """Do something before the disk operation with a number, counted from now.

    An index is loaded under a lock, so then it is done before the next operation.
    """
    left = number

    def before(operation: str, name: str, _size: int) -> None:
        nonlocal left
        left -= 1
        if left < 0 and (operation in CHANGING or not name.endswith("index")):
            disk.before = None
            act()

    disk.before = before


def read_some(readers: list[Follower], odd: int) -> None:
    for place, reader in enumerate(readers):
        if (place + odd) % 2:
            reader.read()
        else:
            reader.read_all()


def check(follower: Follower, bench: Bench, view: View) -> None:
    """Every line that was read was written, each once, in order; nothing is taken for damage."""
    lines = bytes(follower.data).split(b"\n")
    assert lines.pop() == b""
    numbers = [number_of(text) for text in lines]
    assert lines == [line(number, view) for number in numbers]
    assert numbers == sorted(set(numbers))


def changed_between(name: str) -> Iterator[tuple[Change, int]]:
    change = CHANGES[name]
    bench = filled(change)
    followers(bench, change.view)
    for number in range(operations(bench.disk, partial(change.make, bench))):
        yield change, number


@pytest.mark.parametrize("name", sorted(CHANGES.keys() - {"truncation"}))
def test_reads_between_any_two_operations_of_a_change(name: str) -> None:
    """Every other reader reads one piece then, the others read to the end."""
    for change, number in changed_between(name):
        bench = filled(change)
        readers = followers(bench, change.view)
        at_operation(bench.disk, number, partial(read_some, readers, number % 2))
        change.make(bench)
        for reader in readers:
            reader.read_all()
            check(reader, bench, change.view)


def look(process: foreign.Follower, reader: Follower, bench: Bench, view: View) -> None:
    """Look and read in a process that follows, and in one that begins to follow then."""
    process.look()
    reader.read_all()
    log = foreign.Follower(bench.disk).store.partition("t", 0)
    assert log.offline is None
    newcomer = Follower(GrowingFile(log, view, 0))
    newcomer.read_all()
    check(newcomer, bench, view)
    bench.disk.now_ms = process.now_ms + 1  # the newcomer has its own clock


@pytest.mark.slow
@pytest.mark.allow_log("the one before it is used")
@pytest.mark.parametrize("name", sorted(CHANGES.keys() - {"truncation"}))
def test_another_process_follows_between_any_two_operations_of_a_change(name: str) -> None:
    for change, number in changed_between(name):
        bench = filled(change)
        process = foreign.Follower(bench.disk)
        reader = Follower(GrowingFile(process.log, change.view, 0))
        for _ in range(number % 4):
            reader.read()
        at_operation(bench.disk, number, partial(look, process, reader, bench, change.view))
        change.make(bench)
        process.settle()
        reader.read_all()
        check(reader, bench, change.view)
        assert process.log.losses == []
        assert lines_of(process.log, change.view) == lines_of(bench.log, change.view)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_any_two_operations_of_a_read(name: str) -> None:
    change = CHANGES[name]
    count = len(followers(filled(change), change.view))
    for chosen in range(count):
        bench = filled(change)
        reader = followers(bench, change.view)[chosen]
        for number in range(operations(bench.disk, reader.read_all)):
            bench = filled(change)
            reader = followers(bench, change.view)[chosen]
            at_operation(bench.disk, number, partial(change.make, bench))
            reader.read_all()
            check(reader, bench, change.view)
