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

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from uuid import UUID

from logfs.config import StoreConfig, TopicConfig
from logfs.disk.vfs import Disk, Lock
from logfs.errors import InvalidConfigError, LogfsError, ReadOnlyError, TopicExistsError
from logfs.log import checkpoints, names, topics
from logfs.log.attributes import NOTHING_SET, Ownership
from logfs.log.catalog import Catalog
from logfs.log.checkpointing import add_start_offsets, write_checkpoints
from logfs.log.cleanercheckpoint import forget_cleaner_offsets
from logfs.log.closing import fast_close, last_stop, remove_note
from logfs.log.groups import removal
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.host import Host
from logfs.log.lines.notes import Resumption
from logfs.log.lines.writer import LineWriter
from logfs.log.listing import list_partitions
from logfs.log.loading.context import LoadContext
from logfs.log.loading.loader import load_all, load_or_take_offline
from logfs.log.loading.preloading import Preloaded
from logfs.log.manifest import check_may_write, check_whole
from logfs.log.mirrorfile import MirrorSource
from logfs.log.partition import PartitionLog
from logfs.log.publishing.leftovers import LOOK_INTERVAL_MS, complete, pending_producers, tidy
from logfs.log.reading.address import parse_topic_name
from logfs.log.remote.of_disk import bucket_of, catalog_of
from logfs.log.segments.segment import OpenSegments
from logfs.log.topiccreation import create_partitions, new_topic_id
from logfs.log.topicdeletion import (
    DeletedPartition,
    DeletedPartitions,
    check_empty,
    deleted_name_of,
    forget_note,
    remembered,
)
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]

_POLICY_KEYS = frozenset({"cleanup.policy", "retention.ms", "retention.bytes"})
"""Settings that determine what happens to old records."""


