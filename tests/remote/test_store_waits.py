"""Requests of a mount that wait for the store: they are interrupted, and nothing else waits."""

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator

import pytest
import trio
from pyfuse3 import FUSEError

from logfs.disk.remote.overlay import OverlayDisk
from logfs.disk.waiting import forbid_waiting
from logfs.fs.kernel.interrupts import InterruptWatch
from logfs.fs.partitions.executor import STORE_READ_THREADS
from logfs.log.remote.catalog import DirectoryCatalog
from tests.fs.handover.kept import KeptWorld
from tests.fs.reads import Signals
from tests.fs.world import APPEND, Handle, World, refused
from tests.remote.fakestore import FakeStore
from tests.remote.files import files_of
from tests.remote.tiering import TieredBench


class HeldStore(FakeStore):
    """A store whose reads of data can be held back."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.held = 0

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        self.held += 1
        self.gate.wait()
        return super().get_range(key, start, length)


class TieredWorld:
    """A mount of a topic ``t`` whose sealed segments are in a store.

    Attributes:
        text: What is in the log.
    """

    def __init__(self, kind: type[World] = World) -> None:
        self.objects = HeldStore()
        bench = TieredBench(objects=self.objects)
        self.text = bench.fill(40)
        bench.tier_all()
        bench.store.close(bench.now_ms)
        files = files_of(self.objects)
        catalog = DirectoryCatalog(bench.disk, lambda: self.objects, self.objects.url)
        self.world = kind(OverlayDisk(bench.disk, catalog, files.open))  # type: ignore[arg-type]
        self.signals = Signals()
        interrupts = InterruptWatch(self.signals)
        self.world.operations.store_waits.interrupts = interrupts
        self.world.operations.follow_reads.interrupts = interrupts

    def interrupt(self) -> None:
        """Have the kernel report a signal for every request."""
        last = self.signals.request()
        for number in range(last):
            self.signals.interrupted(number)


@pytest.fixture
def tiered() -> Iterator[TieredWorld]:
    made = TieredWorld()
    forbid_waiting()
    try:
        yield made
    finally:
        made.objects.gate.set()
        forbid_waiting(is_forbidden=False)


@pytest.fixture
def kept() -> Iterator[TieredWorld]:
    """A mount whose nodes and open files outlive the daemon."""
    made = TieredWorld(KeptWorld)
    forbid_waiting()
    try:
        yield made
    finally:
        made.objects.gate.set()
        forbid_waiting(is_forbidden=False)


async def waits(tiered: TieredWorld, before: int = 0) -> None:
    """Return when a request waits for the store."""
    while tiered.objects.held <= before:  # noqa: ASYNC110 - a thread sets it
        await trio.sleep(0.001)
    await trio.sleep(0.05)


async def test_tiered_segments_are_read_in_threads(tiered: TieredWorld) -> None:
    assert await tiered.world.cat("t/0") == tiered.text
    assert tiered.objects.held


@pytest.mark.parametrize("name", ["t/0", "t/0@offset=3..offset=9", "t/0@earliest.follow"])
async def test_a_signal_ends_a_read_and_the_bytes_come(
    tiered: TieredWorld, nursery: trio.Nursery, name: str
) -> None:
    tiered.objects.gate.clear()
    world = tiered.world
    ended: list[int] = []

    async def read() -> None:
        with pytest.raises(FUSEError) as caught:
            await world.read(await world.open(name), 0)
        ended.append(caught.value.errno)

    nursery.start_soon(read)
    await waits(tiered)
    assert not ended
    tiered.interrupt()
    with trio.fail_after(10):
        while not ended:  # noqa: ASYNC110 - there is no event for it
            await trio.sleep(0.001)
    assert ended == [errno.EINTR]
    tiered.objects.gate.set()
    assert await world.cat("t/0") == tiered.text


NAMES = (
    "t/0@offset=3..offset=9",
    "t/0@offset=3",
    "t/0@2020-01-01.tsv",
    "t/0@offset=2..latest.jsonl",
)


@pytest.mark.parametrize("name", NAMES)
async def test_look_ups_do_not_wait_for_the_store(
    tiered: TieredWorld, nursery: trio.Nursery, name: str
) -> None:
    world = tiered.world
    whole = await TieredWorld().world.cat(name)
    tiered.objects.gate.clear()
    with trio.fail_after(20):
        entry = await world.find(name)
    assert (entry.st_size, entry.attr_timeout, entry.entry_timeout) == (0, 0, 0)
    sizes: list[tuple[int, int]] = []

    async def ask() -> None:
        found = await world.operations.getattr(entry.st_ino, world.user)
        sizes.append((found.st_ino, found.st_size))

    for _ in range(2):
        nursery.start_soon(ask)
    await waits(tiered)
    assert not sizes
    tiered.objects.gate.set()
    with trio.fail_after(20):
        while len(sizes) < 2:  # noqa: ASYNC110 - there is no event for it
            await trio.sleep(0.001)
    number = (await world.find(name)).st_ino
    assert sizes == [(number, len(whole))] * 2
    info = await world.operations.open(entry.st_ino, os.O_RDONLY, world.user)
    assert bytes(await world.operations.read(info.fh, 0, 1 << 20)) == whole


async def test_neither_look_ups_nor_appends_wait_for_reads_that_wait(
    tiered: TieredWorld, nursery: trio.Nursery
) -> None:
    world = tiered.world
    handle = await world.open("t/0")
    tiered.objects.gate.clear()
    try:
        for _ in range(STORE_READ_THREADS + 2):
            nursery.start_soon(world.read, await world.open("t/0"), 0)
        await waits(tiered)
        world.operations.tree.partition("t", 0).executor.note_slow()  # calls run in threads
        with trio.fail_after(20):
            for name in (*NAMES, f".segments/t-0/{0:020}.log", f".segments/t-0/{0:020}.txt"):
                await world.find(name)
            assert json.loads(await world.cat("t/0.meta"))["remote"]["segments"]
            assert await world.write(await world.open("t/0", APPEND), b"new\n") == 4
    finally:
        tiered.objects.gate.set()
    await world.close(handle)


async def test_a_selector_that_means_nothing_is_refused_at_the_look_up(tiered: TieredWorld) -> None:
    tiered.objects.gate.clear()
    with trio.fail_after(20):
        assert await refused(tiered.world.find("t/0@lastweek")) == errno.EINVAL
        assert await refused(tiered.world.find("t/7@offset=3")) == errno.ENOENT
        assert await refused(tiered.world.find(f".segments/t-0/{7:020}.txt")) == errno.ENOENT


@pytest.mark.parametrize("name", NAMES)
async def test_names_that_were_not_resolved_outlive_the_daemon(
    kept: TieredWorld, name: str
) -> None:
    world = kept.world
    assert isinstance(world, KeptWorld)
    whole = await TieredWorld().world.cat(name)
    kept.objects.gate.clear()
    unresolved, opened = await world.find(name), await world.find(name)
    assert unresolved.st_ino != opened.st_ino
    kept.objects.gate.set()
    info = await world.operations.open(opened.st_ino, os.O_RDONLY, world.user)
    world.hand_over()
    world.operations.follow_reads.interrupts = world.operations.interrupts
    assert bytes(await world.operations.read(info.fh, 0, 1 << 20)) == whole
    for number in (unresolved.st_ino, opened.st_ino):
        found = await world.operations.getattr(number, world.user)
        assert (found.st_ino, found.st_size) == ((await world.find(name)).st_ino, len(whole))
    await world.close(Handle(info.fh, is_direct=False, keeps_cache=True, inode=opened.st_ino))


async def test_appends_and_other_reads_continue_while_the_store_hangs(
    tiered: TieredWorld, nursery: trio.Nursery
) -> None:
    world = tiered.world
    handle = await world.open("t/0")
    tiered.objects.gate.clear()
    for _ in range(12):  # more than one partition's threads
        nursery.start_soon(world.read, handle, 0)
    await waits(tiered)
    with trio.fail_after(20):
        await world.append("t/0", b"new\n")
        size = (await world.find("t/0")).st_size
        assert size == len(tiered.text) + 4
        assert await world.read(await world.open("t/0"), size - 4) == b"new\n"
    tiered.objects.gate.set()


async def test_a_stop_of_the_mount_ends_all_waits(
    tiered: TieredWorld, nursery: trio.Nursery
) -> None:
    world = tiered.world
    handle = await world.open("t/0")
    tiered.objects.gate.clear()
    ended: list[int] = []

    async def read() -> None:
        ended.append(await refused(world.read(handle, 0)))

    for _ in range(12):
        nursery.start_soon(read)
    await waits(tiered)
    world.operations.store_waits.end()
    with trio.fail_after(20):
        while len(ended) < 12:  # noqa: ASYNC110 - as above
            await trio.sleep(0.001)
    assert set(ended) == {errno.EINTR}


@pytest.mark.expect_log("fell behind retention")
async def test_a_line_that_was_begun_is_whole_although_its_reader_was_interrupted(
    tiered: TieredWorld, nursery: trio.Nursery
) -> None:
    world, log = tiered.world, tiered.world.store.partition("t", 0)
    handle = await world.open("t/0")
    found = await world.read(handle, 0, 40)  # ends inside the second line
    world.operations.tree.partition("t", 0).executor.note_slow()  # reads run in threads
    tiered.objects.gate.clear()
    answers: list[bytes] = []

    async def read() -> None:
        with contextlib.suppress(FUSEError):
            answers.append(await world.read(handle, len(found)))
        answers.append(b"")

    nursery.start_soon(read)
    await waits(tiered, tiered.objects.held)
    tiered.interrupt()
    with trio.fail_after(10):
        while not answers:  # noqa: ASYNC110 - there is no event for it
            await trio.sleep(0.001)
    found += answers[0]
    log.advance_log_start_offset(30, world.clock.now_ms)
    tiered.objects.gate.set()
    while got := await world.read(handle, len(found)):
        found += got
    lines = tiered.text.splitlines(keepends=True)
    rows = found.splitlines(keepends=True)
    assert rows[:2] == lines[:2]
    assert [row for row in rows if row not in lines] == []
    assert rows[-10:] == lines[30:]


@pytest.mark.expect_log("injected")
@pytest.mark.parametrize("name", ["t/0@offset=1..offset=30", "t/0@earliest..latest.jsonl"])
async def test_an_error_of_the_store_inside_a_fixed_name_is_no_damage(
    tiered: TieredWorld, name: str
) -> None:
    world = tiered.world
    whole = await TieredWorld().world.cat(name)
    handle = await world.open(name)
    assert not handle.is_direct
    tiered.objects.fail("get_range", "*/00000000000000000020-*.log")
    assert await refused(world.read(handle, 0)) == errno.EIO
    assert await world.xattr("t/0", "losses") == "0"
    tiered.objects.heal()
    assert await world.read(handle, 0) == whole
    assert not (await world.open(name)).is_direct, "the kernel may cache it"


@pytest.mark.expect_log("injected")
async def test_an_error_of_the_store_is_of_one_read(tiered: TieredWorld) -> None:
    world = tiered.world
    handle = await world.open("t/0")
    tiered.objects.fail("get_range")
    for _ in range(2):
        assert await refused(world.read(handle, 0)) == errno.EIO
    tiered.objects.heal()
    assert await world.read(handle, 0) == tiered.text[: 128 << 10]
    await world.append("t/0", b"new\n")
    assert await world.cat("t/0") == tiered.text + b"new\n"
