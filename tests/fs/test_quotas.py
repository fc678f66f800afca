"""What users other than root may make and set through a mount."""

import contextlib
import errno
import threading

import pyfuse3
import pytest
import trio
from trio.testing import MockClock

from logfs.cli.status_notes import of_users
from logfs.fs.files.throttling import Throttling
from logfs.fs.kernel.interrupts import InterruptWatch
from logfs.fs.metrics import users
from logfs.fs.metrics.family import as_json
from tests.fs.world import APPEND, World, refused

ALICE, BOB = 1001, 1002
LIMITS = "user_max_partitions=5,user_max_message_bytes=2000000,user_max_open_files=3"
KEY = b"user.logfs.max.message.bytes"


@pytest.fixture
def limited() -> World:
    return World(options=LIMITS)


def become(world: World, uid: int) -> None:
    world.user.uid = uid  # type: ignore[misc]


@pytest.mark.expect_log("user 1001 would have 6 partitions", "user_max_partitions allows 5")
async def test_the_topics_of_a_user_together_have_a_limit(limited: World) -> None:
    become(limited, ALICE)
    await limited.mkdir("a")
    await limited.close(await limited.create("a/2"))
    await limited.mkdir("b")
    await limited.close(await limited.create("b/1"))
    assert await refused(limited.mkdir("c")) == errno.EDQUOT
    assert await refused(limited.create("b/2")) == errno.EDQUOT
    assert limited.store.partitions("b") == [0, 1]
    become(limited, BOB)
    await limited.mkdir("c")


@pytest.mark.expect_log("user 1001 would have 6 partitions", "user_max_partitions allows 5")
async def test_topics_that_are_made_at_the_same_time_have_the_limit_together(
    limited: World,
) -> None:
    become(limited, ALICE)
    hangs, goes_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def hang(_operation: str, file: str, _size: int) -> None:
        if file.startswith("a-"):
            trio.from_thread.run_sync(hangs.set, trio_token=token)
            goes_on.wait()

    for number in range(3):
        await limited.mkdir(f"topic{number}")
    await limited.close(await limited.create("topic0/1"))
    limited.disk.before = hang
    async with trio.open_nursery() as nursery:
        nursery.start_soon(limited.mkdir, "a")
        await hangs.wait()
        try:
            assert await refused(limited.mkdir("b")) == errno.EDQUOT
        finally:
            goes_on.set()
    limited.disk.before = None
    assert limited.store.topics() == ["a", "topic0", "topic1", "topic2"]


@pytest.mark.expect_log("topic a: user 1001 would have 10000 partitions")
async def test_a_name_with_a_large_number_makes_nothing(limited: World) -> None:
    become(limited, ALICE)
    await limited.mkdir("a")
    assert await refused(limited.create("a/9999")) == errno.EDQUOT
    assert limited.store.partitions("a") == [0]


@pytest.mark.expect_log("topic orders: user 0 would have 6 partitions")
async def test_in_a_topic_of_root_each_topic_has_the_limit(limited: World) -> None:
    for name in ("orders", "b", "c"):
        await limited.mkdir(name)
        await limited.close(await limited.create(f"{name}/3"))
    become(limited, ALICE)
    await limited.close(await limited.create("orders/4"))
    assert await refused(limited.create("orders/5")) == errno.EDQUOT


async def test_root_has_no_limit(limited: World) -> None:
    topic = await limited.mkdir("orders")
    await limited.close(await limited.create("orders/7"))
    await limited.operations.setxattr(topic.st_ino, KEY, b"1000000000", limited.user)
    assert limited.store.topic_config("orders").max_message_bytes == 1_000_000_000


@pytest.mark.expect_log("max.message.bytes=2000001; the mount option user_max_message_bytes")
async def test_how_large_a_user_may_let_records_be(limited: World) -> None:
    become(limited, ALICE)
    topic = await limited.mkdir("orders")
    call = limited.operations.setxattr(topic.st_ino, KEY, b"2000001", limited.user)
    assert await refused(call) == errno.EDQUOT
    call = limited.operations.setxattr(topic.st_ino, KEY, b"large", limited.user)
    assert await refused(call) == errno.EINVAL
    await limited.operations.setxattr(topic.st_ino, KEY, b"2000000", limited.user)
    await limited.operations.removexattr(topic.st_ino, KEY, limited.user)
    assert limited.store.topic_properties("orders") == {}


@pytest.mark.expect_log("user 1001 has 3 files open; the mount option user_max_open_files")
async def test_how_many_files_a_user_has_open(limited: World) -> None:
    await limited.mkdir("orders")
    become(limited, ALICE)
    handles = [await limited.open("orders/0"), await limited.open("orders/0.meta")]
    root = await limited.operations.opendir(1, limited.user)
    assert await refused(limited.open("orders/0")) == errno.EMFILE
    assert await refused(limited.operations.opendir(1, limited.user)) == errno.EMFILE
    become(limited, BOB)
    others = [await limited.open("orders/0") for _ in range(3)]
    become(limited, ALICE)
    await limited.operations.releasedir(root)
    handles.append(await limited.open("orders/0"))
    assert await refused(limited.open("orders/0@earliest")) == errno.EMFILE
    await limited.close(handles.pop())
    assert await refused(limited.open("orders/7")) == errno.ENOENT, "what failed takes no place"
    handles.append(await limited.open("orders/0"))
    become(limited, 0)
    others += [await limited.open("orders/0") for _ in range(9)]
    for handle in [*handles, *others]:
        await limited.close(handle)


