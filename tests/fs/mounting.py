"""Real mounts for this folder: scripts run in them, and what their daemon complained about."""

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.mounting import PATIENCE_S, Mount, environment


class Mounted(Mount):
    """An empty store and its mount, side by side in a folder.

    Attributes:
        expected: Parts of complaints, of which there have to be some.
    """

    def __init__(
        self, folder: Path, *options: str, variables: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder / "data", folder / "mnt", *options, variables=variables)
        self.expected: list[str] = []

    @property
    def complaints(self) -> list[str]:
        """Lines of the log that are more than information."""
        return [line for line in self.log.splitlines() if " INFO " not in line]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the daemon a signal; returns its exit status."""
        self._daemon.running.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the daemon; returns its exit status."""
        return self._daemon.wait()

    def unmount(self) -> None:
        """Do what umount(8) does."""
        subprocess.run(["umount", self.point], check=True)

    def run(self, script: str) -> "subprocess.CompletedProcess[str]":
        """Run a script in the mount."""
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.point,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            env=environment(LC_ALL="C"),
        )

    def shell(self, script: str) -> str:
        """Run a script in the mount that has to succeed; returns what it printed."""
        result = self.run(script)
        assert result.returncode == 0, result.stdout
        return result.stdout

    def check(self) -> None:
        """See that the daemon has complained about what was expected and nothing else."""
        complaints = self.complaints
        assert bool(complaints) == bool(self.expected), self.log
        for line in complaints:
            assert any(part in line for part in self.expected), line


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
