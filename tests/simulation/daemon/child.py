"""A daemon in a child, which runs in lock step with this process.

The child does nothing that it is not told to. When nothing can run in it, it says so, with the time
at which it would wake up, and waits. Then only the parent runs: it takes replies, sends requests,
moves the time, and lets the child run again; or the child is killed.
"""

import ctypes
import logging
import math
import os
import random
import select
import signal
import socket
import struct
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trio._core import _run
from trio._core._io_epoll import EpollIOManager

from logfs.disk.posix import PosixDisk
from logfs.errors import MountError
from logfs.fs.handover.descriptors import STATE, Inherited
from logfs.fs.handover.successor import Again, take_turn
from logfs.fs.kernel import hooks
from logfs.fs.options import parse_options
from logfs.fs.session.connection import HANDED_OVER
from logfs.fs.session.machine import Machine
from logfs.fs.session.mount import run_mount
from logfs.fs.session.supervision import Supervisor
from logfs.log import names
from logfs.log.loading.preloading import Preloaded
from tests.simulation.daemon.kernel import Kernel
from tests.simulation.daemon.machine import BEGIN_NS, Choices, simulated_machine
from tests.simulation.daemon.power import Change, read_changes
from tests.simulation.daemon.preloading import Shared, SharedWords
from tests.simulation.daemon.store import URL, use_store

_POINT = 100
"""The descriptor at which it is mounted."""
_IDLE = struct.Struct("<cd")
_PATIENCE_S = 60.0
_SPINS = 400
"""Turns of a loop that never waits, after which time passes all the same."""
_SPIN_NS = 2_000_000
_ROUNDING_NS = 1000
"""The deadline of a daemon has come, however it was rounded."""
_PDEATHSIG = 1
_NO_TURN = 3
"""The exit status of a successor that its predecessor does not need."""


class DefectError(Exception):
    """The daemon does what it must not do."""


@dataclass(frozen=True)
class Setting:
    """What holds for all daemons of a run.

    Attributes:
        seed: The seed of the run.
        options: The options of the mount.
        slow: The share of calls that the disk keeps waiting.
        cuts_power: What is not synced is noted, so that it can be undone.
        has_store: The data directory has an object store.
        trace: A file for lines of text; None: none.
    """

    seed: int
    options: tuple[str, ...] = ()
    slow: float = 0.0
    cuts_power: bool = False
    has_store: bool = False
    trace: Path | None = None


class SimulatedManager(Supervisor):
    """A service manager that keeps descriptors, in the child.

    Args:
        kept: A socket to the parent, which keeps them.
    """

    def __init__(self, kept: socket.socket) -> None:
        super().__init__()
        self._kept = kept
        self.again = Again((), {})

    @property
    def is_present(self) -> bool:
        """See ``Supervisor``."""
        return True

    @property
    def manager(self) -> str:
        """See ``Supervisor``."""
        return "the simulation"

    def keep_descriptor(self, name: str, descriptor: int) -> bool:
        """See ``Supervisor``."""
        socket.send_fds(self._kept, [name.encode()], [descriptor])
        return True

    def drop_descriptor(self, name: str) -> None:
        """See ``Supervisor``."""
        self._kept.send(f"-{name}".encode())


@dataclass
class Waiting:
    """A successor that waits for its turn.

    Attributes:
        control: A socket to it.
        kept: A socket on which it sends descriptors that are to be kept.
        is_warm: It needs only the descriptors of its predecessor.
    """

    pid: int
    control: socket.socket
    kept: socket.socket
    is_warm: bool = False


