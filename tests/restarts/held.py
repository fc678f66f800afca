"""A mount whose daemon a holder starts again as often as a test ends it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.mounting import COMMAND, environment, is_mounted
from tests.processes import wait_until

_HOLDER = "import sys\nfrom logfs.machine import holder\nholder.STARTS = 10**9\n"
_RUN = "sys.exit(holder.main(['-1', *sys.argv[1:]]))"


class HeldMount:
    """A mount with a holder that never gives up.

    Args:
        directory: For the data, the mount point and the log.
        options: More arguments of ``logfs mount``.
        prepare: Python that the holder runs first, and that its daemons inherit by variables.
    """

    def __init__(self, directory: Path, *options: str, prepare: str = "") -> None:
        self.data, self.point, self.log = (directory / name for name in ("data", "mnt", "log"))
        for path in (self.data, self.point):
            path.mkdir(exist_ok=True)
        self._options = options
        self._prepare = prepare
        self._holder: subprocess.Popen[bytes] | None = None
        self._mounts_before = 0

    def __enter__(self) -> Self:
        """Mount."""
        program = _HOLDER + self._prepare + _RUN
        command = [*COMMAND, "mount", str(self.data), str(self.point), *self._options]
        with self.log.open("ab") as log:
            self._holder = subprocess.Popen(
                [sys.executable, "-c", program, *command], env=environment(), stderr=log
            )
        wait_until(lambda: b" is mounted" in self.log.read_bytes(), "the mount is ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        """Unmount; the log has no sign of a bug."""
        assert self._holder is not None
        if is_mounted(self.point):
            self._holder.send_signal(signal.SIGTERM)
        try:
            status = self._holder.wait(60)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            subprocess.run(["umount", "-l", str(self.point)], check=False)
            raise
        if kind is None:
            assert status == 0, self.log.read_text()
            assert not is_mounted(self.point)
            assert "a bug in logfs" not in self.log.read_text(), self.log.read_text()

    def daemon(self) -> int:
        """Return the process that is the daemon now; 0 between two."""
        assert self._holder is not None
        pid = self._holder.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def end_daemon(self, number: int) -> int:
        """Send a signal to the present daemon; returns its process number."""
        wait_until(self.daemon, "a daemon runs")
        pid, self._mounts_before = self.daemon(), self._mounts()
        os.kill(pid, number)
        return pid

    def wait_for_next(self) -> None:
        """Wait until a daemon serves the mount that was started after the last signal."""
        wait_until(lambda: self._mounts() > self._mounts_before, "another daemon serves the mount")

    def _mounts(self) -> int:
        return self.log.read_bytes().count(b" is mounted\n")
