"""The control socket and clients that request too much, or send a file of the mount."""

import contextlib
import os
import socket
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import trio

from logfs.client import Daemon
from logfs.control import frames
from logfs.disk.posix import PosixDisk
from logfs.errors import ControlError, InvalidConfigError
from logfs.fs.service.server import listen
from logfs.log.lines.form import LineTarget
from logfs.types import MAX_PARTITIONS
from tests.fs.mounting import Mounted
from tests.fs.served import Served
from tests.fs.world import World
from tests.mounting import PATIENCE_S


@pytest.fixture
async def served(orders: World, tmp_path: Path, nursery: trio.Nursery) -> Served:
    return Served(orders, tmp_path, nursery)


@pytest.mark.parametrize("partitions", [0, -1, MAX_PARTITIONS + 1, 2**31, 2**63])
async def test_a_topic_cannot_have_more_partitions_than_the_limit(
    served: Served, partitions: int
) -> None:
    with pytest.raises(InvalidConfigError, match=f"{partitions} partitions, expected 1 to 10000"):
        await served.ask("create", topic="new", partitions=partitions, config={})
    with pytest.raises(InvalidConfigError, match=f"{partitions}"):
        await served.ask("alter", topic="orders", partitions=partitions, changes={})
    assert await served.ask("topics") == {"orders": 1}


@pytest.mark.expect_log("half a surrogate pair")
async def test_fields_out_of_range_are_a_control_error(served: Served, tmp_path: Path) -> None:
    place: dict[str, Any] = {"topic": "orders", "partition": 0, "is_durable": False}
    with pytest.raises(ControlError, match="append: there are no records"):
        await served.ask("append", producer=None, **place)
    with pytest.raises(ControlError, match=r"append: .*base sequence -1 is outside"):
        await served.ask("append", b"x", producer=[1, 0, -1, False], **place)
    with pytest.raises(ControlError, match=r"end: .*epoch"):
        await served.ask("end", producer_id=-1, epoch=2**40, commit=True, **place)
    with pytest.raises(ControlError, match="end: producer id 9223372036854775808"):
        await served.ask("end", producer_id=2**63, epoch=0, commit=True, **place)
    with pytest.raises(ControlError, match="half a surrogate pair"):
        await served.ask("forget", query="\ud800")


async def test_memory_for_a_frame_grows_with_the_received_bytes(served: Served) -> None:
    """Sixty clients that announce 64 MiB each would take the daemon's memory with 60 packets."""
    streams = [await served.connect() for _ in range(20)]
    tracemalloc.start()
    for stream in streams:
        await stream.send_all(frames.encode_header({"request": "status"}, 1 << 26))
    assert await served.ask("topics") == {"orders": 1}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(streams) * 2 * 1024 * 1024
    for stream in streams:
        await stream.aclose()


async def test_a_large_frame_arrives_complete(served: Served) -> None:
    await served.world.append("orders/0", b"a\n")
    lines = b"".join(b"line %d of many\n" % n for n in range(300_000))
    answer = await served.ask(
        "lines", lines, topic="orders", partition=0, view=0, key_delimiter="", headers=[],
        unkeyed=0, is_durable=False,
    )  # fmt: skip
    assert answer["accepted"] == len(lines)


def test_a_client_retries_while_the_queue_of_connections_is_full(tmp_path: Path) -> None:
    """Linux refuses them with EAGAIN; they connect when the daemon has accepted the others."""
    listener = listen(str(tmp_path), PosixDisk(tmp_path))
    assert listener is not None
    listener.listen(1)
    waiting = []
    with contextlib.suppress(BlockingIOError):
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(PATIENCE_S)
            client.connect(str(tmp_path / "logfs.socket"))
            waiting.append(client)
    accepted = []

    def accept_late() -> None:
        trio.run(trio.sleep, 0.1)
        accepted.append(listener.accept()[0])

    async def connect() -> Daemon | None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, accept_late)
            return await trio.to_thread.run_sync(Daemon.connect, str(tmp_path))

    daemon = trio.run(connect)
    assert daemon is not None
    daemon.close()
    for each in (client, *waiting, *accepted, listener):
        each.close()


@pytest.mark.fuse
@pytest.mark.parametrize("name", ["orders/0", "orders/0@earliest..latest", "orders", "."])
def test_a_file_of_the_mount_itself_can_be_appended(mounted: Mounted, name: str) -> None:
    """close and fstat of such a file wait for the event loop, which must not call them itself."""
    mounted.shell("mkdir orders copies; echo line >> orders/0")
    daemon = Daemon.connect(str(mounted.data))
    assert daemon is not None
    with daemon:
        for _ in range(3):
            descriptor = os.open(mounted.point / name, os.O_RDONLY)
            with contextlib.suppress(ControlError):  # a directory is no regular file
                daemon.append_file(LineTarget("copies", 0), (descriptor, 0))
            os.close(descriptor)
        assert daemon.ask("topics") == {"copies": 1, "orders": 1}
    expected = "line\n" * (3 if "/" in name else 0)
    assert mounted.shell("cat copies/0") == expected
