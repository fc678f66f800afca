"""The control server over real sockets, with clients that hang or send garbage."""

import os
import stat
import threading
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from logfs import client
from logfs.client import Daemon
from logfs.control import frames
from logfs.control.requests import Request
from logfs.disk.posix import PosixDisk
from logfs.errors import (
    ControlError,
    LogfsError,
)
from logfs.fs.service import server as control_server
from logfs.fs.service.server import listen
from tests.fs.served import Served
from tests.fs.world import World


@pytest.fixture
async def served(orders: World, tmp_path: Path, nursery: trio.Nursery) -> Served:
    return Served(orders, tmp_path, nursery)


async def test_the_socket_is_for_its_owner_alone_and_replaces_an_old_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "logfs.socket"
    for _ in range(2):
        listener = listen(str(tmp_path), PosixDisk(tmp_path))
        assert listener is not None
        mode = path.stat().st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        listener.close()
    assert Daemon.connect(str(tmp_path)) is None, "no daemon listens"
    control_server.forget_socket(PosixDisk(tmp_path))
    assert Daemon.connect(str(tmp_path)) is None
    assert Daemon.connect(str(tmp_path / "missing")) is None


async def test_a_data_directory_may_have_a_path_longer_than_an_address(
    orders: World, tmp_path: Path, nursery: trio.Nursery
) -> None:
    data = tmp_path / ("d" * 200) / ("e" * 200)
    data.mkdir(parents=True)
    assert (await Served(orders, data, nursery).ask("status"))["pid"] == 7


@pytest.mark.expect_log("no control socket")
async def test_a_daemon_runs_without_a_socket_if_it_cannot_bind_one(tmp_path: Path) -> None:
    (tmp_path / "logfs.socket").mkdir()
    assert listen(str(tmp_path), PosixDisk(tmp_path)) is None


@pytest.mark.expect_log("a bug in logfs: the request status failed")
async def test_a_bug_in_a_request_is_an_error_for_its_client(served: Served) -> None:
    run = served.run

    async def fail(_request: Request) -> object:
        raise AssertionError

    served.run = fail
    with pytest.raises(LogfsError, match="the daemon's log has the traceback"):
        await served.ask("status")
    served.run = run
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
        frames.encode_frame({"request": "topics"})[:-1],
        frames.encode_frame({"request": "topics"}),
        frames.encode_frame({"request": "describe", "topic": "orders"}) * 500,
    ],
    ids=["silent", "one byte", "half a frame", "answer unread", "answers unread"],
)
async def test_a_client_that_hangs_does_not_delay_other_clients(
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


async def test_the_daemon_disconnects_a_client_that_hangs(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "PATIENCE_S", 0.01)
    stream = await served.connect()
    await stream.send_all(b"LFSC")
    with trio.fail_after(60):
        assert await everything_from(stream) == b""
    await stream.aclose()


@pytest.mark.expect_log("more than 3 clients")
@pytest.mark.allow_log("was turned away")
async def test_the_daemon_refuses_more_clients_than_its_limit(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "MAX_CLIENTS", 3)
    streams = [await served.connect() for _ in range(4)]
    with trio.fail_after(60):
        assert await everything_from(streams[3]) == b""
    for stream in streams:
        await stream.aclose()


@pytest.mark.expect_log("expected a frame of logfs's control protocol")
async def test_another_protocol_gets_an_error_and_is_disconnected(served: Served) -> None:
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
    with trio.fail_after(60):
        answer = await everything_from(stream)
    await stream.aclose()
    head = frames.decode_head(answer[: frames.HEAD_BYTES])
    header = frames.decode_header(answer[frames.HEAD_BYTES :][: head.header_bytes])
    assert isinstance(frames.decode_error(header["error"]), ControlError)


async def test_progress_comes_before_the_answer_and_may_stay_unread(served: Served) -> None:
    async def run(request: Request) -> object:
        for number in range(10_000):
            request.report(f"{number}")
        await trio.lowlevel.checkpoint()
        return {"payload": len(request.payload)}

    served.run = run
    lines: list[str] = []

    def ask() -> object:
        with served.daemon() as daemon:
            return daemon.ask("status", payload=bytes(5), progress=lines.append)

    assert await trio.to_thread.run_sync(ask) == {"payload": 5}
    assert lines[:3] == ["0", "1", "2"]


async def test_the_error_says_that_the_daemon_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_UNSURE_TRIES", 2)
    listener = listen(str(tmp_path), PosixDisk(tmp_path))
    assert listener is not None

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(10)
        listener.close()
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    daemon = Daemon.connect(str(tmp_path))
    assert daemon is not None
    with daemon, pytest.raises(ControlError, match="the daemon ended before it answered"):
        daemon.ask("status")
    thread.join()


def test_a_question_is_repeated_to_the_daemon_that_follows(tmp_path: Path) -> None:
    listener = listen(str(tmp_path), PosixDisk(tmp_path))
    assert listener is not None

    def serve() -> None:
        first, _ = listener.accept()
        first.recv(10)
        first.close()
        second, _ = listener.accept()
        with second:
            second.recv(1000)
            second.sendall(frames.encode_header({"result": {"pid": 7}}, 0))

    thread = threading.Thread(target=serve)
    thread.start()
    daemon = Daemon.connect(str(tmp_path))
    assert daemon is not None
    with daemon:
        assert daemon.ask("status") == {"pid": 7}
    thread.join()
    listener.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_may_not_connect(tmp_path: Path) -> None:
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
