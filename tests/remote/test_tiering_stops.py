"""Tiered storage, stopped at any moment: nothing that was written is lost, nothing is named that
is not there.

One schedule copies, drops and removes. The process dies before, or after, each change of the store;
or before each operation of the disk that may change something. Then the machine continues, or loses
its power. The next process finishes the schedule.
"""

from collections.abc import Callable
from functools import partial

import pytest

from logfs.errors import DivergedError
from logfs.log.remote.reading import read_entries
from logfs.records.checksum import crc32c
from logfs.services.retention.logs import apply_retention
from logfs.services.tiering.removing import SHORTEST_DELAY_MS
from tests.fakestate import Stopped
from tests.log.support import text_of
from tests.remote.tiering import TIERED, TieredBench, no_throttle

SETTINGS = {**TIERED, "internal.segment.bytes": "260"}
LINES = 12


def run_schedule(bench: TieredBench, acknowledged: list[bytes]) -> None:
    """Write, copy, drop, write, copy, delete and remove."""
    for _ in range(2):
        while len(acknowledged) % LINES or not acknowledged:
            add_line(bench, acknowledged)
        bench.log.maintain()
        bench.tiering.run_once(no_throttle, bench.now_ms)
        bench.log.remove_due_files(bench.now_ms)
        add_line(bench, acknowledged)
    bench.store.alter_topic("t", {"retention.bytes": "700"})
    apply_retention(bench.log, bench.now_ms)
    bench.store.checkpoint()
    for _ in range(2):
        bench.tiering.run_once(no_throttle, bench.now_ms)
        bench.log.remove_due_files(bench.now_ms)
        bench.now_ms += SHORTEST_DELAY_MS + 1


def add_line(bench: TieredBench, acknowledged: list[bytes]) -> None:
    """Append a line, durably."""
    line = b"line %03d " % len(acknowledged) + b"x" * 40
    bench.write(line)
    bench.log.flush()
    acknowledged.append(line + b"\n")


def check(bench: TieredBench, acknowledged: list[bytes]) -> None:
    """See that the log has every acknowledged line, and the store what the head names."""
    log = bench.log
    assert log.offline is None
    lines = text_of(log).splitlines(keepends=True)
    start, end = log.log_start_offset, log.log_end_offset
    assert end >= len(acknowledged)  # a line that was written, and not acknowledged, may be there
    assert lines[: len(acknowledged) - start] == acknowledged[start:]
    if bench.place.head not in bench.objects.objects:
        return
    head, place = bench.head, bench.place
    for entry in read_entries(bench.objects, head):
        data = bench.objects.objects[place.log(entry.base_offset, entry.segment_id)]
        assert (len(data), crc32c(data)) == (entry.size_bytes, entry.log_crc)
        indexes = bench.objects.objects[place.indexes(entry.base_offset, entry.segment_id)]
        assert (len(indexes), crc32c(indexes)) == (sum(entry.lengths), entry.indexes_crc)


def run_stopped(
    stop: Callable[[TieredBench], object], restart: Callable[[TieredBench], object]
) -> bool:
    """Run the schedule with a stop in it; returns whether the process died."""
    bench, acknowledged = TieredBench(SETTINGS), list[bytes]()
    stop(bench)
    died = False
    try:
        run_schedule(bench, acknowledged)
    except Stopped:
        died = True
    bench.objects.heal()
    bench.disk.live_on()
    restart(bench)
    check(bench, acknowledged)
    del acknowledged[bench.log.log_end_offset :]
    known = text_of(bench.log).splitlines(keepends=True)
    acknowledged[bench.log.log_start_offset :] = known
    try:
        run_schedule(bench, acknowledged)
    except DivergedError as error:
        raise AssertionError from error
    check(bench, acknowledged)
    restart(bench)
    check(bench, acknowledged)
    assert not bench.head.doomed
    assert {e.base_offset for e in bench.head.entries} == set(bench.tier.entries)
    return died


def count_changes() -> tuple[int, int]:
    """Return how many changes the schedule makes: of the store, and of the disk."""
    bench = TieredBench(SETTINGS)
    disk = sum(bench.disk.counts.values())
    run_schedule(bench, [])
    store = sum(bench.objects.counts[name] for name in ("put", "create", "swap", "delete"))
    return store, sum(bench.disk.counts.values()) - disk


RESTARTS: dict[str, Callable[[TieredBench], object]] = {
    "kill": TieredBench.kill,
    "power-cut": TieredBench.crash,
    "torn": lambda bench: bench.crash(7),
}


def stop_in_store(restart: str, moment: str, step: int) -> None:
    """Stop at changes of the store, each of them or some."""
    changes, _ = count_changes()
    for number in range(0, changes, step):

        def stop(bench: TieredBench, number: int = number) -> None:
            objects = bench.objects
            (objects.stop_before if moment == "before" else objects.stop_after)(number)

        assert run_stopped(stop, RESTARTS[restart]), number


def _stop_disk(number: int, bench: TieredBench) -> None:
    bench.disk.stop_before(number)


def stop_in_disk(restart: str, first: int, step: int) -> int:
    """Stop before changes of the disk, each of them or some; returns how often."""
    number = first
    while run_stopped(partial(_stop_disk, number), RESTARTS[restart]):
        number += step
    return (number - first) // step


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_stop_at_a_change_of_the_store(restart: str, moment: str) -> None:
    stop_in_store(restart, moment, 2 if restart == "kill" else 5)


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.allow_log("[loss: cut,", "the one before it is used")
def test_a_stop_before_a_change_of_the_disk(restart: str) -> None:
    assert stop_in_disk(restart, len(restart), 37) > 5


@pytest.mark.long
@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.allow_log("[loss: cut,", "the one before it is used")
def test_a_stop_at_every_change(restart: str) -> None:
    stop_in_store(restart, "before", 1)
    stop_in_store(restart, "after", 1)
    assert stop_in_disk(restart, 0, 1) > 100
