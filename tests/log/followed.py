"""Followed partitions, their records and positions."""

from logfs.services.following.followed import FollowedLog
from logfs.types import View
from tests.log.foreign import FakeBroker
from tests.log.support import kept_runs_of


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%05d" % number for number in range(start, stop)]


def fill(broker: FakeBroker, count: int, segments: int = 1) -> None:
    """Append records in batches of three, in so many segments more."""
    for number in range(segments):
        if number:
            broker.roll()
        for start in range(broker.next_offset, broker.next_offset + count, 3):
            broker.append(*numbered(start, start + 3))


def placed(log: FollowedLog, view: View = View.TEXT) -> dict[bytes, int]:
    """Return where each line is."""
    found = {}
    for position, data in kept_runs_of(log, view):
        for line in data.splitlines(keepends=True):
            found[line.rstrip(b"\n")] = position
            position += len(line)
    return found
