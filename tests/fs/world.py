"""A file system without a mount: handlers called directly, over a disk in memory."""

import os
import stat
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC
from types import SimpleNamespace
from typing import cast

import pyfuse3
import pytest
import trio
from pyfuse3 import EntryAttributes, FUSEError, RequestContext, SetattrFields

from logfs.fs.handover.settling import Settling
from logfs.fs.kernel.hooks import Hooks
from logfs.fs.operations.served import Operations
from logfs.fs.options import parse_options
from logfs.fs.session.mount import make_operations
from logfs.fs.tree.nodes import TopicNode
from logfs.log.host import Host
from logfs.log.store import LogStore
from logfs.machine.host import Clock
from tests.fakes import FakeDisk

START_MS = 1_700_000_000_000
APPEND = os.O_WRONLY | os.O_APPEND
TOUCH = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
MIB = 1024 * 1024


class FakeClock:
    """Clocks that stand still until they are moved.

    Attributes:
        now_ms: Milliseconds since the epoch.
        seconds: The monotonic clock.
    """

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.seconds = 1000.0

    def both(self) -> Clock:
        return Clock(lambda: self.now_ms, lambda: self.seconds, lambda: self.seconds)

    def advance(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)
        self.seconds += seconds


class Ids:
    """Identifiers that are all different and the same in every run."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self) -> bytes:
        self.last += 1
        return (0x5A << 120 | self.last).to_bytes(16, "big")


@dataclass
class Handle:
    """An open file."""

    number: int
    is_direct: bool
    keeps_cache: bool
    inode: int


@dataclass
class World:
    """A store on a disk, and the file system over it.

    Attributes:
        disk: The disk.
        options: Mount options, as after ``-o``.
        boot: The boot of the machine.
        hooks: What is between pyfuse3 and libfuse.
        resumed: What an earlier daemon has left.
    """

    disk: FakeDisk = field(default_factory=FakeDisk)
    options: str = ""
    boot: str = "boot-1"
    clock: FakeClock = field(default_factory=FakeClock)
    ids: Ids = field(default_factory=Ids)
    hooks: Hooks | None = None
    resumed: Settling | None = None

    def __post_init__(self) -> None:
        self.user = cast("RequestContext", SimpleNamespace(uid=0, gid=0, pid=1, umask=0o022))
        self.open_store()

    def open_store(self) -> None:
        options = parse_options([self.options])
        self.store = LogStore.open(
            self.disk,
            options.store,
            Host(self.boot, self.ids),
            now_ms=self.clock.now_ms,
            read_only=options.read_only,
            resumed=self.resumed,
        )
        self.operations: Operations = make_operations(
            self.store, options, self.clock.both(), UTC, self.hooks
        )

    def restart(self, options: str | None = None) -> None:
        """Stop cleanly and start again."""
        self.store.close(self.clock.now_ms)
        if options is not None:
            self.options = options
        self.open_store()

    async def find(self, path: str) -> EntryAttributes:
        """Look a path up, name by name."""
        entry = await self.operations.getattr(pyfuse3.ROOT_INODE, self.user)
        for name in path.split("/") if path else []:
            entry = await self.operations.lookup(entry.st_ino, name.encode(), self.user)
        return entry

    async def parent(self, path: str) -> tuple[int, bytes]:
        folder, _, name = path.rpartition("/")
        return (await self.find(folder)).st_ino, name.encode()

    async def mkdir(self, name: str, mode: int = 0o755) -> EntryAttributes:
        return await self.operations.mkdir(1, name.encode(), stat.S_IFDIR | mode, self.user)

    async def rmdir(self, path: str) -> None:
        await self.operations.rmdir(*await self.parent(path), self.user)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, as ``logfs topic delete`` asks for it."""
        node = self.operations.tree.find(self.operations.tree.root, name.encode())
        assert isinstance(node, TopicNode)
        await self.operations.topic_changes.delete_topic(node)

    async def open(self, path: str, flags: int = os.O_RDONLY) -> Handle:
        entry = await self.find(path)
        info = await self.operations.open(entry.st_ino, flags, self.user)
        return Handle(info.fh, bool(info.direct_io), bool(info.keep_cache), entry.st_ino)

    async def create(self, path: str, flags: int = TOUCH) -> Handle:
        parent, name = await self.parent(path)
        info, entry = await self.operations.create(parent, name, 0o644, flags, self.user)
        return Handle(info.fh, bool(info.direct_io), bool(info.keep_cache), entry.st_ino)

    async def write(self, handle: Handle, data: bytes) -> int:
        return await self.operations.write(handle.number, 0, data)

    async def close(self, handle: Handle) -> None:
        await self.operations.flush(handle.number)
        await self.operations.release(handle.number)

    async def append(self, path: str, data: bytes) -> None:
        """Do what ``>>`` does."""
        handle = await self.open(path, APPEND)
        assert await self.write(handle, data) == len(data)
        await self.close(handle)

    async def read(self, handle: Handle, offset: int, size: int = MIB) -> bytes:
        return bytes(await self.operations.read(handle.number, offset, size))

    async def cat(self, path: str, size: int = MIB) -> bytes:
        """Do what cat does."""
        handle = await self.open(path)
        data = bytearray()
        while got := await self.read(handle, len(data), size):
            data += got
        await self.close(handle)
        return bytes(data)

    async def xattr(self, path: str, name: str) -> str:
        entry = await self.find(path)
        name_b = f"user.logfs.{name}".encode()
        return (await self.operations.getxattr(entry.st_ino, name_b, self.user)).decode()


def fields(**names: bool) -> SetattrFields:
    """Say which attributes a setattr request changes."""
    every = ("atime", "mtime", "ctime", "mode", "uid", "gid", "size")
    flags = {f"update_{name}": names.get(name, False) for name in every}
    return cast("SetattrFields", SimpleNamespace(**flags))


def number_of(error: object) -> int:
    """Return the errno of what ``pytest.raises(FUSEError)`` caught."""
    value = getattr(error, "value", error)
    assert isinstance(value, FUSEError)
    return value.errno


async def refused(call: Awaitable[object]) -> int:
    """Return the errno with which a request is refused."""
    with pytest.raises(FUSEError) as caught:
        await call
    return number_of(caught)


async def until(condition: Callable[[], bool]) -> None:
    """Let the time of trio pass until a condition is true; threads run meanwhile."""
    for _ in range(500):
        if condition():
            return
        await trio.sleep(0.5)
        await trio.to_thread.run_sync(threading.Event().wait, 0.001)
    pytest.fail("it never happened")
