"""Tiered storage as a task: sealed segments go to the object store, and what was dropped leaves it.

Each partition is looked at every ``remote.log.manager.task.interval.ms``. After a failure the next
look comes sooner, after a pause that grows from one second to five minutes. Partitions are worked
on in their own threads, ``remote.log.manager.copier.thread.pool.size`` at the same time, so that
neither reads nor appends wait for the store.

A stop does not wait for the store: the threads continue with their request, and change nothing in
the data directory after it.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

import trio

from logfs.config.remote import FencedAction, RemoteConfig
from logfs.errors import DeletedError, FencedError, LogfsError, RemoteStorageError, text_of
from logfs.fs.threads import run_in_thread
from logfs.log.partition import PartitionLog
from logfs.log.remote.catalog import DirectoryCatalog
from logfs.log.remote.directory import own_directory, read_remote_config
from logfs.log.remote.head import WritingDirectory
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.of_disk import catalog_of
from logfs.machine.host import Clock, machine_id
from logfs.services.following.store import AnyStore
from logfs.services.tiering.owning import PartitionTiering
from logfs.services.tiering.topics import DeletedTopics
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_LONGEST_TICK_S = 1.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0


class RateLimit:
    """Lets so many bytes pass in a second. Any thread.

    Args:
        bytes_per_second: The limit.
        clock: Seconds, monotonic.
        stopping: Set when what waits is to end.
    """

    def __init__(
        self, bytes_per_second: int, clock: Callable[[], float], stopping: threading.Event
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._stopping = stopping
        self._free_s = 0.0
        self._guard = threading.Lock()

    def take(self, size: int) -> None:
        """Wait until so many bytes may pass.

        Raises:
            RemoteStorageError: The daemon is stopping.
        """
        with self._guard:
            now_s = self._clock()
            begin_s = max(now_s, self._free_s)
            self._free_s = begin_s + size / self._rate
        if self._stopping.is_set() or (begin_s > now_s and self._stopping.wait(begin_s - now_s)):
            raise RemoteStorageError("the daemon is stopping")


class _Partition(NamedTuple):
    """A partition that is worked on, and the log that it is made for."""

    log: PartitionLog
    tiering: PartitionTiering


class Tiering:
    """The work on the object store of a data directory. Event loop only.

    Args:
        store: The store.
        clock: The clocks.
        host: Name of the machine, for the heads.
    """

    def __init__(self, store: AnyStore, clock: Clock, host: str) -> None:
        self._store = store
        self._clock = clock
        self._host = host
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._due_s: dict[TopicPartition, float] = {}
        self._busy: set[TopicPartition] = set()
        self._told: dict[TopicPartition, str] = {}
        self._warned: set[TopicPartition] = set()
        self._stopping = threading.Event()
        self._given_up: set[PartitionPlace] = set()
        self._action = FencedAction.KEEP
        self._refusal: str | None = None
        self._over: RemoteStorageError | None = None

    def give_up(self, error: RemoteStorageError) -> None:
        """Do nothing with the store any more: another process owns it."""
        self._refusal, self._over = text_of(error), error
        for partition in list(self._partitions.values()):
            partition.tiering.give_up(error)

    async def run(self) -> None:
        """Copy, drop and remove what is due, until cancelled; return if there is no store."""
        catalog = catalog_of(self._store.disk)
        config = None if catalog is None else read_remote_config(catalog.local)
        if catalog is None or config is None or self._store.read_only:
            return
        try:
            own = own_directory(catalog.local, self._store.writable.new_id, machine_id())
        except (LogfsError, OSError) as error:
            logger.warning("nothing is copied to the object store: %s", text_of(error))
            return
        self._refusal, self._action = own.refusal, config.fenced_action
        if own.refusal is not None:
            logger.warning(own.refusal)
        writer = own.writer(self._host, self._clock.now_ms())
        limit = RateLimit(
            config.remote_log_manager_copy_max_bytes_per_second,
            self._clock.monotonic_s,
            self._stopping,
        )
        threads = trio.CapacityLimiter(config.remote_log_manager_copier_thread_pool_size)
        deleted = DeletedTopics(
            self._store.writable, catalog, writer, self._given_up, keeps=self._refusal
        )
        interval_s = config.remote_log_manager_task_interval_ms / 1000
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._remove_topics, deleted, interval_s, threads)
                while True:
                    for key in self._due(interval_s):
                        self._busy.add(key)
                        nursery.start_soon(self._look, key, catalog, config, writer, limit, threads)
                    await trio.sleep(min(_LONGEST_TICK_S, interval_s))
        finally:
            self._stopping.set()
            for partition in self._partitions.values():
                partition.tiering.stop()

    def _due(self, interval_s: float) -> list[TopicPartition]:
        """Return the partitions that are to be looked at now; forget those that are gone."""
        now_s, found, present = self._clock.monotonic_s(), [], set()
        for log in self._store.writable.all_partitions():
            key = log.topic_partition
            present.add(key)
            if key in self._busy or log.offline is not None or log.is_deleted:
                continue
            if not (log.config.remote_storage_enable or log.tier is not None):
                continue
            if self._due_s.setdefault(key, now_s) <= now_s:
                self._due_s[key] = now_s + interval_s
                found.append(key)
        for key in [key for key in self._due_s if key not in present]:
            del self._due_s[key]
            self._partitions.pop(key, None)
            self._told.pop(key, None)
            self._warned.discard(key)
        return found

    async def _look(
        self,
        key: TopicPartition,
        catalog: DirectoryCatalog,
        config: RemoteConfig,
        writer: WritingDirectory,
        limit: RateLimit,
        threads: trio.CapacityLimiter,
    ) -> None:
        try:
            await run_in_thread(
                self._work, key, catalog, writer, limit, limiter=threads, abandon_on_cancel=True
            )
        except Exception:
            logger.exception("a bug in logfs: tiered storage of %s failed", key)
            self._due_s[key] = self._clock.monotonic_s() + _LONGEST_PAUSE_S
        finally:
            self._busy.discard(key)

    def _work(
        self,
        key: TopicPartition,
        catalog: DirectoryCatalog,
        writer: WritingDirectory,
        limit: RateLimit,
    ) -> None:
        """Work on one partition, in a thread."""
        try:
            log = self._store.writable.partition(*key)
            found = self._partitions.get(key)
            if found is None or found.log is not log:
                if found is not None:
                    found.tiering.stop()  # reloaded, or another topic of that name
                new_id = self._store.writable.new_id
                tiering = PartitionTiering(
                    log, catalog.store(), writer, new_id, refusal=self._refusal
                )
                if self._over is not None:
                    tiering.give_up(self._over)
                found = self._partitions[key] = _Partition(log, tiering)
        except (LogfsError, OSError) as error:
            self._fail(key, None, error)
            return
        try:
            self._work_on(key, found, limit)
        finally:
            self._warn_of_retention(key, found)
            with contextlib.suppress(LogfsError, OSError):  # readers of the record are told
                found.tiering.look_at_lag()

    def _work_on(self, key: TopicPartition, found: _Partition, limit: RateLimit) -> None:
        status = found.tiering.status
        if found.tiering.problem is not None:
            return
        try:
            found.tiering.seal(self._clock.now_ms())
            if not found.tiering.has_work:
                return
            found.tiering.run_once(limit.take, self._clock.now_ms())
        except DeletedError:
            return
        except (LogfsError, OSError) as error:
            if not self._stopping.is_set():
                self._fail(key, found, error)
            return
        status.error, status.failures = None, 0
        if self._told.pop(key, None) is not None:
            logger.info("%s: the object store takes segments again", key)

    def _warn_of_retention(self, key: TopicPartition, found: _Partition) -> None:
        """Log once that retention deletes segments soon that the store does not have."""
        near = found.tiering.look_at_retention(self._clock.now_ms())
        if near is None:
            self._warned.discard(key)
        elif key not in self._warned:
            self._warned.add(key)
            logger.warning(
                "%s: the segment at offset %d is not in the object store, and has reached %d %% of "
                "%s: retention deletes it then. Mend the store, or raise the limit",
                key, near.base_offset, near.share * 100, near.setting,
                extra={"fields": {"event": "near-deletion", "segments": near.segments}},
            )  # fmt: skip

    def _fail(self, key: TopicPartition, found: _Partition | None, error: Exception) -> None:
        """Note a failure, and when to try again; log it if it is another one than before."""
        failures = 1
        if found is not None:
            status = found.tiering.status
            status.error = text_of(error)
            status.is_stopped = found.tiering.problem is not None
            if status.is_stopped:
                self._given_up.add(found.tiering.place)
                is_fenced = isinstance(error, FencedError) and self._refusal is None
                if is_fenced and self._action is FencedAction.READONLY:
                    found.log.fence(text_of(error))
            status.failures += 1
            status.copy_errors += 1
            failures = status.failures
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 16), _LONGEST_PAUSE_S)
        self._due_s[key] = self._clock.monotonic_s() + pause_s
        kind = type(error).__name__
        if self._told.get(key) != kind:
            self._told[key] = kind
            if found is None or found.tiering.problem is None:  # else it was logged
                logger.warning("%s: nothing is copied to the object store: %s", key, text_of(error))

    async def _remove_topics(
        self, deleted: DeletedTopics, interval_s: float, threads: trio.CapacityLimiter
    ) -> None:
        """Remove the objects of deleted topics, again and again."""
        pause_s = interval_s
        while True:
            await trio.sleep(pause_s)
            try:
                is_done = await run_in_thread(
                    deleted.remove_due,
                    self._clock.now_ms(),
                    limiter=threads,
                    abandon_on_cancel=True,
                )
                pause_s = interval_s if is_done else min(max(pause_s * 2, 1), _LONGEST_PAUSE_S)
            except Exception:
                logger.exception("a bug in logfs: removing the objects of deleted topics failed")
                pause_s = _LONGEST_PAUSE_S
