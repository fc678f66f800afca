"""Compaction and packing as tasks: ``log.cleaner.threads`` threads and one, a log each at a time.

Appends and reads continue at the same time. The lock of the partition is held only while segments
are replaced. That takes some fsyncs, so its appends run in threads meanwhile. All share one limit
of bytes a second, ``log.cleaner.io.max.bytes.per.second``. If nothing is due, the next look is
after ``log.cleaner.backoff.ms``.
"""

import functools
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import trio

from logfs.errors import LogfsError
from logfs.fs.partitions.executor import PartitionExecutor
from logfs.fs.threads import run_in_thread
from logfs.machine.host import Clock
from logfs.services.compaction.cleaner import LogCleaner
from logfs.services.compaction.rewriter import LogRewriter
from logfs.services.compaction.tools import tools_for
from logfs.services.following.store import AnyStore
from logfs.services.packing.packer import SegmentPacker
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

Part = TypeVar("Part")


class Rewriting:
    """The compactions and packings of a mount. Event loop only.

    Args:
        store: The store.
        clock: The clocks.
        executor_of: Returns the executor of a partition, or raises like a look-up of it.

    Attributes:
        cleaner: Chooses the logs that are compacted, and has the metrics.
        tools: Buffers and limits, also of compactions and packings by hand.
    """

    def __init__(
        self,
        store: AnyStore,
        clock: Clock,
        executor_of: Callable[[TopicPartition], PartitionExecutor] | None = None,
    ) -> None:
        self._executor_of = executor_of or (
            lambda _: PartitionExecutor(clock.monotonic_s, clock.slept_s)
        )
        self._config = store.config
        self._clock = clock
        self._stopping = threading.Event()
        self._store = store
        self.tools = tools_for(
            store.config,
            store.new_id,
            clock.monotonic_s,
            self._stopping.wait,
            self._stopping.is_set,
        )

    @functools.cached_property
    def cleaner(self) -> LogCleaner:
        """Chooses and compacts logs.

        Raises:
            ReadOnlyError: The directory is followed.
        """
        return LogCleaner(self._store.writable)

    async def run(self) -> None:
        """Rewrite logs that are due until cancelled; what runs then is aborted."""
        threads = self._config.log_cleaner_threads if self._config.log_cleaner_enable else 0
        if not threads:
            logger.info("compaction is switched off: log.cleaner.enable, log.cleaner.threads")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_cancelled)
            nursery.start_soon(self._work, SegmentPacker(self._store.writable), 0)
            for number in range(threads):
                nursery.start_soon(self._work, self.cleaner, number)

    async def _stop_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._stopping.set()

    async def _work(self, rewriter: LogRewriter[Part], number: int) -> None:
        while True:
            try:
                is_done = await self._rewrite_next(rewriter, number)
            except Exception:
                logger.exception("a bug in logfs: %s failed", rewriter.name)
                is_done = False
            if not is_done:
                await trio.sleep(max(self._config.log_cleaner_backoff_ms / 1000, 0.1))

    async def _rewrite_next(self, rewriter: LogRewriter[Part], number: int) -> bool:
        now_ms = self._clock.now_ms()
        chosen = await run_in_thread(rewriter.choose, now_ms)
        if chosen is None:
            return False
        try:
            executor = self._executor_of(chosen.log.topic_partition)
        except LogfsError:
            rewriter.release(chosen)  # deleted meanwhile
            return False
        return await executor.sync(rewriter.rewrite, chosen, now_ms, self.tools, number)
