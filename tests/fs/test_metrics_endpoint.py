"""The endpoint beside a mount that hangs or is gone."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from logfs.fs.metrics import endpoint
from logfs.fs.metrics.endpoint import Endpoint
from logfs.fs.metrics.exposition import Exposition
from logfs.fs.metrics.facts import Facts, Where
from tests.fs.world import World
from tests.mounting import wait_until

Ask = Callable[[str], tuple[int, bytes]]


@pytest.fixture
def point(tmp_path: Path) -> Path:
    """Stands for the mount point."""
    point = tmp_path / "mnt"
    point.mkdir()
    return point


@pytest.fixture
def ask(world: World, point: Path) -> Iterator[Ask]:
    """Ask an endpoint over an empty store."""
    where = Where("/data", str(point))
    facts = Facts(world.store, world.operations, world.clock.both(), where)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    served = Endpoint(listener, Exposition(facts), str(point))
    served.start()

    def get(path: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path)
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


def test_those_who_ask_often_share_an_answer(
    ask: Ask, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "SHARE", 1_000_000)
    assert len({ask("/metrics")[1] for _ in range(5)}) == 1
    assert world.disk.counts["free"] == 1
