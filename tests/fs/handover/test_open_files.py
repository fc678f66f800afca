"""What programs have open while the daemon of their mount ends: through the kernel."""

import mmap
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import PATIENCE_S, logfs, wait_until
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

LINES = b"".join(b"%07d\n" % number for number in range(300_000))
ENDS = [signal.SIGKILL, signal.SIGUSR2, signal.SIGKILL]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[HeldMount]:
    """A mount with a topic of three segments, two of them sealed."""
    with HeldMount(tmp_path) as mount:
        topic = mount.point / "orders"
        topic.mkdir()
        os.setxattr(topic, "user.logfs.max.message.bytes", b"100000")
        os.setxattr(topic, "user.logfs.segment.bytes", b"1048576")
        append(topic / "0", LINES)
        yield mount


def append(path: Path, lines: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        while lines:
            lines = lines[file.write(lines) :]


def test_files_that_programs_read_continue_where_they_were(mount: HeldMount) -> None:
    topic, raw = mount.point / "orders", mount.point / ".segments/orders-0"
    growing = os.open(topic / "0", os.O_RDONLY)
    fixed = os.open(topic / "0@earliest..latest", os.O_RDONLY)
    sealed = os.open(raw / "00000000000000000000.log", os.O_RDONLY)
    content = (mount.data / "orders-0/00000000000000000000.log").read_bytes()
    mapped = mmap.mmap(fixed, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    listed = os.open(raw, os.O_RDONLY | os.O_DIRECTORY)
    for number, end in enumerate(ENDS):
        position = number * 8000
        assert os.read(growing, 8000) == LINES[position : position + 8000]
        assert os.pread(sealed, 1000, number * 1000) == content[number * 1000 :][:1000]
        mount.end_daemon(end)
        far = (number + 1) * 500_000
        assert mapped[far : far + 800] == LINES[far : far + 800]
        assert os.pread(fixed, 80, 8 * number) == LINES[8 * number :][:80]
        assert os.fstat(fixed).st_size == len(LINES)
        assert "00000000000000000000.log" in os.listdir(listed)
    assert os.pread(sealed, 2 * len(content), 5000) == content[5000:]
    mapped.close()
    for descriptor in (growing, fixed, sealed, listed):
        os.close(descriptor)


def test_a_fixed_name_continues_when_its_segments_are_deleted(mount: HeldMount) -> None:
    path = mount.point / "orders/0"
    fixed = os.open(f"{path}@earliest..latest", os.O_RDONLY)
    mapped = mmap.mmap(fixed, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    logfs("trim", f"{path}@latest", "--now")
    assert path.read_bytes() == b""
    for number, end in enumerate(ENDS):
        mount.end_daemon(end)
        os.posix_fadvise(fixed, 0, 0, os.POSIX_FADV_DONTNEED)  # or the kernel has cached it
        first = number * 700_000
        assert os.pread(fixed, 1000, first) == LINES[first : first + 1000]
        assert mapped[first + 100_000 : first + 100_008] == LINES[first + 100_000 :][:8]
    os.posix_fadvise(fixed, 0, 0, os.POSIX_FADV_DONTNEED)
    assert mapped[:] == LINES
    mapped.close()
    os.close(fixed)
    logfs("trim", f"{path}@latest", "--now")
    wait_until(lambda: not list(mount.data.glob("orders-0/*.deleted")), "the files are removed")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGUSR2])
@pytest.mark.parametrize("command", [["tail", "-n", "0", "-f", "0"], ["cat", "0@latest.follow"]])
def test_programs_that_follow_see_each_line_once(
    mount: HeldMount, tmp_path: Path, command: list[str], end: signal.Signals
) -> None:
    topic, output = mount.point / "orders", tmp_path / "output"
    with output.open("wb") as printed:
        follower = subprocess.Popen([command[0], *command[1:-1], topic / command[-1]],
                                    stdout=printed, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        opened = f"/proc/{follower.pid}/fd/3"
        wait_until(lambda: os.path.lexists(opened), "the follower has opened the file")
        wait_until(lambda: _has_read(follower.pid), "the follower waits")
        append(topic / "0", b"before\n")
        wait_until(lambda: output.read_bytes() == b"before\n", "the line is printed")
        mount.end_daemon(end)
        append(topic / "0", b"after\n")
        wait_until(lambda: output.read_bytes() == b"before\nafter\n", "the next line is printed")
    finally:
        follower.kill()
        follower.wait(PATIENCE_S)


def _has_read(pid: int) -> bool:
    """Whether a program waits in a system call, after it has begun."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGUSR2])
def test_a_program_that_polls_is_woken_by_a_line_after_the_end(
    mount: HeldMount, end: signal.Signals
) -> None:
    topic = mount.point / "orders"
    followed = os.open(topic / "0@latest.follow", os.O_RDONLY | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(followed, select.POLLIN)
    assert poll.poll(10) == []
    found: list[bytes] = []

    def wait_for_a_line() -> None:
        poll.poll()  # without a limit: at its end the kernel would ask again
        found.append(os.read(followed, 100))

    waiting = threading.Thread(target=wait_for_a_line, daemon=True)
    waiting.start()
    mount.end_daemon(end)
    append(topic / "0", b"a line\n")
    waiting.join(PATIENCE_S)
    os.close(followed)
    assert found == [b"a line\n"]


def test_a_half_written_line_is_completed_after_each_end(mount: HeldMount) -> None:
    path = mount.point / "orders/0"
    writer = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(writer, b"half ")
    for end in ENDS:
        mount.end_daemon(end)
        append(path, b"another\n")
        os.write(writer, b"and half ")
    os.write(writer, b"whole\n")
    os.close(writer)

    tail = b"another\n" * 3 + b"half " + b"and half " * 3 + b"whole\n"
    assert path.read_bytes() == LINES + tail
