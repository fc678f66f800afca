"""Retention as a task: each partition deletes segments that its topic no longer keeps.

The first look is log.initial.task.delay.ms after the start, the next ones every
log.retention.check.interval.ms. A change of a topic takes effect at the next look. Partitions are
handled in a thread, one after the other; appends go on at the same time.

A topic without a configuration of its own was created by a broker, and logfs does not know how long
to keep its records. Nothing is deleted from it until ``logfs topic alter`` has set its policy.
"""

import logging
from datetime import UTC, datetime

import trio

from logfs import config as configuration
from logfs.errors import DeletedError, LogfsError, NoSuchPartitionError, NoSuchTopicError
from logfs.fs.partitions import MountedPartition
from logfs.fs.tree import Tree
from logfs.log.following.store import AnyStore
from logfs.log.retention import Deletion, apply_retention
from logfs.machine.host import Clock
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)


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
            await self.look()
            await trio.sleep(config.log_retention_check_interval_ms / 1000)

    async def look(self) -> list[tuple[TopicPartition, Deletion]]:
        """Look once at every partition; returns what was deleted."""
        done = []
        for topic in self._store.topics():
            if not await trio.to_thread.run_sync(self._is_ours, topic):
                self._warn_once(
                    ("config", topic),
                    f"topic {topic} has no configuration of its own, as a broker leaves it: nothing"
                    " is ever deleted from it until 'logfs topic alter' has set its policy",
                )
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
            deletion = await partition.executor.sync(
                apply_retention, log.writable, self._clock.now_ms()
            )
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
                f"{name}: a record in the segment at offset {base_offset} is of {_moment(latest)}, "
                "in the future: retention.ms keeps that segment, and all after it, until then",
            )
        return deletion

    def _partitions(self, topic: str) -> list[MountedPartition]:
        try:
            return [self._tree.partition(topic, n) for n in self._store.partitions(topic)]
        except (NoSuchTopicError, NoSuchPartitionError):
            return []  # deleted meanwhile

    def _is_ours(self, topic: str) -> bool:
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


def _moment(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms after the epoch"  # far outside the calendar
