"""Retention as a task: each partition deletes segments that its topic no longer keeps.

The first look is log.initial.task.delay.ms after the start, the next ones every
log.retention.check.interval.ms. A change of a topic takes effect at the next look. Partitions are
handled in a thread, one after the other; appends continue at the same time.

A topic without its own configuration was created by a broker, and logfs does not know how long
to keep its records. Nothing is deleted from it until ``logfs topic alter`` has set its policy.

The limits of the whole directory, see ``directoryretention``, are checked every five seconds.
"""

import logging

import trio

from logfs import config as configuration
from logfs.errors import (
    DeletedError,
    LogfsError,
    NoSuchPartitionError,
    NoSuchTopicError,
    moment_of,
)
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.tree import Tree
from logfs.log.partition import PartitionLog
from logfs.machine.host import Clock
from logfs.services.following.store import AnyStore
from logfs.services.retention.directory import (
    Usage,
    delete_share,
    has_limits,
    lacks_room,
    plan_deletion,
    remove_waiting_files,
    segments_of,
    too_large,
    usage,
)
from logfs.services.retention.logs import Deletion, apply_retention
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

LIMITS_TICK_S = 5.0
"""How often the limits of the directory are checked."""
_KEPT = {
    False: "topic {} has no configuration, as a broker leaves it: nothing is ever "
    "deleted from it until 'logfs topic alter' has set its policy",
    None: "topic {}: the disk cannot read whether it has a configuration: nothing is deleted from "
    "it until that is known",
}
"""Why retention keeps a topic, by whether it has a configuration."""


