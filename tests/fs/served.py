"""A daemon that can be asked through its control socket, over a disk in memory."""

import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import trio

from logfs.client import Daemon
from logfs.control.requests import Request
from logfs.disk.posix import PosixDisk
from logfs.fs.kernel.cache import KernelCache
from logfs.fs.service.commands import ControlCommands
from logfs.fs.service.server import ControlServer, listen
from tests.fs.world import World


class FakeKernel(KernelCache):
    """Notes what is to be dropped."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.inodes: list[int] = []

    async def drop_name(self, parent: int, name: str) -> None:
        self.names.append(name)

    async def drop_bytes(self, inodes: Iterable[int]) -> None:
        self.inodes.extend(inodes)


class Served:
    """A world whose daemon answers requests.

    Attributes:
        data: The directory of its socket.
        run: What answers a request; a test may replace it.
    """

    def __init__(self, world: World, data: Path, nursery: trio.Nursery) -> None:
        self.world = world
        self.data = data
        self.kernel = FakeKernel()
        commands = ControlCommands(
            world.store, world.operations, self.kernel, world.clock.both(), {"pid": 7}
        )
        self.run: Callable[[Request], Awaitable[object]] = commands.run
        server = ControlServer(lambda request: self.run(request))
        listener = listen(str(data), PosixDisk(data))
        assert listener is not None
        nursery.start_soon(server.run, listener)

    def daemon(self) -> Daemon:
        """Connect as another program would; only in a thread."""
        daemon = Daemon.connect(str(self.data))
        assert daemon is not None
        return daemon

    async def ask(self, request: str, payload: bytes = b"", **arguments: object) -> Any:  # noqa: ANN401
        """Ask in a thread."""

        def ask() -> object:
            with self.daemon() as daemon:
                return daemon.ask(request, arguments, payload=payload)

        return await trio.to_thread.run_sync(ask)

    async def connect(self) -> trio.SocketStream:
        sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        await sock.connect(str(self.data / "logfs.socket"))
        return trio.SocketStream(sock)
