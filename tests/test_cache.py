"""What is kept between sessions is made once, and never used where it is damaged."""

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from tests.cache import kept, place, since


class Maker:
    """Makes a directory of two files, and notes how often.

    Attributes:
        takes_s: How long that takes.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self.takes_s = 0.0

    def __call__(self, directory: Path) -> None:
        with self._log.open("a") as log:
            log.write("made\n")
        time.sleep(self.takes_s)
        (directory / "below").mkdir()
        (directory / "below" / "file").write_text("content")
        (directory / "other").write_text("more")

    @property
    def times(self) -> int:
        return self._log.read_text().count("made")


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Maker(tmp_path / "log")


def test_it_is_made_once_for_the_same_source(make: Maker, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("one")
    first = kept("it", [source, "flag"], make)
    assert (first / "below" / "file").read_text() == "content"
    assert kept("it", [source, "flag"], make) == first
    assert make.times == 1
    assert kept("it", [source, "other flag"], make) != first
    source.write_text("two")
    assert kept("it", [source, "flag"], make) != first
    assert make.times == 3


DAMAGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda entry: (entry / "below" / "file").write_text("c0ntent"),
    "cut": lambda entry: (entry / "below" / "file").write_text(""),
    "missing": lambda entry: (entry / "other").unlink(),
    "more": lambda entry: (entry / "unknown").touch(),
    "no list": lambda entry: (entry / "SHA256SUMS").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_made_again(make: Maker, damage: str) -> None:
    entry = kept("it", ["source"], make)
    DAMAGES[damage](entry)
    assert kept("it", ["source"], make) == entry
    assert sorted(path.name for path in entry.iterdir()) == ["SHA256SUMS", "below", "other"]
    assert (entry / "below" / "file").read_text() == "content"
    assert make.times == 2


def test_what_fails_leaves_nothing(make: Maker) -> None:
    def fail(directory: Path) -> None:
        make(directory)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        kept("it", ["source"], fail)
    entry = kept("it", ["source"], make)
    assert [path.name for path in entry.parent.iterdir()] == [entry.name]
    assert make.times == 2


def test_a_period_begins_when_it_is_asked_for_and_ends(make: Maker) -> None:
    first = since("that", 3600)
    assert since("that", 3600) == first
    (begun,) = place().glob("*/that.begun")
    for mtime_s in (time.time() - 3601, time.time() + 60):  # a clock may have been set back
        os.utime(begun, (mtime_s, mtime_s))
        old = begun.stat().st_mtime_ns
        found = since("that", 3600)
        assert found != str(old)
        assert since("that", 3600) == found


@pytest.mark.slow
def test_processes_that_need_it_at_once_make_it_once(make: Maker) -> None:
    context, make.takes_s = multiprocessing.get_context("spawn"), 0.5
    ready = context.Barrier(3)
    processes = [context.Process(target=_keep, args=(ready, make)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 3
    assert make.times == 1


def _keep(ready: Barrier, make: Maker) -> None:
    ready.wait(60)
    kept("it", ["source"], make)
