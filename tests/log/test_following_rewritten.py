"""Segments that a broker has rewritten, and what happens to them later: one oracle for all.

A line keeps the position at which it was first seen. A line that is new begins after every
position that was shown before.
"""

from collections.abc import Callable
from random import Random

import pytest

from tests.fakes import FakeDisk
from tests.log.followed import fill, placed
from tests.log.foreign import FakeBroker, Follower
from tests.log.support import lines_of

KEEPS: dict[str, Callable[[int], bool]] = {
    "all": lambda _offset: True,
    "some": lambda offset: offset % 4 == 1,
    "few": lambda offset: offset % 17 == 3,
    "none at the end": lambda offset: offset < 70,
}
"""What a compaction keeps."""


class Watcher:
    """Looks at a broker's partition through a follower, and remembers where each line was."""

    def __init__(self, cache: FakeDisk | None) -> None:
        self.broker = FakeBroker(FakeDisk())
        fill(self.broker, 30, segments=4)
        self.follower = Follower(self.broker.disk, cache)
        self._where: dict[bytes, int] = {}
        self._end = 0
        self.check()

    def check(self) -> None:
        """Check all lines, after a few looks."""
        log = self.follower.settle()
        assert lines_of(log) == self.broker.values()
        found = placed(log)
        for line, position in found.items():
            if line in self._where:
                assert position == self._where[line], line
            else:
                assert position >= self._end, line
        self._where |= found
        self._end = log.snapshot.end.positions.text

    def compact(self, keeps: Callable[[int], bool], group: int) -> None:
        """Compact the sealed segments; what they were is gone when it was seen."""
        self.broker.compact(keeps, group)
        self.check()
        self.broker.remove_deleted()

    def append(self, number: int) -> None:
        """Append lines that no other part of the test appends."""
        self.broker.append(b"new %d" % number, b"newer %d" % number)


@pytest.mark.parametrize("restart", [Follower.restart, Follower.kill])
@pytest.mark.parametrize("keeps", KEEPS)
@pytest.mark.parametrize("group", [1, 2, 3])
def test_a_rewritten_segment_is_where_it_was_after_a_restart(
    keeps: str, group: int, restart: Callable[[Follower], object]
) -> None:
    watcher = Watcher(FakeDisk())
    watcher.compact(KEEPS[keeps], group)
    for number in range(2):
        restart(watcher.follower)
        watcher.check()
        watcher.append(number)
        watcher.check()
        watcher.broker.roll()
    assert not watcher.follower.log.losses


@pytest.mark.expect_log("the log was cut at offset")
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("keeps", KEEPS)
@pytest.mark.parametrize("offset", [32, 61, 63, 66, 78, 80, 81, 84, 89])
def test_a_log_that_is_cut_in_a_rewritten_segment_continues_after_what_was_shown(
    keeps: str, offset: int, cached: bool
) -> None:
    watcher = Watcher(FakeDisk() if cached else None)
    watcher.compact(KEEPS[keeps], 2)
    watcher.broker.truncate(offset)
    watcher.check()
    for number in range(3):
        if cached:
            Random(number).choice((Follower.restart, Follower.kill))(watcher.follower)
        watcher.append(number)
        watcher.check()
        watcher.broker.roll()
        watcher.check()
    assert {loss.kind for loss in watcher.follower.log.losses} == {"cut"}