async def test_only_users_without_limits_set_the_quotas_of_topics(limited: World) -> None:
    become(limited, ALICE)
    topic = await limited.mkdir("orders")
    for key in (b"user.logfs.logfs.quota.bytes", b"user.logfs.logfs.quota.producer.byte.rate"):
        call = limited.operations.setxattr(topic.st_ino, key, b"1000000000", limited.user)
        assert await refused(call) == errno.EPERM
    become(limited, 0)
    await limited.operations.setxattr(topic.st_ino, key, b"1000", limited.user)
    become(limited, ALICE)
    assert await refused(limited.operations.removexattr(topic.st_ino, key, limited.user)) == (
        errno.EPERM
    )


@pytest.mark.expect_log("the topics of user 1001: no room in the quota")
async def test_the_logs_of_a_user_together_have_a_limit() -> None:
    world = World(options="user_max_bytes=1000")
    become(world, ALICE)
    await world.mkdir("a")
    await world.mkdir("b")
    await world.append("a/0", b"x" * 500 + b"\n")
    handle = await world.open("b/0", APPEND)
    assert await refused(world.write(handle, b"x" * 500 + b"\n")) == errno.EDQUOT
    assert await world.write(handle, b"y\n") == 2
    become(world, BOB)
    await world.mkdir("c")
    await world.append("c/0", b"x" * 900 + b"\n")
    become(world, 0)
    await world.append("b/0", b"x" * 900 + b"\n")


async def test_a_user_that_writes_too_fast_waits(autojump_clock: MockClock) -> None:
    world = World(options="user_max_byte_rate=100")
    become(world, ALICE)
    await world.mkdir("a")
    handle, other = await world.open("a/0", APPEND), await world.open("a/0.tsv", APPEND)
    await world.write(handle, b"x" * 99 + b"\n")
    with trio.move_on_after(50) as patience:
        await world.write(other, b"x" * 99 + b"\n")
    assert patience.cancelled_caught
    assert await world.cat("a/0") == 2 * (b"x" * 99 + b"\n")
    world.clock.advance(3)
    assert await world.write(handle, b"x\n") == 2
    become(world, 0)
    assert await world.write(await world.open("a/0", APPEND), b"x" * 1000 + b"\n") == 1001


@pytest.mark.expect_log("the topics of user 1001: no room in the quota")
async def test_many_short_lines_do_not_exceed_the_limit() -> None:
    world = World(options="user_max_bytes=2000")
    become(world, ALICE)
    await world.mkdir("a")
    handle = await world.open("a/0", APPEND)
    writes = 0
    with contextlib.suppress(pyfuse3.FUSEError):
        while writes < 100:
            writes += await world.write(handle, b"x\n") // 2
    assert 10 < writes < 100
    assert 1900 < world.store.partition("a", 0).local_bytes < 2100  # by its own headers


@pytest.mark.expect_log("the topics of user 1001: no room", "user 1001 has 3 files open")
async def test_what_users_use_is_in_metrics_and_status() -> None:
    world = World(options="user_max_bytes=1000,user_max_open_files=3,user_max_byte_rate=1000000")
    assert not list(users.families(world.operations.options, world.operations.quotas.usages()))
    become(world, ALICE)
    await world.mkdir("a")
    handle = await world.open("a/0", APPEND)
    await world.write(handle, b"x" * 500 + b"\n")
    assert await refused(world.write(handle, b"x" * 500 + b"\n")) == errno.EDQUOT
    others = [await world.open("a/0") for _ in range(2)]
    assert await refused(world.open("a/0")) == errno.EMFILE
    await world.close(others.pop())
    usages = world.operations.quotas.usages()
    metrics = as_json(users.families(world.operations.options, usages))
    size = world.store.partition("a", 0).local_bytes
    assert metrics["logfs_user_max_bytes"] == 1000
    assert {name: row[0]["value"] for name, row in metrics.items() if isinstance(row, list)} == {
        "logfs_user_open_files": 2,
        "logfs_user_used_bytes": size,
        "logfs_user_refused_total": 2,
        "logfs_user_throttled_total": 0,
        "logfs_user_throttled_seconds_total": 0.0,
    }
    assert [note.text for note in of_users(metrics)] == [
        f"user 1001: {size}B of 1000B used, 2 requests refused"
    ]


class SlowRate:
    """A rate that lets a writer continue after ten seconds."""

    def __init__(self) -> None:
        self.until = trio.current_time() + 10
        self.noted: list[float] = []

    def throttle_s(self, mark: int) -> float:
        return max(self.until - trio.current_time(), 0.0)

    def note_throttled(self, seconds: float) -> None:
        self.noted.append(seconds)


async def test_a_wait_that_a_signal_ends_counts_only_the_time_waited(
    autojump_clock: MockClock,
) -> None:
    throttling, rate = Throttling(InterruptWatch(None)), SlowRate()
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(throttling.wait, rate, 0, ended)
        await trio.sleep(2.5)
        ended.set()
    await throttling.wait(rate, 0, ended)  # no second wait
    assert rate.noted == [pytest.approx(2.5)]
    await throttling.wait(rate, 0)
    assert rate.noted == [pytest.approx(2.5), pytest.approx(7.5)]
    await throttling.wait(rate, 0)
    assert len(rate.noted) == 2
