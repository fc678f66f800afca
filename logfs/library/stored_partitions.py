"""The partitions of some data directories: which there are, where they begin and end now.

Kept as long as a query plans, so that a look costs a few stats: of the roots, of each partition
directory, of each newest segment.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from logfs.errors import InvalidConfigError, NoDataDirectoryError, NoSuchPartitionError
from logfs.library.directory import open_for_reading
from logfs.library.mounted_disk import disk_at, is_mount_point
from logfs.library.places import DirectoryKind, kind_of
from logfs.log import names
from logfs.log.checkpointing import WatchedCheckpoints
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.listing import list_partitions
from logfs.log.remote.of_disk import bucket_of
from logfs.machine.disks import has_logs, is_url
from logfs.machine.host import system_clock
from logfs.services.following.files import FollowedSegments
from logfs.services.following.listing import RACY_MS, SegmentNames
from logfs.services.scanning.stored import RecoveredEnds, StoredLog, read_bounds
from logfs.types import IsolationLevel, TopicPartition

_OPEN_SEGMENTS = 16

now_ms = system_clock().now_ms


def check_root(path: str) -> None:
    """Refuse a root that is no data directory on this machine, as where it is not mounted.

    Its records are not gone, so ``failOnDataLoss`` does not apply.

    Raises:
        NoDataDirectoryError: There is no such directory, or one without logs.
    """
    if has_logs(path) if is_url(path) else is_mount_point(path):
        return
    kind = DirectoryKind.MISSING if is_url(path) else kind_of(path)
    if kind is not DirectoryKind.DATA:
        found = "does not exist" if kind is DirectoryKind.MISSING else "holds no logs"
        raise NoDataDirectoryError(
            f"{path} {found} on this machine ({os.uname().nodename}): every machine that runs the "
            "query needs the data directory or the mount at this path. No records are lost; "
            "failOnDataLoss does not apply"
        )


class SizedRange(NamedTuple):
    """Offsets ``[start, end)`` of a partition, and about how many bytes of its log they take."""

    topic_partition: TopicPartition
    start: int
    end: int
    size_bytes: int

    @property
    def offsets(self) -> int:
        """How many offsets it has; no more records than that."""
        return self.end - self.start


class SeenLog:
    """A partition as a reader of a level sees it: a ``bounds.Log``."""

    def __init__(self, stored: StoredLog, root: "Root", level: IsolationLevel) -> None:
        self.stored = stored
        self.root = root.path
        self._disk = root.disk
        self._level = level
        self._topic_id: tuple[SegmentNames | None, str | None] = (None, None)

    def topic_id(self) -> str | None:
        """Return the id of the topic, which no other of its name has; None: it is not known."""
        known, topic_id = self._topic_id
        if known is not self.stored.names:  # the directory has changed
            found = read_partition_metadata(self._disk, self.stored.topic_partition.directory)
            topic_id = None if found is None else str(found)
            self._topic_id = self.stored.names, topic_id
        return topic_id

    def earliest(self) -> int:
        """See ``bounds.Log``."""
        return self.stored.earliest()

    def latest(self) -> int:
        """See ``bounds.Log``."""
        return self.stored.latest(self._level, now_ms())

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """See ``bounds.Log``."""
        return self.stored.offset_for_time(timestamp_ms, self._level, now_ms())

    def pieces(self, start: int, end: int, most_bytes: int) -> list[SizedRange]:
        """Cut a range of offsets at places that the indexes know; see ``pieces.cut``."""
        one = self.stored.topic_partition
        return [
            SizedRange(one, *piece) for piece in self.stored.cut(start, end, most_bytes, now_ms())
        ]

    def first_piece(self, start: int, end: int, least_bytes: int) -> tuple[int, int]:
        """Return where a beginning of about so many bytes ends, and its size in bytes."""
        piece = self.stored.first_piece(start, end, least_bytes, now_ms())
        return piece.end, piece.size_bytes

    def size_of(self, start: int, end: int) -> int:
        """Return about how many bytes of the log a range of offsets takes."""
        return self.stored.size_of(start, end, now_ms()) if start < end else 0


class Root:
    """One data directory, or one store."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.disk = disk_at(path)
        self.opened = FollowedSegments(self.disk, _OPEN_SEGMENTS)
        self._mtime_ms: int | None = None
        self._partitions: list[TopicPartition] = []
        self.checkpoints = WatchedCheckpoints(self.disk)
        self._bucket = bucket_of(self.disk)
        self.ends = RecoveredEnds(self.disk, lambda one: open_for_reading(self.disk, [one]))

    def starts(self) -> Mapping[TopicPartition, int]:
        """Return the log start offsets; those of a store are asked for one by one."""
        if self._bucket is not None:
            return self._bucket.start_offsets()
        return self.checkpoints.read(names.LOG_START_OFFSET_CHECKPOINT)

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions; raise NoDataDirectoryError if it is no data directory any more."""
        mtime_ms = self.disk.stat("").mtime_ms
        if mtime_ms != self._mtime_ms:
            self._partitions = list_partitions(self.disk)
            if not self._partitions:
                check_root(self.path)
            self._mtime_ms = None if mtime_ms > now_ms() - RACY_MS else mtime_ms
        return self._partitions


class Directories:
    """Several data directories, of which each partition is in one."""

    def __init__(self, paths: Iterable[str], level: IsolationLevel) -> None:
        self._roots = [Root(path) for path in paths]
        self._level = level
        self._logs: dict[TopicPartition, SeenLog] = {}

    def partitions(self) -> dict[TopicPartition, Root]:
        """Return where each partition is; raise InvalidConfigError if it is in two directories."""
        found: dict[TopicPartition, Root] = {}
        for root in self._roots:
            for one in root.partitions():
                other = found.setdefault(one, root)
                if other is not root:
                    raise InvalidConfigError(
                        f"{one} is in {other.path} and in {root.path}: expected it in one of them"
                    )
        return found

    def refresh(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, SeenLog]:
        """Look at some partitions; those that are gone, or just being made, are left out.

        What tells of all partitions, the root and the checkpoint files, is looked at once.
        """
        present = self.partitions()
        for gone in self._logs.keys() - present.keys():
            del self._logs[gone]
        seen = {}
        starts, watermarks = {}, {}
        for each in self._roots:
            each.ends.look()
            starts[each] = each.starts()
            watermarks[each] = each.checkpoints.read(names.REPLICATION_OFFSET_CHECKPOINT)
        for one in wanted:
            root = present.get(one)
            if root is None:
                continue
            log = self._logs.get(one)
            if log is None or log.root != root.path:
                stored = StoredLog(root.disk, root.opened, one)
                log = self._logs[one] = SeenLog(stored, root, self._level)
            bounds = read_bounds(starts[root], watermarks[root], root.ends, one)
            try:
                log.stored.refresh(now_ms(), bounds)
            except NoSuchPartitionError:
                del self._logs[one]
                continue
            seen[one] = log
        return seen
