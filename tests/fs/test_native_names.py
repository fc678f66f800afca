"""Names that are looked up natively, through the kernel, which asks again after a second.

Each step is done in two mounts, one of them with ``no_native``: both have to show the same.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from tests.fs.mounting import Mounted
from tests.fs.test_native_opens import echo, metric
from tests.processes import wait_until
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

EXPIRED_S = 1.05
"""After this time the kernel looks a name up again."""
TOPICS = ("a", "b", "c", "d")
FILES = ("0", "0.tsv", "1", "0.in")
ROUNDS = 4


def native_lookups(data: Path) -> int:
    return metric(data, "logfs_native_lookups_total")


class Walker:
    """Uses paths by chance; two with the same seed do the same.

    Attributes:
        outcomes: What each step has returned or raised.
    """

    def __init__(self, data: Path, point: Path, seed: int) -> None:
        self.data, self._point = data, point
        self._chance = Random(seed)
        self._inodes: dict[int, int] = {}
        self.outcomes: list[object] = []

    def run(self, steps: int) -> None:
        """Do so many steps, then look at every path."""
        kinds = (*[self._append] * 6, *[self._stat] * 6, self._chmod, self._make, self._grow,
                 self._remove, self._remove_by_command, self._restore)  # fmt: skip
        for _ in range(steps):
            step, topic = self._chance.choice(kinds), self._chance.choice(TOPICS)
            name = self._chance.choice(FILES)
            try:
                self.outcomes.append((step.__name__, step(self._point / topic, name)))
            except OSError as error:
                self.outcomes.append((step.__name__, error.errno))
        self.look()

    def look(self) -> None:
        """Look at every path."""
        paths = [self._point / topic / name for topic in TOPICS for name in ("", *FILES)]
        for path in (self._point, *paths):
            try:
                self.outcomes.append((str(path.relative_to(self._point)), self._facts(path)))
            except OSError as error:
                self.outcomes.append((path.name, error.errno))

    def _facts(self, path: Path) -> Sequence[int]:
        found = path.stat()
        inode = self._inodes.setdefault(found.st_ino, len(self._inodes))
        return inode, found.st_mode, found.st_size, found.st_nlink, found.st_blocks, found.st_uid

    def _stat(self, topic: Path, name: str) -> object:
        return self._facts(topic / name)

    def _append(self, topic: Path, name: str) -> None:
        echo(topic / name, b"line of the log\n")

    def _chmod(self, topic: Path, name: str) -> object:
        path = self._chance.choice((topic, topic / name))
        path.chmod(self._chance.choice((0o700, 0o755, 0o777)))
        return self._facts(path)

    def _make(self, topic: Path, _: str) -> object:
        topic.mkdir()
        return self._facts(topic)

    def _grow(self, topic: Path, _: str) -> object:
        (topic / "1").touch()
        return self._facts(topic / "1")

    def _remove(self, topic: Path, _: str) -> None:
        topic.rmdir()
        with pytest.raises(FileNotFoundError):
            topic.stat()

    def _remove_by_command(self, topic: Path, _: str) -> None:
        self._ask("delete", topic)
        with pytest.raises(FileNotFoundError):
            topic.stat()

    def _restore(self, topic: Path, name: str) -> object:
        self._ask("undelete", topic)
        return self._facts(topic), self._facts(topic / name)

    def _ask(self, request: str, topic: Path) -> None:
        with Daemon.connect(str(self.data)) or pytest.fail("no daemon") as daemon:
            try:
                daemon.ask(request, {"topic": topic.name})
            except Exception as error:
                raise OSError(0, type(error).__name__) from error


def look_again(walkers: Sequence[Walker]) -> None:
    """Look at every path twice; the second look-ups may be answered natively."""
    for _ in range(2):
        time.sleep(EXPIRED_S)
        for walker in walkers:
            walker.look()


def test_a_path_is_looked_up_natively(native: Mounted) -> None:
    path, expected = native.point / "t/0", b""
    path.touch()
    before = 0, 0
    for _ in range(4):
        before = native_lookups(native.data), metric(native.data, "logfs_native_stats_total")
        echo(path, b"line\n")
        expected += b"line\n"
        assert os.stat(path).st_size == len(expected)
        time.sleep(EXPIRED_S)
    found = path.parent.stat(), path.stat()
    assert native_lookups(native.data) >= before[0] + 2
    assert metric(native.data, "logfs_native_stats_total") > before[1]
    assert found[1].st_size == len(expected)
    assert [stat.st_nlink for stat in found] == [1, 1]
    all_lookups = metric(native.data, 'logfs_requests_total{operation="lookup"}')
    assert all_lookups > native_lookups(native.data)


def test_the_time_of_a_topic_is_that_of_its_last_name(native: Mounted) -> None:
    topic = native.point / "t"
    for number in range(1, 4):
        time.sleep(EXPIRED_S)
        before = topic.stat().st_mtime, native.point.stat().st_mtime
        (topic / str(number)).touch()
        (native.point / f"t{number}").mkdir()
        time.sleep(EXPIRED_S)
        assert topic.stat().st_mtime > before[0]
        assert native.point.stat().st_mtime > before[1]
    assert native_lookups(native.data) > 0


def test_walks_show_the_same_with_and_without(tmp_path: Path) -> None:
    mounts = [
        Mounted(tmp_path / str(number), "rmdir=delete", *words)
        for number, words in enumerate(((), ("no_native",)))
    ]
    try:
        for mounted in mounts:
            mounted.start()
        walkers = [Walker(mounted.data, mounted.point, seed=21) for mounted in mounts]
        for _ in range(ROUNDS):
            for walker in walkers:
                walker.run(25)
            assert walkers[0].outcomes == walkers[1].outcomes
            look_again(walkers)
        assert walkers[0].outcomes == walkers[1].outcomes
        with_native, without = (native_lookups(mounted.data) for mounted in mounts)
        assert with_native > 20
        assert without == 0
        # The numbers were right: what the kernel has forgotten was dropped.
        wait_until(
            lambda: len({metric(mounted.data, "logfs_inodes") for mounted in mounts}) == 1,
            "both mounts have as many inodes",
        )
    finally:
        for mounted in mounts:
            mounted.clear()


def test_walks_show_the_same_while_daemons_end(tmp_path: Path) -> None:
    ends = (signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2)
    folders = tmp_path / "native", tmp_path / "python"
    for folder in folders:
        folder.mkdir()
    with (
        HeldMount(folders[0], "-o", "rmdir=delete") as native,
        HeldMount(folders[1], "-o", "rmdir=delete,no_native") as python,
    ):
        walkers = [Walker(held.data, held.point, seed=22) for held in (native, python)]
        found = 0
        for number in ends:
            for walker in walkers:
                walker.run(20)
            look_again(walkers)
            found += native_lookups(native.data)
            native.end_daemon(number)
            for walker in walkers:
                walker.look()
            assert walkers[0].outcomes == walkers[1].outcomes
        assert found > 0


def test_lookups_are_left_to_python_where_each_is_noted(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, f"access_log={tmp_path}/access")
    mounted.start()
    try:
        (mounted.point / "t").mkdir()
        for _ in range(3):
            echo(mounted.point / "t/0", b"line\n")
            time.sleep(EXPIRED_S)
        assert native_lookups(mounted.data) == 0
    finally:
        mounted.clear()