class LogStore(Catalog[PartitionLog]):
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
        self._deleted = DeletedPartitions(disk)
        self._expiry_due_ms = 0
        self._tidy_due_ms = 0
        self._resumed: Resumption[LineWriter] | None = None

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
        ``resumed`` goes on: its lines become no records. What is ``preloaded`` was read before the
        last owner stopped, and makes this faster.

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

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int,
        properties: Mapping[str, str],
        now_ms: int,
        ownerships: Mapping[int | None, Ownership] | None = None,
        mirror: MirrorSource | None = None,
    ) -> None:
        """Create a topic; its partitions are durable when this returns.

        Args:
            name: The topic.
            partitions: How many.
            properties: Its configuration.
            now_ms: The clock.
            ownerships: Owners and modes of its partitions and, under None, of the topic. They are
                set before the topic becomes visible.
            mirror: What it is a mirror of, whose topic id it gets; None: an ordinary topic.

        Raises:
            IllegalTopicNameError, TopicExistsError, InvalidConfigError, ReadOnlyError, OSError.
        """
        self._check_writable()
        parse_topic_name(name)
        topics.check_partitions(name, partitions)
        config = topics.effective_config(self.topic_defaults, properties)
        self._check_has_store(config)
        with self._changes:
            if name in self._topics:
                raise TopicExistsError(f"topic {name} exists already")
            # Left by an older topic, which was deleted on a full disk or not completely created.
            self.attributes.forget(name)
            self.attributes.save()
            self.attributes.put(name, ownerships or {})
            try:
                topic_id = new_topic_id(self._host)
                if mirror is not None and mirror.topic_id:
                    topic_id = names.parse_topic_id(mirror.topic_id)
                self._add_partitions(name, range(partitions), topic_id, config, now_ms, mirror)
            except OSError:
                with contextlib.suppress(OSError):
                    self.attributes.forget(name)
                raise

    def grow_topic(
        self,
        name: str,
        partitions: int,
        now_ms: int,
        ownership: Ownership = NOTHING_SET,
        mirror: MirrorSource | None = None,
    ) -> None:
        """Add partitions to a topic, up to a number; nothing changes if it has as many.

        Args:
            name: The topic.
            partitions: The new number of partitions.
            now_ms: The clock.
            ownership: Owner and mode of each new partition, set before it becomes visible.
            mirror: What they are mirrors of; a mirror grows with its source only.

        Raises:
            MirrorError: It is a mirror, and ``mirror`` is None.
            NoSuchTopicError, LogOfflineError (it could not be loaded), InvalidConfigError,
            ReadOnlyError, OSError.
        """
        self._check_writable(name)
        with self._changes:
            present = self._partitions(name)
            if partitions > len(present):
                topics.check_partitions(name, partitions)
            missing = [n for n in range(partitions) if n not in present]
            if not missing:
                return
            if mirror is None:
                self._representative(name).check_appendable()
            topic_id = self.topic_id(name)
            identity = names.parse_topic_id(topic_id) if topic_id else new_topic_id(self._host)
            self.attributes.put(name, dict.fromkeys(missing, ownership))
            config = self.topic_config(name)
            self._add_partitions(name, missing, identity, config, now_ms, mirror)

    def delete_topic(self, name: str, now_ms: int) -> None:
        """Delete a topic as Kafka does: renamed now, removed after ``file.delete.delay.ms``.

        Open readers finish; appends of open writers are refused with DeletedError. This needs no
        room on the disk: rows of the topic in the small files of the root may be removed later.

        Raises:
            NoSuchTopicError, ReadOnlyError.
            OSError: A directory could not be renamed.

        Source: Kafka LogManager.asyncDelete.
        """
        self._check_writable()
        with self._changes:
            logs = list(self._partitions(name).values())
            gone = {log.topic_partition for log in logs}
            rows = [(log, deleted_name_of(self.disk, log, self._host)) for log in logs]
            delay_ms = self.config.log_segment_delete_delay_ms
            self._deleted.delete(rows, self.attributes, now_ms, delay_ms)
            for log in logs:
                self.retired.add(log.counters)
            del self._topics[name]
            self._tidy_after_deletion(name, gone)
            log_of = partial(self.partition, OFFSETS_TOPIC)
            removal.forget_topic(self.groups, log_of, name, now_ms)

    def delete_empty_topic(self, name: str, now_ms: int) -> None:
        """Delete a topic that holds no records and no unfinished lines.

        Raises:
            TopicNotEmptyError: It holds some, or a partition cannot tell because it is offline.
            NoSuchTopicError, ReadOnlyError, OSError: See ``delete_topic``.
        """
        self._check_writable()
        with self._changes, contextlib.ExitStack() as locks:
            for log in self._partitions(name).values():
                locks.enter_context(log.exclusive())
            check_empty(self._partitions(name).values())
            self.delete_topic(name, now_ms)

    def undelete_topic(self, name: str, now_ms: int) -> None:
        """Restore a topic that was deleted and whose files are not removed yet.

        It has its records, positions, configuration and owner again. Files that were open when it
        was deleted stay refused to writers.

        Raises:
            TopicExistsError: There is a topic of that name.
            NoSuchTopicError: No deleted topic of that name is left.
            ReadOnlyError, OSError.
        """
        self._check_writable()
        with self._changes:
            if name in self._topics:
                raise TopicExistsError(
                    f"topic {name} exists; before a deleted topic of that name can be restored, "
                    "delete this one"
                )
            rows = self._deleted.latest(name)
            # First, for a private topic must not be seen with the default mode.
            self.attributes.put(name, remembered(rows))
            self._deleted.restore(rows)
            context = replace(
                self._loading(now_ms, is_clean=False),
                recovery_points={r.topic_partition: r.note.recovery_point for r in rows if r.note},
                start_offsets={r.topic_partition: r.note.start_offset for r in rows if r.note},
                compacted=frozenset(row.topic_partition for row in rows),
                has_failed=any(row.log is not None and row.log.offline is not None for row in rows),
            )
            restored = [row.topic_partition for row in rows]
            logs = [load_or_take_offline(context, topic_partition) for topic_partition in restored]
            self._topics[name] = {log.topic_partition.partition: log for log in logs}
            self.checkpoint()
            for topic_partition in restored:
                forget_note(self.disk, topic_partition.directory)

    def rename_topic(self, name: str, new: str, now_ms: int) -> None:
        """Give a topic another name, with its records, configuration and owner.

        Open files go on reading it, and appends of open writers are refused with DeletedError. A
        stop in the middle leaves some partitions under each name, and the call may be repeated.

        Raises:
            IllegalTopicNameError: The new name is none.
            TopicExistsError: There is another topic of that name.
            NoSuchTopicError, ReadOnlyError, LogfsError, OSError: It is not, or not completely,
                renamed.
        """
        self._check_writable()
        parse_topic_name(new)
        with self._changes:
            logs = dict(sorted(self._partitions(name).items()))
            present = self._topics.get(new, {})
            is_same = new in self._topics and self.topic_id(new) == self.topic_id(name)
            if (present and not is_same) or present.keys() & logs.keys():
                raise TopicExistsError(f"topic {new} exists already")
            owners: dict[int | None, Ownership] = {
                number: self.attributes.get(name, number) for number in (None, *logs)
            }
            self.attributes.put(new, owners)
            starts = {TopicPartition(new, n): log.log_start_offset for n, log in logs.items()}
            add_start_offsets(self.disk, starts)
            for number, log in logs.items():
                self._rename_partition(log, TopicPartition(new, number), now_ms)
                del self._topics[name][number]
            del self._topics[name]
            self._tidy_after_deletion(name, {log.topic_partition for log in logs.values()})

    def _rename_partition(self, log: PartitionLog, to: TopicPartition, now_ms: int) -> None:
        if self.disk.exists(f"{log.directory}/{names.TIERED}"):
            raise LogfsError(
                f"{log.topic_partition} has segments in an object store under its name"
            )
        has_failed = log.offline is not None
        if not has_failed:
            log.flush()
        log.delete(to.directory)
        self._deleted.close_later(log)
        context = replace(
            self._loading(now_ms, is_clean=False),
            recovery_points={to: log.recovery_point},
            start_offsets={to: log.log_start_offset},
            compacted=frozenset([to]),
            has_failed=has_failed,
        )
        self._topics.setdefault(to.topic, {})[to.partition] = load_or_take_offline(context, to)

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configuration of a topic, or with None take it back; in effect when this returns.

        A topic without a configuration of its own keeps its records also then, with an empty
        ``cleanup.policy``, unless the changes say which are to go.

        Raises:
            NoSuchTopicError, InvalidConfigError, LogOfflineError, ReadOnlyError, OSError.
        """
        self._check_writable(name)
        with self._changes:
            if not (self.has_config(name) or _POLICY_KEYS & changes.keys()):
                changes = {"cleanup.policy": "", **changes}
            config = self.topic_config(name).with_changes(changes)
            if "remote.storage.enable" in changes:
                self._check_has_store(config)
            logs = [log for _, log in sorted(self._partitions(name).items())]
            topics.change_properties(self.disk, [log.directory for log in logs], config.overrides())
            for log in logs:
                log.config = config

    # Upkeep

    def reload(self, topic_partition: TopicPartition, now_ms: int) -> PartitionLog:
        """Reload a partition that went offline, and recover it as after an unclean stop.

        Raises:
            NoSuchTopicError, NoSuchPartitionError: It does not exist.
        """
        with self._changes:
            old = self.partition(*topic_partition)
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

    def checkpoint(self) -> None:
        """Write the checkpoint files. Source: Kafka LogManager.checkpointLogRecoveryOffsets."""
        self._check_writable()
        write_checkpoints(self.disk, self.all_partitions())
        self.attributes.save()

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
        with self._changes:
            self._deleted.remove_due(now_ms)

    @property
    def deleted_bytes(self) -> int:
        """Bytes of the logs of deleted topics that are still on the disk."""
        return self._deleted.size_bytes

    def deleted_tiered(self) -> list[DeletedPartition]:
        """Return the directories of deleted topics that wait for the object store."""
        return list(self._deleted.tiered)

    def forget_deleted(self, row: DeletedPartition) -> None:
        """Remove such a directory: the object store has nothing of it any more."""
        with self._changes:
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

    def _loading(self, now_ms: int, *, is_clean: bool) -> LoadContext:
        """Return what has to be known before partitions with records are loaded."""
        context = self._load_context(now_ms, is_clean=is_clean)
        publishing = frozenset[int]() if self.read_only else pending_producers(self.disk)
        return replace(context, publishing=publishing, resumed=self._resumed)

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

    def _add_partitions(
        self,
        name: str,
        numbers: Iterable[int],
        topic_id: UUID,
        config: TopicConfig,
        now_ms: int,
        mirror: MirrorSource | None = None,
    ) -> None:
        context = self._load_context(now_ms, is_clean=True)
        wanted = [TopicPartition(name, number) for number in numbers]
        logs = create_partitions(context, wanted, topic_id, config, mirror)
        self._topics.setdefault(name, {}).update(logs)

    def _tidy_after_deletion(self, name: str, gone: Collection[TopicPartition]) -> None:
        """Make the deletion durable and remove the topic from the small files of the root.

        The topic is deleted already, so failures are only logged. Rows that remain do no harm:
        ``create_partitions`` removes them for a new topic of that name.
        """
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._usages.forget(name),
            lambda: self.disk.sync_directory(""),
            lambda: self.attributes.forget(name),
            lambda: forget_cleaner_offsets(self.disk, gone),
            self.checkpoint,
        )
        for step in steps:
            try:
                step()
            except (LogfsError, OSError) as error:
                logger.warning("topic %s is deleted; to be done later: %s", name, error)

    def _check_has_store(self, config: TopicConfig) -> None:
        # Source: Kafka LogConfig.validateRemoteStorageOnlyIfSystemEnabled.
        if config.remote_storage_enable and catalog_of(self.disk) is None:
            raise InvalidConfigError(
                "remote.storage.enable=true: Tiered Storage functionality is disabled in the "
                "broker. Topic cannot be configured with remote log storage. Name the object store "
                "in logfs.remote ('logfs remote init') and restart the daemon"
            )

    def _check_writable(self, topic: str | None = None) -> None:
        if self.read_only:
            raise ReadOnlyError("the data directory is open read-only")
        if topic is not None and (log := self._representative(topic)).is_unreadable:
            log.check_writable()


def _present(disk: Disk, wanted: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return those of some partitions that are there; a bucket is not listed for that."""
    if bucket_of(disk) is None:
        return [one for one in list_partitions(disk) if one in wanted]
    return sorted(one for one in set(wanted) if disk.exists(one.directory))
