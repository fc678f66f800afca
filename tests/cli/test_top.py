"""``logfs top``: which programs append to and read which topics."""

import json
import os
import pwd
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logfs as library
from logfs.client import Daemon
from tests.cli.conftest import Call
from tests.mounting import Mount
from tests.mounting import logfs as run

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


@pytest.fixture
def mount(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mount]:
    options = getattr(request, "param", ["native"])
    with Mount(tmp_path / "data", tmp_path / "mnt", *options) as mount:
        (mount.point / "web").mkdir()
        yield mount


class Watcher(threading.Thread):
    """Watches a mount for a time."""

    def __init__(self, mount: Mount) -> None:
        super().__init__()
        self.mount = mount
        self.found: dict[str, Any] = {}

    def run(self) -> None:
        daemon = Daemon.connect(str(self.mount.data))
        assert daemon is not None
        with daemon:
            self.found = daemon.activity(500)


@pytest.mark.parametrize("mount", [[], ["native"]], indirect=True)
def test_each_program_is_seen_with_what_it_did(mount: Mount) -> None:
    watcher, path, lines = Watcher(mount), mount.point / "web" / "0", 0
    watcher.start()
    with path.open("ab", buffering=0) as file, path.open("rb", buffering=0) as reader:
        while watcher.is_alive():
            file.write(b"0123456789\n")
            assert reader.read(4096) == b"0123456789\n"
            lines += 1
    with path.open("ab", buffering=0) as file:
        file.write(b"unseen\n")
    watcher.join()
    rows = {row["operation"]: row for row in watcher.found["programs"]}
    assert set(rows) == {"append", "read"}
    for row in rows.values():
        assert (row["topic"], row["partition"], row["uid"]) == ("web", 0, os.getuid())
        assert row["pid"] == os.getpid()
        assert row["program"] == Path("/proc/self/comm").read_text().rstrip("\n")
        assert isinstance(row["requests"], int)
        assert 0 < row["requests"] <= lines
        assert isinstance(row["bytes"], int)
        # The bytes of a read are those of its reply, which may not have been sent yet.
        unanswered = 1 if row["operation"] == "read" else 0
        assert abs(row["bytes"] - 11 * row["requests"]) in {0, 11 * unanswered}
    [topic] = watcher.found["topics"]
    assert isinstance(topic["records"], int)
    assert 0 < topic["records"] <= lines


def test_a_program_that_has_ended_is_seen(mount: Mount) -> None:
    watcher, path = Watcher(mount), mount.point / "web" / "0"
    watcher.start()
    while watcher.is_alive():
        os.system(f"exec echo x >> {path}")
    assert sum(row["operation"] == "append" for row in watcher.found["programs"]) > 1


def test_appends_through_the_control_socket_are_seen(mount: Mount) -> None:
    watcher = Watcher(mount)
    with library.open(mount.data / "web" / "0") as web:
        web.append(b"one")
        watcher.start()
        while watcher.is_alive():
            web.append(b"two")
    [row] = watcher.found["programs"]
    assert (row["topic"], row["operation"], row["pid"]) == ("web", "append", os.getpid())


def test_the_command_prints_a_table_and_json(mount: Mount) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    is_over = threading.Event()

    def append() -> None:
        with (mount.point / "web" / "0").open("ab", buffering=0) as file:
            while not is_over.is_set():
                file.write(b"0123456789\n")

    writer = threading.Thread(target=append)
    writer.start()
    try:
        lines = run("top", mount.point, "--interval", "0.2", "-p").decode().splitlines()
        found = json.loads(run("top", "--json", mount.data, "--interval", "0.2"))
    finally:
        is_over.set()
        writer.join()
    assert lines[0].split() == ["TOPIC", "APPENDS/S", "RECORDS/S", "IN/S", "OUT/S"]
    assert lines[1].split()[0] == "web/0"
    assert lines[3].split()[:3] == ["PROGRAM", "PID", "USER"]
    assert lines[4].split()[1:5] == [str(os.getpid()), user, "web/0", "append"]
    assert found["programs"][0]["requests"] > 0


def test_without_a_daemon_it_says_so(logfs: Call, tmp_path: Path) -> None:
    with library.open_store(tmp_path) as store:
        store.create_topic("web", 1)
    outcome = logfs("top", tmp_path)
    assert outcome.status == 1
    assert "no daemon answers here" in outcome.errors[0]
