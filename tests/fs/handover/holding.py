"""A mount whose daemon a holder starts again: the real daemon, through the kernel."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.mounting import COMMAND, PATIENCE_S, environment, is_mounted, take_away, wait_until

_WITHOUT_RESEND = """
import sys
from logfs.fs import hooks
hooks.load()
hooks.loaded().without_resend()
from logfs.cli.main import main
sys.argv[0] = "logfs"
sys.exit(main())
"""


class HeldMount:
    """A held mount.

    Args:
        directory: Where the data directory and the mount point are made.
        options: Of ``logfs mount``.
        resends: Whether the kernel sends requests again that a daemon had read.

    Attributes:
        point: The mount point.
    """

    def __init__(self, directory: Path, *options: str, resends: bool = True) -> None:
        self.data = directory / "data"
        self.point = directory / "mnt"
        self.data.mkdir(exist_ok=True)
        self.point.mkdir()
        self._options = options
        self._startup = directory / "startup"
        self._startup.mkdir()
        self._log = directory / "log"
        self._command = COMMAND if resends else (sys.executable, "-c", _WITHOUT_RESEND)

    @property
    def log(self) -> str:
        """What all daemons and the holder have logged."""
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The process id of the daemon; 0 if none runs now."""
        pid = self._holder.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else 0

    @property
    def holder_pid(self) -> int:
        """The process id of the holder."""
        return self._holder.pid

    def end_holder(self) -> None:
        """Let a stopped holder go on that has nothing to keep, and wait for its end."""
        self._holder.send_signal(signal.SIGCONT)
        self._holder.wait(PATIENCE_S)

    def break_program(self, code: str) -> None:
        """Let every process of logfs that starts from now on run this code first."""
        (self._startup / "sitecustomize.py").write_text(code)

    def end_daemon(self, number: signal.Signals) -> None:
        """Send a signal to the daemon, and wait until another one serves the mount."""
        serving = self.log.count("is mounted")
        os.kill(self.pid, number)
        wait_until(lambda: self.log.count("is mounted") > serving, "another daemon serves")

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._holder = subprocess.Popen(
                [
                    *(sys.executable, "-m", "logfs.machine.holder", "-1"),
                    *(*self._command, "mount", *self._options, str(self.data), str(self.point)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(PYTHONPATH=f"{self._startup}:{environment()['PYTHONPATH']}"),
            )
        wait_until(lambda: "is mounted" in self.log, "the mount answers")
        return self

    @contextmanager
    def without_daemon(self) -> Iterator[None]:
        """Kill the daemon, and let another one start at the end of the block."""
        serving, daemon = self.log.count("is mounted"), self.pid
        self._holder.send_signal(signal.SIGSTOP)
        os.kill(daemon, signal.SIGKILL)
        try:
            yield
        finally:
            self._holder.send_signal(signal.SIGCONT)
        wait_until(lambda: self.log.count("is mounted") > serving, "another daemon serves")

    def stop(self) -> None:
        """Stop the holder, which ends the daemon and the mount."""
        self._holder.send_signal(signal.SIGTERM)
        assert self._holder.wait(PATIENCE_S) == 0, self.log
        assert not is_mounted(self.point), self.log
        assert "Traceback" not in self.log, self.log
        assert "a bug in logfs" not in self.log, self.log

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._holder.poll() is None:
                self.stop()
        finally:
            if self._holder.poll() is None:
                pid = self.pid
                self._holder.kill()
                self._holder.wait(PATIENCE_S)
                if pid:
                    os.kill(pid, signal.SIGKILL)
            if is_mounted(self.point):
                take_away(self.point)
            if kind is not None:
                sys.stderr.write(self.log)
