"""The holder: a small process that keeps a mount while its daemon restarts.

It is for mounts that systemd does not run. It starts the daemon, and starts it again when it has
crashed or ended with ``HANDED_OVER``. It speaks the part of systemd's protocol that
``logfs.fs.session.supervision`` describes: the daemon sends it the descriptors to keep, and gets
them back when it starts again. The messages come through a pair of sockets that the daemon
inherits, so no other process can send any. The holder never uses the mount, so it never waits for
it.

    SIGTERM, SIGINT             the daemon stops, the mount ends, and so does the holder
    SIGHUP, SIGUSR1, SIGUSR2    are passed on to the daemon

The holder continues however often daemons end that have served. The pause before a start grows with
the number of starts in the last minute. After ``STARTS`` starts in a row of daemons that never
served, it gives up and closes the descriptors: programs get ENOTCONN, as without a holder. It says
so in syslog and in the log file. A daemon whose mount was taken away is not started again.

Source: sd_notify(3), systemd.service(5): FileDescriptorStoreMax=, Restart=, StartLimitBurst=.
"""

import array
import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import struct
import sys
import syslog
import time
from collections.abc import Callable, Sequence
from logging.handlers import WatchedFileHandler
from pathlib import Path

logger = logging.getLogger("logfs.holder")

HOLDER = "LOGFS_HOLDER"
"""The variable that tells a daemon the process id of its holder and, after a colon, the number of
the descriptor to which messages to it go."""
HANDED_OVER = 75
"""The exit status of a daemon that expects to be started again (EX_TEMPFAIL)."""
STARTS = 10
RESTART_S = 0.1
"""The pause before a start after a crash; doubled for each daemon in a row that never served."""
MAX_RESTART_S = 5.0
_PERIOD_S = 60.0
_MORE_S = 0.02
"""How much longer it is for each start in the last period."""

_LOG_FILE = "--log-file="
_TIME = "%Y-%m-%d %H:%M:%S%z"
_FIRST = 3
_MAX_KEPT = 4
_MESSAGE_BYTES = 4096
_CREDENTIALS = struct.Struct("iII")
_PASSED_ON = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_STOPS = (signal.SIGTERM, signal.SIGINT)
_MOUNT_ENDED = select.POLLERR | select.POLLHUP
_PR_SET_CHILD_SUBREAPER = 36


