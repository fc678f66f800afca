"""Order and place of calls, shown by events and by the order of completion, never by timing."""

import threading
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from logfs.fs.lanes import CALM_CALLS, READ_THREADS, SLOW_S, Lane


class Disk:
    """Calls that take as long as the test says.

    Attributes:
        seconds: The monotonic clock of the lane.
        log: What was called, and whether on the loop.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.log: list[tuple[str, bool]] = []
        self.loop = threading.current_thread()
        self.gate = threading.Event()

    def quick(self, name: str) -> str:
        self.log.append((name, threading.current_thread() is self.loop))
        return name

    def slow(self, name: str) -> str:
        self.seconds += 2 * SLOW_S
        return self.quick(name)

    def stuck(self, name: str) -> str:
        assert threading.current_thread() is not self.loop
        assert self.gate.wait(30)
        return self.quick(name)

    def names(self) -> list[str]:
        return [name for name, _ in self.log]


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.gate.set()


@pytest.fixture
def lane(disk: Disk) -> Lane:
    return Lane(lambda: disk.seconds)


async def calm(lane: Lane) -> None:
    """Let a lane have enough quick calls to run on the loop."""
    for _ in range(CALM_CALLS):
        await lane.change(str, "")


async def test_a_change_that_is_known_to_take_long_runs_in_a_thread(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    await lane.change(disk.quick, "before")
    lane.expect_long()
    assert not lane.is_free
    await lane.change(disk.quick, "long")
    await lane.change(disk.quick, "after")
    assert disk.log == [("before", True), ("long", False), ("after", True)]


async def test_the_first_call_runs_in_a_thread_and_quick_ones_on_the_loop(
    disk: Disk, lane: Lane
) -> None:
    assert await lane.change(disk.quick, "a") == "a"
    assert await lane.change(disk.quick, "b") == "b"
    assert disk.log == [("a", False), ("b", True)]


async def test_after_a_slow_call_a_thread_serves_until_it_is_calm(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    await lane.change(disk.slow, "slow")
    for _ in range(CALM_CALLS):
        await lane.change(disk.quick, "x")
    await lane.change(disk.quick, "calm")
    assert disk.log == [("slow", True), *[("x", False)] * CALM_CALLS, ("calm", True)]


async def test_a_slow_call_in_a_thread_counts_as_well(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    await lane.change(disk.slow, "slow")
    for _ in range(CALM_CALLS - 1):
        await lane.change(disk.quick, "x")
    await lane.change(disk.slow, "slow again")
    await lane.change(disk.quick, "y")
    assert disk.log[-1] == ("y", False)


async def test_a_look_that_was_slow_moves_to_a_thread_too(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    await lane.look(disk.slow, "index")
    await lane.look(disk.quick, "next")
    assert disk.log == [("index", True), ("next", False)]


async def test_an_error_passes_through(disk: Disk, lane: Lane) -> None:
    def fail() -> None:
        raise OSError(5, "broken")

    for _ in range(3):
        with pytest.raises(OSError, match="broken"):
            await lane.change(fail)
    await lane.change(disk.quick, "a")
    with pytest.raises(OSError, match="broken"):
        await lane.change(fail)
    await lane.change(disk.quick, "b")
    assert disk.names() == ["a", "b"]


async def test_an_fsync_runs_in_a_thread_and_appends_beside_it_too(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.sync, disk.stuck, "fsync")
        await wait_all_tasks_blocked()
        await lane.change(disk.quick, "append")  # would stand still here if it waited for it
        disk.gate.set()
    await lane.change(disk.quick, "later")
    assert disk.log == [("append", False), ("fsync", False), ("later", True)]


async def test_changes_run_beside_a_flush_that_takes_no_thread_of_python(
    disk: Disk, lane: Lane
) -> None:
    await calm(lane)
    lane.flush_begins()
    await lane.change(disk.quick, "beside a quick one")
    assert lane.threads == 1
    lane.flush_ends(2 * SLOW_S)
    assert lane.threads == 0
    await lane.change(disk.quick, "behind a slow one")
    lane.flush_begins()
    await lane.change(disk.quick, "beside the next one")
    assert lane.threads == 1
    lane.flush_ends(0)
    lane.flush_begins()
    await lane.change(disk.quick, "beside a quick one")
    lane.flush_ends(0)
    assert lane.threads == 0
    assert [on_loop for _, on_loop in disk.log] == [True, True, False, True]


async def test_changes_that_sync_always_run_in_a_thread(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    lane.always_in_thread = True
    await lane.change(disk.quick, "a")
    assert disk.log == [("a", False)]


async def test_while_somebody_else_holds_the_lock_changes_keep_off_the_loop(
    disk: Disk, lane: Lane
) -> None:
    await calm(lane)
    with lane.kept_off_loop():
        await lane.change(disk.quick, "a")
        await lane.look(disk.quick, "b")
    await lane.change(disk.quick, "c")
    assert disk.log == [("a", False), ("b", False), ("c", True)]


async def test_changes_run_first_come_first_served(disk: Disk, lane: Lane) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.change, disk.stuck, "0")
        await wait_all_tasks_blocked()
        for number in range(1, 20):
            nursery.start_soon(lane.change, disk.quick, str(number))
            await wait_all_tasks_blocked()
        disk.gate.set()
    assert disk.names() == [str(number) for number in range(20)]


async def test_nobody_overtakes_whoever_has_just_been_called(disk: Disk, lane: Lane) -> None:
    async def first_and_third() -> None:
        await lane.change(disk.stuck, "1")  # the lane is calm after this
        await lane.change(disk.quick, "3")  # and the second one has not run yet

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first_and_third)
        await wait_all_tasks_blocked()
        nursery.start_soon(lane.change, disk.quick, "2")
        await wait_all_tasks_blocked()
        disk.gate.set()
    assert disk.names() == ["1", "2", "3"]


async def test_whoever_looks_waits_for_the_releases_before_him(disk: Disk, lane: Lane) -> None:
    async def look() -> None:
        if lane.releasing is not None:
            await lane.releasing.wait()
        disk.quick("look")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.change, disk.stuck, "append")
        await wait_all_tasks_blocked()
        for name in ("release 1", "release 2"):
            nursery.start_soon(lane.release, disk.quick, name)
            await wait_all_tasks_blocked()
        nursery.start_soon(look)
        await wait_all_tasks_blocked()
        assert disk.names() == []
        disk.gate.set()
    assert disk.names() == ["append", "release 1", "release 2", "look"]
    assert lane.releasing is None


async def test_a_release_on_the_loop_leaves_nothing_to_wait_for(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    await lane.release(disk.quick, "release")
    assert lane.releasing is None
    assert disk.log == [("release", True)]


async def test_a_failed_release_lets_the_others_go_on(lane: Lane) -> None:
    def fail() -> None:
        raise OSError(5, "broken")

    with pytest.raises(OSError, match="broken"):
        await lane.release(fail)
    assert lane.releasing is None


async def test_a_read_on_the_loop_that_was_slow_moves_to_a_thread_too(
    disk: Disk, lane: Lane
) -> None:
    await calm(lane)
    lane.note(SLOW_S)
    await lane.change(disk.quick, "before")
    lane.note(2 * SLOW_S)
    assert lane.is_slow
    await lane.change(disk.quick, "after")
    assert disk.log == [("before", True), ("after", False)]


async def test_a_cold_read_does_not_make_a_lane_slow(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    await lane.read(disk.slow, "read")
    assert disk.log == [("read", False)]
    assert not lane.is_slow


async def test_reads_that_wait_do_not_hold_up_changes(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    async with trio.open_nursery() as nursery:
        for number in range(2 * READ_THREADS):
            nursery.start_soon(lane.read, disk.stuck, f"read {number}")
        await wait_all_tasks_blocked()
        await lane.change(disk.quick, "append")
        disk.gate.set()
    assert disk.log[0] == ("append", True)
    assert len(disk.log) == 1 + 2 * READ_THREADS


async def test_what_runs_alone_takes_its_turn_in_a_thread(disk: Disk, lane: Lane) -> None:
    await calm(lane)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.alone, disk.stuck, "reload")
        await wait_all_tasks_blocked()
        nursery.start_soon(lane.change, disk.quick, "append")
        await wait_all_tasks_blocked()
        assert disk.names() == []
        disk.gate.set()
    assert disk.log == [("reload", False), ("append", True)]


async def test_a_stuck_lane_holds_up_no_other(disk: Disk) -> None:
    stuck, lively = Lane(lambda: disk.seconds), Lane(lambda: disk.seconds)
    stuck.always_in_thread = True
    async with trio.open_nursery() as nursery:
        for number in range(50):  # more than trio's own limit of threads
            nursery.start_soon(stuck.change, disk.stuck, f"stuck {number}")
            nursery.start_soon(stuck.sync, disk.stuck, f"fsync {number}")
            nursery.start_soon(stuck.read, disk.stuck, f"read {number}")
        await wait_all_tasks_blocked()
        await lively.change(disk.quick, "append")
        await lively.sync(disk.quick, "fsync")
        await lively.read(disk.quick, "read")
        assert disk.names() == ["append", "fsync", "read"]
        disk.gate.set()
    assert len(disk.log) == 3 + 150
