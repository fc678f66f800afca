"""Promise 3 of SEMANTICS.md: names that end in ``.follow``, through a mount."""

import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logfs.fs.files.followreads import BLIND_WAIT_S
from tests.mounting import PATIENCE_S, Mount, environment, logfs
from tests.semantics.programs import append, errno_of

pytestmark = pytest.mark.fuse

FOLLOWERS = 1000
_FOLLOWERS = """
import json, os, resource, sys, threading
name, count = sys.argv[1], int(sys.argv[2])
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 4 * count), limit))
threading.stack_size(1 << 18)
began = threading.Barrier(count + 1)
seen = []

def follow():
    descriptor = os.open(name, os.O_RDONLY)
    text = b""
    began.wait()
    while not text.endswith(b"end\\n"):
        text += os.read(descriptor, 4096)
    os.close(descriptor)
    seen.append(text.decode())

threads = [threading.Thread(target=follow, daemon=True) for _ in range(count)]
for thread in threads:
    thread.start()
began.wait()
print("began", flush=True)
for thread in threads:
    thread.join(100)
print(json.dumps(seen), flush=True)
"""


@contextmanager
def follower(*command: str | Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program that follows; it is killed if it does not end."""
    with subprocess.Popen(
        command, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[bytes]") -> bytes:
    """Read a line that a program prints; it has time, but not for ever."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE_S)[0]
    return process.stdout.readline()


def wait_until_it_waits(process: "subprocess.Popen[bytes]") -> None:
    """Wait until a program is in a system call and stays there."""

    def switches() -> str:
        return Path(f"/proc/{process.pid}/status").read_text().partition("voluntary_ctxt")[2]

    before = ""
    while before != switches():
        before = switches()
        time.sleep(0.1)


def test_a_read_at_the_end_waits(topic: Path) -> None:
    """`orders/0.follow` shows the retained records, and a read(2) at its end waits for the next
    record."""
    append(topic / "0", b"kept\n")
    with follower("cat", topic / "0.follow") as cat:
        assert line(cat) == b"kept\n"
        for number in range(20):
            append(topic / "0", b"%d\n" % number)
            assert line(cat) == b"%d\n" % number
        status, plain = os.stat(topic / "0.follow"), os.stat(topic / "0")
        assert status.st_size == plain.st_size
        assert status.st_ino != plain.st_ino
        assert not status.st_mode & 0o222


def test_selectors_combine_with_it(topic: Path) -> None:
    """A selector says where it begins, and a TO where it ends. `0@latest.follow` shows new records,
    and a name with a TO ends when that is reached."""
    append(topic / "0", b"kept\nlast\n")
    with (
        follower("cat", topic / "0@latest.follow") as coming,
        follower("cat", topic / "0@offset=-1.follow") as last,
        follower("cat", topic / "0@offset=1..offset=3.follow") as some,
    ):
        assert line(last) == b"last\n"
        wait_until_it_waits(coming)
        append(topic / "0", b"more\n")
        assert (line(coming), line(last)) == (b"more\n", b"more\n")
        assert some.communicate(timeout=PATIENCE_S) == (b"last\nmore\n", b"")
    with follower("cat", topic / f"0@earliest..{int(time.time() * 1000) + 1500}.follow") as cat:
        assert cat.communicate(timeout=PATIENCE_S) == (b"kept\nlast\nmore\n", b"")


def test_nonblocking_reads_do_not_wait(topic: Path) -> None:
    """Opened with O_NONBLOCK it does not wait: a read(2) at its end is EAGAIN."""
    descriptor = os.open(topic / "0.follow", os.O_RDONLY | os.O_NONBLOCK)
    assert errno_of(os.read, descriptor, 100) == errno.EAGAIN
    append(topic / "0", b"one\n")
    assert os.read(descriptor, 100) == b"one\n"
    assert errno_of(os.read, descriptor, 100) == errno.EAGAIN
    os.close(descriptor)


def test_poll_select_and_epoll(topic: Path) -> None:
    """poll(2), select(2) and epoll(7) wait for it as well; every other file is always ready."""
    path, name = topic / "0", topic / "0.follow"
    append(path, b"one\n")
    with (
        name.open("rb", buffering=0) as file,
        path.open("rb") as plain,
        (topic / "0@earliest..latest").open("rb") as fixed,
        path.open("ab") as writer,
        select.epoll() as epoll,
    ):
        readers, writers, _ = select.select([plain, fixed, file], [writer], [], PATIENCE_S)
        assert (readers, writers) == ([plain, fixed, file], [writer])
        assert file.read(100) == b"one\n"
        assert select.select([plain, fixed, file], [], [], 0)[0] == [plain, fixed]
        poll = select.poll()
        poll.register(file, select.POLLIN)
        epoll.register(file, select.EPOLLIN | select.EPOLLET)
        assert epoll.poll(0) == []
        for wait in (
            lambda: poll.poll(PATIENCE_S * 1000),
            lambda: epoll.poll(PATIENCE_S),
            lambda: select.select([file], [], [], PATIENCE_S)[0],
        ):
            assert poll.poll(0) == []
            with follower("sh", "-c", 'sleep 0.3; echo two >> "$0"', path):
                assert wait()
            assert file.read(100) == b"two\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_waits_can_be_killed(topic: Path, number: signal.Signals) -> None:
    """A waiting reader waits indefinitely; it can be interrupted or killed at any time."""
    with follower("cat", topic / "0.follow") as cat:
        wait_until_it_waits(cat)
        cat.send_signal(number)
        assert cat.wait(PATIENCE_S) == -number


def test_a_program_that_waits_is_not_told_of_an_error(topic: Path) -> None:
    """A waiting reader waits indefinitely; it can be interrupted or killed at any time."""
    with follower("sed", "-u", "s/^/got /", topic / "0.follow") as sed:
        time.sleep(1.5 * BLIND_WAIT_S)
        append(topic / "0", b"one\n")
        assert line(sed) == b"got one\n"


def test_a_thousand_wait(topic: Path) -> None:
    """A thousand waiting readers do not delay appends or other readers, and all of them see each
    record."""
    (topic / "1").touch()
    with follower(
        sys.executable, "-c", _FOLLOWERS, topic / "0@latest.follow", str(FOLLOWERS)
    ) as followers:
        assert line(followers) == b"began\n"
        # None of these would return if the waiting readers had used up the threads for requests.
        for number in range(50):
            append(topic / "1", b"%d\n" % number)
            assert len((topic / "1").read_bytes().splitlines()) == number + 1
        text = "".join(f"{number}\n" for number in range(200)) + "end\n"
        for part in text.splitlines(keepends=True):
            append(topic / "0", part.encode())
        assert json.loads(line(followers)) == [text] * FOLLOWERS


def test_the_end_of_the_topic(topic: Path) -> None:
    """When the topic is deleted, a reader that has read everything gets end of file. When the
    daemon stops, a waiting read(2) is ENOTCONN."""
    append(topic / "0", b"last\n")
    with follower("cat", topic / "0.follow") as cat:
        assert line(cat) == b"last\n"
        logfs("topic", "delete", topic)
        assert cat.communicate(timeout=PATIENCE_S) == (b"", b"")
        assert cat.returncode == 0


def test_the_end_of_the_daemon(mount: Mount) -> None:
    """When the topic is deleted, a reader that has read everything gets end of file. When the
    daemon stops, a waiting read(2) is ENOTCONN."""
    with follower("cat", mount.point / "orders" / "0.follow") as cat:
        wait_until_it_waits(cat)
        mount.stop()
        _, errors = cat.communicate(timeout=PATIENCE_S)
        assert os.strerror(errno.ENOTCONN) in errors.decode()
    mount.start()
    assert (mount.point / "orders" / "0.follow").stat().st_size == 0


def test_the_command_line_follows(topic: Path) -> None:
    """`orders/0.follow` shows the retained records, and a read(2) at its end waits for the next
    record."""
    append(topic / "0", b"kept\n")
    with follower(sys.executable, "-m", "logfs", "cat", topic / "0.follow") as cat:
        assert line(cat) == b"kept\n"
        append(topic / "0", b"come\n")
        assert line(cat) == b"come\n"
        cat.send_signal(signal.SIGINT)
        cat.wait(PATIENCE_S)
