"""``kill -9`` of drivers, tasks, commits, daemons and holders: nothing lost, nothing twice."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from tests.long import KILLS_OF_A_STREAM
from tests.mounting import COMMAND, PATIENCE_S, environment, run, wait_until
from tests.restarts.held import HeldMount
from tests.spark.copied import check_copied

pytestmark = [pytest.mark.spark, pytest.mark.fuse, pytest.mark.slow]

KINDS = {"driver": 2, "child": 6, "driver and children": 2, "daemon": 3, "daemon and holder": 1}
"""What is killed, and how often compared with the others."""
PARTITIONS = 3
AT_ONCE, AT_FIRST = 20, 3000
"""Lines of a write, and before anything is killed."""


class Writer(threading.Thread):
    """A program that appends numbered lines through the mount, a few at a time.

    Attributes:
        acknowledged: The numbers of lines that were written. A line whose write failed is not
            written again.
    """

    def __init__(self, mount: HeldMount) -> None:
        super().__init__(daemon=True)
        self._mount = mount
        self._stops = threading.Event()
        self.acknowledged: set[int] = set()

    def run(self) -> None:
        first = 0
        while not self._stops.wait(0.02 if first > AT_FIRST else 0):
            numbers = range(first, first + AT_ONCE)
            data = b"".join(b"%d some text\n" % number for number in numbers)
            path = self._mount.point / "in" / str(first // AT_ONCE % PARTITIONS)
            with suppress(OSError):
                descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
                try:
                    if os.write(descriptor, data) == len(data):
                        self.acknowledged.update(numbers)
                finally:
                    with suppress(OSError):
                        os.close(descriptor)
            first = numbers.stop

    def stop(self) -> None:
        self._stops.set()
        self.join(PATIENCE_S)


class Query:
    """A query that runs beside the test; see ``tests.spark.contract``."""

    def __init__(self, directory: Path, data: Path) -> None:
        self.checkpoint, self._finish = directory / "checkpoint", directory / "finish"
        self._log = directory / "query-log"
        command = [sys.executable, "-m", "tests.spark.contract"]
        places = [data, self.checkpoint, self._finish]
        with self._log.open("wb") as log:
            self._program = subprocess.Popen(
                [*command, *map(str, places), "1"], env=environment(), stdout=log, stderr=log
            )

    @property
    def driver(self) -> int:
        """The process id of the driver; 0 if none runs now."""
        return next(iter(children_of(self._program.pid)), 0)

    def batches(self) -> int:
        commits = self.checkpoint / "commits"
        return len(list(commits.glob("[0-9]*"))) if commits.exists() else 0

    def finish(self) -> None:
        """Let it read the rest, and end; wait as long as there are more batches."""
        self._finish.touch()
        while self._program.poll() is None:
            batches = self.batches()
            wait_until(lambda: self._program.poll() == 0 or self.batches() > batches, "a batch")  # noqa: B023
        assert self._program.returncode == 0, self._log.read_text()

    def kill(self) -> None:
        """End it and all its processes."""
        self._finish.touch()  # for a driver that is just being forked
        driver = self.driver
        self._program.kill()
        for pid in (driver, *children_of(driver)):
            kill(pid)
        self._program.wait(PATIENCE_S)


def children_of(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill(pid: int) -> None:
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def running(directory: Path, data: Path) -> Iterator[Query]:
    query = Query(directory, data)
    try:
        yield query
    finally:
        query.kill()


def kill_one(kind: str, mount: HeldMount, query: Query) -> bool:
    """Kill processes of a kind; return False if there are none just now."""
    driver = query.driver
    children = children_of(driver) if driver else []
    if kind in {"daemon", "daemon and holder"}:
        daemon = mount.pid
        if not daemon or not mount.has_next():
            return False
        if kind == "daemon":
            mount.signal_daemon(signal.SIGKILL)
            return True
        kill(mount.holder.pid)
        kill(daemon)
        mount.holder.wait(PATIENCE_S)
        mount_again(mount)
        return True
    if not driver or (kind == "child" and not children):
        return False
    for pid in (*([] if kind == "child" else [driver]), *([] if kind == "driver" else children)):
        kill(pid)
    return True


def mount_again(mount: HeldMount) -> None:
    """Mount; a commit that publishes without a daemon may have the lock for a moment."""
    for _ in range(100):
        with suppress(AssertionError):
            mount.__enter__()
            return
        time.sleep(0.05)
    pytest.fail(mount.log)


@pytest.mark.parametrize("kills", KILLS_OF_A_STREAM)
def test_each_record_is_copied_once_though_all_processes_are_killed(
    tmp_path: Path, kills: int, counts: Counter[str]
) -> None:
    chance, killed = Random(7), Counter[str]()
    with HeldMount(tmp_path) as mount:
        for topic in ("in", "out"):
            made = run(*COMMAND, "topic", "create", mount.data / topic, "--partitions", "3")
            assert made.returncode == 0, made
        writer = Writer(mount)
        writer.start()
        wait_until(lambda: len(writer.acknowledged) > AT_FIRST, "there are some batches")
        with running(tmp_path, mount.data) as query:
            while killed.total() < kills:
                (kind,) = chance.choices(list(KINDS), list(KINDS.values()))
                time.sleep(chance.expovariate(1 / 0.2))
                killed[kind] += kill_one(kind, mount, query)
            writer.stop()
            mount.wait_for_next()
            query.finish()
            batches = query.batches()
        mount.end_daemon()  # the next one removes what tasks without a driver have staged
    counts.update({f"stream: {kind} killed": count for kind, count in killed.items()})
    counts["stream: batches"] += batches
    counts["stream: records"] += len(writer.acknowledged)
    check_copied(mount.data, writer.acknowledged)
