"""A daemon takes over the mount of one that was killed: the hooks alone, without a log."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.fs.handover.state import HandoverState, SlotWord, Word, slot_index
from tests.mounting import PATIENCE_S, environment, is_mounted, take_away, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

DAEMON = (sys.executable, "-m", "tests.fs.handover.plain_daemon")
WRITER = (
    "import os,sys; fd=os.open(sys.argv[1],os.O_WRONLY); print(os.write(fd,b'x'*%d), flush=True)"
)
READERS = """
import os, sys, threading
threading.excepthook = lambda _: None  # when the mount ends
fd = os.open(sys.argv[1], os.O_RDONLY)
threading.stack_size(65536)
answers = []
threads = [threading.Thread(target=lambda: answers.append(os.pread(fd, 100, 0))) for _ in range(%d)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(answers.count(b"answer"), flush=True)
"""


class Mounts:
    """Daemons of one mount, one after the other, and what this process keeps of them."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.point = directory / "mnt"
        self.point.mkdir()
        self.output = directory / "output"
        self.output.touch()
        self._words = words
        self.state = HandoverState.create()
        self._connection = -1
        self._daemon: subprocess.Popen[bytes] | None = None
        self._lines = directory / "lines"
        self._programs: list[subprocess.Popen[bytes]] = []

    @property
    def requests(self) -> list[str]:
        """The lines of all daemons."""
        return self._lines.read_text().splitlines()

    def start(self, *words: str) -> str:
        """Start a daemon; returns whether it has mounted, adopted or refused."""
        here, there = socket.socketpair()
        kept = [fd for fd in (self.state.fileno(), self._connection) if fd >= 0]
        with self._lines.open("ab") as lines, here, there:
            self._daemon = subprocess.Popen(
                [
                    *(*DAEMON, str(self.point), str(self.output)),
                    *(str(self.state.fileno()), str(self._connection), *self._words, *words),
                ],
                stdin=there.fileno(),
                stderr=subprocess.DEVNULL,
                stdout=lines,
                pass_fds=kept,
                env=environment(),
            )
            there.close()
            here.settimeout(PATIENCE_S)
            how, descriptors, _, _ = socket.recv_fds(here, 100, 1)
        if not descriptors:
            return "refused"
        if self._connection >= 0:
            os.close(self._connection)
        (self._connection,) = descriptors
        return how.decode()

    def kill(self) -> None:
        """Kill the daemon."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait(PATIENCE_S)

    def run(self, program: str) -> subprocess.Popen[bytes]:
        """Start a program that uses the file."""
        command = [sys.executable, "-c", program, str(self.point / "file")]
        self._programs.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return self._programs[-1]

    def wake(self) -> None:
        """Send a request: a daemon that keeps requests looks for them when there is one."""
        self._programs.append(
            subprocess.Popen(["stat", "-f", self.point], stdout=subprocess.DEVNULL)
        )

    def clear(self) -> None:
        """End everything."""
        if is_mounted(self.point):
            take_away(self.point)
        if self._connection >= 0:
            os.close(self._connection)
        if self._daemon is not None:
            self.kill()
        for program in self._programs:
            program.kill()
            program.communicate(timeout=PATIENCE_S)


@pytest.fixture(params=["", "without-resend"])
def mounts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Mounts]:
    made = Mounts(tmp_path, *filter(None, [request.param]))
    with contextlib.closing(_Closing(made)):
        yield made


class _Closing:
    def __init__(self, mounts: Mounts) -> None:
        self.close = mounts.clear


@pytest.mark.parametrize("size", [5, 1024 * 1024])
def test_a_write_that_a_killed_daemon_has_read_is_done_by_the_next(
    mounts: Mounts, size: int
) -> None:
    assert mounts.start("stuck") == "mounted"
    writer = mounts.run(WRITER % size)
    wait_until(lambda: len(mounts.requests) == 1, "the first daemon has read the write")
    mounts.kill()

    assert mounts.start() == "adopted"
    mounts.wake()

    assert writer.communicate(timeout=PATIENCE_S)[0] == f"{size}\n".encode()
    assert mounts.output.read_bytes() == b"x" * size
    first, *again = mounts.requests
    assert first == again[0]


def test_a_write_keeps_its_slot_until_it_is_answered(mounts: Mounts) -> None:
    mounts.start("stuck")
    writer = mounts.run(WRITER % 5)
    wait_until(lambda: len(mounts.requests) == 1, "the first daemon has read the write")
    words, slot = mounts.state.words, mounts.state.words[Word.CURRENT]
    index = slot_index(slot - 1)
    words[index + SlotWord.LOG_END] = 1234
    mounts.kill()
    mounts.start("stuck")
    mounts.wake()
    wait_until(lambda: len(mounts.requests) == 2, "the second daemon has read the write")

    assert words[Word.CURRENT] in (slot, 0)
    assert (words[index], words[index + SlotWord.LOG_END]) == (
        int(mounts.requests[0].split()[1]),
        1234,
    )

    mounts.kill()
    mounts.start()
    mounts.wake()
    assert writer.communicate(timeout=PATIENCE_S)[0] == b"5\n"
    wait_until(lambda: not words[index], "the slot is free")


def test_more_reads_wait_over_two_kills_than_large_requests_are_kept(mounts: Mounts) -> None:
    number = 1300
    mounts.start("stuck")
    readers = mounts.run(READERS % number)
    wait_until(lambda: len(mounts.requests) == number, "all reads wait")
    mounts.kill()
    mounts.start("stuck")
    mounts.wake()
    wait_until(lambda: len(mounts.requests) == 2 * number, "all reads wait again")
    mounts.kill()
    mounts.start()
    mounts.wake()

    assert readers.communicate(timeout=PATIENCE_S)[0] == f"{number}\n".encode()
    assert not mounts.state.words[Word.WITHOUT_SLOT]


def test_a_waiting_program_is_told_of_its_signal_after_a_kill(mounts: Mounts) -> None:
    mounts.start("stuck")
    writer = mounts.run(WRITER % 5)
    wait_until(lambda: len(mounts.requests) == 1, "the first daemon has read the write")
    writer.send_signal(signal.SIGTERM)
    mounts.kill()
    mounts.start()
    mounts.wake()

    assert writer.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_connection_with_other_answers_is_not_adopted(tmp_path: Path) -> None:
    mounts = Mounts(tmp_path)
    with contextlib.closing(_Closing(mounts)):
        mounts.start()
        mounts.kill()
        reply_at = 1536
        os.pwrite(mounts.state.fileno(), b"\xff", reply_at + 20)  # max_write

        assert mounts.start() == "refused"
