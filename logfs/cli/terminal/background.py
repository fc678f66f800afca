"""Leaving the terminal: the caller gets its prompt back once the daemon has something to answer.

    parent    waits; exits with 0 when the daemon is ready, else with the daemon's own exit status
    holder    its own session, in /, without stdin and the caller's other open files
    daemon    the holder's child, which the holder starts again after a crash or for a restart

stdout and stderr stay open until the daemon is ready, so that the errors of its start are printed
where the command was given.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from logfs.cli import failures

_HELD = "LOGFS_HELD"
"""Set for a daemon that a holder runs."""


def is_held() -> bool:
    """Return whether a holder runs this process, which is in the background already."""
    return _HELD in os.environ


def ready_of_held() -> Callable[[], None]:
    """Return what a daemon that a holder runs calls when it is ready."""
    os.environ.pop(_HELD)
    return lambda: _replace(1, 2)


def run_held(command: Sequence[str], log_file: str | None) -> NoReturn:
    """Run a daemon in the background, with a holder; return when it is ready.

    Args:
        command: Its program and arguments; they must not depend on the working directory.
        log_file: The file for messages of the holder, an absolute path; None: to syslog only.
    """
    waiting = leave_terminal().descriptor
    os.set_inheritable(waiting, True)
    os.environ[_HELD] = "1"
    holder = [sys.executable, "-m", "logfs.machine.holder", str(waiting)]
    holder += [] if log_file is None else [f"--log-file={log_file}"]
    holder += command
    os.execv(sys.executable, holder)


class Ready:
    """Lets the caller of a command continue.

    Attributes:
        descriptor: A byte that is written to it has the same effect.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __call__(self) -> None:
        """Say that the daemon is ready, and write nothing more to the terminal."""
        _replace(1, 2)
        with contextlib.suppress(BrokenPipeError):  # the caller has ended
            os.write(self.descriptor, b"+")
        os.close(self.descriptor)


def leave_terminal() -> Ready:
    """Continue in the background; return in the daemon only. Call it before any thread is started.

    Returns:
        To be called when the daemon is ready; until then the caller of the command waits.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        failures.exit_with(_wait(pid, reading))
    os.close(reading)
    os.setsid()
    os.chdir("/")
    _replace(0)
    # Readers of the caller's pipes, and waiters for its locks, would wait for the daemon.
    os.closerange(3, writing)
    os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))

    return Ready(writing)


def _wait(pid: int, reading: int) -> int:
    """Wait until the daemon is ready or has ended; return the exit status."""
    try:
        if os.read(reading, 1):
            return 0
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        raise
    if code < 0:
        failures.warn(f"the daemon was ended by {signal.Signals(-code).name} before it was ready")
    return code if code > 0 else failures.FAILED


def _replace(*descriptors: int) -> None:
    """Replace standard descriptors by /dev/null."""
    with Path(os.devnull).open("r+b", buffering=0) as nowhere:
        for descriptor in descriptors:
            os.dup2(nowhere.fileno(), descriptor)
