"""What happens without being asked for; time is trio's, and passes at once."""

import threading

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from logfs.services.retention.trimming import trim
from tests.fs.world import APPEND, START_MS, World, until


@pytest.fixture
async def kept(world: World, nursery: trio.Nursery) -> World:
    """A world with one topic whose tasks runs."""
    await world.mkdir("orders")
    nursery.start_soon(world.operations.tasks.run)
    return world


def checkpoint(world: World) -> bytes:
    """Return the recovery points that were written last."""
    name = "recovery-point-offset-checkpoint"
    return world.disk.read(name) if world.disk.exists(name) else b""


def left(world: World) -> list[str]:
    """Return the directories of deleted topics that are still there."""
    return [name for name, _ in world.disk.list("") if name.endswith("-delete")]


async def configure(world: World, **settings: str) -> None:
    topic = (await world.find("orders")).st_ino
    for key, value in settings.items():
        name = f"user.logfs.{key.replace('_', '.')}".encode()
        await world.operations.setxattr(topic, name, value.encode(), world.user)


async def test_a_sealed_segment_is_made_durable_soon(
    kept: World, autojump_clock: MockClock
) -> None:
    await configure(kept, segment_bytes="1048588")
    handle = await kept.open("orders/0", APPEND)
    for _ in range(4):
        await kept.write(handle, b"x" * 400_000 + b"\n")
    log = kept.store.partition("orders", 0)
    assert len(log.snapshot.segments) > 1
    await until(lambda: not log.maintenance_due)
    assert log.recovery_point >= log.snapshot.segments[-1].base_offset


async def test_a_rolled_partition_without_appends_is_synced_and_closed(
    kept: World, autojump_clock: MockClock
) -> None:
    """Its files would be kept open otherwise, and so their room on the disk, though deleted."""
    await kept.append("orders/0", b"one\n")
    log = kept.store.partition("orders", 0)
    trim(log, 1, kept.clock.now_ms, at_once=True)
    assert log.maintenance_due
    await until(lambda: not log.maintenance_due)
    assert log.recovery_point == 1


async def test_maintenance_that_becomes_due_meanwhile_is_done_afterwards(
    kept: World, autojump_clock: MockClock
) -> None:
    await configure(kept, segment_bytes="1048588")
    handle = await kept.open("orders/0", APPEND)
    log = kept.store.partition("orders", 0)
    came, opened = threading.Event(), threading.Event()

    def before(operation: str, name: str, size: int) -> None:
        if operation == "sync" and name.endswith(".log"):
            came.set()
            assert opened.wait(30)

    kept.disk.before = before
    for segments in (2, 3):
        while len(log.snapshot.segments) < segments:
            await kept.write(handle, b"x" * 400_000 + b"\n")
        assert await trio.to_thread.run_sync(came.wait, 30)
    opened.set()
    await until(lambda: not log.maintenance_due)
    assert log.recovery_point >= log.snapshot.segments[-1].base_offset


async def test_flush_ms(kept: World, autojump_clock: MockClock) -> None:
    await configure(kept, flush_ms="5000")
    await kept.append("orders/0", b"one\n")
    log = kept.store.partition("orders", 0)
    await trio.sleep(3)
    assert log.recovery_point == 0
    kept.clock.advance(5)
    await until(lambda: log.recovery_point == 1)


async def test_flush_messages(kept: World, autojump_clock: MockClock) -> None:
    await configure(kept, flush_messages="2")
    await kept.append("orders/0", b"one\n")
    assert kept.store.partition("orders", 0).recovery_point == 0
    await kept.append("orders/0", b"two\n")
    assert kept.store.partition("orders", 0).recovery_point == 2


async def test_checkpoints_are_written(kept: World, autojump_clock: MockClock) -> None:
    handle = await kept.open("orders/0", APPEND)
    await kept.write(handle, b"one\n")
    await kept.operations.fsync(handle.number, False)
    await until(lambda: b"orders 0 1" in checkpoint(kept))


async def test_deleted_files_are_removed_when_they_are_due(
    kept: World, autojump_clock: MockClock
) -> None:
    await kept.delete_topic("orders")
    await trio.sleep(10)
    assert left(kept)
    kept.clock.advance(61)
    await until(lambda: not left(kept))


@pytest.mark.expect_log("is offline", "Input/output error")
async def test_a_failure_takes_the_partition_offline_and_nothing_else(
    kept: World, autojump_clock: MockClock
) -> None:
    await kept.mkdir("bills")
    await configure(kept, segment_bytes="1048588")
    handle = await kept.open("orders/0", APPEND)
    kept.disk.fail_next_sync("orders-0/*.log")
    for _ in range(4):
        await kept.write(handle, b"x" * 400_000 + b"\n")
    await until(lambda: kept.store.partition("orders", 0).offline is not None)
    await kept.append("bills/0", b"one\n")
    await until(lambda: b"bills 0 0" in checkpoint(kept))


@pytest.mark.expect_log("a background task failed")
async def test_a_bug_in_a_task_does_not_end_the_others(
    kept: World, autojump_clock: MockClock
) -> None:
    failures = []

    def before(operation: str, name: str, size: int) -> None:
        if name.startswith("recovery-point"):
            failures.append(name)
            raise KeyError("oops")

    kept.disk.before = before
    await until(lambda: bool(failures))
    kept.disk.before = None
    await test_deleted_files_are_removed_when_they_are_due(kept, autojump_clock)


async def test_nothing_is_kept_up_on_a_read_only_mount(autojump_clock: MockClock) -> None:
    world = World()
    world.restart("ro")
    before = dict(world.disk.counts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.operations.tasks.run)
        await trio.sleep(1000)
        await wait_all_tasks_blocked()
        assert dict(world.disk.counts) == before
        nursery.cancel_scope.cancel()


@pytest.mark.allow_log(
    "[Errno 5]", "cannot read whether it has", "a batch that exceeds a segment is refused"
)
@pytest.mark.parametrize("operation", ["open", "list", "stat", "pread", "rename", "remove", "sync"])
async def test_what_the_disk_cannot_do_for_one_topic_ends_no_task_of_the_others(
    operation: str, autojump_clock: MockClock
) -> None:
    world = World(options="log.retention.check.interval.ms=30000,log.cleaner.backoff.ms=1000")
    for name in ("bad", "compacted", "good"):
        policy = "compact" if name == "compacted" else "delete"
        settings = {"internal.segment.bytes": "100", "retention.bytes": "0"}
        settings |= {"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0"}
        world.store.create_topic(name, 1, settings, START_MS)
        suffix = ".tsv" if name == "compacted" else ""
        await world.append(f"{name}/0{suffix}", b"k\tv\n")
    compacted, good = (world.store.partition(name, 0) for name in ("compacted", "good"))
    world.disk.fail(operation, "bad-0*")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.operations.tasks.run)
        await trio.sleep(120)
        for _ in range(3):
            await world.append("good/0", b"one\n")
            for _ in range(9):
                await world.append("compacted/0.tsv", b"k\tv\n")
            await trio.sleep(60)
        await until(lambda: good.log_start_offset == good.log_end_offset)
        await until(lambda: compacted.counters.compactions > 0)
        nursery.cancel_scope.cancel()
