"""A successor that starts before its predecessor stops: ``logfs reload``.

The predecessor starts its own command line again, in a new interpreter, so with the code that is
installed now. The successor imports everything, reads the data directory, says that it is warm, and
waits. Then the predecessor stops, and sends it the two descriptors. A successor that cannot start
changes nothing.

    LOGFS_SUCCESSOR=SOCKET:STDERR    for the successor: a socket to the predecessor, and its stderr

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

logger = logging.getLogger(__name__)

WARM_TIMEOUT_S = 60.0
"""How long a successor may take until it is warm."""

_VARIABLE = "LOGFS_SUCCESSOR"
_NOT_FOR_IT = frozenset({"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", _VARIABLE})
_WARM, _GO = b"warm", b"go"
_STOPS = (signal.SIGTERM, signal.SIGINT)
_REPORTED_BYTES = 2000


class Again(NamedTuple):
    """How the command of this daemon is run again."""

    command: Sequence[str]
    environment: Mapping[str, str]


class Successor:
    """A process that is going to serve the mount. Event loop only.

    Attributes:
        pid: Its process id.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", connection: socket.socket, errors: BinaryIO
    ) -> None:
        self.pid = process.pid
        self._process = process
        self._socket = connection
        self._errors = errors

    @classmethod
    def start(cls, again: Again) -> Self:
        """Start it.

        Raises:
            OSError: The program cannot be started.
        """
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.fdopen(os.memfd_create("logfs-errors", os.MFD_CLOEXEC), "w+b", buffering=0)
        environment = {k: v for k, v in again.environment.items() if k not in _NOT_FOR_IT}
        # It has to handle a stop when it can end the mount: see ``logfs.fs.mount``.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        stderr = os.dup(2)
        try:
            environment[_VARIABLE] = f"{its.fileno()}:{stderr}"
            process = subprocess.Popen(
                again.command,
                stdin=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                pass_fds=(its.fileno(), stderr),
            )
        except OSError:
            ours.close()
            errors.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(stderr)
            its.close()
        return cls(process, ours, errors)

    async def wait_until_warm(self) -> None:
        """Wait until it needs only the descriptors; end it if it does not get so far.

        Raises:
            MountError: It ended, or took too long. The message has its last lines.
        """
        said = b""
        self._socket.setblocking(False)
        try:
            with trio.move_on_after(WARM_TIMEOUT_S):
                await trio.lowlevel.wait_readable(self._socket)
                with contextlib.suppress(ConnectionError):
                    said = self._socket.recv(len(_WARM))
        finally:
            if said != _WARM:
                self.end()
        if said != _WARM:
            raise MountError(f"the next daemon cannot start: {self._reason()}")
        self._socket.setblocking(True)

    def _reason(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _REPORTED_BYTES))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        if lines:
            return lines[-1].removeprefix("logfs: ")
        status = self._process.returncode
        ended = f"ended with {status}" if status and status > 0 else "was ended"
        return f"process {self.pid} {ended} and has not said why"

    def end(self) -> None:
        """End it: it is not needed. Its socket is closed, so it ends by itself in any case."""
        self._socket.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def go(self, connection: int, state: int) -> None:
        """Send it the descriptors, as the last thing before this process ends.

        Raises:
            OSError: It has ended.
        """
        socket.send_fds(self._socket, [_GO], [connection, state])
        self._process.returncode = 0  # the service manager waits for it now


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
        raise MountError("the daemon before goes on, or has ended by itself")
    os.dup2(int(stderr), 2)
    os.close(int(stderr))
    return Inherited(*received)
