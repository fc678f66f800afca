"""A data directory that another process writes, open read-only and followed.

Nothing in it is locked, made or changed. Its topics come and go as the broker makes and deletes
them; the checkpoint files in its root say where each log starts and how far it is replicated.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeAlias
from weakref import WeakMethod

from logfs.config import StoreConfig
from logfs.disk.vfs import Disk
from logfs.errors import LogfsError, NotThereYetError, ReadOnlyError
from logfs.log import names
from logfs.log.catalog import Catalog
from logfs.log.checkpointing import WatchedCheckpoints
from logfs.log.closing import last_stop
from logfs.log.host import Host
from logfs.log.listing import list_partitions
from logfs.log.loading.context import LoadContext
from logfs.log.loading.loader import load_partition, offline_partition
from logfs.log.manifest import check_whole
from logfs.log.names import DirectoryState
from logfs.log.reading.address import PartitionAddress
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.of_disk import bucket_of
from logfs.services.following.files import FollowContext, FollowedSegments
from logfs.services.following.followed import AnyLog
from logfs.services.following.listing import RACY_MS
from logfs.services.following.loading import follow_partition
from logfs.services.following.partial import PartialLogs
from logfs.services.following.watched import WatchedLog
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.log.store import LogStore  # it takes long to import

logger = logging.getLogger(__name__)


AT_ONCE_BYTES = 128 * 1024 * 1024
"""A tenth of a second's work."""
_LEAST_BYTES = 64 * 1024
_UNSETTLED_MS = -1
"""Instead of a time stamp so young that it may not change if the directory changes once more."""
_NO_INODE = -1
"""The inode of a partition whose directory is a symbolic link: told of, and not followed."""


