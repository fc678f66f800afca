"""Whether the terminal that a process was started from is still there.

A closed terminal sends SIGHUP to its programs. ``logrotate`` sends the same signal after it has
moved a log file. They differ in /dev/tty: it cannot be opened once the kernel has taken the
terminal from the process.

Source: tty_ioctl(4), "controlling terminal"; Linux __tty_hangup.
"""

import os
import signal
from pathlib import Path


class ControllingTerminal:
    """The controlling terminal of this process, as it is when this object is made.

    A process that was told to ignore SIGHUP (``nohup``) never loses its terminal in this sense.
    """

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._had_one = not ignored and _can_open()

    @property
    def is_lost(self) -> bool:
        """There was a terminal, and now there is none."""
        return self._had_one and not _can_open()


def _can_open() -> bool:
    try:
        Path(os.ctermid()).open("rb", buffering=0).close()
    except OSError:
        return False
    return True
