"""Reads of ``.follow`` names: which wait, until when, and in which order they are woken."""

import errno
import os
import select
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from logfs.fs.files.followreads import READABLE, READY
from logfs.fs.files.readerqueue import AT_ONCE
from logfs.fs.kernel.interrupts import InterruptWatch
from logfs.types import TopicPartition
from tests.fs.reads import PATIENCE_S, Reads, Signals
from tests.fs.served import Served
from tests.fs.world import APPEND, MIB, Handle, World, refused

CROWD = 5 * AT_ONCE


@pytest.fixture
def reads(orders: World, nursery: trio.Nursery) -> Reads:
    """Reads of a mount with reported signals, where no wait ends without a reason."""
    orders.operations.follow_reads.interrupts = InterruptWatch(Signals())
    nursery.start_soon(orders.operations.follow_reads.queues.run)
    return Reads(orders, nursery)


async def test_a_read_at_the_end_waits_for_the_next_record(orders: World, reads: Reads) -> None:
    await orders.append("orders/0", b"one\n")
    handle = await orders.open("orders/0.follow")
    assert await orders.read(handle, 0) == b"one\n"
    await reads.begin(handle, 4)
    assert not reads.answers
    writer = await orders.open("orders/0", APPEND)
    await orders.write(writer, b"tw")
    assert not reads.answers
    await orders.write(writer, b"o\n")
    assert await reads.answered() == {handle.number: b"two\n"}


@pytest.mark.parametrize(
    ("name", "first"),
    [("0.follow", b"0\n1\n2\n"), ("0@latest.follow", b""), ("0@now.follow", b""),
     ("0@offset=-1.follow", b"2\n"), ("0@offset=1..offset=9.follow", b"1\n2\n")],
)  # fmt: skip
async def test_a_selector_says_where_it_begins(
    orders: World, reads: Reads, name: str, first: bytes
) -> None:
    await orders.append("orders/0", b"0\n1\n2\n")
    orders.clock.advance(1)
    handle = await orders.open(f"orders/{name}")
    if first:
        assert await orders.read(handle, 0) == first
    await reads.begin(handle, len(first))
    assert not reads.answers
    assert (await orders.find(f"orders/{name}")).st_size == len(first)
    await orders.append("orders/0", b"3\n")
    assert await reads.answered() == {handle.number: b"3\n"}


@pytest.mark.parametrize("name", ["0@earliest..offset=4.follow", "0@earliest..byte=8.follow"])
async def test_it_ends_where_to_is_reached(orders: World, reads: Reads, name: str) -> None:
    handle = await orders.open(f"orders/{name}")
    await reads.begin(handle)
    await orders.append("orders/0", b"0\n1\n2\n3\n")
    assert await reads.answered() == {handle.number: b"0\n1\n2\n3\n"}
    assert await orders.read(handle, 8) == b""
    assert await orders.cat("orders/0@earliest..latest.follow") == b"0\n1\n2\n3\n"


async def test_a_read_ends_when_the_clock_reaches_to(
    orders: World, reads: Reads, autojump_clock: MockClock
) -> None:
    handle = await orders.open(f"orders/0@earliest..{orders.clock.now_ms + 60_000}.follow")
    await orders.append("orders/0", b"before\n")
    assert await orders.read(handle, 0) == b"before\n"
    await reads.begin(handle, 7)
    await trio.sleep(59)
    assert not reads.answers
    orders.clock.advance(60)
    await trio.sleep(2)
    assert reads.answers == {handle.number: b""}


async def test_nonblocking_reads_are_told_that_there_is_nothing_yet(
    orders: World, reads: Reads
) -> None:
    handle = await orders.open("orders/0.follow", os.O_RDONLY | os.O_NONBLOCK)
    with trio.fail_after(PATIENCE_S):
        assert await refused(orders.read(handle, 0)) == errno.EAGAIN
        await orders.append("orders/0", b"one\n")
        assert await orders.read(handle, 0) == b"one\n"
        assert await refused(orders.read(handle, 4)) == errno.EAGAIN


async def test_a_reader_at_the_end_of_a_deleted_topic_gets_end_of_file(
    orders: World, reads: Reads
) -> None:
    await orders.append("orders/0", b"last\n")
    ahead, behind = [await orders.open("orders/0.follow") for _ in range(2)]
    await reads.begin(ahead, 5)
    writer = await orders.open("orders/0", APPEND)
    await orders.write(writer, b"a change without news")
    await orders.delete_topic("orders")
    assert await reads.answered() == {ahead.number: b""}
    assert await orders.read(behind, 0) == b"last\n"
    assert await orders.read(behind, 5) == b""


async def test_the_stop_of_the_mount_ends_the_wait(orders: World, reads: Reads) -> None:
    handle = await orders.open("orders/0.follow")
    await reads.begin(handle)
    orders.operations.follow_reads.end()
    assert await reads.answered() == {handle.number: errno.ENOTCONN}
    assert await refused(orders.read(handle, 0)) == errno.ENOTCONN


async def test_a_signal_ends_its_read_only(orders: World, reads: Reads) -> None:
    signals = Signals()
    orders.operations.follow_reads.interrupts = InterruptWatch(signals)
    handles = [await orders.open("orders/0.follow") for _ in range(3)]
    for handle in handles:
        await reads.begin(handle)
    signals.interrupted(2)
    signals.interrupted(77)
    assert await reads.answered() == {handles[1].number: errno.EINTR}
    await orders.append("orders/0", b"one\n")
    await reads.answered(3)
    assert [reads.answers[handle.number] for handle in handles] == [b"one\n", errno.EINTR, b"one\n"]


