"""When retention is looked after in a mount; time is trio's, and passes at once."""

import pytest
import trio
from trio.testing import MockClock

from logfs.log import names
from tests.fs.world import START_MS, World, until

DAY_MS = 86_400_000


@pytest.fixture
def world() -> World:
    return World(options="log.initial.task.delay.ms=30000,log.retention.check.interval.ms=300000")


async def make(world: World, name: str, **settings: str) -> None:
    properties = {key.replace("_", "."): value for key, value in settings.items()}
    world.store.create_topic(name, 1, {"internal.segment.bytes": "100", **properties}, START_MS)
    await world.append(f"{name}/0", b"a\nb\n")


def start(world: World, name: str = "orders") -> int:
    return world.store.partition(name, 0).log_start_offset


@pytest.mark.allow_log("a batch that exceeds a segment is refused")
async def test_the_first_look_comes_late_and_others_follow(
    world: World, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await make(world, "orders", retention_bytes="0")
    began = trio.current_time()
    nursery.start_soon(world.operations.tasks.run)
    await trio.sleep(29)
    assert start(world) == 0
    await until(lambda: start(world) == 2)
    assert trio.current_time() - began >= 30
    await world.append("orders/0", b"c\n")
    await until(lambda: start(world) == 3)
    assert trio.current_time() - began >= 330


async def test_a_change_takes_effect_at_the_next_look(world: World) -> None:
    await make(world, "orders", retention_ms="-1")
    world.clock.advance(3600)
    run_once = world.operations.tasks.retention.run_once
    assert await run_once() == []
    world.store.alter_topic("orders", {"retention.ms": "3600000"})
    assert await run_once() == []
    world.clock.advance(0.001)
    [(topic_partition, done)] = await run_once()
    assert (str(topic_partition), done.segments, done.start) == ("orders/0", 1, (0, 2))


@pytest.mark.expect_log("is of 2023-11-15T22:13:20+00:00, in the future: retention.ms keeps")
async def test_a_record_of_the_future_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await make(world, "orders", retention_ms="0", message_timestamp_after_max_ms=str(2 * DAY_MS))
    line = f'{{"timestamp":{START_MS + DAY_MS},"value":"v"}}\n'
    await world.append("orders/0.jsonl", line.encode())
    world.clock.advance(1)
    for _ in range(3):
        await world.operations.tasks.retention.run_once()
    assert start(world) == 2
    assert len([r for r in caplog.records if "in the future" in r.message]) == 1


@pytest.mark.expect_log("topic broker has no configuration")
async def test_a_topic_without_configuration_is_left_alone_and_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await make(world, "broker")
    await make(world, "orders", retention_bytes="0")
    world.disk.remove(f"broker-0/{names.TOPIC_CONFIG}")
    world.restart(world.options + ",log.retention.bytes=0")
    run_once = world.operations.tasks.retention.run_once
    assert len(await run_once()) == 1
    assert await run_once() == []
    assert (start(world, "broker"), start(world)) == (0, 2)
    assert len([r for r in caplog.records if "no configuration" in r.message]) == 1
    world.store.alter_topic("broker", {"flush.ms": "5"})
    assert world.store.topic_config("broker").cleanup_policy == frozenset()
    assert await run_once() == []
    world.store.alter_topic("broker", {"cleanup.policy": "delete"})
    assert len(await run_once()) == 1


@pytest.mark.expect_log("orders/0: retention: [Errno 5]")
@pytest.mark.allow_log("is offline")
async def test_a_failure_is_that_of_one_partition(world: World) -> None:
    await make(world, "orders", retention_bytes="0")
    await make(world, "other", retention_bytes="0")
    world.disk.fail_next_sync("orders-0/logfs.segments")
    [(topic_partition, _)] = await world.operations.tasks.retention.run_once()
    assert topic_partition.topic == "other"


@pytest.mark.expect_log("topics by default: max.message.bytes=1048588 is more than segment.bytes")
async def test_pitfalls_of_the_defaults_are_logged_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    world = World(options="log.segment.bytes=1048576")
    for name in ("a", "b"):
        world.store.create_topic(name, 1, {}, START_MS)
    nursery.start_soon(world.operations.tasks.run)
    await trio.sleep(1)


@pytest.mark.allow_log("a batch that exceeds a segment is refused")
@pytest.mark.expect_log("topic orders: segment.ms=9000 is longer than retention.ms=5")
async def test_pitfalls_are_logged_at_the_start(
    world: World, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await make(world, "orders", retention_ms="5", segment_ms="9000")
    nursery.start_soon(world.operations.tasks.run)
    await trio.sleep(1)


@pytest.mark.allow_log("a batch that exceeds a segment is refused")
async def test_the_largest_topic_keeps_a_directory_within_its_limit(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = World(options="log.retention.total.bytes=1000")
    await make(world, "quiet")
    await make(world, "noisy")
    for _ in range(10):
        await world.append("noisy/0", b"a line of some bytes\n")
    nursery.start_soon(world.operations.tasks.run)
    await until(lambda: "noisy/0: deleted" in caplog.text)
    assert start(world, "noisy") > 0
    assert start(world, "quiet") == 0
    total = sum(log.snapshot.size_bytes for log in world.store.all_partitions())
    assert 800 < total <= 1000
    assert "because of log.retention.total.bytes: all logs have" in caplog.text


def waiting(world: World) -> list[str]:
    """The files of deleted segments of the topic noisy that are still there."""
    return [name for name, _ in world.disk.list("noisy-0") if name.endswith(".log.deleted")]


@pytest.mark.allow_log("a batch that exceeds a segment is refused")
async def test_files_that_wait_for_removal_go_once_the_disk_lacks_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    limits = "log.retention.total.bytes=1000,log.retention.keep.free.bytes=5000"
    world = World(options=limits)
    await make(world, "noisy")
    for _ in range(20):
        await world.append("noisy/0", b"a line of some bytes\n")
    look_at_limits = world.operations.tasks.retention.look_at_limits
    world.disk.space_bytes = world.disk.used_bytes + 10_000
    await look_at_limits()
    assert start(world, "noisy") > 0
    assert waiting(world)
    world.disk.space_bytes = world.disk.used_bytes + 4_500
    before, at = world.disk.used_bytes, start(world, "noisy")
    await look_at_limits()
    assert waiting(world) == []
    assert world.disk.used_bytes < before
    assert start(world, "noisy") == at
    assert "noisy/0: removed the files of deleted segments" in caplog.text


@pytest.mark.allow_log("a batch that exceeds a segment is refused")
@pytest.mark.expect_log("is exceeded by", "no more segments can be deleted")
async def test_a_limit_that_cannot_be_met_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(options="log.retention.total.bytes=10")
    await make(world, "orders")
    for _ in range(2):
        await world.operations.tasks.retention.look_at_limits()
    assert len([r for r in caplog.records if "is exceeded by" in r.message]) == 1


@pytest.mark.allow_log("is offline", "no more segments can be deleted")
@pytest.mark.expect_log("noisy/0: retention: [Errno 5]")
async def test_a_partition_that_fails_does_not_keep_others_from_deleting() -> None:
    world = World(options="log.retention.total.bytes=0")
    for name in ("noisy", "other"):
        await make(world, name)
        await world.append(f"{name}/0", b"line\nline\nline\nline\n")
    world.disk.fail_next_sync("noisy-0/logfs.segments")
    [(topic_partition, _)] = await world.operations.tasks.retention.look_at_limits()
    assert topic_partition.topic == "other"
