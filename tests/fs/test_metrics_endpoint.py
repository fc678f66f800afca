"""The endpoint beside a mount that hangs or is gone."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest

from logfs.fs.metrics import endpoint
from logfs.fs.metrics.endpoint import Endpoint
from logfs.fs.metrics.exposition import Exposition
from logfs.fs.metrics.mounts import MountMetrics, MountPlace
from tests.fs.world import World
from tests.mounting import PATIENCE_S, wait_until

Ask = Callable[..., tuple[int, bytes]]


@pytest.fixture
def point(tmp_path: Path) -> Path:
    """A directory in place of the mount point."""
    point = tmp_path / "mnt"
    point.mkdir()
    return point


@pytest.fixture
def listener() -> socket.socket:
    """Any port that is free."""
    return socket.create_server(("127.0.0.1", 0))


@pytest.fixture
def ask(world: World, point: Path, listener: socket.socket) -> Iterator[Ask]:
    """Ask an endpoint over an empty store."""
    where = MountPlace("/data", str(point))
    facts = MountMetrics(world.store, world.operations, world.clock.both(), where)
    port = listener.getsockname()[1]
    served = Endpoint(listener, Exposition(facts), str(point))
    served.start()

    def get(path: str, **headers: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    yield get
    served.stop()
    with pytest.raises(OSError, match="refused"):
        get("/metrics")


def test_a_mount_that_is_gone_is_not_well(ask: Ask, point: Path) -> None:
    assert ask("/healthz") == (200, b"ok\n")
    point.rmdir()
    assert ask("/healthz") == (503, b"the mount does not answer\n")
    assert b"logfs_mount_answers 0.0\n" in ask("/metrics")[1]


def test_a_mount_that_hangs_is_asked_by_one_at_a_time(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, asked, statvfs = threading.Event(), list[str](), os.statvfs

    def hang(path: str) -> os.statvfs_result:
        asked.append(path)
        goes_on.wait()
        return statvfs(path)

    monkeypatch.setattr(endpoint, "HEALTHY_S", 0.05)
    monkeypatch.setattr(os, "statvfs", hang)
    try:
        assert [ask("/healthz")[0] for _ in range(3)] == [503, 503, 503]
        assert len(asked) == 1
        assert ask("/metrics")[0] == 200  # meanwhile
    finally:
        goes_on.set()
    wait_until(lambda: ask("/healthz")[0] == 200, "the mount was well again")


def test_clients_that_ask_often_share_an_answer(
    ask: Ask, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "SHARE", 1_000_000)
    assert len({ask("/metrics")[1] for _ in range(5)}) == 1
    assert world.disk.counts["free"] == 1


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_slow_clients_do_not_lock_out_others(
    ask: Ask, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(endpoint, "PATIENCE_S", 600)
    monkeypatch.setattr(endpoint, "HEAD_PATIENCE_S", 600)
    with ExitStack() as stack:
        slow = [socket.create_connection(listener.getsockname()) for _ in range(40)]
        for client in slow:
            stack.enter_context(client)
            client.send(sent)
        assert ask("/healthz") == (200, b"ok\n")
        for client in slow[:20]:
            assert is_cut_off(client), "the oldest are"
    assert ask("/healthz") == (200, b"ok\n")


def is_cut_off(client: socket.socket) -> bool:
    """Whether the server ends a connection; it resets one of which it has not read all."""
    client.settimeout(PATIENCE_S)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_a_request_is_answered_soon(
    ask: Ask, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PATIENCE_S", 600)
    monkeypatch.setattr(endpoint, "HEAD_PATIENCE_S", 0.05)
    with socket.create_connection(listener.getsockname(), PATIENCE_S) as client:
        client.send(b"GET /metrics")
        assert client.makefile("rb").readline() == b"HTTP/1.1 400 Bad Request\r\n"
    assert ask("/healthz")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("127.0.0.1:9464", 200), ("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:9464", 200)),
        *(("", 200), ("logfs.localhost", 200), (f"{socket.gethostname()}:80", 200)),
        *(("evil.example", 421), ("evil.example:9464", 421), ("127.0.0.1.evil.example", 421)),
        ("localhost.evil.example", 421),
    ],
)
def test_a_web_page_cannot_read_them_through_a_browser(ask: Ask, host: str, status: int) -> None:
    """One that has the name of its host resolve to this machine."""
    for path in ("/metrics", "/healthz", "/"):
        assert ask(path, Host=host)[0] == status
