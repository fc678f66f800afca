"""``logfs top``: which programs append to and read which topics."""

import fcntl
import json
import os
import pty
import pwd
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logfs as library
from logfs.client import Daemon
from tests.cli.conftest import Call, command, environment
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


class Terminal:
    """A terminal on which ``logfs top`` runs."""

    def __init__(
        self, path: Path, lines: int, columns: int, *arguments: str, **variables: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(lines, columns)
        self._before = termios.tcgetattr(theirs)
        self._theirs = theirs
        env = {**environment(), "TERM": "xterm", **variables}
        for name in ("COLUMNS", "LINES"):  # they would apply instead of the terminal's size
            env.pop(name, None)
        self.process = subprocess.Popen(
            command("top", str(path), "--interval", "0.2"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=env,
        )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def lines(self, most: int) -> list[bytes]:
        """Return the lines of the next drawing that has at most so many."""
        end_s = time.monotonic() + 30
        while True:
            drawing = self.until(b"\x1b[H", b"\x1b[H").split(b"\x1b[H")[-2]
            lines = re.sub(rb"\x1b\[[HJK]", b"", drawing).split(b"\r\n")
            if len(lines) <= most:
                return lines
            assert time.monotonic() < end_s, drawing

    def until(self, *texts: bytes) -> bytes:
        """Return what is printed until all texts were, one after the other."""
        found, wanted, position = b"", list(texts), 0
        end_s = time.monotonic() + 30
        while wanted:
            if (at := found.find(wanted[0], position)) >= 0:
                position = at + len(wanted.pop(0))
                continue
            assert time.monotonic() < end_s, found[-1000:]
            if select.select([self._ours], [], [], 0.1)[0]:
                found += os.read(self._ours, 1 << 16)
        return found

    def ended(self) -> int:
        """Wait for the end, while the terminal is read; return the exit status."""
        end_s = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < end_s
            if select.select([self._ours], [], [], 0.05)[0]:
                os.read(self._ours, 1 << 16)
        assert termios.tcgetattr(self._theirs) == self._before, "the terminal is as before"
        return self.process.returncode


def test_a_terminal_shows_it_until_q_is_pressed(mount: Mount) -> None:
    with Terminal(mount.point, 40, 120) as terminal:
        terminal.until(b"TOPIC", b"PROGRAM", b"TOPIC", b"PROGRAM")
        terminal.press(b"q")
        assert terminal.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(
    mount: Mount, number: signal.Signals
) -> None:
    with Terminal(mount.point, 40, 120) as terminal:
        terminal.until(b"TOPIC")
        terminal.process.send_signal(number)
        assert terminal.ended() == 128 + number


def test_a_small_terminal_has_the_head_of_each_table(mount: Mount) -> None:
    for number in range(9):
        (mount.point / f"topic{number}").mkdir()
    with Terminal(mount.point, 40, 120, NO_COLOR="1") as terminal:
        writer = threading.Thread(target=append_to_all, args=(mount, terminal))
        writer.start()
        terminal.until(b"topic8")
        terminal.resize(9, 40)
        lines = terminal.lines(most=9)
        terminal.press(b"q")
        assert terminal.ended() == 0
        writer.join()
    assert max(map(len, lines)) <= 40
    heads = [line.split()[0] for line in lines if line]
    assert {b"TOPIC", b"PROGRAM"} <= set(heads)
    assert heads.count(b"and") == 2


def append_to_all(mount: Mount, terminal: Terminal) -> None:
    while terminal.process.poll() is None:
        for number in range(9):
            with (mount.point / f"topic{number}" / "0").open("ab") as file:
                file.write(b"line\n")
        time.sleep(0.01)


def test_it_waits_for_the_next_daemon(tmp_path: Path) -> None:
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        terminal = Terminal(mount.point, 40, 120)
        terminal.until(b"TOPIC")
    with terminal:
        terminal.until(b"waiting for a daemon")
        with Mount(tmp_path / "data", tmp_path / "mnt"):
            terminal.until(b"TOPIC", b"PROGRAM")
            terminal.press(b"q")
            assert terminal.ended() == 0
