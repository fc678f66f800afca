"""No partition's slow disk delays another partition: shown by the order in which calls end."""

import fnmatch
import os
import threading
from collections.abc import Awaitable, Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.fs.world import APPEND, World


class Gate:
    """Makes operations on files that match a pattern wait until the ``with`` block ends.

    Attributes:
        seen: The operations that came to it, and whether on the loop.
    """

    def __init__(self, pattern: str, *operations: str) -> None:
        self.pattern = pattern
        self.operations = operations
        self.seen: list[str] = []
        self.came = threading.Event()
        self.opened = threading.Event()
        self.loop = threading.current_thread()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.opened.set()

    async def reached(self) -> None:
        """Wait until an operation waits at the gate, and no other task can continue."""
        assert await trio.to_thread.run_sync(self.came.wait, 30)
        await wait_all_tasks_blocked()

    def __call__(self, operation: str, name: str, size: int) -> None:
        if operation in self.operations and fnmatch.fnmatchcase(name, self.pattern):
            assert threading.current_thread() is not self.loop, f"{operation} of {name} on the loop"
            self.seen.append(operation)
            self.came.set()
            assert self.opened.wait(30)


@pytest.fixture
async def two(world: World) -> World:
    """Two topics, both calm."""
    for topic in ("slow", "quick"):
        await world.mkdir(topic)
        for _ in range(3):
            await world.append(f"{topic}/0", b"one\n")
        await world.cat(f"{topic}/0")
    return world


@pytest.fixture
def gate(two: World) -> Iterator[Gate]:
    """A disk that does not answer for the topic ``slow``."""
    gate = Gate("slow-0/*", "pwrite", "pread", "sync", "stat")
    yield gate
    gate.opened.set()
    two.disk.before = None


def make_slow(world: World) -> None:
    """Let the next append to ``slow/0`` take long, by the clock."""

    def before(operation: str, name: str, size: int) -> None:
        if operation == "pwrite" and name.startswith("slow-0/"):
            world.clock.seconds += 0.01

    world.disk.before = before


async def note(log: list[str], name: str, call: Awaitable[object]) -> None:
    await call
    log.append(name)


async def everything_works(world: World, topic: str) -> None:
    """Do with a partition what can be done."""
    await world.append(f"{topic}/0", b"two\nunfinished")
    handle = await world.open(f"{topic}/0", APPEND | os.O_DSYNC)
    await world.write(handle, b"three\n")
    await world.operations.fsync(handle.number, False)
    await world.close(handle)
    await world.cat(f"{topic}/0")
    await world.cat(f"{topic}/0@-1h.jsonl")
    await world.cat(f"{topic}/0@earliest..latest")
    await world.cat(f"{topic}/0.meta")
    await world.cat(f".segments/{topic}-0/{0:020d}.log")
    await world.cat(f".segments/{topic}-0/{0:020d}.txt")


async def test_a_partition_that_was_slow_once_delays_no_other(two: World, gate: Gate) -> None:
    make_slow(two)
    await two.append("slow/0", b"two\n")
    two.disk.before = gate
    log: list[str] = []
    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(note, log, "slow", two.append("slow/0", b"three\n"))
            await gate.reached()
            assert gate.seen == ["pwrite"]
            await note(log, "quick", everything_works(two, "quick"))
    assert log == ["quick", "slow"]
    two.disk.before = None
    assert (await two.cat("slow/0")).endswith(b"two\nthree\n")


async def test_a_read_that_was_slow_on_the_loop_moves_the_partition_to_a_thread(
    two: World, gate: Gate
) -> None:
    def before(operation: str, name: str, size: int) -> None:
        if operation == "pread_nowait" and name.startswith("slow-0/"):
            two.clock.seconds += 0.01

    two.disk.before = before
    await two.cat("slow/0")
    two.disk.before = gate  # which fails an append on the loop
    gate.opened.set()
    await two.append("slow/0", b"two\n")
    assert gate.seen == ["pwrite"]


async def test_an_fsync_that_hangs_delays_no_other(two: World, gate: Gate) -> None:
    handle = await two.open("slow/0", APPEND)
    await two.write(handle, b"two\n")
    two.disk.before = gate
    log: list[str] = []
    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(note, log, "slow", two.operations.fsync(handle.number, False))
            await gate.reached()
            assert gate.seen == ["sync"]
            await note(log, "quick", everything_works(two, "quick"))
            # Its own readers continue as well: what they read is in the page cache.
            await note(log, "read", two.cat("slow/0"))
    assert log == ["quick", "read", "slow"]
    two.disk.before = None


