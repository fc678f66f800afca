"""Calling ``logfs``, in this process or as its own one, and data directories to call it on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from logfs.cli.main import main
from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.lines.writer import LineWriter
from logfs.log.store import LogStore
from logfs.machine.host import current_host, system_clock
from logfs.types import View
from tests.mounting import kill_with_holder

ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """What a call has left behind."""

    status: int
    out: bytes
    errors: list[str]
    """The lines of stderr."""


Call = Callable[..., Outcome]


@pytest.fixture
def logfs(capsysbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Call ``logfs`` in this process."""

    def call(*arguments: str | Path) -> Outcome:
        capsysbinary.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return Outcome(status, out, err.decode().splitlines())

    return call


def command(*arguments: str | Path) -> list[str]:
    """Return the command line that calls ``logfs`` as a process."""
    return [sys.executable, "-m", "logfs", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return an environment in which that command line finds this source."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "LOGFS_DEBUG": ""}


def run(*arguments: str | Path, cwd: Path | None = None, stdin: bytes | None = None) -> Outcome:
    """Call ``logfs`` as its own process; without ``stdin`` it has that of the tests."""
    done = subprocess.run(
        command(*arguments),
        check=False,
        capture_output=True,
        cwd=cwd,
        input=stdin,
        env=environment(),
        timeout=60,
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode().splitlines())


def open_store(data: Path) -> LogStore:
    """Open a data directory as its only owner."""
    return LogStore.open(
        PosixDisk(data),
        StoreConfig.from_properties({}),
        current_host(),
        now_ms=system_clock().now_ms(),
    )


def fill(data: Path, contents: Mapping[str, bytes], *, view: View = View.TEXT) -> None:
    """Append to ``TOPIC/PARTITION``s of a data directory, made if they are missing; stop cleanly.

    Args:
        data: The data directory.
        contents: What is written in one write to each.
        view: How it is written.
    """
    data.mkdir(exist_ok=True)
    store, now_ms = open_store(data), system_clock().now_ms()
    for name, text in contents.items():
        topic, _, number = name.partition("/")
        if topic not in store.topics():
            store.create_topic(topic, int(number) + 1, {}, now_ms)
        store.grow_topic(topic, int(number) + 1, now_ms)
        writer = LineWriter(store.partition(topic, int(number)), view)
        assert writer.write(text, now_ms) == len(text)
        writer.close(now_ms)
    store.close(now_ms)


class Mounted(NamedTuple):
    """A data directory that a daemon serves."""

    data: Path
    point: Path

    @property
    def pid(self) -> int:
        """The daemon's."""
        return int(json.loads((self.data / "logfs.daemon").read_bytes())["pid"])


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    """Mount an empty data directory in the background, and unmount it at the end."""
    found = Mounted(tmp_path / "data", tmp_path / "mnt")
    found.data.mkdir()
    found.point.mkdir()
    log = tmp_path / "mount.log"
    outcome = run("mount", found.data, found.point, "--background", "--log-file", log)
    assert outcome == (0, b"", [])
    yield found
    take_away(found)


def take_away(mounted: Mounted) -> None:
    """Unmount if it is still mounted, by force if need be."""
    if not is_mounted(mounted.point):
        return
    outcome = run("umount", mounted.point)
    if outcome.status:
        kill_with_holder(mounted.pid)
        run("umount", mounted.point)
    assert outcome == (0, b"", [])


def is_mounted(point: Path) -> bool:
    """Tell whether logfs is mounted there."""
    return f" {point} fuse.logfs " in Path("/proc/self/mounts").read_text()
