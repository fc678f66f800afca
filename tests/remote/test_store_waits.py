"""Requests of a mount that wait for the store: they are interrupted, and nothing else waits."""

import errno
import threading
from collections.abc import Iterator

import pytest
import trio
from pyfuse3 import FUSEError

from logfs.disk.remote.overlay import OverlayDisk
from logfs.disk.remote.waiting import forbid_waiting
from logfs.fs.interrupts import InterruptWatch
from logfs.log.remote.catalog import DirectoryCatalog
from tests.fs.reads import Signals
from tests.fs.world import World, refused
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

    def __init__(self) -> None:
        self.objects = HeldStore()
        bench = TieredBench(objects=self.objects)
        self.text = bench.fill(40)
        bench.tier_all()
        bench.store.close(bench.now_ms)
        files = files_of(self.objects)
        catalog = DirectoryCatalog(bench.disk, lambda: self.objects, self.objects.url)
        self.world = World(OverlayDisk(bench.disk, catalog, files.open))  # type: ignore[arg-type]
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


async def test_appends_and_other_reads_go_on_while_the_store_hangs(
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
