"""Mounts that are measured: started, waited for, unmounted, each by its own process."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from benchmarks.runner import Bench, environment, python_command

_START_S = 60.0
_STOP_S = 60.0
_POLL_S = 0.001
_KEEP = "log.retention.ms=-1"
"""Built logs have timestamps of long ago; half a minute after a start retention would look."""


class BenchMount:
    """A file system served by its own process.

    Attributes:
        point: Where it is mounted.
        start_s: Seconds from the start of the process until the mount answered.
        pid: The pid of the process.
    """

    def __init__(self, command: Sequence[str], point: Path) -> None:
        point.mkdir(parents=True)
        self.point = point
        self._is_stopped = False
        self._log = point.with_name(f"{point.name}.log")
        outside = point.stat().st_dev
        started_s = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
            )
        self.pid = self._process.pid
        try:
            self._wait_until_it_answers(outside, started_s + _START_S)
        except BaseException:
            self.stop()
            raise
        self.start_s = time.perf_counter() - started_s

    def resident_mb(self) -> float:
        """Return the resident memory of the process, in MB (10**6 bytes)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError(f"process {self.pid} has no resident memory: it has ended")

    def kill(self) -> None:
        """Kill the process, as the loss of a machine does, and unmount."""
        self._process.kill()
        self._process.wait()
        self.stop()

    def stop(self) -> None:
        """Stop the process cleanly, which unmounts; by force if it does not. Twice is fine."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if os.path.ismount(self.point) or not self._answers():
            is_root = os.geteuid() == 0
            command = ["umount", "--lazy"] if is_root else ["fusermount3", "-u", "-z"]
            subprocess.run([*command, str(self.point)], check=False, capture_output=True)
        with suppress(OSError):
            self.point.rmdir()

    def _wait_until_it_answers(self, outside: int, deadline_s: float) -> None:
        while self._process.poll() is None and time.perf_counter() < deadline_s:
            # From mount(2) on stat waits for the daemon's answer.
            with suppress(OSError):
                if self.point.stat().st_dev != outside:
                    return
            time.sleep(_POLL_S)
        raise RuntimeError(f"{self.point}: no mount came up: {self._log.read_text().strip()}")

    def _answers(self) -> bool:
        try:
            self.point.stat()
        except OSError:
            return False
        return True


def mount_logfs(bench: Bench, data: Path, *options: str) -> BenchMount:
    """Mount a data directory, which is made if it is not there, as a user does."""
    data.mkdir(exist_ok=True)
    point = data.with_name(f"{data.name}.mount")
    chosen = [argument for option in (_KEEP, *options) for argument in ("-o", option)]
    return _keep(bench.cleanup, python_command("logfs", "mount", *chosen, data, point), point)


def mount_url(bench: Bench, url: str, options: str = "ro") -> BenchMount:
    """Mount the logs of an object store, as a user does."""
    point = bench.directory / "bucket.mount"
    return _keep(bench.cleanup, python_command("logfs", "mount", "-o", options, url, point), point)


def mount_held(bench: Bench, data: Path) -> BenchMount:
    """Mount a data directory with a holder, whose process it is, and which never gives up."""
    data.mkdir(exist_ok=True)
    point = data.with_name(f"{data.name}.held")
    program = (
        "import sys\nfrom logfs.machine import holder\nholder.STARTS = 10**9\n"
        "sys.exit(holder.main(['-1', *sys.argv[1:]]))"
    )
    daemon = python_command("logfs", "mount", "-o", _KEEP, data, point)
    return _keep(bench.cleanup, [daemon[0], "-c", program, *daemon], point)


def mount_counted(bench: Bench, data: Path, counts: Path) -> BenchMount:
    """Mount a data directory with a daemon that records its requests; see ``counting``."""
    point = data.with_name(f"{data.name}.counted")
    command = python_command("benchmarks.counting", counts, data, point)
    return _keep(bench.cleanup, command, point)


def mount_floor(bench: Bench, content: Path | None = None) -> BenchMount:
    """Mount the floor; its files have the bytes of ``content``."""
    point = bench.directory / "floor"
    contents = [] if content is None else [content]
    command = python_command("benchmarks.floor", point, *contents)
    return _keep(bench.cleanup, command, point)


def mount_c_floor(bench: Bench, content: Path | None = None) -> BenchMount:
    """Mount the C floor, see ``floor.c``; its files have the bytes of ``content``.

    Raises:
        CalledProcessError: There is no C compiler, or no headers of libfuse.
    """
    program = bench.directory / "floor-in-c"
    flags = ["pkg-config", "--cflags", "--libs", "fuse3"]
    found = subprocess.run(flags, check=True, capture_output=True, text=True).stdout.split()
    source = Path(__file__).with_name("floor.c")
    subprocess.run(["cc", "-O2", "-o", program, source, *found], check=True)
    point = bench.directory / "c-floor"
    contents = [] if content is None else [str(content)]
    return _keep(bench.cleanup, [str(program), str(point), *contents], point)


def _keep(cleanup: ExitStack, command: list[str], point: Path) -> BenchMount:
    mount = BenchMount(command, point)
    cleanup.callback(mount.stop)
    return mount