async def test_a_cold_read_delays_no_other(two: World, gate: Gate) -> None:
    two.disk.cold = ["slow-0/*"]
    two.disk.before = gate
    handle = await two.open("slow/0")
    log: list[str] = []
    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(note, log, "slow", two.read(handle, 0))
            await gate.reached()
            assert gate.seen == ["pread"]
            await note(log, "quick", everything_works(two, "quick"))
    assert log == ["quick", "slow"]


async def test_a_cold_read_returns_the_same_bytes(two: World) -> None:
    warm = await two.cat("slow/0")
    two.disk.cold = ["slow-0/*"]
    assert await two.cat("slow/0") == warm
    assert await two.cat("slow/0", size=3) == warm
    assert await two.cat("slow/0@earliest..latest", size=3) == warm
    two.store.partition("slow", 0).roll(two.clock.now_ms)
    raw = two.disk.read(f"slow-0/{0:020d}.log")
    assert await two.cat(f".segments/slow-0/{0:020d}.log", size=7) == raw


async def test_two_reads_of_one_open_file_do_not_disturb_each_other(two: World, gate: Gate) -> None:
    two.disk.cold = ["slow-0/*"]
    two.disk.before = gate
    handle = await two.open("slow/0")
    answers: dict[int, bytes] = {}

    async def read(offset: int) -> None:
        answers[offset] = await two.read(handle, offset, 4)

    async with trio.open_nursery() as nursery:
        with gate:
            for offset in (4, 0, 8):
                nursery.start_soon(read, offset)
            await gate.reached()
            assert gate.seen == ["pread"]  # one at a time
    assert answers == {0: b"one\n", 4: b"one\n", 8: b"one\n"}


async def test_an_open_after_a_release_sees_its_record(two: World, gate: Gate) -> None:
    """``printf x >> f; cat f`` on a disk that is slow."""
    make_slow(two)
    writer = await two.open("slow/0", APPEND)
    await two.write(writer, b"two\nx")
    entry = await two.find("slow/0")
    reader = await two.open("slow/0")
    two.disk.before = gate
    log: list[str] = []
    answers: dict[str, object] = {}

    async def look(name: str, call: Awaitable[object]) -> None:
        answers[name] = await call
        log.append("look")

    size = entry.st_size + 2
    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(note, log, "release", two.operations.release(writer.number))
            await gate.reached()
            operations, user = two.operations, two.user
            nursery.start_soon(look, "getattr", operations.getattr(entry.st_ino, user))
            nursery.start_soon(look, "lookup", two.find("slow/0"))
            nursery.start_soon(look, "selector", two.find("slow/0@earliest..latest"))
            nursery.start_soon(look, "open", operations.open(entry.st_ino, os.O_RDONLY, user))
            nursery.start_soon(look, "read", two.read(reader, 0))
            nursery.start_soon(look, "xattr", two.xattr("slow/0", "end"))
            await wait_all_tasks_blocked()
            assert log == []
            await note(log, "quick", everything_works(two, "quick"))
    assert log == ["quick", "release", *["look"] * 6]
    assert answers["read"] == b"one\none\none\ntwo\nx\n"
    assert answers["xattr"] == str(size)
    for name in ("getattr", "lookup", "selector"):
        assert answers[name].st_size == size  # type: ignore[attr-defined]  # an entry
    two.disk.before = None


@pytest.mark.expect_log("a test said so")
async def test_loading_a_partition_again_delays_no_other(two: World, gate: Gate) -> None:
    log = two.store.partition("slow", 0)
    log.state.take_offline("a test said so")
    two.disk.before = gate
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        with gate:
            for name in ("slow 1", "slow 2"):
                nursery.start_soon(note, order, name, two.open("slow/0"))
            await gate.reached()
            assert gate.seen
            await note(order, "quick", everything_works(two, "quick"))
    assert order[0] == "quick"
    assert two.store.partition("slow", 0) is not log
    assert two.store.partition("slow", 0).offline is None
    two.disk.before = None


async def test_deleting_a_topic_delays_no_other(two: World, gate: Gate) -> None:
    two.disk.before = gate
    gate.operations = ("rename", "sync_directory")
    gate.pattern = "slow*"
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        with gate:
            nursery.start_soon(note, order, "rmdir", two.delete_topic("slow"))
            await gate.reached()
            await note(order, "quick", everything_works(two, "quick"))
    assert order == ["quick", "rmdir"]
