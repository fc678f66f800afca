"""Which open files are served: their writes, fsyncs and closes are answered natively.

The native library (``native/serving.h``) serves every open file that appends. Python arms a
partition when such a file is opened, and after its own write (``Appender.arm``). The
library then appends until it meets something that only Python does, such as a roll or a full disk.
A close(2) is answered natively too, unless the file has failed. Which thread reads the
requests changes with what comes; see there.

An fsync of a served file is a flush of its partition in a native thread, shared by all that wait
for it; nothing is flushed if all is durable. What takes more than the one fsync of the ``.log``,
such as that of a sealed segment, is left to Python, and so is a flush that failed.

A file stays with Python as long as each of its writes is durable when it returns.

A stat(2) of a growing name is answered natively after Python has answered one, until Python
changes the partition or a topic. During that time the name may be opened to append natively,
by users without limits, so that ``echo >>`` takes none (``native/opening.h``). Such a file has no
``FileHandle``; the first request that is left to Python has ``OpenFiles`` make one (``take``).
"""

import contextlib
import os
from collections.abc import Callable, Iterable

import trio

from logfs.fs.files.handles import FileHandle
from logfs.fs.files.readerqueue import ReaderQueues
from logfs.fs.handover.slots import partition_key
from logfs.fs.kernel.hooks import Hooks
from logfs.fs.kernel.serving import OpenedFile
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.tree.nodes import InNode, Node, PlainNode
from logfs.log.writing._end import functions_address, use_clock
from logfs.types import IsolationLevel


def want_native_thread(hooks: Hooks, *, on_loop: bool = False) -> None:
    """Have the thread for the next mount, or the event loop in its place."""
    hooks.serving.want(functions_address, on_loop=on_loop)


def use_native_clock(hooks: Hooks | None, function: int) -> None:
    """Have the native code read other clocks; see ``Machine.native_clock``."""
    use_clock(function)
    if hooks is not None:
        hooks.serving.use_clock(function)


async def wake_readers(hooks: Hooks | None, queues: ReaderQueues) -> None:
    """Wake readers that wait for records which the native thread has appended, until cancelled."""
    changes = -1 if hooks is None else hooks.serving.changes
    while hooks is not None and changes >= 0:
        await trio.lowlevel.wait_readable(changes)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(changes)
        queues.note_directory_look()


class NativeWrites:
    """The files of a mount that the thread serves. Event loop only.

    Args:
        hooks: Have the thread; None where they were not built.
        shown_number: Returns the number of an inode that programs see.

    Attributes:
        opens: Files may be opened to append natively.
    """

    def __init__(
        self, hooks: Hooks | None, shown_number: Callable[[Node], int], *, opens: bool
    ) -> None:
        self.opens = opens
        self._hooks = hooks
        self._shown_number = shown_number
        self._is_used: bool | None = None

    @property
    def _serving(self) -> Hooks | None:
        """The hooks if the mount has the thread, which is known once it is mounted."""
        if self._is_used is None:
            self._is_used = self._hooks is not None and self._hooks.serving.is_running
        return self._hooks if self._is_used else None

    def open(self, number: int, file: FileHandle) -> None:
        """Serve an open file that appends, unless it has to stay with Python."""
        hooks, partition = self._serving, file.partition
        log = file.flushed_log
        if hooks is None or log.is_followed:
            return
        hooks.serving.open(number, log.writable.exclusive().address)
        if file.may_be_served:
            file.is_served = True
            key = partition_key(partition.identity)
            hooks.serving.begin(number, file.native_writer().address, key)
            if not log.writable.exclusive().is_armed:
                self._arm(file)

    def note_write(self, file: FileHandle) -> None:
        """Note a write that Python has applied: the next ones may be applied without it."""
        self._arm(file)

    def note_sync(self, file: FileHandle) -> None:
        """Note an fsync that Python has made: the next ones may take less."""
        self._arm(file)

    def close(self, number: int, file: FileHandle) -> None:
        """Forget an open file whose last request has been answered."""
        hooks = self._serving
        if hooks is not None and file.appends:
            hooks.serving.close(number)
            file.is_served = False

    def serve_attributes(self, node: PlainNode) -> bool:
        """Have stats of an inode answered natively as long as nothing but appends changes it.

        A log that others write, or whose visible end is not its end, is left to Python.

        Returns:
            False if it is left to Python.
        """
        hooks, partition = self._serving, node.partition
        log = partition.log
        if (
            hooks is None
            or log.is_followed
            or log.indexing is not None
            or partition.level is not IsolationLevel.READ_UNCOMMITTED
            or partition.executor.has_store
        ):
            return False
        lock = log.writable.exclusive()
        mark = lock.mark(node.view)
        attributes = node.attributes()
        if mark is None or lock.mark(node.view) != mark:
            return False
        is_opened = self.opens and not log.refuses_records
        key = partition_key(partition.identity) if is_opened else 0
        shown = self._shown_number(node) if isinstance(node, InNode) else node.ino
        hooks.serving.serve_attributes(
            (node.ino, shown), lock.address, mark, node.view, attributes, key
        )
        return True

    def allow(self, users: Iterable[int]) -> None:
        """Let users open files to append natively. Once, before they do."""
        if self._hooks is not None and self.opens:
            for user in users:
                self._hooks.serving.allow(user)

    def opened(self, number: int) -> OpenedFile | None:
        """Return an open file that was opened natively; None: there is none."""
        return None if self._serving is None else self._serving.serving.find_opened(number)

    def opened_of(self, partition: MountedPartition) -> list[int]:
        """Return the numbers of such files of a partition."""
        hooks, log = self._serving, partition.log
        if hooks is None or log.is_followed or not hooks.serving.opened:
            return []
        return hooks.serving.opened_of(log.writable.exclusive().address)

    def inodes_of(self, partition: MountedPartition) -> set[int]:
        """Return the inodes of such files of a partition."""
        found = (self.opened(number) for number in self.opened_of(partition))
        return {opened.ino for opened in found if opened is not None}

    @property
    def opened_count(self) -> int:
        """How many such files are open. Any thread."""
        return 0 if self._serving is None else self._serving.serving.opened

    def take(self, number: int) -> int | None:
        """Leave such a file to Python; returns its writes so far, None: it has been closed."""
        return None if self._serving is None else self._serving.serving.take_opened(number)

    def return_reads(self, partition: MountedPartition) -> None:
        """Have reads that wait for records of a partition come here if Python has changed it."""
        hooks = self._serving
        if hooks is not None and not partition.log.is_followed:
            log = partition.log
            address = log.writable.exclusive().address
            hooks.serving.return_reads(address, has_all=log.is_deleted)

    def _arm(self, file: FileHandle) -> None:
        partition = file.partition
        is_free = not partition.log.maintenance_due and partition.executor.is_free
        if file.is_served and file.may_be_served and is_free:
            partition.log.writable.appender.arm()
