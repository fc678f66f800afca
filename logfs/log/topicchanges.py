"""Changes of the topics of a data directory: created, grown, deleted, restored, renamed, altered.

A change is complete for other threads when its call returns. It holds the lock of its topic: a disk
that hangs under one topic keeps no change of another. A stop in the middle leaves what the next
start completes or undoes; ``topiccreation`` and ``topicdeletion`` say how.
"""

import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from uuid import UUID

from logfs.config import StoreConfig, TopicConfig
from logfs.disk.vfs import Disk
from logfs.errors import InvalidConfigError, LogfsError, ReadOnlyError, TopicExistsError
from logfs.log import names, topics
from logfs.log.attributes import NOTHING_SET, Ownership
from logfs.log.catalog import Catalog
from logfs.log.checkpointing import add_start_offsets, write_checkpoints
from logfs.log.cleanercheckpoint import forget_cleaner_offsets
from logfs.log.groups import removal
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.host import Host
from logfs.log.lines.notes import Resumption
from logfs.log.lines.writer import LineWriter
from logfs.log.loading.context import LoadContext
from logfs.log.loading.loader import load_or_take_offline
from logfs.log.mirrorfile import MirrorSource
from logfs.log.partition import PartitionLog
from logfs.log.publishing.leftovers import pending_producers
from logfs.log.reading.address import parse_topic_name
from logfs.log.remote.of_disk import catalog_of
from logfs.log.segments.segment import OpenSegments
from logfs.log.topiccreation import create_partitions, new_topic_id
from logfs.log.topicdeletion import (
    DeletedPartitions,
    check_empty,
    deleted_name_of,
    forget_note,
    remembered,
)
from logfs.log.topiclocks import TopicLocks
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_POLICY_KEYS = frozenset({"cleanup.policy", "retention.ms", "retention.bytes"})
"""Settings that determine what happens to old records."""


class ChangeableCatalog(Catalog[PartitionLog]):
    """The topics of a data directory that is written here."""

    def __init__(
        self, disk: Disk, config: StoreConfig, host: Host, opened: OpenSegments, *, read_only: bool
    ) -> None:
        super().__init__(disk, config, host, opened, read_only=read_only)
        self._locks = TopicLocks()
        self._deleted = DeletedPartitions(disk, self._locks)
        self._resumed: Resumption[LineWriter] | None = None

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
            mirror: The source of a mirror, whose topic id it gets; None: an ordinary topic.

        Raises:
            IllegalTopicNameError, TopicExistsError, InvalidConfigError, ReadOnlyError, OSError.
        """
        self._check_writable()
        parse_topic_name(name)
        topics.check_partitions(name, partitions)
        config = topics.effective_config(self.topic_defaults, properties)
        self._check_has_store(config)
        with self._locks.held(name):
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
            mirror: The source of a mirror; a mirror grows with its source only.

        Raises:
            MirrorError: It is a mirror, and ``mirror`` is None.
            NoSuchTopicError, LogOfflineError (it could not be loaded), InvalidConfigError,
            ReadOnlyError, OSError.
        """
        self._check_writable(name)
        with self._locks.held(name):
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

    def delete_topic(self, name: str, now_ms: int, *, at_once: bool = False) -> None:
        """Delete a topic as Kafka does: renamed now, removed after ``file.delete.delay.ms``.

        Open readers finish; appends of open writers are refused with DeletedError. This needs no
        room on the disk: rows of the topic in the small files of the root may be removed later.

        Args:
            name: The topic.
            now_ms: The clock.
            at_once: Remove the files now; those of a partition that an open fixed name reads, when
                it is closed.

        Raises:
            NoSuchTopicError, ReadOnlyError.
            OSError: A directory could not be renamed.

        Source: Kafka LogManager.asyncDelete.
        """
        self._check_writable()
        with self._locks.held(name):
            logs = list(self._partitions(name).values())
            gone = {log.topic_partition for log in logs}
            rows = [(log, deleted_name_of(self.disk, log, self._host)) for log in logs]
            delay_ms = 0 if at_once else self.config.log_segment_delete_delay_ms
            self._deleted.delete(rows, self.attributes, now_ms, delay_ms)
            with self._changes:
                for log in logs:
                    self.retired.add(log.counters)
            del self._topics[name]
            if at_once:
                self._deleted.remove_due(now_ms, name)
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
        with self._locks.held(name), contextlib.ExitStack() as locks:
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
        with self._locks.held(name):
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

        Open files continue to read it, and appends of open writers are refused with DeletedError. A
        stop in the middle leaves some partitions under each name, and the call may be repeated.

        Raises:
            IllegalTopicNameError: The new name is none.
            TopicExistsError: There is another topic of that name.
            NoSuchTopicError, ReadOnlyError, LogfsError, OSError: It is not, or not completely,
                renamed.
        """
        self._check_writable()
        parse_topic_name(new)
        with self._locks.held(name, new):
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

        A topic without its own configuration keeps its records also then, with an empty
        ``cleanup.policy``, unless the changes say which are to go.

        Raises:
            NoSuchTopicError, InvalidConfigError, LogOfflineError, ReadOnlyError, OSError.
        """
        self._check_writable(name)
        with self._locks.held(name):
            has_config = self._config_exists(name)
            if not (has_config or _POLICY_KEYS & changes.keys()):
                changes = {"cleanup.policy": "", **changes}
            config = self.topic_config(name).with_changes(changes)
            if "remote.storage.enable" in changes:
                self._check_has_store(config)
            logs = [log for _, log in sorted(self._partitions(name).items())]
            before = [log.config for log in logs]
            if not has_config:
                # As soon as there is a file, retention deletes what the logs' configuration says.
                _configure(logs, itertools.repeat(config))
            directories = [log.directory for log in logs]
            try:
                topics.change_properties(self.disk, directories, config.overrides())
            except OSError:
                _configure(logs, before)
                raise
            _configure(logs, itertools.repeat(config))

    def checkpoint(self) -> None:
        """Write the checkpoint files. Source: Kafka LogManager.checkpointLogRecoveryOffsets."""
        self._check_writable()
        write_checkpoints(self.disk, self.all_partitions())
        self.attributes.save()

    # Inside

    def _loading(self, now_ms: int, *, is_clean: bool) -> LoadContext:
        """Return what has to be known before partitions with records are loaded."""
        context = self._load_context(now_ms, is_clean=is_clean)
        publishing = frozenset[int]() if self.read_only else pending_producers(self.disk)
        return replace(context, publishing=publishing, resumed=self._resumed)

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


def _configure(logs: Iterable[PartitionLog], configs: Iterable[TopicConfig]) -> None:
    for log, config in zip(logs, configs, strict=False):
        log.config = config
