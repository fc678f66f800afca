"""A mount whose daemon a holder starts again as often as a test ends it: through the kernel."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from logfs.machine.daemonnote import read_daemon_note
from tests.mounting import ROOT, environment, is_mounted, take_away
from tests.processes import PATIENCE_S, wait_until

_HOLDER = """\
import sys
from logfs.machine import holder
holder.STARTS = 10**9
sys.exit(holder.main(sys.argv[1:]))
"""
_PROGRAM = """\
#!{python}
import sys
sys.path.insert(0, {tree!r})
{changes}
from logfs.cli.main import main
sys.exit(main())
"""
WITHOUT_RESEND = """\
from logfs.fs.kernel import hooks
hooks.load()
hooks.loaded().connection.without_resend()
"""
"""A change of the daemon: it works as on a kernel that does not send requests again."""
_NO_SUSPECTS = """\
from logfs.fs.kernel.suspects import SuspectTable
SuspectTable.__len__ = lambda self: 0
"""
_SERVES = " is mounted\n"
_BORING = re.compile(r" INFO (loaded |\S+: recovered, )")
"""Lines for each partition."""
_SIGNS_OF_A_BUG = ("Traceback", "a bug in logfs")


class HeldMount:
    """A mount with a holder that never gives up. Its daemon is a program that a test may replace.

    Args:
        directory: For the data, the mount point, the program and the log.
        options: More arguments of ``logfs mount``.
        resends: Whether the kernel sends requests again that a daemon had read.
        changes: Python that the program runs before the rest of logfs.
        user: The user that mounts, by number; None for the user that runs the test.
        data: The data directory; None for one in ``directory``.
        suspects: Whether a request is refused that was under way when two daemons ended; most tests
            end daemons more often than that within one request.

    Attributes:
        data: The data directory.
        point: The mount point.
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        resends: bool = True,
        changes: str = "",
        user: int | None = None,
        data: Path | None = None,
        suspects: bool = False,
    ) -> None:
        self.data, self.point = data or directory / "data", directory / "mnt"
        for path in (self.data, self.point):
            path.mkdir(exist_ok=True)
            if user is not None:
                os.chown(path, user, user)
        self._log = directory / "log"
        self._program = directory / "logfs"
        self._before = changes if resends else WITHOUT_RESEND + changes
        self._before += "" if suspects else _NO_SUSPECTS
        self._user = user
        self.options = options
        self._holder: subprocess.Popen[bytes] | None = None
        self._served_before = 0
        self.install()

    def install(self, changes: str = "", tree: Path = ROOT) -> None:
        """Replace the program: each daemon that starts from now on is another one.

        Args:
            changes: Python that it runs first, after the changes that all programs have.
            tree: The directory with the package.
        """
        text = _PROGRAM.format(
            python=sys.executable, tree=str(tree), changes=self._before + changes
        )
        new = self._program.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o755)
        new.replace(self._program)

    @property
    def log(self) -> str:
        """What all daemons and the holder have logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def note(self, text: str) -> None:
        """Write a line into the log, which is printed when a test fails."""
        with self._log.open("a") as log:
            log.write(f"--- {text}\n")

    @property
    def holder(self) -> "subprocess.Popen[bytes]":
        """The holder."""
        assert self._holder is not None
        return self._holder

    @property
    def pid(self) -> int:
        """The process id of the daemon, not of a successor that waits; 0 if none runs now."""
        pid = self.holder.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        serving = read_daemon_note(str(self.data))
        if serving is not None and str(serving.pid) in children:
            return serving.pid
        return int(children[-1]) if children else 0

    def __enter__(self) -> Self:
        command = [self._program, "mount", *self.options, self.data, self.point]
        before = self.log.count(_SERVES)
        with self._log.open("ab") as log:
            self._holder = subprocess.Popen(
                [sys.executable, "-c", _HOLDER, "-1", *map(str, command)],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                group=self._user,
                extra_groups=None if self._user is None else (),
            )

        def serves() -> bool:
            assert self.holder.poll() is None, self.log
            return self.log.count(_SERVES) > before

        wait_until(serves, "the mount answers")
        return self

    def signal_daemon(self, number: int) -> int:
        """Send a signal to the daemon that runs now, and return its process id at once."""
        wait_until(lambda: self.pid, "a daemon runs")
        pid, self._served_before = self.pid, self.log.count(_SERVES)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return pid

    def wait_for_next(self) -> None:
        """Wait until a daemon serves that was started after the last signal."""
        wait_until(self.has_next, "another daemon serves the mount")

    def has_next(self) -> bool:
        """Return whether a daemon serves that was started after the last signal."""
        assert self.holder.poll() is None, self.log
        return self.log.count(_SERVES) > self._served_before

    def end_daemon(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the daemon, and wait until another one serves the mount."""
        self.signal_daemon(number)
        self.wait_for_next()

    @contextmanager
    def without_daemon(self) -> Iterator[None]:
        """Kill the daemon, and let another one start at the end of the block."""
        self.holder.send_signal(signal.SIGSTOP)
        self.signal_daemon(signal.SIGKILL)
        try:
            yield
        finally:
            self.holder.send_signal(signal.SIGCONT)
        self.wait_for_next()

    def end_holder(self) -> None:
        """Let a stopped holder continue that has nothing to keep, and wait for its end."""
        self.holder.send_signal(signal.SIGCONT)
        self.holder.wait(PATIENCE_S)

    def stop(self) -> None:
        """Stop the holder, which ends the daemon and the mount; nothing was wrong."""
        self.holder.send_signal(signal.SIGTERM)
        status = self.holder.wait(PATIENCE_S)
        assert status == 0, self.log
        assert not is_mounted(self.point), self.log
        assert not any(sign in self.log for sign in _SIGNS_OF_A_BUG), self.log

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self.holder.poll() is None:
                self.stop()
        finally:
            if self.holder.poll() is None:
                pid = self.pid
                self.holder.kill()
                self.holder.wait(PATIENCE_S)
                if pid:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            if is_mounted(self.point):
                take_away(self.point)
            if kind is not None:
                lines = self.log.splitlines(keepends=True)
                sys.stderr.writelines(line for line in lines if not _BORING.search(line))
