"""Leaving the terminal: the caller gets its prompt back once the daemon has something to answer.

    parent    waits; exits with 0 when the daemon is ready, else with the daemon's own exit status
    daemon    a session of its own, in /, without stdin and the caller's other open files

stdout and stderr stay open until the daemon is ready, so that the errors of its start are printed
where the command was given.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from logfs.cli import failures


def leave_terminal() -> Callable[[], None]:
    """Continue in the background; return in the daemon only. Call it before any thread is started.

    Returns:
        A function to call when the daemon is ready; until then the caller of the command waits.
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

    def ready() -> None:
        _replace(1, 2)
        with contextlib.suppress(BrokenPipeError):  # the caller has ended
            os.write(writing, b"+")
        os.close(writing)

    return ready


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
