"""A data directory: its lock, its topics and partitions, its checkpoints, its clean stop.

The root contains Kafka's files, in Kafka's format, and plain files of logfs:

    .lock                                  held while a daemon or a writer owns the directory
    .kafka_cleanshutdown                   only after a clean stop; removed before loading
    recovery-point-offset-checkpoint       first offset of each partition that may not be durable
    log-start-offset-checkpoint            log start offsets above the first segment's base
    replication-offset-checkpoint          high watermarks
    logfs.attributes                       remembered owners and modes
    logfs.closed                           after a close without a flush, until the next start

Source: Kafka LogManager.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from logfs.config import StoreConfig
from logfs.disk.vfs import Disk, Lock
from logfs.errors import LogfsError
from logfs.log import checkpoints, names, topics
from logfs.log.closing import fast_close, last_stop, remove_note
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.groups.removal import Removal, expire
from logfs.log.host import Host
from logfs.log.lines.notes import Resumption
from logfs.log.lines.writer import LineWriter
from logfs.log.listing import list_partitions
from logfs.log.loading.loader import load_all, load_or_take_offline
from logfs.log.loading.preloading import Preloaded
from logfs.log.manifest import check_may_write, check_whole
from logfs.log.partition import PartitionLog
from logfs.log.publishing.leftovers import LOOK_INTERVAL_MS, complete, pending_producers, tidy
from logfs.log.remote.of_disk import bucket_of, catalog_of
from logfs.log.segments.segment import OpenSegments
from logfs.log.topicchanges import ChangeableCatalog
from logfs.log.topicdeletion import (
    DeletedPartition,
)
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]


class LogStore(ChangeableCatalog):
    """The partitions of one data directory. Make it with ``open``."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        host: Host,
        *,
        read_only: bool,
        preloaded: Preloaded | None = None,
    ) -> None:
        opened = preloaded.opened if preloaded else OpenSegments(disk, host.open_segments)
        super().__init__(disk, config, host, opened, read_only=read_only)
        self._lock: Lock | None = None
        self._expiry_due_ms = 0
        self._tidy_due_ms = 0

    @classmethod
    def open(  # noqa: PLR0913 - three of them are rarely given
        cls,
        disk: Disk,
        config: StoreConfig,
        host: Host,
        *,
        now_ms: int,
        read_only: bool = False,
        progress: Progress | None = None,
        only: Collection[TopicPartition] | None = None,
        resumed: Resumption[LineWriter] | None = None,
        preloaded: Preloaded | None = None,
    ) -> "LogStore":
        """Take the lock, load every partition (or ``only`` some), recover those that need it.

        A partition that cannot be loaded is offline; the others are served all the same. What is
        ``resumed`` continues: its lines become no records. What is ``preloaded`` was read before
        the last owner stopped, and makes this faster.

        Raises:
            ValueError: ``only`` without ``read_only``: the other partitions would not be recovered.
            LockedError: Another process owns the directory.
            BackupError: A backup or a restore was interrupted in it; or it is a backup, and
                ``read_only`` is False.
            OSError: The directory cannot be read or written.
        """
        if only is not None and not read_only:
            raise ValueError("only some partitions can be loaded of a store that is read-only")
        (check_whole if read_only else check_may_write)(disk)
        store = cls(disk, config, host, read_only=read_only, preloaded=preloaded)
        store._resumed = resumed
        if not read_only:
            store._lock = disk.lock(names.LOCK_FILE)
        try:
            store._load(now_ms, progress or (lambda _: None), only, preloaded)
        except BaseException:
            store.unlock()
            raise
        return store

    @property
    def writable(self) -> "LogStore":
        """The store to write to, which is this one; a followed store has none."""
        return self

    def fence(self, reason: str) -> None:
        """Take no more records of topics that are in the object store: another directory owns it.

        Args:
            reason: How that is known.
        """
        catalog = catalog_of(self.disk)
        if catalog is not None:
            catalog.fenced[""] = reason  # of partitions that are loaded or made from now on
            for log in self.all_partitions():
                log.fence(reason)

    # Upkeep

    def reload(self, topic_partition: TopicPartition, now_ms: int) -> PartitionLog:
        """Reload a partition that went offline, and recover it as after an unclean stop.

        Raises:
            NoSuchTopicError, NoSuchPartitionError: It does not exist.
        """
        with self._locks.held(topic_partition.topic):
            old = self.partition(*topic_partition)
            if not self.disk.exists(old.directory):
                return old  # removed by another program: what is open is all that can be read
            old.close_files()
            context = replace(self._loading(now_ms, is_clean=False), has_failed=True)
            if not old.is_unreadable:
                context.recovery_points[topic_partition] = old.recovery_point
                starts = {**context.start_offsets, topic_partition: old.log_start_offset}
                context = replace(context, start_offsets=starts)
            log = load_or_take_offline(context, topic_partition)
            log.counters.add(old.counters)
            self._topics[topic_partition.topic][topic_partition.partition] = log
            return log

    def flush_due(self, now_ms: int) -> list[PartitionLog]:
        """Return the partitions whose ``flush.ms`` has passed."""
        return [
            log
            for log in self.all_partitions()
            if log.unflushed_since_ms is not None
            and log.offline is None
            and now_ms - log.unflushed_since_ms >= log.config.flush_ms
        ]

    def maintenance_due(self) -> list[PartitionLog]:
        """Return the partitions that need ``maintain``."""
        return [log for log in self.all_partitions() if log.offline is None and log.maintenance_due]

    def remove_due_files(self, now_ms: int) -> None:
        """Remove the files that were deleted long enough ago and that no reader uses."""
        for log in self.all_partitions():
            log.remove_due_files(now_ms)
        self._deleted.remove_due(now_ms)
        self._deleted.close_replaced()

    @property
    def deleted_bytes(self) -> int:
        """Bytes of the logs of deleted topics that are still on the disk."""
        return self._deleted.size_bytes

    def deleted_tiered(self) -> list[DeletedPartition]:
        """Return the directories of deleted topics that wait for the object store."""
        return list(self._deleted.tiered)

    def forget_deleted(self, row: DeletedPartition) -> None:
        """Remove such a directory: the object store has nothing of it any more."""
        with self._locks.held(row.topic_partition.topic):
            self._deleted.forget(row)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that have been idle for long. May be called often, it runs rarely.

        Source: Kafka ``producer.id.expiration.check.interval.ms``.
        """
        if now_ms >= self._expiry_due_ms:
            self._expiry_due_ms = now_ms + self.config.producer_id_expiration_check_interval_ms
            retained = pending_producers(self.disk)
            for log in self.all_partitions():
                log.expire_producers(now_ms, retained)

    def tidy(self, now_ms: int) -> None:
        """Remove files that jobs have left behind. May be called often, it runs rarely."""
        if now_ms >= self._tidy_due_ms and tidy(self, self.all_partitions(), now_ms):
            self._tidy_due_ms = now_ms + LOOK_INTERVAL_MS

    def close(self, now_ms: int, *, is_durable: bool = True) -> None:
        """Clean stop: flush everything, trim indexes, write checkpoints and the marker, unlock.

        The marker is not written if a partition is offline. Without ``is_durable`` nothing is
        flushed: records stay safe from a kill, but not from a power cut. A note instead of the
        marker spares the next start a recovery, as long as the machine runs.

        Source: Kafka LogManager.shutdown.
        """
        if self.read_only:
            return
        if not is_durable:
            try:
                fast_close(self.disk, self._host.boot_id, list(self.all_partitions()))
            finally:
                self.unlock()
            return
        is_clean = True
        for log in self.all_partitions():
            try:
                log.close()
            except (LogfsError, OSError) as error:
                logger.warning("%s: it could not be closed cleanly: %s", log.topic_partition, error)
                is_clean = False
            is_clean &= log.offline is None
        try:
            self.checkpoint()
            if is_clean:
                checkpoints.write_clean_shutdown(self.disk)
        except OSError as error:
            # No record is lost: the next start recovers as after a kill.
            logger.warning("no clean stop, the next start recovers the logs: %s", error)
        finally:
            self.unlock()

    def unlock(self) -> None:
        """Release the lock without a clean stop; ``close`` does it as well."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def expire_positions(self, now_ms: int) -> list[Removal]:
        """Remove the positions of consumer groups that have expired; return them.

        Raises:
            LogfsError, OSError: ``__consumer_offsets`` cannot be read or appended to.
        """
        retention_ms = self.config.offsets_retention_minutes * 60_000
        log_of = partial(self.partition, OFFSETS_TOPIC)
        return expire(self.groups, log_of, retention_ms, now_ms)

    # Inside

    def _load(
        self,
        now_ms: int,
        say: Progress,
        only: Collection[TopicPartition] | None,
        preloaded: Preloaded | None,
    ) -> None:
        found = list_partitions(self.disk) if only is None else _present(self.disk, only)
        if not self.read_only:
            self._deleted.find(now_ms, self.config.log_segment_delete_delay_ms)
            found = sorted([*found, *self._deleted.undo_interrupted(found)])
        is_clean, note = last_stop(self.disk, self._host.boot_id, found)
        if not self.read_only:
            checkpoints.remove_clean_shutdown(self.disk)
            remove_note(self.disk)
            self._deleted.remove_due(now_ms)
        context = self._loading(now_ms, is_clean=is_clean)
        context = replace(context, unflushed=note, preloaded=preloaded)
        self.was_clean = is_clean or not found
        if not self.was_clean:
            if not self.read_only:
                # A stop may have come between a change of names and its sync, as of a new topic.
                self.disk.sync_directory("")
            say(f"no clean shutdown: recovering {len(found)} partitions")
        workers = self.config.num_recovery_threads_per_data_dir
        for done, log in enumerate(load_all(context, found, workers), start=1):
            topic, number = log.topic_partition
            self._topics.setdefault(topic, {})[number] = log
            if not is_clean:
                say(f"loaded {log.topic_partition} ({done} of {len(found)})")
        if not self.read_only:
            self._unify_configs()
            complete(self, now_ms)
            having = [tp for tp, found in context.leftovers.items() if found]
            if tidy(self, [self.partition(*tp) for tp in having], now_ms):
                self._tidy_due_ms = now_ms + LOOK_INTERVAL_MS

    def _unify_configs(self) -> None:
        """Complete a change of a topic's configuration that a stop has interrupted.

        The first partition always has the new configuration.
        """
        for name, partitions in self._topics.items():
            first, *others = (log for _, log in sorted(partitions.items()))
            others = [log for log in others if not log.is_unreadable and log.config != first.config]
            if not others or first.is_unreadable or not self.has_config(name):
                continue
            try:
                directories = [log.directory for log in others]
                topics.change_properties(self.disk, directories, first.config.overrides())
            except OSError as error:
                logger.warning("topic %s: its partitions differ in configuration: %s", name, error)
                continue
            for log in others:
                log.config = first.config


def was_clean(disk: Disk, boot_id: str) -> bool:
    """Return whether the last owner process of a data directory stopped cleanly."""
    return last_stop(disk, boot_id, list_partitions(disk)).is_clean


def _present(disk: Disk, wanted: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return those of some partitions that are there; a bucket is not listed for that."""
    if bucket_of(disk) is None:
        return [one for one in list_partitions(disk) if one in wanted]
    return sorted(one for one in set(wanted) if disk.exists(one.directory))