class Daemon:
    """The daemons of a data directory, one after the other.

    Args:
        directory: For the data, the log of the daemons, and what a power cut undoes.
        setting: What holds for all of them.
        kernel: The kernel of the mount.

    Attributes:
        data: The data directory.
        log: The log of the daemons.
        words: What is shared with them.
        pid: The process that runs; 0: none.
        deadline_s: When the daemon wakes up if nothing happens.
        lives: How many there were.
        hashes: What each has sent to the disk and to the kernel: how many changes, and a hash.
        planned: How many have ended for a successor.
        handed_over: How many successors have waited for their predecessor.
        successor: A process that waits to continue; None: there is none.
        status: The exit status of the last one; None: it was killed.
    """

    def __init__(self, directory: Path, setting: Setting, kernel: Kernel) -> None:
        self.data, self.log = directory / "data", directory / "log"
        self.data.mkdir()
        self.log.touch()
        self._undo = directory / "undo"
        self._store = directory / "store"
        if setting.has_store:
            self._store.mkdir()
            text = f"url={URL}\nremote.log.manager.task.interval.ms=1000\n"
            (self.data / names.REMOTE).write_text(text)
        self.kernel = kernel
        self.words = SharedWords()
        self.words[Shared.TIME_NS] = BEGIN_NS
        self.pid = self.lives = self.boots = self.planned = self.handed_over = 0
        self.deadline_s = float("inf")
        self.hashes: list[tuple[int, int]] = []
        self.status: int | None = None
        self.successor: Waiting | None = None
        self._for_daemon: socket.socket | None = None
        self._setting = setting
        self._state = -1
        self._control: socket.socket | None = None
        self._kept: socket.socket | None = None

    @property
    def now_s(self) -> float:
        """The time since the first start."""
        return (self.words[Shared.TIME_NS] - BEGIN_NS) / 1e9

    @property
    def objects(self) -> int:
        """How many objects there are in the store."""
        return len(list(self._store.iterdir())) if self._setting.has_store else 0

    @property
    def is_kept(self) -> bool:
        """Whether a successor can continue with the mount."""
        return self._state >= 0

    def start(self) -> bool:
        """Start a daemon, which continues with the mount if there is one.

        Returns:
            False: it has ended.
        """
        self.words[Shared.CALLS] = self.words[Shared.HASH] = 0
        self.kernel.continue_without_resending()
        if self.successor is not None and self._take_turn(self.successor):
            return self._wait()
        self.pid, self._control, self._kept = self._fork(self._serve)
        return self._wait()

    def _take_turn(self, successor: Waiting) -> bool:
        """Let a successor serve; returns False if its predecessor has not sent it anything."""
        self.successor = None
        if not successor.is_warm:
            self._end_successor(successor)
            return False
        successor.control.settimeout(_PATIENCE_S)
        if not successor.control.recv(1):
            self._end_successor(successor)
            return False
        self.pid, self._control, self._kept = successor.pid, successor.control, successor.kept
        self.handed_over += 1
        self._control.send(b"g")
        return True

    def _fork(
        self, serve: Callable[[socket.socket, socket.socket], int]
    ) -> tuple[int, socket.socket, socket.socket]:
        """Fork a daemon; returns its number, and sockets for its steps and for descriptors."""
        ours, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours_kept, kept = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lives += 1
        pid = os.fork()
        if pid == 0:
            ours.close()
            ours_kept.close()
            if self._control is not None and self._kept is not None:  # those of a predecessor
                self._control.close()
                self._kept.close()
            self.kernel.forget_programs()  # of the connection, the other end is for the daemon
            _end_with_parent()
            os._exit(self._run(serve, control, kept))
        control.close()
        kept.close()
        return pid, ours, ours_kept

    def go(self) -> bool:
        """Let the daemon run until nothing can run in it; returns False if it has ended."""
        assert self._control is not None
        self._control.send(b"g")
        return self._wait()

    def move_time(self, to_s: float) -> None:
        """Move the time forward; the daemon notices when it runs."""
        to_ns = BEGIN_NS + math.ceil(to_s * 1e9) + _ROUNDING_NS
        self.words[Shared.TIME_NS] = max(self.words[Shared.TIME_NS], to_ns)

    def signal(self, number: int) -> None:
        """Send a signal, which the daemon notices when it runs."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the daemon while it waits."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self._end()

    def warm_successor(self) -> None:
        """Let the successor read what it can before its turn."""
        assert self.successor is not None
        assert self._for_daemon is not None
        self.successor.is_warm = True
        self.successor.control.send(b"g")
        select.select([self._for_daemon], [], [], _PATIENCE_S)
        self._for_daemon.close()

    def kill_successor(self) -> None:
        """Kill the successor, if there is one."""
        if self.successor is not None:
            self._end_successor(self.successor)
            self.successor = None

    def _end_successor(self, successor: Waiting) -> None:
        if self._for_daemon is not None:
            self._for_daemon.close()
        os.kill(successor.pid, signal.SIGKILL)
        os.waitpid(successor.pid, 0)
        successor.control.close()
        successor.kept.close()

    def _begin_successor(self) -> socket.socket:
        """Fork a successor, which waits; returns a socket to it for the daemon."""
        self.kill_successor()
        for_daemon, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def serve(control: socket.socket, kept: socket.socket) -> int:
            for_daemon.close()
            return self._follow(control, kept, its)

        self.successor = Waiting(*self._fork(serve))
        its.close()
        self._for_daemon = for_daemon
        return for_daemon

    def forget_mount(self, kernel: Kernel) -> None:
        """Mount again at the next start."""
        if self._state >= 0:
            os.close(self._state)
        self._state = -1
        self.kernel = kernel

    def changes(self) -> list[Change]:
        """Return the changes since the last power cut, and forget them."""
        found = read_changes(self._undo)
        self._undo.write_bytes(b"")
        return found

    def close(self) -> None:
        """End everything."""
        self.kill()
        self.kernel.close()
        if self._state >= 0:
            os.close(self._state)

    def _wait(self) -> bool:
        assert self._control is not None
        self._control.settimeout(_PATIENCE_S)
        while True:
            try:
                message = self._control.recv(_IDLE.size)
            except TimeoutError:
                raise DefectError(f"the daemon does not come to rest: {self.log}") from None
            except ConnectionError:
                message = b""
            if message == b"a":
                self.kernel.ask()
                self._control.send(b"g")
                continue
            if message == b"s":
                socket.send_fds(self._control, [b"g"], [self._begin_successor().fileno()])
                continue
            break
        self._keep_descriptors()
        if message:
            _, self.deadline_s = _IDLE.unpack(message)
            self.kernel.pump()
            return True
        self._end()
        return False

    def _keep_descriptors(self) -> None:
        assert self._kept is not None
        self._kept.setblocking(False)
        while True:
            try:
                name, descriptors, *_ = socket.recv_fds(self._kept, 100, 1)
            except (BlockingIOError, ConnectionError):
                return
            if not name:
                return
            if name == STATE.encode():
                self._state = descriptors[0]
            elif descriptors:
                os.close(descriptors[0])  # that of the kernel

    def _end(self) -> None:
        """Note how the daemon has ended."""
        assert self._control is not None
        assert self._kept is not None
        _, status = os.waitpid(self.pid, 0)
        self._keep_descriptors()
        self.pid = 0
        self._control.close()
        self._kept.close()
        self.hashes.append((self.words[Shared.CALLS], self.words[Shared.HASH]))
        self.words[Shared.CALLS_LEFT] = self.words[Shared.FAILS_LEFT] = -1
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        self.status = None if was_killed else os.waitstatus_to_exitcode(status)
        if self.status != HANDED_OVER:
            self.kill_successor()
        if self.status == HANDED_OVER:
            self.planned += 1
        elif self.status:
            raise DefectError(
                f"the daemon ended with {self.status}: {self.log.read_text()[-3000:]}"
            )

    # In the child

    def _run(
        self,
        serve: Callable[[socket.socket, socket.socket], int],
        control: socket.socket,
        kept: socket.socket,
    ) -> int:
        try:
            form = "%(process)d %(levelname)s %(message)s"
            logging.basicConfig(filename=self.log, level=logging.INFO, format=form)
            return serve(control, kept)
        except BaseException:  # noqa: BLE001 - the parent reads it
            with self.log.open("a") as file:
                traceback.print_exc(file=file)
            return 1

    def _follow(self, control: socket.socket, kept: socket.socket, its: socket.socket) -> int:
        """Be a successor: read the data directory, wait for the predecessor, and serve."""
        if not control.recv(1):
            return _NO_TURN
        clock = self.words.begin(*self._note_files())
        machine = self._machine(control, clock, Choices(self._setting.seed, 0.0))
        preloaded = None
        if not self._setting.has_store:  # as in ``logfs.fs.session.mount.preload``
            # Simulated files always have the same times, which must not prove anything.
            preloaded = Preloaded.read(PosixDisk(self.data), machine.host(), 0)
        variables = {"LOGFS_SUCCESSOR": f"{its.detach()}:{os.dup(2)}"}
        try:
            inherited = take_turn(variables)
        except (MountError, OSError):
            return _NO_TURN
        control.send(b"t")
        if not control.recv(1):
            return _NO_TURN
        return self._serve(control, kept, inherited, preloaded)

    def _serve(
        self,
        control: socket.socket,
        kept: socket.socket,
        inherited: Inherited | None = None,
        preloaded: Preloaded | None = None,
    ) -> int:
        setting, manager = self._setting, SimulatedManager(kept)
        if inherited is not None:
            connection = os.dup2(inherited.connection, _POINT)
            manager.predecessor = Inherited(connection, inherited.state)
            os.close(inherited.connection)
        else:
            connection = os.dup2(self.kernel.daemon_end.fileno(), _POINT)
            if self._state >= 0:
                manager.predecessor = Inherited(connection, os.dup(self._state))
        manager.preloaded = preloaded
        choices = Choices(setting.seed * 7919 + self.lives, setting.slow)
        if setting.has_store:
            use_store(self._store, self.words, choices)
        native_clock = self.words.begin(*self._note_files())
        machine = self._machine(control, native_clock, choices)
        run_in_lock_step(control, self.words, choices)
        options = parse_options(list(setting.options))
        point = f"/dev/fd/{_POINT}"
        return run_mount(str(self.data), point, options, supervisor=manager, machine=machine)

    def _machine(self, control: socket.socket, native_clock: int, choices: Choices) -> Machine:
        return simulated_machine(
            self.words,
            native_clock,
            choices,
            f"boot{self.boots} {self.lives}",
            lambda: _ask(control),
            lambda: _successor_from(control),
        )

    def _note_files(self) -> tuple[int, int]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        trace = self._setting.trace
        undo = os.open(self._undo, flags) if self._setting.cuts_power else -1
        return undo, -1 if trace is None else os.open(trace, flags)


def run_in_lock_step(control: socket.socket, words: SharedWords, choices: Choices) -> None:
    """Have the event loop of this process wait for the parent when nothing can run.

    Args:
        control: A socket to the parent.
        words: What is shared with it.
        choices: What the seed decides.
    """
    chance = choices.random
    # What trio has for this, without public names.
    setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)  # noqa: B010 - mypy takes it for final
    _run._r = random.Random(chance.getrandbits(32))
    random.seed(chance.getrandbits(32))
    loaded, get_events, spins = hooks.loaded(), EpollIOManager.get_events, 0
    is_first = True

    def work() -> bool:
        return loaded is not None and loaded.serving.work(chance.getrandbits(16))

    def wait(manager: EpollIOManager, timeout: float) -> object:
        nonlocal spins, is_first
        if is_first:  # a kill in the start: the daemon serves now
            words[Shared.CALLS_LEFT], is_first = -1, False
        events = get_events(manager, 0)
        if not events and timeout > 0 and chance.random() < 0.7 and work():
            events = get_events(manager, 0)
        elif not events and timeout > 0:
            spins = 0
            deadline_s = _run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
            control.send(_IDLE.pack(b"i", deadline_s))
            if not control.recv(1):
                os._exit(0)
            return get_events(manager, 0)
        elif chance.random() < 0.1:
            work()
        spins += 1
        if spins % _SPINS == 0:
            words[Shared.TIME_NS] += _SPIN_NS
        return events

    EpollIOManager.get_events = wait  # type: ignore[method-assign, assignment]


def _ask(control: socket.socket) -> None:
    control.send(b"a")
    control.recv(1)


def _successor_from(control: socket.socket) -> socket.socket:
    control.send(b"s")
    _, descriptors, *_ = socket.recv_fds(control, 1, 1)
    return socket.socket(fileno=descriptors[0])


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
