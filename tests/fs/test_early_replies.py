"""Reads that an append has woken are answered after its reply, before their handlers run."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from logfs.fs.files.readerqueue import AT_ONCE
from logfs.fs.kernel.earlyreplies import EarlyReplies
from logfs.fs.kernel.interrupts import InterruptWatch
from logfs.services.retention.trimming import trim
from tests.fs.reads import Reads, Signals
from tests.fs.world import APPEND, World
from tests.mounting import PATIENCE_S, environment, is_mounted, take_away, wait_until

WRITES = 300


class FakeKernel(Signals):
    """The hooks: they answer requests, and say when a reply has been sent.

    Attributes:
        answers: What requests were answered, by number: 1 is the first read.
        is_full: As many as may be have been answered before their handlers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[int, bytes] = {}
        self.is_full = False
        self._number = 1
        self._replied: Callable[[], None] = lambda: None
        self._is_expected = False

    def request(self) -> int:
        return self._number

    def drop_buffer(self) -> None:
        self._number += 1  # the last thing that a handler says before it reads

    def on_reply(self, replied: Callable[[], None]) -> None:
        self._replied = replied

    def expect_reply(self) -> None:
        self._is_expected = True

    def reply(self, request: int, data: memoryview) -> bool:
        if not self.is_full:
            self.answers[request] = bytes(data)
        return not self.is_full

    def send_reply(self) -> None:
        """Do what the kernel's side does when a handler has returned."""
        if self._is_expected:
            self._is_expected = False
            self._replied()


@pytest.fixture
def kernel(orders: World) -> FakeKernel:
    """The hooks of a mount."""
    kernel = FakeKernel()
    followers = orders.operations.follow_reads
    followers.interrupts, followers.early_replies = InterruptWatch(kernel), EarlyReplies(kernel)
    return kernel


@pytest.fixture
def reads(orders: World, nursery: trio.Nursery, kernel: FakeKernel) -> Reads:
    nursery.start_soon(orders.operations.follow_reads.queues.run)
    return Reads(orders, nursery)


async def test_a_waiting_read_is_answered_before_its_handler_runs(
    orders: World, reads: Reads, kernel: FakeKernel
) -> None:
    writer, handle = await orders.open("orders/0", APPEND), await orders.open("orders/0.follow")
    await orders.write(writer, b"zero\n")
    assert await orders.read(handle, 0) == b"zero\n"
    await reads.begin(handle, 5)
    await orders.write(writer, b"one\n")
    assert not kernel.answers
    kernel.send_reply()
    assert kernel.answers == {2: b"one\n"}
    assert not reads.answers
    assert await reads.answered() == {handle.number: b""}
    await orders.write(writer, b"two\n")
    assert await orders.read(handle, 9) == b"two\n"
    kernel.send_reply()
    assert kernel.answers == {2: b"one\n"}


async def test_a_reply_that_the_kernel_refuses_is_left_to_the_handler(
    orders: World, reads: Reads, kernel: FakeKernel
) -> None:
    kernel.is_full = True
    writer, handle = await orders.open("orders/0", APPEND), await orders.open("orders/0.follow")
    await reads.begin(handle)
    await orders.write(writer, b"one\n")
    kernel.send_reply()
    assert await reads.answered() == {handle.number: b"one\n"}


@pytest.mark.expect_log("fell behind retention")
async def test_no_record_is_repeated_when_the_kernel_refuses_the_next(
    orders: World, reads: Reads, kernel: FakeKernel
) -> None:
    """After a hole, where what a program has counted is less than its position."""
    kernel.is_full = True
    writer, handle = await orders.open("orders/0", APPEND), await orders.open("orders/0.follow")
    await orders.write(writer, b"zero\none\ntwo\n")
    trim(orders.store.partition("orders", 0), 2, orders.clock.now_ms)
    assert await orders.read(handle, 0) == b"two\n"
    await reads.begin(handle, 4)
    await orders.write(writer, b"three\n")
    kernel.send_reply()
    assert await reads.answered() == {handle.number: b"three\n"}


async def test_a_handler_that_has_run_is_not_answered_for(
    orders: World, reads: Reads, kernel: FakeKernel
) -> None:
    writer, handle = await orders.open("orders/0", APPEND), await orders.open("orders/0.follow")
    await reads.begin(handle)
    await orders.write(writer, b"one\n")
    assert await reads.answered() == {handle.number: b"one\n"}
    kernel.send_reply()
    assert not kernel.answers


async def test_an_interrupted_read_gets_no_early_reply(
    orders: World, reads: Reads, kernel: FakeKernel
) -> None:
    writer, handle = await orders.open("orders/0", APPEND), await orders.open("orders/0.follow")
    await reads.begin(handle)
    await orders.write(writer, b"one\n")
    kernel.interrupted(1)
    kernel.send_reply()
    assert not kernel.answers
    assert await reads.answered() == {handle.number: errno.EINTR}


async def test_of_a_crowd_a_few_are_answered_at_once(
    orders: World, reads: Reads, kernel: FakeKernel
) -> None:
    for _ in range(5 * AT_ONCE):
        await reads.begin(await orders.open("orders/0.follow"))
    writer = await orders.open("orders/0", APPEND)
    await orders.write(writer, b"one\n")
    kernel.send_reply()
    assert kernel.answers == dict.fromkeys(range(1, AT_ONCE + 1), b"one\n")
    await reads.answered(5 * AT_ONCE)
    kernel.send_reply()
    left = [answer for answer in reads.answers.values() if answer]
    assert left == [b"one\n"] * (5 * AT_ONCE - len(kernel.answers))


@pytest.mark.fuse
def test_the_late_reply_of_a_handler_does_not_reach_the_reader(tmp_path: Path) -> None:
    point, script = tmp_path / "mnt", Path(__file__).with_name("replies_early.py")
    point.mkdir()
    command = [sys.executable, str(script), str(point)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment()) as daemon:
        try:
            wait_until(lambda: (point / "file").is_file(), "it is mounted")
            with subprocess.Popen(["cat", point / "file"], stdout=subprocess.PIPE) as reader:
                assert reader.stdout is not None
                assert reader.stdout.readline() == b"begin\n"
                writer = os.open(point / "file", os.O_WRONLY)
                for number in range(WRITES):
                    line = b"%d\n" % number
                    wait_until(lambda: _waits(reader.pid), "it waits")
                    os.write(writer, line)
                    assert reader.stdout.readline() == line
                wait_until(lambda: _waits(reader.pid), "it waits")
                os.write(writer, b"end\n")
                assert reader.stdout.read() == b""
                os.close(writer)
        finally:
            if is_mounted(point):
                take_away(point)
            said = daemon.communicate(timeout=PATIENCE_S)[1]
    assert said == b""


def _waits(pid: int) -> bool:
    """Whether a program waits in read(2), which is 0 there."""
    return Path(f"/proc/{pid}/syscall").read_text().startswith("0 ")