class DaemonHolder:
    """Runs one daemon.

    Args:
        command: Its program and arguments.
        ready: Called when the daemon says that the mount answers, the first time.
    """

    def __init__(self, command: Sequence[str], ready: Callable[[], None] = lambda: None) -> None:
        self._command = list(command)
        self._ready = ready
        self._kept: dict[str, int] = {}
        self._pid = 0
        self._successor = 0
        self._is_ready = False
        self._is_stopping = False
        self._is_ending = False
        self._starts: list[float] = []
        self._unready = 0
        self._socket, self._daemons = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        self._waker, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Run the daemon until it has ended for good; returns its exit status."""
        # The child of a daemon that it names as its successor becomes a child of this process.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for number in (*_STOPS, *_PASSED_ON, signal.SIGCHLD):
            signal.signal(number, self._signalled)
        self._start()
        while True:
            status = self._wait()
            if status is None:
                continue
            pause_s = self._decide(status)
            if pause_s is None:
                return status if status >= 0 else 128 - status
            time.sleep(pause_s)
            self._start()

    def _signalled(self, number: int, _frame: object) -> None:
        if number in _STOPS:
            self._is_stopping = True
        if number != signal.SIGCHLD and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, int(signal.SIGTERM) if number in _STOPS else number)

    def _decide(self, status: int) -> float | None:
        """Return how long to wait before the next start; None if there is none."""
        now_s = time.monotonic()
        self._starts = [at_s for at_s in self._starts if now_s - at_s < _PERIOD_S]
        what = f"signal {-status}" if status < 0 else f"status {status}"
        if self._is_stopping and self._kept and status and not self._is_ending:
            self._is_ending = True  # the next daemon ends the mount
            return 0.0
        if self._is_stopping or status == 0 or not self._is_ready:
            return None
        if not self._kept or self._is_mount_gone():
            logger.warning("the daemon ended with %s, and its mount has ended", what)
            return None
        if self._unready >= STARTS:
            logger.error(
                "the daemon ended with %s, and so did %d in a row before they served the mount. It "
                "is given up: programs get errors until logfs is mounted again", what, self._unready
            )  # fmt: skip
            return None
        if status == HANDED_OVER:
            return 0.0
        logger.warning("the daemon ended with %s; starting it again, the mount waits", what)
        unready_s = RESTART_S * 2.0 ** max(self._unready - 1, 0)
        return min(unready_s + _MORE_S * len(self._starts), MAX_RESTART_S)

    def _is_mount_gone(self) -> bool:
        poller = select.poll()
        for descriptor in self._kept.values():
            poller.register(descriptor, 0)
        return any(events & _MOUNT_ENDED for _, events in poller.poll(0))

    def _start(self) -> None:
        self._starts.append(time.monotonic())
        self._unready += 1
        sys.stdout.flush()
        sys.stderr.flush()
        # The daemon gets SIGTERM when it can end the mount: see ``logfs.fs.session.mount``.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        pid = os.fork()
        if pid == 0:
            try:
                self._become_daemon()
            finally:
                os._exit(127)
        self._pid = pid
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        if self._is_stopping:
            os.kill(pid, signal.SIGTERM)

    def _become_daemon(self) -> None:
        for reset in (*_STOPS, *_PASSED_ON, signal.SIGCHLD):
            signal.signal(reset, signal.SIG_DFL)
        environment = dict(os.environ)
        for name in ("WATCHDOG_USEC", "NOTIFY_SOCKET"):
            environment.pop(name, None)
        # First away from the numbers that they are to get.
        given = [*self._kept.values(), self._daemons.fileno()]
        moved = [_duplicate(descriptor, _FIRST + len(given)) for descriptor in given]
        for number, descriptor in enumerate(moved):
            os.dup2(descriptor, _FIRST + number)
        environment[HOLDER] = f"{os.getppid()}:{_FIRST + len(self._kept)}"
        environment["LISTEN_PID"] = str(os.getpid())
        environment["LISTEN_FDS"] = str(len(self._kept))
        environment["LISTEN_FDNAMES"] = ":".join(self._kept)
        try:
            os.execvpe(self._command[0], self._command, environment)
        except OSError as error:
            logger.exception("%s cannot be started", self._command[0], exc_info=error)

    def _wait(self) -> int | None:
        """Wait for messages and for the end of the daemon; return its status then."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        poller.register(self._waker, select.POLLIN)
        poller.poll()
        with contextlib.suppress(BlockingIOError):
            os.read(self._waker, 4096)
        self._receive_all()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return HANDED_OVER if self._pid else 0
            if not pid:
                return None
            if pid == self._pid:
                self._receive_all()
                if pid == self._pid:  # it has not named a successor
                    self._pid = 0
                    return os.waitstatus_to_exitcode(status)

    def _receive_all(self) -> None:
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(
                    _MESSAGE_BYTES, 1024, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            descriptors, sender = _parse_ancillary(ancillary)
            if sender == self._pid:
                descriptors = self._obey(data.decode(errors="replace"), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)

    def _obey(self, text: str, descriptors: list[int]) -> list[int]:
        """Do what a message says; returns the descriptors that are not kept."""
        lines = dict(line.partition("=")[::2] for line in text.splitlines())
        name = lines.get("FDNAME", "")
        if "FDSTORE" in lines and len(descriptors) == 1 and len(self._kept) < _MAX_KEPT:
            self._forget(name)
            self._kept[name] = descriptors[0]
            descriptors = []
        if "FDSTOREREMOVE" in lines:
            self._forget(name)
        if lines.get("MAINPID", "").isdecimal():
            self._pid = int(lines["MAINPID"])
        if "READY" in lines:
            self._unready = 0
            if not self._is_ready:
                self._is_ready = True
                self._ready()
        return descriptors

    def _forget(self, name: str) -> None:
        if name in self._kept:
            os.close(self._kept.pop(name))


def _duplicate(descriptor: int, lowest: int) -> int:
    """Duplicate a descriptor, with a number that is not below another one."""
    while descriptor < lowest:
        descriptor = os.dup(descriptor)
    return descriptor


def _parse_ancillary(ancillary: "list[tuple[int, int, bytes]]") -> tuple[list[int], int]:
    """Return the descriptors of a message, and the process that has sent it."""
    descriptors, sender = array.array("i"), -1
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) // descriptors.itemsize * descriptors.itemsize])
        elif kind == socket.SCM_CREDENTIALS:
            sender = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
    return descriptors.tolist(), sender


class _SyslogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Send one message."""
        is_error = record.levelno >= logging.ERROR
        syslog.syslog(syslog.LOG_ERR if is_error else syslog.LOG_WARNING, record.getMessage())


def _log_to(path: str) -> None:
    """Write messages into a file as well, which may be rotated."""
    handler = WatchedFileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", _TIME))
    logger.addHandler(handler)


def main(arguments: Sequence[str]) -> int:
    """Run ``holder READY_DESCRIPTOR [--log-file=FILE] COMMAND...``.

    Args:
        arguments: The descriptor to which a byte is written when the mount answers (-1: nothing
            waits for it, and messages go to stderr), the log file, and the daemon.
    """
    waiting, command = int(arguments[0]), arguments[1:]
    if command[0].startswith(_LOG_FILE):
        _log_to(command[0].removeprefix(_LOG_FILE))
        command = command[1:]
    if waiting >= 0:
        os.set_inheritable(waiting, False)
        syslog.openlog("logfs", syslog.LOG_PID, syslog.LOG_DAEMON)
        logger.addHandler(_SyslogHandler())

    def ready() -> None:
        if waiting < 0:
            return
        with Path(os.devnull).open("r+b", buffering=0) as nowhere:
            for descriptor in (1, 2):
                os.dup2(nowhere.fileno(), descriptor)
        with contextlib.suppress(BrokenPipeError):  # the caller has ended
            os.write(waiting, b"+")
        os.close(waiting)

    return DaemonHolder(command, ready).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
