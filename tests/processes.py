"""A program that a test starts: its output goes to a file, and it is ended by its process id."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PATIENCE_S = 60.0
"""When a test gives up waiting. Nothing is said about how long anything takes."""


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait for something that has to become true."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.01)


class Process:
    """A program that is started, once or again and again.

    Args:
        name: What failures call it.
        log_path: Where its output goes, over all its starts.
    """

    def __init__(self, name: str, log_path: Path) -> None:
        self._name = name
        self._log_path = log_path
        self._log_start = 0
        self._since_start = bytearray()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it has printed, over all its starts."""
        return self._log_path.read_text(errors="replace")

    @property
    def log_since_start(self) -> str:
        """What it has printed since its last start."""
        self._read_on()
        return self._since_start.decode(errors="replace")

    def has_said(self, text: str) -> bool:
        """Whether it has printed a text since its last start; only what is new is read."""
        self._read_on()
        return text.encode() in self._since_start

    def _read_on(self) -> None:
        with self._log_path.open("rb") as log:
            log.seek(self._log_start + len(self._since_start))
            self._since_start += log.read()

    @property
    def is_started(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process, which has to be started."""
        assert self._process is not None, f"the {self._name} does not run"
        return self._process

    def start(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        """Start it; returns at once."""
        assert self._process is None, f"the {self._name} runs already"
        with self._log_path.open("ab") as log:
            self._log_start = log.seek(0, 2)
            self._since_start = bytearray()
            self._process = subprocess.Popen(
                [str(word) for word in command],
                cwd=cwd,
                env=env,
                stdin=stdin,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> int:
        """End it by SIGTERM, as ``systemctl stop`` does, and return its status."""
        self.running.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Return the status with which it ends."""
        process, self._process = self.running, None
        if process.stdin is not None:
            process.stdin.close()
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def kill(self) -> None:
        """End it by ``kill -9``."""
        process, self._process = self.running, None
        process.kill()
        process.wait(PATIENCE_S)

    def forget(self) -> None:
        """Take it for ended, because it has ended by itself."""
        self._process = None

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        """Wait for something that has to become true while it runs."""

        def holds_or_ended() -> object:
            assert self.running.poll() is None, f"the {self._name} ended\n{self.log_since_start}"
            return holds()

        wait_until(holds_or_ended, what)
