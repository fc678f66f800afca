"""The reservation of positions: durable ahead of every size shown, so that none is given twice."""

import errno
from collections.abc import Callable

import pytest

from logfs.log.names import SEGMENT_TABLE
from logfs.log.segments.table import SegmentTable
from logfs.log.writing import reservation
from logfs.types import Positions, View
from tests.fakes import FakeDisk
from tests.log.support import DIRECTORY, Bench, end_of, lines_of, text_of

TABLE = f"{DIRECTORY}/{SEGMENT_TABLE}"
SMALL = {"internal.segment.bytes": "250", "index.interval.bytes": "0"}


@pytest.fixture
def small_lease(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a reservation reach 100 bytes ahead."""
    monkeypatch.setattr(reservation, "RESERVED_BYTES", 100)
    return 100


def durable_lease(disk: FakeDisk) -> Positions:
    """What the table, as a power cut would leave it, says no shown size exceeds."""
    return SegmentTable.load(disk.after_crash(None), DIRECTORY).state.reserved


def covers(bound: Positions, ends: Positions) -> bool:
    return bound.at_least(ends) == bound


def test_the_reservation_is_durable_before_a_size_beyond_it_is_shown(small_lease: int) -> None:
    bench = Bench(SMALL)
    log, writes = bench.log, 0

    def check(operation: str, name: str, _size: int) -> None:
        nonlocal writes
        if operation == "pwrite" and name.endswith(".log"):
            writes += 1
            assert covers(durable_lease(bench.disk), log.snapshot.end.positions)

    bench.disk.before = check
    for n in range(30):
        bench.write(b"v%02d" % n)
        assert covers(durable_lease(bench.disk), log.snapshot.end.positions)
    assert writes == 30
    assert end_of(log, View.JSONL) > small_lease * 5


def test_an_append_that_the_reservation_covers_waits_for_no_fsync() -> None:
    bench = Bench()
    bench.write(b"a")
    before = bench.disk.counts["sync"]
    bench.write(*[b"v"] * 20)
    assert bench.disk.counts["sync"] == before


def test_maintain_moves_the_reservation_on_before_an_append_has_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservation, "RESERVED_BYTES", 1000)
    bench = Bench()
    due = []
    for size in (1, 600):
        bench.write(b"v" * size)
        due.append(bench.log.maintenance_due)
    assert due == [False, True]
    bench.log.maintain()
    ends = bench.log.snapshot.end.positions
    ahead = durable_lease(bench.disk).minus(ends)
    assert min(ahead) >= 500
    assert not bench.log.maintenance_due
    before = bench.disk.counts["sync"]
    bench.write(b"v")
    assert bench.disk.counts["sync"] == before


@pytest.mark.expect_log("is offline")
def test_nothing_is_shown_when_the_reservation_cannot_be_moved(small_lease: int) -> None:
    bench = Bench()
    bench.write(b"a")
    shown = bench.log.snapshot
    bench.disk.fail_next_sync(TABLE)
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.write(b"v" * small_lease)
    assert bench.log.snapshot is shown
    assert lines_of(bench.reload()) == [b"a"]


def test_a_disk_too_full_for_the_reservation_leaves_the_partition_online(small_lease: int) -> None:
    bench = Bench()
    bench.write(b"a")
    bench.disk.fail_next_write(TABLE, errno.ENOSPC, after_bytes=17)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.write(b"v" * small_lease)
    bench.write(b"w" * small_lease)
    assert covers(durable_lease(bench.disk), bench.log.snapshot.end.positions)
    assert lines_of(bench.kill()) == [b"a", b"w" * small_lease]


def a_failed_put(table: SegmentTable, disk: FakeDisk) -> None:
    disk.fail_next_write(TABLE, errno.ENOSPC)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        table.put(table.entries[0])


@pytest.mark.parametrize("between", [a_failed_put, lambda table, _: table.close()])
def test_a_noted_reservation_is_durable_after_sync_with_calls_between(
    between: Callable[[SegmentTable, FakeDisk], None],
) -> None:
    bench = Bench()
    table = SegmentTable.load(bench.disk, DIRECTORY)
    bound = Positions(7000, 7000, 7000)
    table.put(table.entries[0]._replace(ends=bound))
    between(table, bench.disk)
    table.sync()
    assert covers(durable_lease(bench.disk), bound)


def test_a_sync_costs_an_fsync_only_if_something_was_put() -> None:
    bench = Bench()
    table = SegmentTable.load(bench.disk, DIRECTORY)
    table.put(table.entries[0])
    table.sync()
    before = bench.disk.counts["sync"]
    table.sync()
    assert bench.disk.counts["sync"] == before


@pytest.mark.allow_log("[loss: cut,", "are no whole batch", "the log was cut before it")
@pytest.mark.parametrize("seed", [None, *range(20)])
def test_after_a_power_cut_no_position_is_given_twice(seed: int | None, small_lease: int) -> None:
    bench = Bench(SMALL)
    shown = Positions()
    for _ in range(3):
        bench.write(*[b"some words"] * 7)
        shown = shown.at_least(bench.log.snapshot.end.positions)
        bench.crash(seed)
        before = bench.log.snapshot.end.positions
        assert covers(before, shown)
        bench.write(b"new")
        assert text_of(bench.log).endswith(b"new\n")
        assert bench.log.snapshot.end.positions.text == before.text + 4
    assert small_lease


@pytest.mark.allow_log("[loss: cut,", "are no whole batch", "the log was cut before it")
@pytest.mark.parametrize("seed", [None, *range(20)])
def test_when_the_file_system_went_away_and_returned_no_position_is_given_twice(
    seed: int | None, small_lease: int
) -> None:
    bench = Bench(SMALL)
    for _ in range(3):
        bench.write(*[b"some words"] * 7)
        shown = bench.log.snapshot.end.positions
        bench.disk.lose_cache(seed)
        bench.store = bench.open()
        assert covers(bench.log.snapshot.end.positions, shown)
        bench.write(b"new")
    assert small_lease


def test_after_a_kill_on_a_mount_that_is_not_known_no_position_is_given_twice() -> None:
    class Unknown(FakeDisk):
        def mount_id(self) -> str | None:
            return None

    bench = Bench(disk=Unknown())
    bench.write(b"a", b"b")
    shown = bench.log.snapshot.end.positions
    assert lines_of(bench.kill()) == [b"a", b"b"]
    assert end_of(bench.log, View.TEXT) > shown.text, "it may have been lost"


@pytest.mark.parametrize("stop", ["kill", "restart"])
def test_after_a_kill_or_a_clean_stop_there_is_no_hole(stop: str) -> None:
    bench = Bench(SMALL)
    for n in range(5):
        bench.write(*[b"v%02d" % n] * 2)
        getattr(bench, stop)()
    assert bench.log.snapshot.holes == ()
    assert end_of(bench.log, View.TEXT) == len(text_of(bench.log)) == 5 * 2 * 4


def test_a_kill_before_a_power_cut_is_no_excuse() -> None:
    bench = Bench()
    bench.write(b"a", b"b")
    bench.kill()
    shown = end_of(bench.log, View.TEXT)
    bench.crash(None)
    assert end_of(bench.log, View.TEXT) >= shown
