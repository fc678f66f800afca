"""A busy machine is no slow disk: where appends run while another program takes the processor."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compiling import compiled
from tests.fs.mounting import Mounted
from tests.fs.test_native_opens import metric

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

_LARGE = b"x" * 999 + b"\n"


@contextlib.contextmanager
def starved(pid: int) -> Iterator[None]:
    """Let the threads of a process have a small share of one processor."""
    processor = {max(os.sched_getaffinity(0))}
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):
        os.sched_setaffinity(thread, processor)
        os.setpriority(os.PRIO_PROCESS, thread, 10)
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(hog.pid, processor)
    try:
        yield
    finally:
        hog.kill()
        hog.wait()
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            os.sched_setaffinity(thread, os.sched_getaffinity(0))
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, thread, 0)


def in_threads(mounted: Mounted) -> int:
    return metric(mounted.data, 'logfs_lanes{where="thread"}')


def append(path: Path, times: int, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        for _ in range(times):
            assert file.write(data) == len(data)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory, which is never slow."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def test_appends_that_lose_the_processor_stay_native(memory: Path) -> None:
    native = Mounted(memory)
    native.start()
    try:
        (native.point / "t").mkdir()
        _append_natively(native)
    finally:
        native.clear()
    native.check()


def _append_natively(native: Mounted) -> None:
    path = native.point / "t/0"
    append(path, 5, _LARGE)
    with starved(native.pid):
        for _ in range(4):
            append(path, 10, 1000 * _LARGE)
            assert in_threads(native) == 0
    before = metric(native.data, "logfs_native_writes_total")
    append(path, 5, _LARGE)
    assert metric(native.data, "logfs_native_writes_total") - before >= 4


def test_appends_that_lose_the_processor_stay_on_the_loop(memory: Path) -> None:
    mounted = Mounted(memory, "no_native")
    mounted.start()
    try:
        (mounted.point / "t").mkdir()
        append(mounted.point / "t/0", 5, _LARGE)
        with starved(mounted.pid):
            for _ in range(3):
                append(mounted.point / "t/0", 10, 1000 * _LARGE)
                assert in_threads(mounted) == 0
    finally:
        mounted.clear()
    mounted.check()


@pytest.mark.parametrize("options", [(), ("no_native",)])
def test_appends_to_a_disk_that_is_slow_are_made_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    flag, source = tmp_path / "slow", Path(__file__).with_name("slowdisk.c")
    library = compiled("slowdisk.so", "-shared", "-fPIC", "-O1", source)
    monkeypatch.setenv("SLOW_DISK", str(flag))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    mounted = Mounted(tmp_path, *options)
    mounted.start()
    monkeypatch.delenv("LD_PRELOAD")
    try:
        (mounted.point / "t").mkdir()
        append(mounted.point / "t/0", 30, _LARGE)
        assert in_threads(mounted) == 0
        flag.touch()
        append(mounted.point / "t/0", 3, _LARGE)
        assert in_threads(mounted) == 1
        flag.unlink()
        append(mounted.point / "t/0", 60, _LARGE)
        assert in_threads(mounted) == 0
    finally:
        mounted.clear()
    mounted.check()
