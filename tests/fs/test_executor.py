"""Order and place of calls, shown by events and by the order of completion, never by timing."""

import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from logfs.fs.partitions.executor import CALM_CALLS, READ_THREADS, SLOW_S, PartitionExecutor


class Disk:
    """Calls that take as long as the test says.

    Attributes:
        seconds: The monotonic clock of the executor.
        slept_s: How much of that the calls have slept.
        log: What was called, and whether the loop was to wait for it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept_s = 0.0
        self.log: list[tuple[str, bool]] = []
        self.loop = threading.current_thread()
        self.gate = threading.Event()

    def quick(self, name: str) -> str:
        thread = threading.current_thread()
        self.log.append((name, thread is self.loop or thread.name == "disk call"))
        return name

    def slow(self, name: str) -> str:
        self.slept_s += 2 * SLOW_S
        return self.preempted(name)

    def preempted(self, name: str) -> str:
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
def executor(disk: Disk) -> PartitionExecutor:
    return executor_on(disk)


def executor_on(disk: Disk) -> PartitionExecutor:
    return PartitionExecutor(lambda: disk.seconds, lambda: disk.slept_s)


async def calm(executor: PartitionExecutor) -> None:
    """Let an executor have enough quick calls to run on the loop."""
    for _ in range(CALM_CALLS):
        await executor.change(str, "")


async def begun_and_finished(
    executor: PartitionExecutor, call: Callable[[str], str], name: str
) -> str:
    assert executor.is_free
    return await executor.finish_change(executor.begin_change(call, name))


CALLS: dict[str, Callable[..., Awaitable[object]]] = {
    "begin_change": begun_and_finished,
    "change": PartitionExecutor.change,
    "change_in_thread": PartitionExecutor.change_in_thread,
    "query": PartitionExecutor.query,
    "query_locally": PartitionExecutor.query_locally,
    "read": PartitionExecutor.read,
    "release": PartitionExecutor.release,
    "sync": PartitionExecutor.sync,
}


def test_every_call_is_asked_for_what_follows() -> None:
    takes_call = {
        name
        for name, member in vars(PartitionExecutor).items()
        if callable(member) and not name.startswith("_") and "call" in member.__annotations__
    }
    assert takes_call == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_calm", [False, True])
async def test_a_call_that_hangs_does_not_hold_the_loop(
    disk: Disk, executor: PartitionExecutor, name: str, is_calm: bool
) -> None:
    """Neither the first call of a partition nor one after many quick ones."""
    if is_calm or name == "begin_change":
        await calm(executor)
    other = executor_on(disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(CALLS[name], executor, disk.stuck, "hangs")
        await wait_all_tasks_blocked()
        nursery.start_soon(executor.change, disk.quick, "next")
        await wait_all_tasks_blocked()
        assert await other.change(disk.quick, "other") == "other"
        assert "hangs" not in disk.names()
        disk.gate.set()
    assert executor.is_free or not is_calm
    if name in {"begin_change", "change", "change_in_thread", "release"}:
        assert disk.names() == ["other", "hangs", "next"]


async def test_an_error_of_a_call_that_took_long_passes_through(
    disk: Disk, executor: PartitionExecutor
) -> None:
    def fail() -> None:
        disk.gate.wait(30)
        raise OSError(5, "broken")

    await calm(executor)
    async with trio.open_nursery() as nursery:

        async def begin() -> None:
            with pytest.raises(OSError, match="broken"):
                await executor.change(fail)

        nursery.start_soon(begin)
        await wait_all_tasks_blocked()
        disk.gate.set()
    await executor.change(disk.quick, "next")
    assert disk.log == [("next", True)]


async def test_a_change_that_is_known_to_take_long_runs_in_a_thread(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    await executor.change(disk.quick, "before")
    executor.expect_long()
    assert not executor.is_free
    await executor.change(disk.quick, "long")
    await executor.change(disk.quick, "after")
    assert disk.log == [("before", True), ("long", False), ("after", True)]


async def test_the_first_call_runs_in_a_thread_and_quick_ones_on_the_loop(
    disk: Disk, executor: PartitionExecutor
) -> None:
    assert await executor.change(disk.quick, "a") == "a"
    assert await executor.change(disk.quick, "b") == "b"
    assert disk.log == [("a", False), ("b", True)]


async def test_after_a_slow_call_a_thread_serves_until_it_is_calm(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    await executor.change(disk.slow, "slow")
    for _ in range(CALM_CALLS):
        await executor.change(disk.quick, "x")
    await executor.change(disk.quick, "calm")
    assert disk.log == [("slow", True), *[("x", False)] * CALM_CALLS, ("calm", True)]


async def test_a_slow_call_in_a_thread_keeps_the_partition_slow(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    await executor.change(disk.slow, "slow")
    for _ in range(CALM_CALLS - 1):
        await executor.change(disk.quick, "x")
    await executor.change(disk.slow, "slow again")
    await executor.change(disk.quick, "y")
    assert disk.log[-1] == ("y", False)


async def test_after_a_slow_query_calls_run_in_a_thread(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    await executor.query(disk.slow, "index")
    await executor.query(disk.quick, "next")
    assert disk.log == [("index", True), ("next", False)]


async def test_calls_stay_on_the_loop_after_one_that_lost_the_processor(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    await executor.query(disk.preempted, "index")
    await executor.change(disk.preempted, "append")
    begun = executor.begin()
    disk.preempted("read")
    executor.end(begun)
    await executor.change(disk.quick, "next")
    assert [on_loop for _, on_loop in disk.log] == [True] * 4


async def test_a_call_that_loses_the_processor_in_a_thread_is_a_quick_one(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    await executor.change(disk.slow, "slow")
    for _ in range(CALM_CALLS):
        await executor.change(disk.preempted, "x")
    await executor.change(disk.quick, "calm")
    assert disk.log[1:] == [*[("x", False)] * CALM_CALLS, ("calm", True)]


async def test_an_error_passes_through(disk: Disk, executor: PartitionExecutor) -> None:
    def fail() -> None:
        raise OSError(5, "broken")

    for _ in range(3):
        with pytest.raises(OSError, match="broken"):
            await executor.change(fail)
    await executor.change(disk.quick, "a")
    with pytest.raises(OSError, match="broken"):
        await executor.change(fail)
    await executor.change(disk.quick, "b")
    assert disk.names() == ["a", "b"]


async def test_an_fsync_runs_in_a_thread_and_appends_beside_it_too(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(executor.sync, disk.stuck, "fsync")
        await wait_all_tasks_blocked()
        await executor.change(disk.quick, "append")  # would be still here if it waited for it
        disk.gate.set()
    await executor.change(disk.quick, "later")
    assert disk.log == [("append", False), ("fsync", False), ("later", True)]


async def test_changes_run_beside_a_flush_that_takes_no_thread_of_python(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    executor.note_flush_start()
    await executor.change(disk.quick, "beside a quick one")
    assert executor.threads == 1
    executor.note_flush_end(2 * SLOW_S)
    assert executor.threads == 0
    await executor.change(disk.quick, "after a slow one")
    executor.note_flush_start()
    await executor.change(disk.quick, "beside the next one")
    assert executor.threads == 1
    executor.note_flush_end(0)
    executor.note_flush_start()
    await executor.change(disk.quick, "beside a quick one")
    executor.note_flush_end(0)
    assert executor.threads == 0
    assert [on_loop for _, on_loop in disk.log] == [True, True, False, True]


async def test_changes_that_sync_always_run_in_a_thread(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    executor.always_in_thread = True
    await executor.change(disk.quick, "a")
    assert disk.log == [("a", False)]


async def test_changes_keep_off_the_loop_while_another_thread_holds_the_lock(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    with executor.kept_off_loop():
        await executor.change(disk.quick, "a")
        await executor.query(disk.quick, "b")
    await executor.change(disk.quick, "c")
    assert disk.log == [("a", False), ("b", False), ("c", True)]


async def test_changes_run_first_come_first_served(disk: Disk, executor: PartitionExecutor) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(executor.change, disk.stuck, "0")
        await wait_all_tasks_blocked()
        for number in range(1, 20):
            nursery.start_soon(executor.change, disk.quick, str(number))
            await wait_all_tasks_blocked()
        disk.gate.set()
    assert disk.names() == [str(number) for number in range(20)]


async def test_a_change_does_not_overtake_one_whose_turn_has_just_come(
    disk: Disk, executor: PartitionExecutor
) -> None:
    async def first_and_third() -> None:
        await executor.change(disk.stuck, "1")  # the executor is calm after this
        await executor.change(disk.quick, "3")  # and the second one has not run yet

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first_and_third)
        await wait_all_tasks_blocked()
        nursery.start_soon(executor.change, disk.quick, "2")
        await wait_all_tasks_blocked()
        disk.gate.set()
    assert disk.names() == ["1", "2", "3"]


async def test_a_query_waits_for_earlier_releases(disk: Disk, executor: PartitionExecutor) -> None:
    async def look() -> None:
        if executor.releasing is not None:
            await executor.releasing.wait()
        disk.quick("look")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(executor.change, disk.stuck, "append")
        await wait_all_tasks_blocked()
        for name in ("release 1", "release 2"):
            nursery.start_soon(executor.release, disk.quick, name)
            await wait_all_tasks_blocked()
        nursery.start_soon(look)
        await wait_all_tasks_blocked()
        assert disk.names() == []
        disk.gate.set()
    assert disk.names() == ["append", "release 1", "release 2", "look"]
    assert executor.releasing is None


async def test_a_release_on_the_loop_leaves_nothing_to_wait_for(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    await executor.release(disk.quick, "release")
    assert executor.releasing is None
    assert disk.log == [("release", True)]


async def test_after_a_failed_release_the_others_continue(executor: PartitionExecutor) -> None:
    def fail() -> None:
        raise OSError(5, "broken")

    with pytest.raises(OSError, match="broken"):
        await executor.release(fail)
    assert executor.releasing is None


async def test_a_read_on_the_loop_that_was_slow_moves_to_a_thread_too(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    executor.end(executor.begin())
    await executor.change(disk.quick, "before")
    begun = executor.begin()
    disk.slow("read")
    executor.end(begun)
    assert executor.is_slow
    await executor.change(disk.quick, "after")
    assert disk.log == [("before", True), ("read", True), ("after", False)]


async def test_a_cold_read_does_not_make_an_executor_slow(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    await executor.read(disk.slow, "read")
    assert disk.log == [("read", False)]
    assert not executor.is_slow


async def test_reads_that_wait_do_not_hold_up_changes(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    async with trio.open_nursery() as nursery:
        for number in range(2 * READ_THREADS):
            nursery.start_soon(executor.read, disk.stuck, f"read {number}")
        await wait_all_tasks_blocked()
        await executor.change(disk.quick, "append")
        disk.gate.set()
    assert disk.log[0] == ("append", True)
    assert len(disk.log) == 1 + 2 * READ_THREADS


async def test_a_long_change_takes_its_turn_in_a_thread(
    disk: Disk, executor: PartitionExecutor
) -> None:
    await calm(executor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(executor.change_in_thread, disk.stuck, "reload")
        await wait_all_tasks_blocked()
        nursery.start_soon(executor.change, disk.quick, "append")
        await wait_all_tasks_blocked()
        assert disk.names() == []
        disk.gate.set()
    assert disk.log == [("reload", False), ("append", True)]


async def test_a_stuck_partition_delays_no_other(disk: Disk) -> None:
    stuck, lively = executor_on(disk), executor_on(disk)
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