async def test_without_reported_signals_the_wait_is_bounded(
    orders: World, reads: Reads, autojump_clock: MockClock
) -> None:
    orders.operations.follow_reads.interrupts = InterruptWatch(None)
    handle = await orders.open("orders/0.follow")
    assert await refused(orders.read(handle, 0)) == errno.EINTR
    await reads.begin(handle)
    await orders.append("orders/0", b"one\n")
    assert await reads.answered() == {handle.number: b"one\n"}


async def test_a_request_that_may_be_part_of_a_read_is_never_answered_in_full(
    orders: World, reads: Reads
) -> None:
    """Else the next part could wait, with the first one not delivered."""
    text = b"x" * (MIB // 4 - 1) + b"\n"
    for _ in range(8):
        await orders.append("orders/0", text)
    handle = await orders.open("orders/0.follow")
    for size in (MIB, MIB - 4095):
        assert len(await orders.read(handle, 0, size)) == size - 1
        handle = await orders.open("orders/0.follow")
    assert len(await orders.read(handle, 0, MIB - 4096)) == MIB - 4096


async def test_poll(orders: World, reads: Reads) -> None:
    class Told:
        times = 0

        def notify(self) -> None:
            self.times += 1

    async def poll(handle: Handle, told: Told | None) -> int:
        return await orders.operations.poll(handle.inode, handle.number, told, orders.user)

    handle, told, another = await orders.open("orders/0.follow"), Told(), Told()
    assert await poll(handle, told) == 0
    assert await poll(handle, None) == 0
    assert await poll(handle, another) == 0
    await orders.append("orders/0", b"one\n")
    assert (told.times, another.times) == (0, 1)
    assert await poll(handle, told) == READABLE == select.POLLIN | select.POLLRDNORM
    assert await orders.read(handle, 0) == b"one\n"
    assert await poll(handle, told) == 0
    await orders.close(handle)
    await orders.append("orders/0", b"two\n")
    assert (told.times, another.times) == (0, 1)
    for name in ("0", "0@-1h", "0@earliest..latest", "0.meta", "0@earliest..latest.follow"):
        handle = await orders.open(f"orders/{name}")
        assert await poll(handle, told) == READY
        await orders.close(handle)


async def _lines(served: Served, **place: object) -> None:
    form = {"view": 0, "key_delimiter": b":".hex(), "headers": [], "unkeyed": 0}
    await served.ask("lines", b"k:v\n", topic="orders", is_durable=False, **place, **form)


@pytest.mark.parametrize("place", [{"partition": 0}, {"partition": None}])
async def test_an_append_through_the_control_socket_wakes_readers(
    orders: World, reads: Reads, tmp_path: Path, nursery: trio.Nursery, place: dict[str, object]
) -> None:
    served = Served(orders, tmp_path, nursery)
    handle = await orders.open("orders/0.follow")
    await reads.begin(handle)
    await _lines(served, **place)
    assert await reads.answered() == {handle.number: b"v\n"}


async def test_a_change_wakes_a_few_and_the_others_follow(orders: World, reads: Reads) -> None:
    handles = [await orders.open("orders/0.follow") for _ in range(CROWD)]
    for handle in handles:
        await reads.begin(handle)
    assert reads.waiting == CROWD
    writer = await orders.open("orders/0", APPEND)
    await orders.write(writer, b"one\n")
    assert reads.waiting == CROWD - AT_ONCE
    await reads.answered(CROWD)
    assert set(reads.answers.values()) == {b"one\n"}
    groups = [number // AT_ONCE for number in range(CROWD)]
    assert [(number - handles[0].number) // AT_ONCE for number in reads.order] == groups
    assert reads.waiting == 0


async def test_in_a_crowd_each_reader_waits_for_its_turn(
    orders: World, reads: Reads, autojump_clock: MockClock
) -> None:
    handles = [await orders.open("orders/0.follow") for _ in range(CROWD)]
    for handle in handles:
        await reads.begin(handle)
    late = await orders.open("orders/0.follow")
    now = await orders.open("orders/0.follow", os.O_RDONLY | os.O_NONBLOCK)
    writer = await orders.open("orders/0", APPEND)
    await orders.write(writer, b"one\n")
    reads.start(late)
    assert await orders.read(now, 0) == b"one\n"
    assert reads.waiting > AT_ONCE
    await reads.answered(CROWD + 1)
    assert reads.order[-1] == late.number
    assert set(reads.answers.values()) == {b"one\n"}


async def test_a_waiting_reader_keeps_no_large_buffer(orders: World, reads: Reads) -> None:
    for _ in range(3):
        await orders.append("orders/0", b"x" * 200_000 + b"\n")
    handle, offset = await orders.open("orders/0.follow"), 0
    while offset < 3 * 200_001:
        offset += len(await orders.read(handle, offset))
    buffers = orders.operations.files.buffers
    assert buffers.kept_bytes > 100_000
    await reads.begin(handle, offset)
    assert buffers.kept_bytes == 0
    await orders.append("orders/0", b"after\n")
    assert await reads.answered() == {handle.number: b"after\n"}


async def test_a_partition_that_is_reloaded_continues_growing_for_ranges(orders: World) -> None:
    """The kernel may know the inode from before."""
    await orders.append("orders/0", b"before\n")
    name = "orders/0@offset=0"
    await orders.find(name)
    partition = orders.operations.tree.partition("orders", 0)
    orders.store.reload(TopicPartition("orders", 0), orders.clock.now_ms)
    partition.replace_log(orders.store.partition("orders", 0))
    await orders.append("orders/0", b"after\n")
    assert await orders.cat(name) == b"before\nafter\n"
    assert (await orders.find(name)).st_size == 13
