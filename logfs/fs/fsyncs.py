"""Fsyncs that are asked for: an fsync goes on beside the loop, in a thread that is not Python's.

What is to be decided about a flush (whether it is covered already, whether it may share one that is
under way, what is durable when it is done) takes microseconds and is done on the loop, by the log;
only fsync(2) itself happens elsewhere. A thread of Python would take it as long to get the
interpreter's lock from the loop as a quick disk needs for the fsync. Whatever takes more than one
fsync, the first calls of a partition, and those of a slow disk, run in such a thread all the same:
see ``executor``.

Who writes a line, syncs it, writes the next: the fsync of such a file is begun with the write, and
has come a long way when it is asked for.
"""

import logging

import trio

from logfs.disk._syncs import Syncs as DiskSyncs
from logfs.disk.vfs import Syncs
from logfs.errors import LogfsError
from logfs.fs.handles import FileHandle
from logfs.fs.partitions import MountedPartition
from logfs.log.following.followed import AnyLog
from logfs.log.partition import PartitionLog
from logfs.log.writing.flusher import Flush
from logfs.machine.host import Clock

logger = logging.getLogger(__name__)


class _Running:
    """A flush under way.

    Attributes:
        error: How it failed; None as long as it has not.
        is_over: Nobody needs to wait for it any more.
        is_wanted_again: Somebody has appended meanwhile who is about to ask for the next one.
    """

    __slots__ = (
        *("error", "flush", "is_over", "is_wanted_again", "log", "partition", "started_s"),
        "_waiting",
    )

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
        """Wait until it is over; like a call in a thread, this cannot be cancelled."""
        if not self.is_over:
            self._waiting.append(trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(_not_now)

    def end(self) -> None:
        """Wake those who wait for it."""
        self.is_over = True
        for task in self._waiting:
            trio.lowlevel.reschedule(task)


class Fsyncs:
    """The flushes of a mount. Event loop only.

    Args:
        clock: The clocks.
        syncs: Where fsyncs go on; None: where those of real files do.
    """

    def __init__(self, clock: Clock, syncs: Syncs | None = None) -> None:
        self._monotonic_s = clock.monotonic_s
        self._syncs = syncs or DiskSyncs()
        self._is_watched = False
        self._by_sync: dict[object, _Running] = {}
        self._by_log: dict[AnyLog, _Running] = {}

    @property
    def threads(self) -> int:
        """How many threads there are that Python does not know. Any thread."""
        return self._syncs.threads

    async def sync(self, file: FileHandle) -> None:
        """Make durable what was written through a file, and everything before it.

        Raises:
            LogfsError, OSError: It is not.
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
            LogfsError, OSError: It is not.
        """
        await self._flush(partition, partition.log)

    def foresee(self, file: FileHandle) -> None:
        """Begin the sync of a file that was written to, if it is about to be asked for."""
        if not (file.is_sync_expected and file.is_all_records):
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
        flush = log.writable.begin_flush(self._syncs)
        if flush is None:
            return None
        if not self._is_watched:
            self._is_watched = True
            # As long as the loop: whoever waits for a flush does so to the end.
            trio.lowlevel.spawn_system_task(self._watch)
        running = _Running(partition, log.writable, flush, self._monotonic_s())
        self._by_sync[flush.sync] = self._by_log[log] = running
        partition.executor.flush_begins()
        return running

    async def _watch(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._syncs.fileno())
            self._take()

    def _take(self) -> None:
        for sync in self._syncs.take():
            running = self._by_sync.pop(sync)
            if running.log.end_flush(running.flush):
                self._end(running)
            else:
                trio.lowlevel.spawn_system_task(self._end_in_thread, running)

    async def _end_in_thread(self, running: _Running) -> None:
        """Have the log say what is to be said of a flush that has failed, or whatever it is."""
        try:
            await running.partition.executor.sync(running.log.flush)
        except Exception as error:  # noqa: BLE001 - it is for those who wait
            running.error = error
        self._end(running)

    def _end(self, running: _Running) -> None:
        partition, log = running.partition, running.log
        del self._by_log[log]
        partition.executor.flush_ends(self._monotonic_s() - running.started_s)
        running.end()
        if running.is_wanted_again and not log.is_durable(log.log_end_offset):
            self._begin(partition, log)


def _not_now(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED
