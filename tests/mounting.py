"""Data directories that their own daemon mounts, for tests that go through the kernel.

    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        (mount.point / "orders").mkdir()
        ...

The daemon is ``python -m logfs mount`` as a user starts it. A mount is always removed, also
after a crash of its daemon. The daemon's log is in ``Mount.log``. A daemon that ran into a bug of
its own fails the test when it stops.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.store import LogStore
from logfs.machine.host import current_host
from tests.processes import PATIENCE_S as PATIENCE_S
from tests.processes import Process
from tests.processes import wait_until as wait_until

ROOT = Path(__file__).parents[1]
COMMAND = (sys.executable, "-m", "logfs")
_SIGNS_OF_A_BUG = ("Traceback (most recent call last)", "a bug in logfs")


def environment(**changes: str) -> dict[str, str]:
    """Return the environment in which this tree's logfs runs, with some variables changed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "LC_ALL": "C.UTF-8", "TZ": "UTC0", **changes}


def environment_with_command(directory: Path) -> dict[str, str]:
    """Return that environment with the command ``logfs`` in it, which is put into a directory."""
    programs = directory / "programs"
    programs.mkdir()
    command = programs / "logfs"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m logfs "$@"\n')
    command.chmod(0o755)
    return environment(PATH=f"{programs}:{os.environ['PATH']}")


def holder_of(pid: int) -> int:
    """Return the process that keeps the mount of a daemon in the background."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_with_holder(pid: int) -> None:
    """Kill a daemon in the background for good: no other one continues its mount."""
    os.kill(holder_of(pid), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def run(
    *command: str | os.PathLike[str], cwd: Path | None = None, data: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a program, which may fail."""
    return subprocess.run(
        command,
        cwd=cwd,
        input=data,
        check=False,
        capture_output=True,
        env=environment(),
        timeout=PATIENCE_S,
    )


def output(*command: str | os.PathLike[str], cwd: Path | None = None, data: bytes = b"") -> bytes:
    """Run a program that has to succeed without a complaint and return what it prints."""
    result = run(*command, cwd=cwd, data=data)
    assert not result.returncode, result
    assert not result.stderr, result
    return result.stdout


def logfs(*arguments: str | os.PathLike[str], data: bytes = b"") -> bytes:
    """Run the command line, which has to succeed, and return what it prints."""
    result = run(*COMMAND, *arguments, data=data)
    assert not result.returncode, result
    return result.stdout


@contextlib.contextmanager
def opened_store(data: Path, **properties: str) -> Iterator[LogStore]:
    """Open a data directory that is not mounted, as a program would, and close it cleanly."""
    config = StoreConfig.from_properties(properties)
    store = LogStore.open(PosixDisk(str(data)), config, current_host(), now_ms=now_ms())
    try:
        yield store
    finally:
        store.close(now_ms())


def now_ms() -> int:
    """Return the time, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def is_mounted(point: Path) -> bool:
    """Tell whether a file system is mounted at a path, alive or dead."""
    text = Path("/proc/self/mountinfo").read_text()
    return any(line.split(" ")[4] == str(point) for line in text.splitlines())


def take_away(point: Path) -> None:
    """Unmount, dead or alive, in use or not."""
    command = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
    subprocess.run([*command, point], check=True)


class Mount:
    """A data directory and where it is mounted.

    Args:
        data: The data directory, made if it is missing.
        point: The mount point, made if it is missing; neither path has white space in it.
        options: Mount options, each as after ``-o``.
        variables: Changes of the daemon's environment.
        log_directory: Where its log goes; beside the data directory by default.
        url: Mount this store instead; nothing is put into the data directory.

    Attributes:
        data: The data directory.
        point: The mount point.
        options: Those of the next start.
    """

    def __init__(
        self,
        data: Path,
        point: Path,
        *options: str,
        variables: Mapping[str, str] | None = None,
        log_directory: Path | None = None,
        url: str | None = None,
    ) -> None:
        for directory in (data, point):
            directory.mkdir(parents=True, exist_ok=True)
        self.data = data.resolve()
        self.point = point.resolve()
        self.options = options
        self._url = url
        # What a read-only mount keeps must not get into the cache of the user that runs the tests.
        cache = self.data.with_name(f"{self.data.name}.cache")
        self._variables = {"CACHE_DIRECTORY": str(cache), **(variables or {})}
        log_path = (log_directory or self.data.parent) / f"{self.data.name}.daemon-log"
        self._daemon = Process("daemon", log_path)

    @property
    def log(self) -> str:
        """What the daemon has logged, over all its starts."""
        return self._daemon.log

    @property
    def pid(self) -> int:
        """The process id of the daemon."""
        return self._daemon.running.pid

    def start(self) -> None:
        """Mount, and return when the mount answers; it also takes the place of a dead one."""
        flags = [part for option in self.options for part in ("-o", option)]
        command = [*COMMAND, "mount", *flags, self._url or str(self.data), str(self.point)]
        self._daemon.start(command, env=environment(**self._variables))
        wait_until(self._answers, f"{self.point} was mounted")

    def stop(self) -> None:
        """Stop the daemon cleanly, as ``systemctl stop`` does, and see that it was content."""
        status = self._daemon.stop()
        assert status == 0, f"the daemon ended with {status}\n{self.log}"
        assert not is_mounted(self.point), self.log
        self._check_log()

    def kill(self) -> None:
        """Kill the daemon with ``kill -9``; its mount stays and answers ENOTCONN."""
        self._daemon.kill()

    def restart(self) -> None:
        """Stop cleanly and mount again."""
        self.stop()
        self.start()

    def crash(self) -> None:
        """Kill the daemon and mount again."""
        self.kill()
        self.start()

    def clear(self) -> None:
        """End a daemon that still runs and take the mount away, dead or alive."""
        if self._daemon.is_started:
            self.kill()
        if is_mounted(self.point):
            take_away(self.point)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._daemon.is_started:
                self.stop()
        finally:
            self.clear()
            if kind is not None:
                sys.stderr.write(f"the daemon of {self.data}:\n{self.log}")

    def _answers(self) -> bool:
        status = self._daemon.running.poll()
        if status is not None:
            self._daemon.forget()
            raise AssertionError(f"the daemon ended at once, with {status}\n{self.log}")
        # Not stat: the kernel may still know what the daemon before this one has said.
        try:
            directory = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return False
        try:
            return os.fstat(directory).st_dev != os.stat(self.point.parent).st_dev
        finally:
            os.close(directory)

    def _check_log(self) -> None:
        assert not any(sign in self.log for sign in _SIGNS_OF_A_BUG), self.log
