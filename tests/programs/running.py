"""Programs of others beside a mount: in the foreground, in a terminal, in a shell."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.mounting import PATIENCE_S, environment, wait_until
from tests.processes import Process

SYSTEM_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
"""Where daemons are; a user's PATH does not have them on Debian."""


def shell(
    script: str, cwd: Path, *, timeout_s: float | None = PATIENCE_S
) -> "subprocess.CompletedProcess[str]":
    """Run a script, which may fail; home is its directory, so that it leaves nothing elsewhere."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
        env=environment(PATH=SYSTEM_PATH, HOME=str(cwd)),
    )


def printed(script: str, cwd: Path, *, timeout_s: float | None = PATIENCE_S) -> str:
    """Run a script that has to succeed, and return what it prints."""
    result = shell(script, cwd, timeout_s=timeout_s)
    assert result.returncode == 0, result
    return result.stdout


class Child:
    """A program in the foreground, ended by its process id when the block ends.

    Args:
        command: The program and its arguments.
        directory: Where it runs; what it prints is there, in ``said``.
    """

    def __init__(self, command: list[str], directory: Path) -> None:
        name, env = Path(command[0]).name, environment(PATH=SYSTEM_PATH, HOME=str(directory))
        self._process = Process(name, directory / f"{name}.said")
        self._process.start(command, cwd=directory, env=env, stdin=subprocess.PIPE)

    @property
    def said(self) -> str:
        """What it printed, over all starts in this directory."""
        return self._process.log

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        stdin = self._process.running.stdin
        assert stdin is not None
        stdin.write(f"{line}\n".encode())
        stdin.flush()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.running.send_signal(number)

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        """Wait for something, as long as the program lives."""
        self._process.wait_until(holds, what)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.stop()


class Terminal:
    """A program in a terminal of 120 columns and 30 lines.

    Args:
        command: What is typed to start it.
        directory: Where it runs, and its home.
    """

    def __init__(self, command: str, directory: Path) -> None:
        self._socket = directory / "tmux"
        self._directory = directory
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "30", command)

    @property
    def screen(self) -> list[str]:
        """What the terminal shows, without the empty lines."""
        return [line.rstrip() for line in self._tmux("capture-pane", "-p").splitlines() if line]

    def shows(self, text: str) -> None:
        """Wait until a text is on the screen."""
        wait_until(lambda: any(text in line for line in self.screen), f"the screen shows {text!r}")

    def press(self, *keys: str) -> None:
        """Press keys, as tmux names them."""
        self._tmux("send-keys", *keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        result = subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            cwd=self._directory,
            check=False,
            capture_output=True,
            text=True,
            env=environment(HOME=str(self._directory), TERM="screen"),
            timeout=PATIENCE_S,
        )
        assert result.returncode == 0, result
        return result.stdout
