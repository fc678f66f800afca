"""Compaction as a task: ``log.cleaner.threads`` threads, each with the dirtiest log that is due.

Appends and reads go on at the same time. The lock of the partition is held only while segments are
replaced. That takes some fsyncs, so its appends run in threads meanwhile. If nothing is due, the
next look is after ``log.cleaner.backoff.ms``.
"""

import functools
import logging
import threading
from collections.abc import Callable

import trio

from logfs.errors import LogfsError
from logfs.fs.partitions.executor import PartitionExecutor
from logfs.machine.host import Clock
from logfs.services.compaction.cleaner import LogCleaner
from logfs.services.compaction.tools import tools_for
from logfs.services.following.store import AnyStore
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)


class Compaction:
    """The compactions of a mount. Event loop only.

    Args:
        store: The store.
        clock: The clocks.
        executor_of: Returns the executor of a partition, or raises like a look-up of it.

    Attributes:
        cleaner: Chooses the logs that are due, and has the metrics.
        tools: Buffers and limits of compactions, also of those by hand.
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
        """Compact logs that are due until cancelled; a compaction that runs then is aborted."""
        config = self._config
        if not config.log_cleaner_enable or config.log_cleaner_threads == 0:
            logger.info("compaction is switched off: log.cleaner.enable, log.cleaner.threads")
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_cancelled)
            for number in range(config.log_cleaner_threads):
                nursery.start_soon(self._work, number)

    async def _stop_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._stopping.set()

    async def _work(self, number: int) -> None:
        while True:
            try:
                has_cleaned = await self._clean_dirtiest(number)
            except Exception:
                logger.exception("a bug in logfs: compaction failed")
                has_cleaned = False
            if not has_cleaned:
                await trio.sleep(max(self._config.log_cleaner_backoff_ms / 1000, 0.1))

    async def _clean_dirtiest(self, number: int) -> bool:
        now_ms = self._clock.now_ms()
        chosen = await trio.to_thread.run_sync(self.cleaner.choose, now_ms)
        if chosen is None:
            return False
        try:
            executor = self._executor_of(chosen.log.topic_partition)
        except LogfsError:
            self.cleaner.release(chosen)  # deleted meanwhile
            return False
        return await executor.sync(self.cleaner.clean, chosen, now_ms, self.tools, number)
