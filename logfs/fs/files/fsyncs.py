"""Fsyncs that programs ask for: fsync(2) runs beside the loop, in a thread that is not Python's.

The decisions about a flush take microseconds, and the log makes them on the loop: whether it is
covered already, whether it may share a running one, what is durable afterwards. Only fsync(2)
itself runs elsewhere. A thread of Python would wait for the interpreter's lock as long as a quick
disk takes for the fsync. Flushes that take several fsyncs, the first calls of a partition and those
of a slow disk run in a thread of Python all the same: see ``executor``.

Some programs write a line, sync it, write the next. The fsync of such a file begins with the write,
so it is partly done when the program asks for it. Files that the native thread serves need none of
this: see ``nativewrites``.
"""

import logging

import trio

from logfs.disk._syncs import ThreadSyncs
from logfs.disk.vfs import Syncs
from logfs.errors import LogfsError
from logfs.fs.files.handles import FileHandle
from logfs.fs.partitions.partition import MountedPartition
from logfs.log.partition import PartitionLog
from logfs.log.writing.flusher import Flush
from logfs.machine.host import Clock
from logfs.services.following.followed import AnyLog

logger = logging.getLogger(__name__)


class _Running:
    """A flush that is running.

    Attributes:
        error: The error of a flush that failed, else None.
        is_over: It has ended.
        is_wanted_again: A writer has appended meanwhile, and is about to ask for the next flush.
    """

    __slots__ = (
        "_waiting", "error", "flush", "is_over", "is_wanted_again", "log", "partition",
        "started_s",
    )  # fmt: skip

    def __init__(
        self, partition: MountedPartition, log: PartitionLog, flush: Flush, started_s: float
    ) -> None:
        self.partition = partition
        self.log = log
        self.flush = flush
        self.started_s = started_s
        self.error: Exception | None = None
        self.is_over = False
        self.is_wanted_again = False
        self._waiting: list[trio.lowlevel.Task] = []

    async def wait(self) -> None:
        """Wait for its end; like a call in a thread, this cannot be cancelled."""
        if not self.is_over:
            self._waiting.append(trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(_not_now)

    def end(self) -> None:
        """Wake the tasks that wait for it."""
        self.is_over = True
        for task in self._waiting:
            trio.lowlevel.reschedule(task)


class Fsyncs:
    """The flushes of a mount. Event loop only.

    Args:
        clock: The clocks.
        syncs: Runs the fsyncs; None for the threads that sync real files.
    """

    def __init__(self, clock: Clock, syncs: Syncs | None = None) -> None:
        self._monotonic_s = clock.monotonic_s
        self._syncs = syncs or ThreadSyncs()
        self._is_watched = False
        self._by_sync: dict[object, _Running] = {}
        self._by_log: dict[AnyLog, _Running] = {}

    @property
    def threads(self) -> int:
        """How many threads there are that are not Python's. Any thread."""
        return self._syncs.threads

    async def sync(self, file: FileHandle) -> None:
        """Make durable what was written through a file, and everything before it.

        Raises:
            LogfsError, OSError: It could not be made durable.
        """
        file.note_sync()
        if not file.is_all_records:
            await file.partition.executor.sync(file.sync)
            return
        try:
            await self._flush(file.partition, file.flushed_log)
        except (LogfsError, OSError) as error:
            file.note_failure(error)
            raise

    async def flush(self, partition: MountedPartition) -> None:
        """Make durable what was appended to a partition.

        Raises:
            LogfsError, OSError: It could not be made durable.
        """
        await self._flush(partition, partition.log)

    def foresee(self, file: FileHandle) -> None:
        """Begin the sync of a file that was written to, if its program is about to ask for it."""
        if file.is_served or not (file.is_sync_expected and file.is_all_records):
            return
        running = self._by_log.get(file.flushed_log)
        if running is None:
            self._begin(file.partition, file.flushed_log)
        else:
            running.is_wanted_again = True

    async def _flush(self, partition: MountedPartition, log: AnyLog) -> None:
        if self._by_sync:
            self._take()
        wanted = log.log_end_offset
        while not log.is_durable(wanted):
            running = self._by_log.get(log) or self._begin(partition, log)
            if running is None:
                await partition.executor.sync(log.flush)
                return
            await running.wait()
            if running.error is not None:
                raise running.error
            if running.flush.end_offset >= wanted:
                return

    def _begin(self, partition: MountedPartition, log: AnyLog) -> _Running | None:
        if partition.executor.is_slow:
            return None
        flush = log.writable.flusher.begin(self._syncs)
        if flush is None:
            return None
        if not self._is_watched:
            self._is_watched = True
            # It lives as long as the loop: a task that waits for a flush waits to the end.
            trio.lowlevel.spawn_system_task(self._watch)
        running = _Running(partition, log.writable, flush, self._monotonic_s())
        self._by_sync[flush.sync] = self._by_log[log] = running
        partition.executor.note_flush_start()
        return running

    async def _watch(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._syncs.fileno())
            self._take()

    def _take(self) -> None:
        for sync in self._syncs.take():
            running = self._by_sync.pop(sync)
            if running.log.flusher.end(running.flush):
                self._end(running)
            else:
                trio.lowlevel.spawn_system_task(self._end_in_thread, running)

    async def _end_in_thread(self, running: _Running) -> None:
        """Flush again in a thread: the log handles and reports the failure there."""
        try:
            await running.partition.executor.sync(running.log.flush)
        except Exception as error:  # noqa: BLE001 - raised in the tasks that wait
            running.error = error
        self._end(running)

    def _end(self, running: _Running) -> None:
        partition, log = running.partition, running.log
        del self._by_log[log]
        partition.executor.note_flush_end(self._monotonic_s() - running.started_s)
        running.end()
        if running.is_wanted_again and not log.is_durable(log.log_end_offset):
            self._begin(partition, log)


def _not_now(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
