"""A program that waits for an answer gets a signal."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from logfs.fs.kernel.interrupts import InterruptWatch
from tests.mounting import PATIENCE_S, environment, is_mounted, take_away, wait_until


class FakeKernel:
    """Requests with numbers, and signals for them."""

    def __init__(self) -> None:
        self.is_active = True
        self.number = 0
        self.interrupt: Callable[[int], None] = lambda _: None

    def request(self) -> int:
        self.number += 2
        return self.number

    def request_thread(self) -> int:
        return 0

    def drop_buffer(self) -> None:
        pass

    def on_interrupt(self, interrupted: Callable[[int], None]) -> None:
        self.interrupt = interrupted


async def test_only_the_interrupted_request_is_notified() -> None:
    kernel = FakeKernel()
    interrupts = InterruptWatch(kernel)
    assert interrupts.is_told
    with interrupts.watched() as first, interrupts.watched() as second:
        kernel.interrupt(4)
        assert (first.is_set(), second.is_set()) == (False, True)
        kernel.interrupt(2)
        kernel.interrupt(9)
        with trio.fail_after(1):
            await first.wait()
    assert not len(interrupts)
    kernel.interrupt(2)


async def test_without_the_hooks_no_request_is_notified() -> None:
    kernel = FakeKernel()
    kernel.is_active = False
    for interrupts in (InterruptWatch(None), InterruptWatch(kernel)):
        assert not interrupts.is_told
        with interrupts.watched() as event:
            kernel.interrupt(kernel.number)
            assert not event.is_set()


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that waits in a read."""
    point = tmp_path / "mnt"
    point.mkdir()
    script = Path(__file__).with_name("waits_for_ever.py")
    with subprocess.Popen([sys.executable, script, point], env=environment()) as daemon:
        try:
            wait_until(lambda: (point / "file").is_file(), "it is mounted")
            with subprocess.Popen(["cat", point / "file"], stdout=subprocess.PIPE) as reader:
                assert reader.stdout is not None
                assert reader.stdout.readline() == b"begin\n"
                status = Path(f"/proc/{reader.pid}/wchan")
                wait_until(lambda: "fuse" in status.read_text() or _sleeps(reader.pid), "it waits")
                yield reader
        finally:
            if is_mounted(point):
                take_away(point)
            daemon.wait(PATIENCE_S)


def _sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "SD"


@pytest.mark.fuse
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_reader_that_waits_can_be_ended(
    waiting: "subprocess.Popen[bytes]", number: signal.Signals
) -> None:
    os.kill(waiting.pid, number)
    assert waiting.wait(PATIENCE_S) == -number
