"""``logfs tail --group``: the position of a consumer group in what is printed.

A position is committed after the output was flushed, so records may be printed twice after a crash,
but none is left out. If the reader of the output ends early, what it was given before is committed,
as by Kafka's console consumer.
"""

import time
from collections.abc import Mapping

from logfs.errors import LockedError
from logfs.library.groups import Groups
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import daemon_of, owned
from logfs.library.places import Place
from logfs.library.writer import Writer
from logfs.log import names
from logfs.log.reading.readable import ReadableLog
from logfs.types import Closeable, TopicPartition

COMMIT_S = 1.0
"""The least time from one commit to the next, except for the last one."""


class TailGroup(Closeable):
    """A consumer group, in one or more data directories.

    The lock of a directory without a daemon is held during a commit only.

    Args:
        name: The name of the group.
    """

    def __init__(self, name: str) -> None:
        self.name = names.check_group(name)
        self._places: dict[str, tuple[Place, Groups]] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._last_s = time.monotonic()

    def add(self, place: Place) -> None:
        """Add a data directory or mount point.

        Raises:
            LockedError: A program that is no daemon of logfs owns it, such as a broker.
        """
        if place.root in self._places:
            return
        try:
            daemon = daemon_of(place)
        except PermissionError:
            daemon = None  # positions are committed through the mount
        else:
            if daemon is None and reading_disk(place).is_locked(names.LOCK_FILE):
                raise owned(place.root, _locked(self.name))
        if daemon is not None:
            daemon.close()
        self._places[place.root] = place, Groups(place)

    def position_in(self, place: Place, log: ReadableLog) -> int | None:
        """Return the offset that the group has committed for a log; None: none."""
        offset = self._places[place.root][1].position_in(log, self.name)
        if offset is not None:
            self._committed[place.root, log.topic_partition] = offset
        return offset

    @property
    def is_due(self) -> bool:
        """Whether the last commit is long enough ago."""
        return time.monotonic() - self._last_s >= COMMIT_S

    def commit(self, offsets: Mapping[tuple[str, TopicPartition], int]) -> None:
        """Commit the offsets that have changed, by root and partition.

        Raises:
            LogfsError, OSError: See ``Groups.commit``.
        """
        changed: dict[str, dict[TopicPartition, int]] = {}
        for (root, one), offset in offsets.items():
            if self._committed.get((root, one)) != offset:
                changed.setdefault(root, {})[one] = offset
        for root, wanted in changed.items():
            place, groups = self._places[root]
            with Writer.of(place) as writer:
                groups.commit(writer, self.name, wanted)
            self._committed |= {(root, one): offset for one, offset in wanted.items()}
        self._last_s = time.monotonic()

    def close(self) -> None:
        """Close all files; nothing is committed."""
        for _, groups in self._places.values():
            groups.close()


def _locked(group: str) -> LockedError:
    return LockedError(
        f"another program, such as a broker, owns the directory, so group {group} cannot commit "
        f"here; '--since group={group}' prints the records from its position, without a commit"
    )
