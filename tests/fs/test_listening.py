"""The control socket: real sockets, requests carried out on a disk in memory, odd clients."""

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel

from logfs import control
from logfs.client import Daemon
from logfs.disk.posix import PosixDisk
from logfs.errors import (
    ControlError,
    CorruptRecordError,
    InvalidConfigError,
    LogfsError,
    NoSuchTopicError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    TopicExistsError,
    UnparsableLineError,
)
from logfs.fs import listening
from logfs.fs.commands import Commands
from logfs.fs.kernel import KernelCache
from logfs.fs.listening import ControlServer, listen
from logfs.log.writing.produced import Appended
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.fs.world import START_MS, World, refused
from tests.log.support import records_in


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
    """A world whose daemon can be asked.

    Attributes:
        data: Where its socket is.
    """

    def __init__(self, world: World, data: Path, nursery: trio.Nursery) -> None:
        self.world = world
        self.data = data
        self.kernel = FakeKernel()
        commands = Commands(
            world.store, world.operations, self.kernel, world.clock.both(), {"pid": 7}
        )
        self.server = ControlServer(commands)
        listener = listen(str(data), PosixDisk(data))
        assert listener is not None
        nursery.start_soon(self.server.run, listener)

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


@pytest.fixture
async def served(orders: World, tmp_path: Path, nursery: trio.Nursery) -> Served:
    return Served(orders, tmp_path, nursery)


async def test_the_file_is_the_owners_alone_and_what_was_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "logfs.socket"
    for _ in range(2):
        listener = listen(str(tmp_path), PosixDisk(tmp_path))
        assert listener is not None
        mode = path.stat().st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        listener.close()
    assert Daemon.connect(str(tmp_path)) is None, "nobody listens any more"
    listening.forget_socket(PosixDisk(tmp_path))
    assert Daemon.connect(str(tmp_path)) is None
    assert Daemon.connect(str(tmp_path / "missing")) is None


async def test_paths_that_do_not_fit_into_an_address(
    orders: World, tmp_path: Path, nursery: trio.Nursery
) -> None:
    data = tmp_path / ("d" * 200) / ("e" * 200)
    data.mkdir(parents=True)
    assert (await Served(orders, data, nursery).ask("status")) == {"pid": 7}


@pytest.mark.expect_log("no control socket")
async def test_where_no_socket_can_be_the_daemon_goes_without(tmp_path: Path) -> None:
    (tmp_path / "logfs.socket").mkdir()
    assert listen(str(tmp_path), PosixDisk(tmp_path)) is None


async def test_topics(served: Served) -> None:
    config = {"retention.ms": "1000000000"}
    assert await served.ask("create", topic="new", partitions=3, config=config) == []
    assert await served.ask("topics") == {"new": 3, "orders": 1}
    await served.world.append("new/2", b"a\n")
    [warning] = await served.ask("alter", topic="new", changes={"segment.ms": "9999999999"},
                                 partitions=4)  # fmt: skip
    assert warning.startswith("segment.ms=9999999999 is longer than")
    facts = await served.ask("describe", topic="new")
    assert facts["config"] == {**config, "segment.ms": "9999999999"}
    assert [meta["log_end_offset"] for meta in facts["partitions"]] == [0, 0, 1, 0]
    back = {"segment.ms": None}
    assert await served.ask("alter", topic="new", changes=back, partitions=None) == []
    await served.ask("delete", topic="new")
    assert await served.ask("topics") == {"orders": 1}
    assert served.kernel.names == ["new"]
    assert await refused(served.world.find("new")) == errno.ENOENT