class FollowedStore(Catalog[AnyLog]):
    """The topics of a directory that is followed. Make it with ``follow``."""

    is_followed = True

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        host: Host,
        *,
        cache: Disk | None = None,
        only: Callable[[TopicPartition], bool] | None = None,
    ) -> None:
        opened = FollowedSegments(disk, host.open_segments)
        super().__init__(disk, config, host, opened, read_only=True)
        self._bucket = bucket_of(disk)
        if self._bucket is not None:
            from logfs.services.following.bucketlog import BucketSegments

            self._opened = BucketSegments(disk, host.open_segments)
        look = WeakMethod(self._first_look)  # a store that is dropped closes its files at once

        def loading(now_ms: int) -> LoadContext:
            method = look()
            assert method is not None
            return method(now_ms)

        self._following = FollowContext(disk, host, opened, cache, loading)
        self.parts = PartialLogs(self._following)
        self._is_wanted = only or (lambda _: True)
        self._directories: dict[TopicPartition, int] = {}
        self._followed: dict[TopicPartition, WatchedLog] = {}
        self._root_mtime_ms = self._root_changed_ms = -1
        self._is_root_settled = False
        self._unfollowed: dict[TopicPartition, int] = {}
        self._checkpoints = WatchedCheckpoints(disk)

    @classmethod
    def follow(  # noqa: PLR0913 - two of them are rarely given
        cls,
        disk: Disk,
        config: StoreConfig,
        host: Host,
        cache: Disk | None,
        *,
        now_ms: int,
        at_once_bytes: int = AT_ONCE_BYTES,
        only: Callable[[TopicPartition], bool] | None = None,
    ) -> Self:
        """Open a directory; all its partitions are there when this returns.

        If there is not much to read that is not known from before, it has been read. The rest is
        read by ``refresh`` of what ``followed`` returns.

        Args:
            cache: A directory for what is to outlast the mount, for this process alone. None: it is
                kept in memory.
            only: Which partitions are followed; None: all. What a cache keeps of others is removed.

        Raises:
            BackupError: A backup or a restore was interrupted in it.
        """
        cls.check(disk)
        store = cls(disk, config, host, cache=cache, only=only)
        store.look_around(now_ms)
        store.forget_others()
        left = at_once_bytes
        for log in store.followed():
            before = log.done_bytes
            while log.refresh(now_ms, max(left, _LEAST_BYTES)) and left > 0:
                left -= log.done_bytes - before
                before = log.done_bytes
            left -= log.done_bytes - before
        return store

    @classmethod
    def check(cls, disk: Disk) -> None:
        """Refuse by a BackupError a directory that is not whole."""
        check_whole(disk)

    @property
    def writable(self) -> "LogStore":
        """The store to write to; there is none: always raise ReadOnlyError."""
        raise ReadOnlyError("the data directory is open read-only")

    def followed(self) -> list[WatchedLog]:
        """Return what has to be looked at: the partitions, and those begun in the middle."""
        return [*self.parts.all(), *self._followed.values()]

    def part_for_range(
        self, log: ReadableLog, address: PartitionAddress, now_ms: int
    ) -> tuple[ReadableLog, PartitionAddress] | None:
        """Return a log that begins where a range does; see ``PartialLogs.for_range``."""
        return self.parts.for_range(log, address, now_ms)

    def look_around(self, now_ms: int) -> None:
        """Follow the topics that come and go, and the checkpoints. Cheap if nothing has changed."""
        mtime_ms = self.disk.stat("").mtime_ms
        if mtime_ms != self._root_mtime_ms:
            is_old = self._root_mtime_ms < 0 and mtime_ms < now_ms - RACY_MS
            self._root_mtime_ms, self._root_changed_ms = mtime_ms, now_ms
            self._is_root_settled = False
            self._find_partitions(now_ms)
            self._is_root_settled = is_old
        elif not self._is_root_settled:
            # The clock of a file server may differ: our own tells how young the change is.
            self._find_partitions(now_ms)
            self._is_root_settled = abs(now_ms - self._root_changed_ms) > RACY_MS
        self._try_again(now_ms)
        if self._bucket is not None:
            return  # heads say it
        starts = self._checkpoints.read(names.LOG_START_OFFSET_CHECKPOINT)
        watermarks = self._checkpoints.read(names.REPLICATION_OFFSET_CHECKPOINT)
        for log in self.followed():
            topic_partition = log.topic_partition
            start = starts.get(topic_partition, 0)
            log.note_checkpoints(start, watermarks.get(topic_partition))

    def reload(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Try again to follow a partition that could not be loaded."""
        with self._changes:
            inode = self._directories.get(topic_partition)
            if inode is not None:
                self._begin(self._first_look(now_ms), {topic_partition: inode})

    def forget_others(self) -> None:
        """Remove what the cache keeps of partitions that are gone: their ids never come again."""
        cache, used = self._following.cache, self._following.used
        if cache is None:
            return
        for name, is_directory in cache.list(""):
            if is_directory and name not in used:
                with contextlib.suppress(OSError):
                    cache.remove_tree(name)

    def close(self, now_ms: int, *, is_durable: bool = True) -> None:
        """Note where everything is; nothing is written into the directory."""
        for log in self.all_partitions():
            log.close_files()

    def _find_partitions(self, now_ms: int) -> None:
        present: dict[TopicPartition, int] = {}
        inodes = self.disk.inodes("")
        links = dict.fromkeys((name for name, _ in self.disk.contents("").irregular), _NO_INODE)
        for name, inode in (inodes | links).items():
            parsed = names.parse_partition_directory(name)
            if parsed is None or parsed.state is not DirectoryState.NONE:
                continue
            topic_partition = TopicPartition(parsed.topic, parsed.partition)
            if name != names.CLUSTER_METADATA_DIRECTORY and self._is_wanted(topic_partition):
                present[topic_partition] = inode
        with self._changes:
            gone = [one for one, inode in self._directories.items() if present.get(one) != inode]
            self._forget(gone, {inode: name for name, inode in inodes.items()})
            new = sorted(one for one in present if one not in self._directories)
            if self._bucket is not None:
                self._bucket.fetch(one.directory for one in new)
            self._begin(self._first_look(now_ms), {one: present[one] for one in new})

    def _begin(self, loading: LoadContext, directories: Mapping[TopicPartition, int]) -> None:
        """Begin to follow partitions, and show them all at once."""
        topics = dict(self._topics)
        for topic_partition, inode in directories.items():
            log = self._load(loading, topic_partition, inode)
            topic, number = topic_partition
            if log is not None:
                if topics.get(topic) is self._topics.get(topic):
                    topics[topic] = dict(topics.get(topic, {}))
                topics[topic][number] = log
        # Replaced as a whole: the event loop looks at it meanwhile.
        self._topics = topics

    def _load(
        self, loading: LoadContext, topic_partition: TopicPartition, inode: int
    ) -> "AnyLog | None":
        """Return the log of a partition; None if it is just being made."""
        followed: WatchedLog | None = None
        log: AnyLog
        mtime_ms = self._mtime_of(topic_partition)
        try:
            if self._bucket is not None and self._bucket.head_files(topic_partition.directory):
                from logfs.services.following.bucketlog import follow_bucket

                followed = follow_bucket(self._bucket, self.disk, loading, topic_partition)
            else:
                followed = follow_partition(self._following, loading, topic_partition)
            log = followed or load_partition(loading, topic_partition)
        except (NotThereYetError, FileNotFoundError):
            return None
        except (LogfsError, OSError) as error:
            log = offline_partition(loading, topic_partition, error)
        self._directories[topic_partition] = inode
        self._unfollowed.pop(topic_partition, None)
        if followed is not None:
            self._followed[topic_partition] = followed
        elif mtime_ms is not None:  # else it is a link: it has to be another name first
            self._unfollowed[topic_partition] = (
                mtime_ms if mtime_ms < loading.now_ms - RACY_MS else _UNSETTLED_MS
            )
        return log

    def _mtime_of(self, topic_partition: TopicPartition) -> int | None:
        try:
            return self.disk.stat(topic_partition.directory).mtime_ms
        except OSError:
            return None

    def _try_again(self, now_ms: int) -> None:
        """Load again what could not be followed, once its directory has changed."""
        for topic_partition, mtime_ms in list(self._unfollowed.items()):
            if self._mtime_of(topic_partition) not in (None, mtime_ms):
                with self._changes:
                    inode = self._directories[topic_partition]
                    self._begin(self._first_look(now_ms), {topic_partition: inode})

    def _first_look(self, now_ms: int) -> LoadContext:
        """Return what is known before a partition is loaded.

        While a process owns the directory there is nothing to recover, and the end of a log may be
        on its way; else what recovery would leave is shown.
        """
        is_live = self.disk.is_locked(names.LOCK_FILE)
        if is_live:
            return replace(self._load_context(now_ms, is_clean=True), is_live=True)
        found = list_partitions(self.disk)
        is_clean, note = last_stop(self.disk, self._host.boot_id, found)
        return replace(self._load_context(now_ms, is_clean=is_clean), unflushed=note)

    def _forget(self, gone: Sequence[TopicPartition], renamed: Mapping[int, str]) -> None:
        """Partitions were deleted, or their names belong to other ones by now.

        Args:
            renamed: The names in the directory, by inode.
        """
        parts = self.parts.all() if gone else ()
        for topic_partition in gone:
            topic, number = topic_partition
            name = renamed.get(self._directories.pop(topic_partition), topic_partition.directory)
            self._unfollowed.pop(topic_partition, None)
            log, followed = self._topics[topic][number], self._followed.pop(topic_partition, None)
            if followed is None:
                log.state.is_deleted = True
                continue
            for part in parts:
                if part.directory == log.directory:
                    part.forsake(name)
            followed.forsake(name)
        topics, away = dict(self._topics), set(gone)
        for topic in {one.topic for one in gone}:
            logs = topics.pop(topic)
            left = {n: log for n, log in logs.items() if TopicPartition(topic, n) not in away}
            if left:
                topics[topic] = left
        self._topics = topics


AnyStore: TypeAlias = "LogStore | FollowedStore"
"""The store of a mount: owned by its daemon, or followed."""
