"""Which open files the native thread serves: it applies their writes and fsyncs without Python.

The thread (``native/serving.h``) knows every open file that appends, and serves those that have
written more than once. Python arms a partition after a write of its own (``PartitionLog.arm``). The
thread then appends until it meets something that only Python does, such as a roll or a full disk.

An fsync of a served file is a flush of its partition in a native thread, shared by all that wait
for it; nothing is flushed if all is durable. What takes more than the one fsync of the ``.log``,
such as that of a sealed segment, is left to Python, and so is a flush that failed.

A file stays with Python as long as each of its writes is durable when it returns.
"""

import contextlib
import os

import trio

from logfs.fs.handles import FileHandle
from logfs.fs.handover.slots import partition_key
from logfs.fs.hooks import Hooks
from logfs.fs.readerqueue import ReaderQueues
from logfs.log.writing._end import functions_address

WRITES_BEFORE = 1
"""A file is served from the write after so many: many programs open it, write once and close it."""


def want_native_thread(hooks: Hooks) -> None:
    """Have the thread for the next mount."""
    hooks.want_serving(functions_address)


async def wake_readers(hooks: Hooks | None, queues: ReaderQueues) -> None:
    """Wake readers that wait for records which the native thread has appended, until cancelled."""
    changes = -1 if hooks is None else hooks.serving_changes
    while changes >= 0:
        await trio.lowlevel.wait_readable(changes)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(changes)
        queues.note_directory_look()


class NativeWrites:
    """The files of a mount that the thread serves. Event loop only.

    Args:
        hooks: Have the thread; None where they were not built.
    """

    def __init__(self, hooks: Hooks | None) -> None:
        self._hooks = hooks
        self._is_used: bool | None = None

    @property
    def _serving(self) -> Hooks | None:
        """The hooks if the mount has the thread, which is known once it is mounted."""
        if self._is_used is None:
            self._is_used = self._hooks is not None and self._hooks.has_serving
        return self._hooks if self._is_used else None

    def open(self, number: int, file: FileHandle) -> None:
        """Note an open file that appends."""
        hooks = self._serving
        log = file.flushed_log
        if hooks is not None and not log.is_followed:
            hooks.serving_open(number, log.writable.exclusive().address)

    def note_write(self, number: int, file: FileHandle) -> None:
        """Note a write that Python has applied at once: the thread may apply the next ones."""
        hooks, partition = self._serving, file.partition
        if hooks is None or not file.may_be_served:
            return
        writer = file.native_writer
        if writer is None or partition.log.maintenance_due or not partition.executor.is_free:
            return
        partition.log.writable.arm()
        if not file.is_served and file.python_writes > WRITES_BEFORE:
            file.is_served = True
            hooks.serving_begin(number, writer.address, partition_key(partition.identity))

    def note_sync(self, file: FileHandle) -> None:
        """Note an fsync that Python has made: the next ones may take less."""
        partition = file.partition
        is_free = not partition.log.maintenance_due and partition.executor.is_free
        if file.is_served and file.may_be_served and is_free:
            partition.log.writable.arm()

    def close(self, number: int, file: FileHandle) -> None:
        """Forget an open file whose last request has been answered."""
        hooks = self._serving
        if hooks is not None and file.appends:
            hooks.serving_close(number)
            file.is_served = False