@pytest.mark.parametrize(
    ("request_", "arguments", "error", "text"),
    [
        ("create", {"topic": "orders", "partitions": 1, "config": {}}, TopicExistsError, "exists"),
        ("create", {"topic": "x", "partitions": 1, "config": {"a": "b"}}, InvalidConfigError, "a"),
        ("create", {"topic": "x", "partitions": 0, "config": {}}, InvalidConfigError, "at least 1"),
        ("create", {"topic": "x", "partitions": 1, "config": {"a": None}}, ControlError, "texts"),
        ("create", {"topic": 5, "partitions": 1, "config": {}}, ControlError, "topic=5: expected"),
        ("alter", {"topic": "x", "changes": {}, "partitions": 2}, NoSuchTopicError, "no topic x"),
        ("alter", {"topic": "orders", "changes": {"flush.ms": None}, "partitions": None},
         InvalidConfigError, "flush.ms is not set for topic orders"),
        ("delete", {"topic": "x"}, NoSuchTopicError, "no topic x"),
        ("delete", {"topic": ".segments"}, ControlError, "'.segments' is no topic"),
        ("trim", {"names": ["orders", "0@offset=9"], "at_once": False}, OffsetOutOfRangeError,
         "offset 9 is outside"),
        ("trim", {"names": ["orders", "0@offset=9"]}, ControlError, "at_once=None: expected bool"),
        ("fly", {}, ControlError, "'fly' is no request that this daemon knows"),
    ],
)  # fmt: skip
async def test_refusals_are_those_of_the_store(
    served: Served, request_: str, arguments: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await served.ask(request_, b"", **arguments)


async def test_trim(served: Served) -> None:
    world = served.world
    await served.ask("alter", topic="orders", changes={"internal.segment.bytes": "100"},
                     partitions=2)  # fmt: skip
    for line in (b"a\n", b"b\n", b"c\n"):
        await world.append("orders/0", line)
    fixed = await world.open("orders/0@earliest..latest")
    await world.find("orders/0")
    [done] = await served.ask("trim", names=["orders", "0@offset=2"], at_once=False)
    assert (done["partition"], done["log_start_offset"], done["segments"]) == (0, 2, 2)
    assert served.kernel.inodes == []
    assert await world.cat("orders/0") == b"c\n"
    done = await served.ask("trim", names=["orders@latest"], at_once=True)
    assert [(x["partition"], x["log_start_offset"]) for x in done] == [(0, 3), (1, 0)]
    assert done[0]["held_bytes"] == 3 * 69
    assert served.kernel.inodes == [fixed.inode], "what the kernel has cached, and nothing else"
    assert await world.cat("orders/0") == b""
    assert await world.read(fixed, 0) == b"a\nb\nc\n"
    await world.close(fixed)


RECORDS = [
    Record(0, START_MS, b"k", b"v", ((b"h", None),)),
    Record(0, START_MS + 1, None, b"\xff"),
    Record(0, START_MS + 2, b"k", None),
]
TP = TopicPartition("orders", 0)


def with_offsets(records: list[Record], base_offset: int) -> list[Record]:
    return [r._replace(offset=base_offset + n) for n, r in enumerate(records)]


async def test_appends(served: Served) -> None:
    world = served.world
    await world.append("orders/0", b"before\n")

    def append() -> Appended:
        with served.daemon() as daemon:
            return daemon.append(TP, RECORDS)

    assert await trio.to_thread.run_sync(append) == Appended(1, 3)
    log = world.store.partition("orders", 0)
    assert log.recovery_point == 0
    name = log.snapshot.active.name
    assert records_in(world.disk.read(name))[1:] == with_offsets(RECORDS, 1)
    assert (await world.cat("orders/0.jsonl")).count(b"\n") == 4

    def append_durably() -> Appended:
        with served.daemon() as daemon:
            return daemon.append(TP, [Record(0, START_MS, None, b"x" * 3_000_000)], is_durable=True)

    served.world.store.alter_topic("orders", {"max.message.bytes": "4000000"})
    assert await trio.to_thread.run_sync(append_durably) == Appended(4, 4)
    assert log.recovery_point == 5


async def test_appends_of_a_producer_are_made_once(served: Served) -> None:
    def append(sequence: int, *, transactional: bool = False) -> Appended:
        producer = ProducerBatch(7, 0, sequence, transactional)
        with served.daemon() as daemon:
            return daemon.append(TP, RECORDS, producer)

    run = trio.to_thread.run_sync
    assert await run(append, 0) == Appended(0, 2)
    assert await run(append, 0) == Appended(0, 2, True)
    assert await run(append, 3) == Appended(3, 5)
    with pytest.raises(OutOfOrderSequenceError):
        await run(append, 9)
    await run(lambda: append(6, transactional=True))
    log = served.world.store.partition("orders", 0)
    assert (log.last_stable_offset, log.log_end_offset) == (6, 9)

    def commit() -> int:
        with served.daemon() as daemon:
            return daemon.end_transaction(TP, 7, 0, commit=True, is_durable=True)

    assert await run(commit) == 9
    assert (log.last_stable_offset, log.recovery_point) == (10, 10)


async def test_appends_that_are_refused(served: Served) -> None:
    def append(records: list[Record], topic: str = "orders") -> Appended:
        with served.daemon() as daemon:
            return daemon.append(TopicPartition(topic, 0), records)

    async def refused_with(error: type[Exception], records: list[Record]) -> None:
        with pytest.raises(error):
            await trio.to_thread.run_sync(append, records)

    with pytest.raises(NoSuchTopicError):
        await trio.to_thread.run_sync(append, RECORDS, "nix")
    await refused_with(RecordTooLargeError, [Record(0, START_MS, None, bytes(2_000_000))])
    await refused_with(UnparsableLineError, [Record(0, START_MS + 10**12, None, b"v")])
    await refused_with(ControlError, [Record(0, START_MS, None, bytes(40_000_000))] * 2)
    with pytest.raises(CorruptRecordError):
        await served.ask("append", topic="orders", partition=0, is_durable=False, payload=b"x" * 99)
    await served.ask("alter", topic="orders", changes={"cleanup.policy": "compact"},
                     partitions=None)  # fmt: skip
    await refused_with(UnparsableLineError, [Record(0, START_MS, None, b"no key")])
    assert served.world.store.partition("orders", 0).log_end_offset == 0


async def test_retention_and_roll(served: Served) -> None:
    await served.ask("alter", topic="orders", changes={"retention.bytes": "0"}, partitions=None)
    assert await served.ask("retention") == []
    await served.world.append("orders/0", b"a\nb\n")
    assert await served.ask("roll", topic="orders", partition=0) == 2
    [[topic, partition, deletion]] = await served.ask("retention")
    assert (topic, partition, deletion["start"]) == ("orders", 0, [0, 2])


@pytest.mark.expect_log("a bug in logfs: the request status failed")
async def test_a_bug_is_answered_too(served: Served) -> None:
    served.server._commands._facts = None  # type: ignore[assignment]
    with pytest.raises(LogfsError, match="the daemon's log has the traceback"):
        await served.ask("status")
    assert await served.ask("topics") == {"orders": 1}


async def test_several_requests_through_one_connection(served: Served) -> None:
    def ask() -> list[object]:
        with served.daemon() as daemon:
            return [daemon.ask("topics") for _ in range(3)]

    assert await trio.to_thread.run_sync(ask) == [{"orders": 1}] * 3


async def everything_from(stream: trio.SocketStream) -> bytes:
    """Read until the other side goes, however it does."""
    data = b""
    try:
        while part := await stream.receive_some(4096):
            data += part
    except trio.BrokenResourceError:
        pass
    return data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"L",
        control.encode_frame({"request": "topics"})[:-1],
        control.encode_frame({"request": "topics"}),
        control.encode_frame({"request": "describe", "topic": "orders"}) * 500,
    ],
    ids=["silent", "one byte", "half a frame", "answer unread", "answers unread"],
)
async def test_clients_that_hang_hold_up_nobody(
    served: Served, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = [await served.connect() for _ in range(3)]
    with trio.move_on_after(0.2):
        for stream in hanging:
            await stream.send_all(data)
    assert await served.ask("topics") == {"orders": 1}
    await served.world.append("orders/0", b"a\n")
    for stream in hanging:
        await stream.aclose()
    assert await served.ask("topics") == {"orders": 1}


async def test_a_client_that_hangs_is_let_go(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "PATIENCE_S", 0.01)
    stream = await served.connect()
    await stream.send_all(b"LFSC")
    with trio.fail_after(60):
        assert await everything_from(stream) == b""
    await stream.aclose()


@pytest.mark.expect_log("more than 3 clients")
@pytest.mark.allow_log("was turned away")
async def test_too_many_clients_are_turned_away(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAX_CLIENTS", 3)
    streams = [await served.connect() for _ in range(4)]
    with trio.fail_after(60):
        assert await everything_from(streams[3]) == b""
    for stream in streams:
        await stream.aclose()


@pytest.mark.expect_log("expected a frame of logfs's control protocol")
async def test_who_speaks_otherwise_is_answered_and_let_go(served: Served) -> None:
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
    with trio.fail_after(60):
        answer = await everything_from(stream)
    await stream.aclose()
    head = control.decode_head(answer[: control.HEAD_BYTES])
    header = control.decode_header(answer[control.HEAD_BYTES :][: head.header_bytes])
    assert isinstance(control.decode_error(header["error"]), ControlError)


async def test_progress_comes_before_the_answer_and_nobody_has_to_read_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(
        header: dict[str, Any], payload: bytes, say: Callable[[str], None]
    ) -> dict[str, object]:
        for number in range(10_000):
            say(f"{number}")
        await trio.lowlevel.checkpoint()
        return {"payload": len(payload)}

    monkeypatch.setattr(served.server._commands, "run", run)
    lines: list[str] = []

    def ask() -> object:
        with served.daemon() as daemon:
            return daemon.ask("anything", payload=bytes(5), progress=lines.append)

    assert await trio.to_thread.run_sync(ask) == {"payload": 5}
    assert lines[:3] == ["0", "1", "2"]


async def test_a_daemon_that_goes_is_an_error_that_says_so(tmp_path: Path) -> None:
    listener = listen(str(tmp_path), PosixDisk(tmp_path))
    assert listener is not None

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(10)
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    daemon = Daemon.connect(str(tmp_path))
    assert daemon is not None
    with daemon, pytest.raises(ControlError, match="has gone before it answered"):
        daemon.ask("status")
    thread.join()
    listener.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_turned_away(tmp_path: Path) -> None:
    listener = listen(str(tmp_path), PosixDisk(tmp_path))
    assert listener is not None
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            Daemon.connect(str(tmp_path))
        except PermissionError:
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    listener.close()
