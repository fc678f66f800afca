"""Background tasks: maintenance, flushes, checkpoints, removals, retention, compaction, packing.

    maintain      soon after an append made it due, within a second after any other cause: sync
                  sealed segments, reserve positions
    flush         partitions whose flush.ms has passed
    checkpoint    every log.flush.offset.checkpoint.interval.ms
    remove        files of deleted topics and segments whose file.delete.delay.ms has passed, and
                  what is known of producers that have been idle for producer.id.expiration.ms
    retention     every log.retention.check.interval.ms, the limits of the directory every five
                  seconds; see ``retention``
    expiry        positions of consumer groups: every offsets.retention.check.interval.ms
    compaction    as soon as a log is due; see ``rewriting``
    packing       as soon as a segment is due; see ``rewriting``
    tiering       every remote.log.manager.task.interval.ms; see ``tiering``
    journaling    every freshness.ms; see ``journaling``

Tasks run at the same time, and so do those of different partitions. So a slow disk delays only its
own partitions.
"""

import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import trio

from logfs.errors import LogfsError
from logfs.fs.partitions.executor import PartitionExecutor
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.tree import Tree
from logfs.fs.upkeep.following import Follower
from logfs.fs.upkeep.journaling import Journaling
from logfs.fs.upkeep.retention import Retention
from logfs.fs.upkeep.rewriting import Rewriting
from logfs.fs.upkeep.tiering import Tiering
from logfs.log.partition import PartitionLog
from logfs.machine.host import Clock
from logfs.services.following.store import AnyStore
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

Run = Callable[[], Awaitable[None]]

FLUSH_TICK_S = 1.0
REMOVE_TICK_S = 2.0
AGAIN_S = 60.0
"""How long a task that has failed rests."""


class BackgroundTasks:
    """The background tasks of a mount. Event loop only.

    Args:
        store: The store. If it is read-only, nothing is done to it.
        tree: Has the executors of the partitions.
        clock: The clocks.
        note_directory_look: Called after each look at the directory of another program.

    Attributes:
        retention: Deletes records that topics no longer keep.
        rewriting: Compacts logs and packs segments.
        tiering: Copies sealed segments to an object store.
        journaling: Sends what is not sealed there.
    """

    def __init__(
        self,
        store: AnyStore,
        tree: Tree,
        clock: Clock,
        note_directory_look: Callable[[], None],
    ) -> None:
        self._store = store
        self._note_directory_look = note_directory_look
        self._tree = tree
        self._clock = clock
        self._due: dict[MountedPartition, None] = {}  # in the order in which it became due
        self._busy: set[MountedPartition] = set()
        self._something_due = trio.Event()
        self.retention = Retention(store, tree, clock)
        self.tiering = Tiering(store, clock, socket.gethostname())
        self.journaling = Journaling(store, clock, socket.gethostname(), self.tiering.give_up)
        self.rewriting = Rewriting(store, clock, self._executor_of)

    def _executor_of(self, topic_partition: TopicPartition) -> PartitionExecutor:
        return self._tree.partition(*topic_partition).executor

    def want_maintenance(self, partition: MountedPartition) -> None:
        """Have ``maintain`` called for a partition, soon and in a thread."""
        if partition not in self._busy:
            self._due[partition] = None
            self._something_due.set()

    async def run(self) -> None:
        """Run the tasks until cancelled."""
        if self._store.is_followed:
            await Follower(self._store, self._tree, self._clock, self._note_directory_look).run()
        if self._store.read_only:
            await trio.sleep_forever()
        checkpoint_s = max(1.0, self._store.config.log_flush_offset_checkpoint_interval_ms / 1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._maintain_what_is_due, nursery)
            nursery.start_soon(self._flush_what_is_due, nursery)
            nursery.start_soon(self._every, checkpoint_s, self._store.writable.checkpoint)
            nursery.start_soon(self._every, REMOVE_TICK_S, self._remove_what_is_due)
            expiry_s = self._store.config.offsets_retention_check_interval_ms / 1000
            nursery.start_soon(self._every, expiry_s, self._expire_positions)
            for run in (
                self.retention.run,
                self.retention.run_limits,
                self.rewriting.run,
                self.tiering.run,
                self.journaling.run,
            ):
                nursery.start_soon(self._keep_running, run)

    async def _keep_running(self, run: Run) -> None:
        """Run a task, and again after a failure, which would end the mount otherwise."""
        while not await self._attempt(run):  # noqa: ASYNC110 - a pause after a failure
            await trio.sleep(AGAIN_S)

    async def _maintain_what_is_due(self, nursery: trio.Nursery) -> None:
        while True:
            await self._something_due.wait()
            self._something_due = trio.Event()
            due, self._due = self._due, {}
            for partition in due:
                self._busy.add(partition)
                nursery.start_soon(self._do, partition, partition.log.writable.maintain)

    async def _flush_what_is_due(self, nursery: trio.Nursery) -> None:
        while True:
            await trio.sleep(FLUSH_TICK_S)
            due = await run_in_thread(self._store.writable.flush_due, self._clock.now_ms())
            for log, partition in self._with_executors(due):
                if partition not in self._busy:
                    self._busy.add(partition)
                    nursery.start_soon(self._do, partition, log.flush)
            # Segments that retention or trimming rolled: their files stay open, and so on the disk,
            # until they are synced, and the next append may be days away.
            for _, partition in self._with_executors(
                await run_in_thread(self._store.writable.maintenance_due)
            ):
                self.want_maintenance(partition)

    def _with_executors(
        self, logs: list[PartitionLog]
    ) -> Iterator[tuple[PartitionLog, MountedPartition]]:
        for log in logs:
            try:
                partition = self._tree.partition(*log.topic_partition)
            except LogfsError:
                continue  # deleted since
            yield log, partition

    async def _do(self, partition: MountedPartition, call: Callable[[], None]) -> None:
        is_done = await self._attempt(partial(partition.executor.sync, call))
        self._busy.discard(partition)
        if is_done and partition.log.maintenance_due:
            self.want_maintenance(partition)

    async def _every(self, seconds: float, call: Callable[[], None]) -> None:
        while True:
            await trio.sleep(seconds)
            await self._attempt(partial(run_in_thread, call))

    async def _attempt(self, run: Run) -> bool:
        """Run a call; an error is logged, and ends neither the task nor the mount."""
        try:
            await run()
        except (LogfsError, OSError) as error:
            # The log has taken the partition offline where it must; appends and fsyncs report that.
            logger.warning("%s", error)
        except Exception:
            logger.exception("a bug in logfs: a background task failed")
        else:
            return True
        return False

    def _expire_positions(self) -> None:
        for found in self._store.writable.expire_positions(self._clock.now_ms()):
            logger.info(
                "group %s: %d positions have expired, after offsets.retention.minutes without a "
                "commit", found.group, len(found.removed),
            )  # fmt: skip

    def _remove_what_is_due(self) -> None:
        store, now_ms = self._store.writable, self._clock.now_ms()
        store.remove_due_files(now_ms)
        store.expire_producers(now_ms)
        store.tidy(now_ms)
