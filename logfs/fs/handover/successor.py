"""A successor that starts before its predecessor stops: ``logfs reload``.

The predecessor starts its own command line again, in a new interpreter, so with the code that is
installed now. The successor imports everything, reads the data directory, says that it is warm, and
waits. Then the predecessor stops, and sends it the two descriptors. A successor that cannot start
changes nothing.

The successor is no child of the predecessor: a launcher forks it, sends its process id and ends. So
it is a child of the service manager before the predecessor names it. systemd decides at that moment
whether it waits for a main process to end, or kills it at once at a stop.

    LOGFS_SUCCESSOR=SOCKET:STDERR    for the successor: a socket to the predecessor, and its stderr

Source: systemd service_set_main_pid, unit_kill_context.

Until it is warm, its stderr is a memory file: the predecessor reports what is in it.
"""

import array
import contextlib
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, MutableMapping, Sequence
from typing import BinaryIO, NamedTuple, Self

import trio

from logfs.errors import MountError
from logfs.fs.handover.descriptors import Inherited
from logfs.machine.holder import HOLDER

logger = logging.getLogger(__name__)

WARM_TIMEOUT_S = 60.0
"""How long a successor may take until it is warm."""

_VARIABLE = "LOGFS_SUCCESSOR"
_NOT_FOR_IT = frozenset({"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", _VARIABLE})
_WARM, _GO = b"warm", b"go"
_PID_BYTES = 16
_LAUNCHER = """
import os, socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
pid = os.fork()
if pid:
    connection.send(b"%d" % pid)
    os._exit(0)
connection.detach()
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)
"""
_PYTHON = "/proc/self/exe"
"""An upgrade may have removed the interpreter that runs."""
_STOPS = (signal.SIGTERM, signal.SIGINT)
_REPORTED_BYTES = 2000


class Again(NamedTuple):
    """How the command of this daemon is run again."""

    command: Sequence[str]
    environment: Mapping[str, str]


class Successor:
    """A process that is going to serve the mount. Event loop only.

    Attributes:
        pid: Its process id; 0 until it is known.
    """

    def __init__(
        self, launcher: "subprocess.Popen[bytes]", connection: socket.socket, errors: BinaryIO
    ) -> None:
        self.pid = 0
        self._process: int | None = None
        self._launcher = launcher
        self._socket = connection
        self._errors = errors

    @classmethod
    def start(cls, again: Again, holder: tuple[int, int | None] = (0, None)) -> Self:
        """Start its launcher.

        Args:
            holder: The process that keeps the mount, and the descriptor for messages to it.

        Raises:
            OSError: The launcher cannot be started.
        """
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.fdopen(os.memfd_create("logfs-errors", os.MFD_CLOEXEC), "w+b", buffering=0)
        environment = {k: v for k, v in again.environment.items() if k not in _NOT_FOR_IT}
        # It has to handle a stop when it can end the mount: see ``logfs.fs.session.mount``.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        stderr = os.dup(2)
        passed = [its.fileno(), stderr]
        pid, messages = holder
        if messages is not None:
            passed.append(messages)
            environment[HOLDER] = f"{pid}:{messages}"
        try:
            environment[_VARIABLE] = f"{its.fileno()}:{stderr}"
            launcher = subprocess.Popen(
                [_PYTHON, "-I", "-S", "-c", _LAUNCHER, str(its.fileno()), *again.command],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                pass_fds=passed,
            )
        except OSError:
            ours.close()
            errors.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(stderr)
            its.close()
        return cls(launcher, ours, errors)

    async def wait_until_warm(self) -> None:
        """Wait until it needs only the descriptors; end it if it does not get so far.

        Raises:
            MountError: It ended, or took too long. The message has its last lines.
        """
        said = b""
        self._socket.setblocking(False)
        try:
            with trio.move_on_after(WARM_TIMEOUT_S):
                pid = await self._receive(_PID_BYTES)
                if pid.isdigit():
                    self.pid = int(pid)
                    self._process = os.pidfd_open(self.pid)
                    self._launcher.wait()  # it ends at once
                    said = await self._receive(len(_WARM))
        finally:
            if said != _WARM:
                self.end()
        if said != _WARM:
            raise MountError(f"the next daemon cannot start: {self._reason()}")
        self._socket.setblocking(True)

    async def _receive(self, size: int) -> bytes:
        """Return the next message; empty if there is none any more."""
        await trio.lowlevel.wait_readable(self._socket)
        with contextlib.suppress(ConnectionError):
            return self._socket.recv(size)
        return b""

    def _reason(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _REPORTED_BYTES))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        if lines:
            return lines[-1].removeprefix("logfs: ")
        return f"process {self.pid or self._launcher.pid} was ended and has not said why"

    def end(self) -> None:
        """End it: it is not needed. Its socket is closed, so it ends by itself in any case."""
        self._socket.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            os.close(self._process)
            self._process = None
        self._launcher.kill()
        self._launcher.wait()

    def go(self, connection: int, state: int) -> None:
        """Send it the descriptors, as the last thing before this process ends.

        Raises:
            OSError: It has ended.
        """
        socket.send_fds(self._socket, [_GO], [connection, state])


def is_successor(environment: Mapping[str, str]) -> bool:
    """Whether this process has a predecessor that still serves."""
    return _VARIABLE in environment


def take_turn(environment: MutableMapping[str, str]) -> Inherited | None:
    """Wait for the predecessor if this process is its successor; return the descriptors.

    Call it when everything is imported and read that will be needed. None: there is no such
    predecessor.

    Raises:
        MountError: The predecessor has not stopped for this process.
    """
    text = environment.pop(_VARIABLE, None)
    if text is None:
        return None
    number, _, stderr = text.partition(":")
    with socket.socket(fileno=int(number)) as connection:
        connection.set_inheritable(False)
        connection.sendall(_WARM)
        received = array.array("i")
        size = socket.CMSG_SPACE(2 * received.itemsize)
        said, ancillary, _, _ = connection.recvmsg(len(_GO), size, socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                received.frombytes(data[: len(data) // received.itemsize * received.itemsize])
    if said != _GO or len(received) != 2:
        raise MountError("the daemon before continues, or has ended by itself")
    os.dup2(int(stderr), 2)
    os.close(int(stderr))
    return Inherited(*received)
