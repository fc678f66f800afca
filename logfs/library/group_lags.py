"""The lags of consumer groups: what they have not read yet."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from logfs.errors import LogfsError
from logfs.library.followed_directory import FollowedDirectory
from logfs.library.groups import Groups
from logfs.library.mounted_disk import reading_disk
from logfs.library.places import Place
from logfs.log.groups.coding import Position
from logfs.log.groups.table import Group
from logfs.machine.host import system_clock
from logfs.services.views.lag import Lag, lag_of
from logfs.types import IsolationLevel, TopicPartition


class GroupLag(NamedTuple):
    """A position of a group, and its lag.

    Attributes:
        lag: None if the partition does not exist here, or cannot be read.
    """

    group: str
    topic: str
    partition: int
    position: Position
    lag: Lag | None

    def as_json(self) -> dict[str, object]:
        """Return it for JSON."""
        lag, position = self.lag, self.position
        return {
            "group": self.group,
            "topic": self.topic,
            "partition": self.partition,
            "position": position.offset,
            "end": None if lag is None else lag.end_offset,
            "lag": None if lag is None else lag.records,
            "lag_seconds": None if lag is None else lag.seconds,
            "committed_ms": position.committed_ms,
            "metadata": position.metadata,
        }


def group_lags(
    place: Place, found: Mapping[str, Group], level: IsolationLevel
) -> Iterator[GroupLag]:
    """Yield the positions of groups, by group, topic and partition."""
    wanted = {one for group in found.values() for one in group.positions}
    if not wanted:
        return
    disk = reading_disk(place, {topic for topic, _ in wanted})
    now_ms = system_clock().now_ms()
    source = FollowedDirectory(disk, lambda one: one in wanted)
    try:
        present = set(source.partitions())
        for group in found.values():
            for one in sorted(group.positions):
                position = group.positions[one]
                lag = _lag(source, one, position, level, now_ms) if one in present else None
                yield GroupLag(group.name, *one, position, lag)
    finally:
        source.close()


def all_lags(place: Place, level: IsolationLevel) -> list[GroupLag]:
    """Return the positions of all groups of a data directory.

    Raises:
        LogfsError, OSError: ``__consumer_offsets`` cannot be read.
    """
    with Groups(place) as groups:
        return list(group_lags(place, groups.groups(), level))


def _lag(
    source: FollowedDirectory,
    one: TopicPartition,
    position: Position,
    level: IsolationLevel,
    now_ms: int,
) -> Lag | None:
    try:
        log = source.log(one, is_around_known=True)
        source.look_twice(log, is_around_known=True)
        return lag_of(log, position.offset, level, now_ms)[0]
    except (LogfsError, OSError):
        return None
