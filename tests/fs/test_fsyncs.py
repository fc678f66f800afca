"""Fsyncs beside the loop: which request waits for which fsync; the test ends each fsync."""

import errno
import os
from collections.abc import Awaitable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from logfs.fs.files.fsyncs import Fsyncs
from logfs.fs.files.handles import SYNCS_IN_A_ROW
from tests.fakesyncs import FakeSyncs
from tests.fs.world import APPEND, Handle, World, refused


class Syncing:
    """A topic ``orders`` of one partition whose fsyncs run by themselves, a file open in it.

    Attributes:
        done: What has ended, in order.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.syncs = FakeSyncs()
        world.operations.files.fsyncs = Fsyncs(world.clock.both(), self.syncs)
        self.done: list[str] = []

    async def start(self) -> "Syncing":
        await self.world.mkdir("orders")
        for _ in range(3):
            await self.world.append("orders/0", b"before\n")
        self.handle = await self.open()
        self.world.store.partition("orders", 0).flush()
        return self

    @property
    def recovery_point(self) -> int:
        return self.world.store.partition("orders", 0).recovery_point

    async def open(self, flags: int = APPEND) -> Handle:
        return await self.world.open("orders/0", flags)

    async def write(self, data: bytes = b"line\n", handle: Handle | None = None) -> None:
        assert await self.world.write(handle or self.handle, data) == len(data)

    async def fsync(self, name: str = "fsync", handle: Handle | None = None) -> None:
        await self.note(
            name, self.world.operations.fsync((handle or self.handle).number, datasync=False)
        )

    async def note(self, name: str, call: Awaitable[object]) -> None:
        await call
        self.done.append(name)

    async def pair(self, handle: Handle | None = None) -> None:
        """Write and sync, as a program does that makes every line durable."""
        await self.write(handle=handle)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fsync, "fsync", handle)
            await wait_all_tasks_blocked()
            self.syncs.let_go()


@pytest.fixture
async def syncing(world: World) -> Syncing:
    return await Syncing(world).start()


async def test_everything_continues_while_an_fsync_does(syncing: Syncing) -> None:
    world = syncing.world
    await syncing.write()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.fsync)
        await wait_all_tasks_blocked()
        assert len(syncing.syncs.begun) == 1
        await syncing.note("append", world.append("orders/0", b"more\n"))
        await syncing.note("read", world.cat("orders/0"))
        await syncing.note("stat", world.find("orders/0"))
        assert syncing.recovery_point == 3
        syncing.syncs.let_go()
    assert syncing.done == ["append", "read", "stat", "fsync"]
    assert syncing.recovery_point == 4


async def test_fsyncs_at_the_same_time_share(syncing: Syncing) -> None:
    await syncing.write()
    others = [await syncing.open() for _ in range(3)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.fsync, "first")
        await wait_all_tasks_blocked()
        nursery.start_soon(syncing.fsync, "covered", others[0])
        await wait_all_tasks_blocked()
        await syncing.write()
        for other in others[1:]:
            nursery.start_soon(syncing.fsync, "second", other)
        await wait_all_tasks_blocked()
        assert len(syncing.syncs.begun) == 1
        syncing.syncs.let_go()
        await wait_all_tasks_blocked()
        assert sorted(syncing.done) == ["covered", "first"]
        assert len(syncing.syncs.begun) == 1
        syncing.syncs.let_go()
    assert syncing.done[2:] == ["second"] * 2
    assert (syncing.recovery_point, syncing.syncs.begun) == (5, [])


async def test_durable_records_are_not_synced_again(syncing: Syncing) -> None:
    await syncing.pair()
    await syncing.fsync("again")
    assert syncing.done == ["fsync", "again"]
    assert syncing.syncs.begun == []


async def test_an_unfinished_line_is_synced_too(syncing: Syncing) -> None:
    await syncing.write(b"line\nunfinished")
    before = syncing.world.disk.counts["sync"]
    await syncing.fsync()
    assert syncing.syncs.begun == []
    assert syncing.world.disk.counts["sync"] == before + 2


async def test_files_that_sync_every_write(syncing: Syncing) -> None:
    handle = await syncing.open(APPEND | os.O_DSYNC)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.note, "write", syncing.write(handle=handle))
        await wait_all_tasks_blocked()
        assert syncing.done == []
        syncing.syncs.let_go()
    assert syncing.recovery_point == 4


async def test_an_fsync_continues_to_its_end(syncing: Syncing) -> None:
    """As one in a thread does: a stop of the daemon waits for it."""
    await syncing.write()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(syncing.fsync)
            await wait_all_tasks_blocked()
            scope.cancel()
            await trio.lowlevel.cancel_shielded_checkpoint()
            assert syncing.done == []
            syncing.syncs.let_go()
    assert syncing.done == ["fsync"]
    assert syncing.recovery_point == 4


async def test_a_topic_is_deleted_while_it_continues(syncing: Syncing) -> None:
    await syncing.write()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.fsync)
        await wait_all_tasks_blocked()
        await syncing.note("rmdir", syncing.world.delete_topic("orders"))
        syncing.syncs.let_go()
        await wait_all_tasks_blocked()
    assert sorted(syncing.done) == ["fsync", "rmdir"]
    assert await refused(syncing.world.write(syncing.handle, b"x\n")) == errno.ESTALE
    await syncing.world.operations.release(syncing.handle.number)


async def test_maintenance_beside_it_takes_note_of_it(syncing: Syncing) -> None:
    """Another thread waits for the sync, and is the first to know how it ended."""
    await syncing.write()
    log = syncing.world.store.partition("orders", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.fsync)
        await wait_all_tasks_blocked()
        log.roll(syncing.world.clock.now_ms)
        nursery.start_soon(trio.to_thread.run_sync, log.maintain)
        await trio.sleep(0.05)
        assert syncing.recovery_point == 3
        syncing.syncs.let_go()
    assert syncing.done == ["fsync"]
    assert (syncing.recovery_point, log.maintenance_due) == (4, False)


@pytest.mark.expect_log("is offline")
@pytest.mark.allow_log("fsync: ", "flush: ", "write: ")
async def test_a_failure_is_final_for_all_that_wait(syncing: Syncing) -> None:
    world, other = syncing.world, await syncing.open()
    await syncing.write()
    failed: list[int] = []

    async def fsync(handle: Handle) -> None:
        failed.append(await refused(world.operations.fsync(handle.number, False)))

    world.disk.fail_next_sync("orders-0/*.log")
    async with trio.open_nursery() as nursery:
        for handle in syncing.handle, other:
            nursery.start_soon(fsync, handle)
        await wait_all_tasks_blocked()
        syncing.syncs.let_go()
    assert failed == [errno.EIO] * 2
    for handle in syncing.handle, other:
        assert await refused(world.operations.flush(handle.number)) == errno.EIO
        assert await refused(world.write(handle, b"x\n")) == errno.EIO
        assert await refused(world.operations.fsync(handle.number, False)) == errno.EIO
        await world.operations.release(handle.number)
    assert syncing.recovery_point == 3
    await world.append("orders/0", b"loaded anew\n")


# Foreseen


async def test_a_program_that_syncs_each_line_has_its_fsync_begun_by_the_write(
    syncing: Syncing,
) -> None:
    for _ in range(SYNCS_IN_A_ROW):
        assert syncing.syncs.begun == []
        await syncing.pair()
    await syncing.write()
    assert len(syncing.syncs.begun) == 1
    syncing.syncs.let_go()
    await wait_all_tasks_blocked()
    assert syncing.recovery_point == 4 + SYNCS_IN_A_ROW
    await syncing.fsync("at once")
    assert syncing.done[-1] == "at once"
    await syncing.write()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(syncing.fsync, "shared")
        await wait_all_tasks_blocked()
        assert len(syncing.syncs.begun) == 1
        assert syncing.done[-1] == "at once"
        syncing.syncs.let_go()
    # One that was not asked for is the last.
    await syncing.write()
    syncing.syncs.let_go()
    for _ in range(3):
        await syncing.write()
        await wait_all_tasks_blocked()
        assert syncing.syncs.begun == []


async def test_a_write_during_a_flush_begins_the_next_flush(syncing: Syncing) -> None:
    other = await syncing.open()
    for handle in syncing.handle, other:
        for _ in range(SYNCS_IN_A_ROW):
            await syncing.pair(handle)
    end = syncing.recovery_point + 2
    await syncing.write()
    await syncing.write(handle=other)
    for point in end - 1, end:
        assert len(syncing.syncs.begun) == 1
        syncing.syncs.let_go()
        await wait_all_tasks_blocked()
        assert syncing.recovery_point == point
    await syncing.fsync("one")
    await syncing.fsync("other", other)
    assert syncing.syncs.begun == []


@pytest.mark.expect_log("is offline")
@pytest.mark.allow_log("fsync: ", "flush: ")
async def test_a_flush_that_was_begun_early_and_fails_fails_the_fsync(syncing: Syncing) -> None:
    for _ in range(SYNCS_IN_A_ROW):
        await syncing.pair()
    await syncing.write()
    syncing.world.disk.fail_next_sync("orders-0/*.log")
    syncing.syncs.let_go()
    await trio.testing.wait_all_tasks_blocked(0.05)
    operations, number = syncing.world.operations, syncing.handle.number
    assert await refused(operations.fsync(number, False)) == errno.EIO
    assert await refused(operations.flush(number)) == errno.EIO
    await operations.release(number)
