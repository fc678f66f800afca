"""Leaving the terminal: the caller gets its prompt back once the daemon has something to answer.

    parent    waits; exits with 0 when the daemon is ready, else with the daemon's own exit status
    daemon    a session of its own, in /, without stdin and what else the caller had open

stdout and stderr stay until the daemon is ready, so that whatever keeps it from starting is said
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
    """Go on in the background; returns in the daemon only. Call it before any thread is started.

    Returns:
        To be called once the daemon is ready; until then the caller of the command waits.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        failures.give_up(_wait(pid, reading))
    os.close(reading)
    os.setsid()
    os.chdir("/")
    _replace(0)
    # Whoever reads from a pipe of the caller's, or waits for its lock, would wait for the daemon.
    os.closerange(3, writing)
    os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))

    def ready() -> None:
        _replace(1, 2)
        with contextlib.suppress(BrokenPipeError):  # nobody waits any more
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
    """Let standard descriptors lead to nowhere."""
    with Path(os.devnull).open("r+b", buffering=0) as nowhere:
        for descriptor in descriptors:
            os.dup2(nowhere.fileno(), descriptor)
