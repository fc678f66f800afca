"""Reads of open files: on the event loop if what is read is in memory, else in a thread.

A read on the loop opens no files and reads no index: it ends before that, and continues in a
thread.

``read`` on the loop renders into one buffer that all files share, so its result is valid until the
next await. A read in a thread has its own buffer until then. Event loop only.
"""

import contextlib

import trio

from logfs.disk.waiting import WouldWaitError, without_disk
from logfs.errors import CorruptRecordError
from logfs.fs.files.followreads import FollowReads
from logfs.fs.files.handles import FileHandle, FileReader, check_whole, read_blocking
from logfs.fs.kernel.errnos import RefusedError
from logfs.fs.partitions.executor import READ_THREADS
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.nodes import FollowNode, MergedNode
from logfs.fs.upkeep.tasks import BackgroundTasks
from logfs.machine.host import Clock

MAX_READ_BYTES = 1024 * 1024
"""The largest read that the kernel sends."""
_NEXT_STEP_S = 0.01


class FileReads:
    """Reads open files.

    Args:
        tasks: Maintains partitions in which a reader finds damage.
        follow_reads: Reads that wait for records.
        clock: The clocks.
    """

    def __init__(self, tasks: BackgroundTasks, follow_reads: FollowReads, clock: Clock) -> None:
        self._tasks = tasks
        self._follow_reads = follow_reads
        self._now_ms = clock.now_ms
        self._buffer = memoryview(bytearray(MAX_READ_BYTES))
        self._spare: list[memoryview] = []

    async def read(
        self, file: FileHandle, offset: int, size: int
    ) -> bytes | bytearray | memoryview:
        """Read; the result is valid until the next await.

        Raises:
            CorruptRecordError: The record there does not decode.
        """
        if isinstance(file.node, FollowNode):
            return await self._follow_reads.read(file, offset, size, self._read_unchanged)
        while True:
            was_behind = file.is_behind
            data = await self._read_unchanged(file, offset, size)
            # The end of the file is not known while later records have not been read.
            if data is not None and (len(data) or not was_behind):
                return data
            await trio.sleep(_NEXT_STEP_S)

    async def _read_unchanged(self, file: FileHandle, offset: int, size: int) -> memoryview | None:
        """Read; None if another program is changing the bytes, and will be done soon."""
        try:
            data = await self._read(file, offset, size)
        except CorruptRecordError as error:
            if not await self._is_changing(file):
                self._note_corrupt(file.damaged, error)
                raise
            await trio.sleep(_NEXT_STEP_S)
            return None
        if file.node.reads_log:
            file.count_read(len(data))
        return data

    async def _is_changing(self, file: FileHandle) -> bool:
        """Whether another program has just cut the bytes that do not decode; then read again.

        A deletion or replacement is accepted when two looks agree, so this may take a few reads.
        """
        log = file.damaged.log if isinstance(file.node, MergedNode) else file.log
        if not log.is_followed:
            return False
        truncations = log.snapshot.truncations
        await run_in_thread(log.refresh, self._now_ms())
        return log.snapshot.truncations != truncations or log.is_settling

    async def _read(self, file: FileHandle, offset: int, size: int) -> memoryview:
        executor = file.partition.executor
        if executor.releasing is not None:
            await executor.releasing.wait()
        while file.waiting is not None:
            await file.waiting.wait()
        reader = file.reader
        if reader is None:
            raise RefusedError("the file is open for appending only")
        ahead, found = file.ahead, None
        if ahead is not None:
            with contextlib.suppress(WouldWaitError):
                found = without_disk(ahead.read, offset, size)
            if found is not None and (len(found) == size or not reader.would_block):
                return found
        if executor.is_slow or size > MAX_READ_BYTES or found is not None:
            data = await self._read_in_thread(file, reader, offset, size, found)
        else:
            data = await self._read_now(file, reader, offset, size)
        if ahead is not None:
            ahead.note(offset, size, len(data))
        return data

    async def _read_now(
        self, file: FileHandle, reader: FileReader, offset: int, size: int
    ) -> memoryview:
        executor = file.partition.executor
        begun = executor.begin()
        try:
            got = without_disk(reader.read_into, self._buffer[:size], offset)
            executor.end(begun)
            if reader.would_block:
                begin = None if file.is_cached else self._buffer[:got]
                return await self._read_in_thread(file, reader, offset, size, begin)
            if got < size and file.is_cached:
                check_whole(file, reader, offset + got)
        except WouldWaitError:
            return await self._read_in_thread(file, reader, offset, size, None)
        except CorruptRecordError:
            executor.end(begun)
            raise
        return self._buffer[:got]

    async def _read_in_thread(
        self,
        file: FileHandle,
        reader: FileReader,
        offset: int,
        size: int,
        begin: memoryview | None,
    ) -> memoryview:
        """Read in a thread, which may wait for the disk, after the bytes read without waiting."""
        done = file.waiting = trio.Event()
        spare = self._spare
        # New memory is made of zeros page by page, which takes as long as to read.
        buffer = spare.pop() if spare else memoryview(bytearray(MAX_READ_BYTES))
        if size > len(buffer):
            buffer = memoryview(bytearray(size))
        got = len(begin) if begin is not None else 0
        if begin is not None:
            buffer[:got] = begin
        try:
            try:
                got += await file.partition.executor.read(
                    read_blocking, reader, buffer[got:size], offset + got
                )
            except (CorruptRecordError, OSError) as error:
                if not got or (file.is_cached and isinstance(error, OSError)):
                    raise  # else the next read, which begins there, says so
            if got < size and file.is_cached:
                check_whole(file, reader, offset + got)
        finally:
            file.waiting = None
            done.set()
            if len(spare) < READ_THREADS:
                spare.append(buffer)  # taken again by another task, so after the next await
        return buffer[:got]

    def _note_corrupt(self, partition: MountedPartition, error: CorruptRecordError) -> None:
        """Record what a reader has found as a loss."""
        partition.log.note_corrupt(error, self._now_ms())
        self._tasks.want_maintenance(partition)
