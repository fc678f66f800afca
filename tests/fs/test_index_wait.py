"""Waits for positions that are not known yet: which requests wait, and until when."""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from pyfuse3 import FUSEError, RequestContext
from trio.testing import MockClock

from logfs.fs.kernel.interrupts import has_signal
from logfs.fs.operations.served import Operations
from logfs.fs.options import parse_options
from logfs.fs.session.mount import make_operations
from tests.fakes import FakeDisk
from tests.fs.world import FakeClock
from tests.log.foreign import FakeBroker, Follower


class Large:
    """A file system over a log of which almost nothing has been read yet."""

    def __init__(self) -> None:
        broker = FakeBroker(FakeDisk())
        for _ in range(4):
            for _ in range(40):
                broker.append(b"x" * 999)
            broker.roll()
        self.size = 4 * 40 * 1000
        self.follower = Follower(broker.disk, at_once_bytes=0)
        self.operations: Operations = make_operations(
            self.follower.store, parse_options(["ro"]), FakeClock().both(), UTC
        )
        assert self.follower.log.indexing is not None

    async def find(self, name: str, pid: int = 0) -> int:
        user = context(pid)
        topic = await self.operations.lookup(1, b"t", user)
        entry = await self.operations.lookup(topic.st_ino, name.encode(), user)
        return int(entry.st_ino)

    async def size_of(self, name: str) -> int:
        entry = await self.operations.getattr(await self.find(name), context(0))
        return int(entry.st_size)


def context(pid: int) -> RequestContext:
    return cast("RequestContext", SimpleNamespace(uid=0, gid=0, pid=pid, umask=0o022))


async def test_open_waits_until_positions_are_known_and_stat_does_not(
    autojump_clock: MockClock,
) -> None:
    large = Large()
    inode = await large.find("0")
    assert await large.size_of("0") == 0
    opened = []

    async def open_it() -> None:
        opened.append(await large.operations.open(inode, os.O_RDONLY, context(0)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_it)
        await trio.sleep(5)
        assert not opened
        large.follower.look()
        await trio.sleep(1)
        assert opened
    assert await large.size_of("0") == large.size


async def test_a_lookup_does_not_wait_for_positions_and_stat_does(
    autojump_clock: MockClock,
) -> None:
    large = Large()
    names = ["0@byte=100..byte=1100", "0@earliest..latest"]
    found = [await large.find(name) for name in names]
    assert large.follower.log.indexing is not None
    sizes = []

    async def look_at(inode: int) -> None:
        sizes.append((await large.operations.getattr(inode, context(0))).st_size)

    async with trio.open_nursery() as nursery:
        for inode in found:
            nursery.start_soon(look_at, inode)
        await trio.sleep(5)
        assert not sizes
        large.follower.look()
    assert sorted(sizes) == [1000, large.size]


@pytest.fixture
def stopped() -> Iterator["subprocess.Popen[bytes]"]:
    """A process to which no signal is delivered, because it is stopped."""
    process = subprocess.Popen(["sleep", "100"])
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("name", ["0", "0@earliest", "0@byte=100..byte=200"])
async def test_a_waiting_program_can_be_interrupted(
    stopped: "subprocess.Popen[bytes]", name: str
) -> None:
    large, process, over = Large(), stopped, trio.Event()
    ended: list[int] = []

    async def wait() -> None:
        try:
            inode = await large.find(name, process.pid)
            await large.operations.open(inode, os.O_RDONLY, context(process.pid))
        except FUSEError as error:
            ended.append(error.errno)
            over.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.1)
        assert not ended
        # It stays pending, since the process is stopped.
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(30):
            await over.wait()
    assert ended == [errno.EINTR]


async def test_the_end_of_the_mount_ends_the_wait(autojump_clock: MockClock) -> None:
    large = Large()
    inode = await large.find("0")
    large.operations.index_wait.end()
    with pytest.raises(FUSEError) as raised:
        await large.operations.open(inode, os.O_RDONLY, context(0))
    assert raised.value.errno == errno.EINTR


async def test_a_range_answers_at_once_and_continues_to_the_end(autojump_clock: MockClock) -> None:
    large = Large()
    inode = await large.find("0@offset=100")
    info = await large.operations.open(inode, os.O_RDONLY, context(0))
    done = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, large.follower.look)
        while got := len(await large.operations.read(info.fh, done, 5000)):
            done += got
    assert done == 60 * 1000


def test_a_process_that_is_gone_waits_no_longer() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert has_signal(process.pid)
    assert not has_signal(os.getpid())
