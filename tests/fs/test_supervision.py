"""What the service manager is told, by the real daemon under a real mount."""

import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from logfs.fs.session.supervision import Supervisor
from tests.mounting import PATIENCE_S, Mount, wait_until


class Manager:
    """The socket of a service manager.

    Attributes:
        messages: What has been said, in order; one message is several lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        while data := self._socket.recv(4096):
            self.messages.append(data.decode())

    def send(self, text: str) -> None:
        """Send a message of the test's own."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text.encode(), str(self.path))

    def beats(self) -> int:
        """Return how many signs of life there were, with all that have been sent."""
        last = f"TEST={time.monotonic_ns()}"
        self.send(last)
        wait_until(lambda: self.said(last), "all messages have been received")
        return self.count("WATCHDOG=1")

    def close(self) -> None:
        self.send("")
        self._thread.join()
        self._socket.close()

    def said(self, line: str) -> bool:
        return any(line in message.split("\n") for message in self.messages)

    def count(self, line: str) -> int:
        return sum(line in message.split("\n") for message in self.messages)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


@pytest.fixture
def watched(tmp_path: Path, manager: Manager) -> Iterator[Mount]:
    """A mount whose daemon is to be heard of every 0.3 s."""
    variables = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "300000"}
    with Mount(tmp_path / "data", tmp_path / "mnt", variables=variables) as mount:
        wait_until(lambda: manager.said("READY=1"), "it is ready")
        yield mount


def quiet_for_a_second(count: Callable[[], int]) -> bool:
    """Return whether a number stays the same for a second."""
    before = count()
    threading.Event().wait(1)
    return count() == before


@pytest.mark.fuse
@pytest.mark.slow
def test_ready_alive_and_stopping(tmp_path: Path, manager: Manager, watched: Mount) -> None:
    ready = next(text for text in manager.messages if "READY=1" in text)
    assert ready == f"READY=1\nSTATUS=serving {watched.point}"
    # It has not been said before the mount answers.
    log = watched.log
    assert "is mounted" in log
    beats = manager.count("WATCHDOG=1")
    wait_until(lambda: manager.count("WATCHDOG=1") > beats + 3, "there are signs of life")
    assert not manager.said("STOPPING=1")
    watched.stop()
    wait_until(lambda: manager.said("STOPPING=1"), "it says that it stops")
    assert (watched.data / ".kafka_cleanshutdown").exists()
    watched.start()


@pytest.mark.fuse
@pytest.mark.slow
def test_a_stopped_daemon_gives_no_sign_of_life(manager: Manager, watched: Mount) -> None:
    os.kill(watched.pid, signal.SIGSTOP)
    os.waitpid(watched.pid, os.WUNTRACED)
    beats = manager.beats()
    assert quiet_for_a_second(manager.beats)
    os.kill(watched.pid, signal.SIGCONT)
    wait_until(lambda: manager.count("WATCHDOG=1") > beats, "it continues")


_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207
_ALL_THREADS = 0x40000000


@pytest.mark.fuse
@pytest.mark.slow
def test_a_loop_that_hangs_alone_gives_no_sign_of_life(manager: Manager, watched: Mount) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    pid = watched.pid

    def trace(request: int) -> None:
        assert libc.ptrace(request, pid, None, None) == 0, os.strerror(ctypes.get_errno())

    trace(_PTRACE_SEIZE)  # the thread of the loop, and no other
    trace(_PTRACE_INTERRUPT)
    os.waitpid(pid, _ALL_THREADS)
    try:
        states = {
            task.name: (task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        }
        assert states.pop(str(pid)) == "t"
        assert states
        assert "t" not in states.values()
        beats = manager.beats()
        assert quiet_for_a_second(manager.beats)
    finally:
        trace(_PTRACE_DETACH)
    wait_until(lambda: manager.count("WATCHDOG=1") > beats, "it continues")


async def test_a_loop_that_computes_for_ever_gives_no_sign_of_life(manager: Manager) -> None:
    supervisor = Supervisor(str(manager.path), watchdog_s=0.3)
    with supervisor:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.beat)
            with trio.fail_after(PATIENCE_S):
                while manager.beats() < 2:  # noqa: ASYNC110 - the messages come from a thread
                    await trio.sleep(0.05)
            assert quiet_for_a_second(manager.beats)  # it blocks the loop, not the thread beside it
            nursery.cancel_scope.cancel()


def wait_like_for_a_disk(gate: Path) -> None:
    """Sleep in a way no signal ends, until another process writes into a FIFO.

    That is how the parent of a vfork sleeps until its child runs another program; the child opens
    the FIFO first.
    """
    libc = ctypes.CDLL(None)
    actions = ctypes.create_string_buffer(256)
    libc.posix_spawn_file_actions_init(actions)
    libc.posix_spawn_file_actions_addopen(actions, 9, bytes(gate), os.O_RDONLY, 0)
    pid = ctypes.c_int()
    arguments = (ctypes.c_char_p * 2)(b"true", None)
    status = libc.posix_spawn(ctypes.byref(pid), b"/bin/true", actions, None, arguments, arguments)
    assert status == 0, os.strerror(status)
    os.waitpid(pid.value, 0)


@pytest.mark.expect_log("the disk does not answer")
def test_a_disk_that_hangs_is_not_taken_for_a_loop_that_hangs(
    tmp_path: Path, manager: Manager
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    supervisor = Supervisor(str(manager.path), watchdog_s=0.3)

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.beat)
            await wait_all_tasks_blocked()  # it has given its first sign of life
            wait_like_for_a_disk(gate)
            nursery.cancel_scope.cancel()

    def run() -> None:
        with supervisor:
            trio.run(serve)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    says = "STATUS=waiting for the disk, which does not answer"
    wait_until(lambda: manager.count(says) > 2, "the thread beside the loop speaks for it")
    assert manager.count("WATCHDOG=1") >= manager.count(says)
    gate.write_text("")
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("is_computing", [True, False])
def test_more_time_is_asked_for_while_loading_gets_on(
    manager: Manager, *, is_computing: bool
) -> None:
    with Supervisor(str(manager.path), watchdog_s=0.6) as supervisor:
        supervisor.status("orders-0:\n recovering")
        asked = "EXTEND_TIMEOUT_USEC=60000000"
        if is_computing:
            end = threading.Event()
            work = threading.Thread(target=lambda: [None for _ in iter(end.is_set, True)])
            work.start()
            wait_until(lambda: manager.count(asked) > 2, "it asks for time")
            end.set()
            work.join()
        else:
            wait_until(lambda: quiet_for_a_second(lambda: manager.count(asked)), "it asks no more")
    assert manager.said("STATUS=orders-0: recovering")


def test_without_a_service_manager_nothing_is_sent(tmp_path: Path) -> None:
    variables = {"WATCHDOG_USEC": "300000", "PATH": "x"}
    Supervisor.from_environment(variables).ready("not heard")
    assert variables == {"PATH": "x"}


@pytest.mark.expect_log("the service manager is told nothing")
def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    Supervisor.from_environment({"NOTIFY_SOCKET": str(tmp_path / "none")}).ready("not heard")


async def test_the_watchdog_of_another_process_is_not_ours(manager: Manager) -> None:
    variables = {
        "NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"
    }  # fmt: skip
    supervisor = Supervisor.from_environment(variables)
    with supervisor:
        await supervisor.beat()  # returns: there is no watchdog
    assert not manager.said("WATCHDOG=1")