class Retention:
    """Applies retention to every partition, again and again. Event loop only."""

    def __init__(self, store: AnyStore, tree: Tree, clock: Clock) -> None:
        self._store = store
        self._tree = tree
        self._clock = clock
        self._logged: set[object] = set()

    async def run(self) -> None:
        """Delete what is due, again and again, until cancelled."""
        config = self._store.config
        self._warn_of_pitfalls()
        await trio.sleep(config.log_initial_task_delay_ms / 1000)
        while True:
            await self.run_once()
            await trio.sleep(config.log_retention_check_interval_ms / 1000)

    async def run_limits(self) -> None:
        """Keep the directory within its limits until cancelled; returns at once if it has none."""
        if not has_limits(self._store.config):
            return
        while True:
            await self.look_at_limits()
            await trio.sleep(LIMITS_TICK_S)

    async def look_at_limits(self) -> list[tuple[TopicPartition, Deletion]]:
        """Check the limits of the directory once; returns what was deleted."""
        done = await self._meet_limits()
        await self._make_room()
        return done

    async def _meet_limits(self) -> list[tuple[TopicPartition, Deletion]]:
        store = self._store.writable
        try:
            limit = await run_in_thread(usage, store, store.deleted_bytes)
            if limit is None:
                return []
            for partition in self._all_partitions():
                if too_large(partition.log.writable, limit):
                    await partition.executor.sync(partition.log.writable.roll, self._clock.now_ms())
            if limit.excess <= 0:
                self._logged.discard("limits")
                return []
            return await self._delete_down_to(limit)
        except (LogfsError, OSError) as error:
            logger.warning("retention of the directory: %s; it is tried again", error)
        except Exception:
            logger.exception("a bug in logfs: retention of the directory failed")
        return []

    async def _delete_down_to(self, limit: Usage) -> list[tuple[TopicPartition, Deletion]]:
        found = await run_in_thread(segments_of, self._store.writable)
        shares = plan_deletion([facts for _, facts in found], limit.excess)
        done = []
        for (log, _), share in zip(found, shares, strict=True):
            name = log.topic_partition
            if not share.segments:
                continue
            try:
                executor = self._tree.partition(*name).executor
                now_ms = self._clock.now_ms()
                deletion = await executor.sync(delete_share, log, share, limit, now_ms)
                done.append((name, deletion))
            except (DeletedError, NoSuchTopicError, NoSuchPartitionError):
                pass  # with its topic, meanwhile
            except (LogfsError, OSError) as error:
                logger.warning("%s: retention: %s", name, error)
        missing = limit.excess - sum(share.size_bytes for share in shares)
        if missing > 0:
            self._warn_once(
                "limits",
                f"{limit.rule} is exceeded by {missing} bytes, and no more segments can be deleted:"
                " the others are active, compacted, tiered, held by a forward, or of topics without"
                " their own policy; 'logfs du' shows the sizes",
            )
        return done

    async def _make_room(self) -> None:
        """Remove the files of deleted segments at once if the disk lacks the room to wait."""
        try:
            if not await run_in_thread(lacks_room, self._store.writable):
                return
        except OSError as error:
            logger.warning("retention of the directory: %s; it is tried again", error)
            return
        for partition in self._all_partitions():
            log = partition.log.writable
            if not log.removal.deleted.segments or log.offline is not None:
                continue
            try:
                await partition.executor.sync(remove_waiting_files, log, self._clock.now_ms())
            except (LogfsError, OSError) as error:
                logger.warning("%s: retention: %s", partition.topic_partition, error)

    def _all_partitions(self) -> list[MountedPartition]:
        return [p for topic in self._store.topics() for p in self._partitions(topic)]

    async def run_once(self) -> list[tuple[TopicPartition, Deletion]]:
        """Look once at every partition; returns what was deleted."""
        done = []
        for topic in self._store.topics():
            is_ours = await run_in_thread(self._is_ours, topic)
            if not is_ours:
                self._warn_once(("config", topic, is_ours), _KEPT[is_ours].format(topic))
                continue
            for partition in self._partitions(topic):
                deletion = await self._look_at(partition)
                if deletion is not None and deletion.segments:
                    done.append((partition.topic_partition, deletion))
        return done

    async def _look_at(self, partition: MountedPartition) -> Deletion | None:
        log, name = partition.log, partition.topic_partition
        if log.offline is not None or log.is_deleted:
            return None
        try:
            deletion = await partition.executor.sync(self._apply, log.writable)
        except DeletedError:
            return None  # with its topic, meanwhile
        except (LogfsError, OSError) as error:
            logger.warning("%s: retention: %s", name, error)
            return None
        except Exception:
            logger.exception("a bug in logfs: retention of %s failed", name)
            return None
        if deletion.future is not None:
            base_offset, latest = deletion.future
            self._warn_once(
                ("future", name, base_offset),
                f"{name}: a record in the segment at offset {base_offset} is of "
                f"{moment_of(latest)}, in the future: retention.ms keeps that segment, and "
                "all after it, until then",
            )
        return deletion

    def _apply(self, log: PartitionLog) -> Deletion:
        # The clock after the wait for a thread: a record of meanwhile is not of the future.
        return apply_retention(log, self._clock.now_ms())

    def _partitions(self, topic: str) -> list[MountedPartition]:
        try:
            return [self._tree.partition(topic, n) for n in self._store.partitions(topic)]
        except (NoSuchTopicError, NoSuchPartitionError):
            return []  # deleted meanwhile

    def _is_ours(self, topic: str) -> bool | None:
        try:
            return self._store.has_config(topic)
        except NoSuchTopicError:
            return True

    def _warn_of_pitfalls(self) -> None:
        """Log settings that are probably not meant; those of the defaults once."""
        defaults = configuration.warnings(self._store.topic_defaults)
        for warning in defaults:
            logger.warning("topics by default: %s", warning)
        for topic in self._store.topics():
            for warning in self._store.config_warnings(topic):
                if warning not in defaults:
                    logger.warning("topic %s: %s", topic, warning)

    def _warn_once(self, what: object, text: str) -> None:
        """Log a warning once."""
        if what not in self._logged:
            self._logged.add(what)
            logger.warning("%s", text)
