"""Waiting for changes in directories."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logfs.disk.watching import Watch

LONG_S = 60.0


def write(path: Path) -> None:
    with (path / "old").open("ab") as file:
        file.write(b"x")


CHANGES: list[Callable[[Path], object]] = [
    write,
    lambda path: (path / "new").touch(),
    lambda path: (path / "old").rename(path / "renamed"),
    lambda path: (path / "old").unlink(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_ends_the_wait_once(tmp_path: Path, change: Callable[[Path], object]) -> None:
    (tmp_path / "old").touch()
    with Watch() as watch:
        watch.add([str(tmp_path), str(tmp_path)])
        assert not watch.wait(0.0)
        change(tmp_path)
        assert watch.wait(LONG_S)
        assert not watch.wait(0.0)


def test_it_can_be_woken_from_another_thread(tmp_path: Path) -> None:
    with Watch() as watch:
        watch.add([str(tmp_path), str(tmp_path / "missing")])
        thread = threading.Thread(target=watch.wake)
        thread.start()
        assert watch.wait(LONG_S)
        thread.join()
        assert not watch.wait(0.0)


def test_nothing_stays_open() -> None:
    before = os.listdir("/proc/self/fd")
    with Watch():
        assert len(os.listdir("/proc/self/fd")) == len(before) + 2
    watch = Watch()
    watch.close()
    watch.close()
    watch.wake()
    assert os.listdir("/proc/self/fd") == before
