"""Packing as a task: one thread, segment by segment, of the topics that are to be packed.

Appends and reads go on at the same time. Packing and compaction share one limit of bytes a second,
``log.cleaner.io.max.bytes.per.second``. If nothing is due, the next look is after
``log.cleaner.backoff.ms``.
"""

import logging
from collections.abc import Callable

import trio

from logfs.errors import LogfsError
from logfs.fs.partitions.executor import PartitionExecutor
from logfs.machine.host import Clock
from logfs.services.compaction.tools import CleaningTools
from logfs.services.following.store import AnyStore
from logfs.services.packing.packer import SegmentPacker
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)


class Packing:
    """The packing of a mount. Event loop only.

    Args:
        store: The store; it is not followed.
        clock: The clocks.
        tools: Buffers and limits, those of compaction; a stop of the mount ends a packing, too.
        executor_of: Returns the executor of a partition, or raises like a look-up of it.
    """

    def __init__(
        self,
        store: AnyStore,
        clock: Clock,
        tools: CleaningTools,
        executor_of: Callable[[TopicPartition], PartitionExecutor],
    ) -> None:
        self._store = store
        self._clock = clock
        self._tools = tools
        self._executor_of = executor_of

    async def run(self) -> None:
        """Pack segments that are due until cancelled."""
        config = self._store.config
        pause_s = max(config.log_cleaner_backoff_ms / 1000, 0.1)
        packer = SegmentPacker(self._store.writable)
        while True:
            try:
                has_packed = await self._pack_next(packer)
            except Exception:
                logger.exception("a bug in logfs: packing failed")
                has_packed = False
            if not has_packed:
                await trio.sleep(pause_s)

    async def _pack_next(self, packer: SegmentPacker) -> bool:
        now_ms = self._clock.now_ms()
        log = await trio.to_thread.run_sync(packer.choose, now_ms)
        if log is None:
            return False
        try:
            executor = self._executor_of(log.topic_partition)
        except LogfsError:
            packer.release(log)  # deleted meanwhile
            return False
        return await executor.sync(packer.pack, log, now_ms, self._tools)
