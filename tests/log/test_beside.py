"""A second writer, a reader and a follower beside everything that changes a partition.

They run between any two disk operations of retention, trim, compaction, packing, roll, flush, the
move of the reservation, and a close without a flush. Every line they write is kept, once and in
order; every line they read was written; nothing is taken for damage.
"""

import errno
from collections.abc import Callable
from functools import partial

import pytest

from logfs.services.compaction.manual import compact_now
from logfs.services.packing.packer import pack_now
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from logfs.services.views.files import GrowingFile
from logfs.types import View
from tests.log.beside import Beside
from tests.log.compaction import COMPACT, tools
from tests.log.support import Bench, end_of, kept_runs_of
from tests.model.machine import short_leases

pytestmark = [pytest.mark.slow, pytest.mark.allow_log("fell behind retention", "go without a note")]

SMALL = {"internal.segment.bytes": "400", "index.interval.bytes": "100"}
KEPT = {"retention.bytes": "-1", "retention.ms": "-1"}
LINES = 24
PADDING = b"." * 60


class Others:
    """What runs beside the test: programs with files of the partition open."""

    def __init__(self, bench: Bench, view: View) -> None:
        self._bench = bench
        self._view = view
        self._writer = bench.writer(view)
        self._old, self._new = (GrowingFile(bench.log, view, 0) for _ in range(2))
        self._turns = 0
        self.written: list[bytes] = []
        self.read = bytearray()
        self.followed = bytearray()

    def turn(self) -> None:
        """Write a part of a line and the rest, look from the start on, read on."""
        self._turns += 1
        line = self.line(self._turns)
        cut = 5 + self._turns % 7
        self.put(line[:cut])
        self.put(line[cut:] + b"\n")
        self.written.append(line)
        self.read_on(self._old, self.read, 41)
        self.read_on(self._new, self.followed, 4096)
        for _, data in kept_runs_of(self._bench.log, self._view):
            check_lines(data)

    def line(self, number: int) -> bytes:
        key = b"k%d\t" % (number % 5) if self._view is View.TSV else b""
        return b"%sother %04d %s" % (key, number, PADDING[: number * 7 % 61])

    def read_on(self, file: GrowingFile, data: bytearray, size: int) -> int:
        out = memoryview(bytearray(size))
        got = file.read_into(out, len(data))
        data += out[:got]
        return got

    def read_all(self) -> None:
        for file, data in ((self._old, self.read), (self._new, self.followed)):
            while self.read_on(file, data, 4096):
                pass

    def put(self, data: bytes) -> None:
        """Write, and write again what there was no room for once there is room."""
        while data:
            try:
                data = data[self._writer.write(data, self._bench.now_ms) :]
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._bench.disk.heal()

    def close(self) -> None:
        self._writer.close(self._bench.now_ms)


def check_lines(data: bytes) -> list[bytes]:
    """Every line is one that was written."""
    assert data == b"" or data.endswith(b"\n")
    lines = data.split(b"\n")[:-1]
    for line in lines:
        name, number, padding = line.rpartition(b"\t")[2].split(b" ")
        assert name in (b"own", b"other"), line
        assert padding == PADDING[: int(number) * 7 % 61], line
    return lines


def retention(bench: Bench) -> None:
    bench.store.alter_topic("t", {"retention.bytes": "500"})
    assert apply_retention(bench.log, bench.now_ms).segments > 1


def trim_now(bench: Bench) -> None:
    trim(bench.log, LINES // 2, bench.now_ms, at_once=True)


def compaction(bench: Bench) -> None:
    compact_now(bench.log, bench.now_ms, tools(), roll=True)


def packing(bench: Bench) -> None:
    bench.store.alter_topic("t", {"logfs.sealed.compression.type": "zstd"})
    assert pack_now(bench.log, bench.now_ms, tools(), roll=True).packed > 1


def roll(bench: Bench) -> None:
    bench.log.roll(bench.now_ms)


def flush(bench: Bench) -> None:
    bench.log.flush()


def maintain(bench: Bench) -> None:
    assert bench.log.maintenance_due
    bench.log.maintain()


def extend_reservation(bench: Bench) -> None:
    for _ in range(20):
        bench.log.extend_reservation()
        bench.write(b"own 0001 " + PADDING[:7])


CHANGES: dict[str, Callable[[Bench], None]] = {
    f.__name__: f
    for f in (
        *(retention, trim_now, compaction, packing, roll, flush, maintain, extend_reservation),
    )
}
REMOVING = {"retention", "trim_now", "compaction"}


def filled(name: str) -> tuple[Bench, Others]:
    view = View.TSV if name == "compaction" else View.TEXT
    bench = Bench(SMALL | (COMPACT if name == "compaction" else KEPT))
    writer = bench.writer(view)
    for number in range(LINES):
        key = b"k%d\t" % (number % 5) if view is View.TSV else b""
        line = b"%sown %04d %s\n" % (key, number, PADDING[: number * 7 % 61])
        writer.write(line, bench.now_ms)
    writer.close(bench.now_ms)
    return bench, Others(bench, view)


def in_log(bench: Bench, view: View) -> list[bytes]:
    return [line for _, data in kept_runs_of(bench.log, view) for line in check_lines(data)]


@pytest.mark.parametrize("name", CHANGES)
def test_what_others_write_and_read_beside_a_change(name: str) -> None:
    with short_leases():
        bench, others = filled(name)
        view = View.TSV if name == "compaction" else View.TEXT
        with Beside(bench.disk, others.turn) as beside:
            CHANGES[name](bench)
        assert beside.turns
        others.read_all()
        others.close()
        check_lines(bytes(others.read))
        check_lines(bytes(others.followed))
        assert bench.log.losses == []
        assert bench.log.offline is None
        found = in_log(bench, view)
        mine = [line for line in found if b"other" in line]
        if name not in REMOVING:
            assert mine == others.written
            assert len(found) - len(mine) >= LINES
        assert mine[-1:] == others.written[-1:]
        end = end_of(bench.log, view)
        bench.log.flush()
        bench.crash(None)
        assert in_log(bench, view) == found
        assert end_of(bench.log, view) >= end


@pytest.mark.parametrize("name", CHANGES)
def test_others_beside_a_change_on_a_disk_without_room_at_times(name: str) -> None:
    """The others meet ENOSPC, and write again what was refused: it is there once."""
    bench, others = filled(name)
    view = View.TSV if name == "compaction" else View.TEXT

    def turn(patterns: list[str]) -> None:
        patterns.append(patterns.pop(0))
        bench.disk.fail_next_write(patterns[0], errno.ENOSPC, after_bytes=11)
        others.turn()
        bench.disk.heal()

    with short_leases():
        patterns = ["*.log", "*/logfs.segments", "*.unfinished", "nothing"]
        with Beside(bench.disk, partial(turn, patterns)):
            try:
                CHANGES[name](bench)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        assert bench.log.offline is None
        end = end_of(bench.log, view)
        bench.log.flush()
        bench.crash(None)
        assert end_of(bench.log, view) >= end
        assert bench.log.losses == []
        mine = [line for line in in_log(bench, view) if b"other" in line]
        assert mine == (others.written if name not in REMOVING else mine)
        assert mine[-1:] == others.written[-1:]
