"""The open files of a mount: where each call on them runs, and in which order. No pyfuse3.

A call takes its turn before its first await: in the queue of its partition's executor, or in the
wait for earlier RELEASEs. See ``executor``. How a file is read is in ``filereads``.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import trio

from logfs.errors import LogfsError
from logfs.fs.files.ahead import Windows
from logfs.fs.files.filereads import FileReads
from logfs.fs.files.followreads import READY, FollowReads, PollHandle
from logfs.fs.files.fsyncs import Fsyncs
from logfs.fs.files.handles import FileHandle, HandleTable, enter, leave
from logfs.fs.files.nativewrites import NativeWrites
from logfs.fs.files.throttling import Throttling
from logfs.fs.files.watching import Watching
from logfs.fs.handover.restoring import KeptNodes
from logfs.fs.handover.slots import NO_SLOTS
from logfs.fs.kernel.errnos import StaleError
from logfs.fs.kernel.hooks import Hooks
from logfs.fs.kernel.passthrough import Passthrough
from logfs.fs.partitions.executor import Change
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.partitions.quotas import Quotas
from logfs.fs.tree.inodes import InodeTable
from logfs.fs.tree.lookups import wait_for_releases
from logfs.fs.tree.nativenames import NativeNames
from logfs.fs.tree.nodes import (
    FileNode,
    FollowNode,
    MetaNode,
    Node,
    PendingNode,
    PlainNode,
    RangeNode,
)
from logfs.fs.tree.tree import Tree
from logfs.fs.upkeep.tasks import BackgroundTasks
from logfs.log.lines.writer import NO_SLOT, LineWriter
from logfs.machine.host import Clock
from logfs.services.following.store import AnyStore
from logfs.services.views.buffers import Buffers
from logfs.services.views.files import GrowingFile

logger = logging.getLogger(__name__)

_NEXT_STEP_S = 0.01
_RESTORED = 16
"""How many files are restored without a pause."""
RELOAD_AGAIN_S = 1.0
"""How long a partition that could not be reloaded is not reloaded again."""
LOOK_AGAIN_MS = 10_000
LOOK_S = 0.02
"""How often and for how long the page cache is examined for ``.meta``."""


class OpenFiles:
    """The open files of a mount. Event loop only.

    Args:
        store: Reloads partitions.
        tree: The names; stale nodes are dropped from its ``lookup_cache``.
        tasks: Maintains partitions that need it.
        follow_reads: Reads that wait for records.
        passthrough: Lets the kernel read sealed files itself.
        clock: The clocks.
        syncs: Make every write durable before it returns (mount option ``sync``).
        inodes: The nodes of files that an earlier daemon has opened.
        kept: What is noted of open files for a later daemon.
        quotas: The limits of users.
        names: What is looked up natively, not while a partition is reloaded.
        hooks: Answer reads natively; None where they were not built.
        note_ahead: Called when the hooks have answered small reads, or will do so.

    Attributes:
        slots: What writes note.
        writers: The unfinished lines of files that an earlier daemon has opened, by their numbers.
        buffers: The buffers of all readers.
        fsyncs: The flushes that are running.
        native: Which files the native thread serves.
        watching: What is counted for ``logfs top``.
        throttling: The writers that wait for the quotas of their topics.
    """

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        store: AnyStore,
        tree: Tree,
        tasks: BackgroundTasks,
        follow_reads: FollowReads,
        passthrough: Passthrough,
        clock: Clock,
        *,
        inodes: InodeTable[Node],
        kept: KeptNodes,
        quotas: Quotas,
        names: NativeNames,
        syncs: bool,
        hooks: Hooks | None = None,
        note_ahead: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._tree = tree
        self._upkeep = tasks
        self._passthrough = passthrough
        self._hooks = hooks
        self._note_ahead = note_ahead
        self.slots = NO_SLOTS
        self._clock = clock
        self._now_ms = clock.now_ms
        self._monotonic_s = clock.monotonic_s
        self._follow_reads = follow_reads
        self._syncs = syncs
        self._inodes = inodes
        self._kept = kept
        self._quotas = quotas
        self._names = names
        self.writers: dict[int, LineWriter] = {}
        self._files = HandleTable(self._restore)
        self._reads = FileReads(tasks, follow_reads, clock)
        self._windows = Windows(clock.monotonic_s)
        self.buffers = Buffers()
        self.fsyncs = Fsyncs(clock)
        self.native = NativeWrites(hooks, inodes.shown_number, opens=not syncs)
        self.native.allow(quotas.unlimited_users)
        tree.opened_natively = self.native.inodes_of
        self.watching = Watching(store, hooks, self._get, clock.monotonic_s)
        self.throttling = Throttling(follow_reads.interrupts)

    def open_files(self) -> list[FileHandle]:
        """Return all open files that Python has. Any thread."""
        return self._files.all()

    def _get(self, number: int) -> FileHandle | None:
        """Return an open file; None if it is not known, or has not been restored."""
        if self.native.opened(number) is None:
            return self._files.get(number)
        return self._files[number]

    async def open(
        self, node: FileNode, flags: int, request: int = 0, caller: int = 0
    ) -> tuple[int, FileHandle]:
        """Open a file whose flags have been checked.

        Args:
            node: The inode.
            flags: The flags of open(2).
            request: The number of the request, 0 if it is not known.
            caller: The user that opens it.

        Returns:
            The number of the open file, and the file.

        Raises:
            StaleError, DeletedError: What the name was resolved to is gone; it may be looked up
                again.
        """
        partition = node.partition
        await wait_for_releases(node)
        for one in node.partitions:
            await self.reload_if_offline(one)
        if partition.log.is_deleted or not node.is_current:
            raise StaleError(f"{partition.topic_partition} has been deleted or reloaded")
        enter(node)
        self._kept.note_deletions(node)
        try:
            if isinstance(node, MetaNode):
                await self._look_at_cache(partition)
            if isinstance(node, PlainNode | RangeNode):
                file = FileHandle(node, flags, self._syncs, self.buffers)
            else:
                file = await partition.executor.query(
                    FileHandle, node, flags, self._syncs, self.buffers
                )
        except BaseException:
            leave(node)
            self._tree.lookup_cache.drop(node)
            raise
        file.pass_through(self._passthrough)
        number = self._files.add(file, request)
        self._begin(number, file)
        self._serve(number, file, caller)
        return number, file

    def _begin(self, number: int, file: FileHandle) -> None:
        """Connect an open file to what serves its reads, and to what is noted of it."""
        journal, reader = self._kept.journal, file.reader
        if journal.is_kept and isinstance(reader, GrowingFile):
            reader.resume(journal.passages.get(number, ()))
            reader.notes_all = number in journal.poll_handles
            reader.note_passage = partial(journal.passed, number)
        if isinstance(file.node, FollowNode):
            file.partition.executor.changed = partial(self._note_change, file.partition)
        if file.appends and isinstance(file.node, PlainNode):
            file.notes = self.slots.notes(file.partition.identity, number, file.node.view)
        if self._hooks is not None and self._hooks.is_active:
            file.read_ahead(self._hooks, number, self._windows, self._note_ahead)

    def _note_change(self, partition: MountedPartition) -> None:
        """Wake the reads that wait for records of a partition, which Python has changed."""
        self.native.return_reads(partition)
        self._follow_reads.queues.note_change(partition.log)

    def _serve(self, number: int, file: FileHandle, caller: int) -> None:
        """Have the native thread serve a file that appends, whose writer stays from now on."""
        if file.appends and isinstance(file.node, PlainNode):
            topic = file.partition.topic_partition.topic
            file.limits = self._quotas.limits_of(caller, topic, self._monotonic_s)
            self.native.open(number, file)

    def _restore(self, number: int) -> FileHandle:
        """Return a file that was opened natively, or by an earlier daemon.

        Raises:
            StaleError: It is not known, or is gone.
        """
        taken = self._take_native(number)
        if taken is not None:
            return taken
        opened = self._kept.journal.files.get(number)
        node = None if opened is None else self._inodes.node(opened.ino)
        node = self._kept.with_parts(node)
        if opened is None or not isinstance(node, FileNode) or isinstance(node, PendingNode):
            raise StaleError(f"open file {number} is not known")
        if node.partition.log.is_deleted or not node.is_current:
            raise StaleError(f"{node.partition.topic_partition} has been deleted or reloaded")
        is_passed = self._passthrough.is_passed(opened.ino)
        self._kept.note_deletions(node)
        file = FileHandle(node, opened.flags, self._syncs, self.buffers, is_passed=is_passed)
        node.note_opened()
        self._begin(number, file)
        writer = self.writers.pop(number, None)
        if writer is not None:
            file.resume(writer)
        self._serve(number, file, opened.uid)
        return file

    def _take_native(self, number: int) -> FileHandle | None:
        """Continue with a file that was opened natively; None: there is none.

        Its user has no limits, so it is not counted for that user.
        """
        opened = self.native.opened(number)
        node = None if opened is None else self._inodes.node(opened.ino)
        if opened is None or not isinstance(node, PlainNode):
            return None
        file = FileHandle(node, opened.flags, self._syncs, self.buffers)
        self._kept.journal.opened(number, *opened)
        writes = self.native.take(number)
        if writes is None:
            self._kept.journal.released(number)
            return None
        enter(node)
        self._begin(number, file)
        if writes:
            file.note_earlier_writes()
        self._serve(number, file, opened.uid)
        return file

    async def restore_all(self, numbers: Iterable[int]) -> None:
        """Restore files of an earlier daemon before a request uses them, a few at a time."""
        for count, number in enumerate(numbers):
            if number in self._kept.journal.files:
                with contextlib.suppress(LogfsError, OSError):
                    self._files[number]
            if count % _RESTORED == _RESTORED - 1:
                await trio.sleep(_NEXT_STEP_S)

    def resumed(self, request: int) -> FileHandle | None:
        """Return the file that a request opened whose reply an earlier daemon did not send."""
        if request not in self._kept.journal.files:
            return None
        try:
            return self._files[request]
        except LogfsError:
            return None

    async def read(self, number: int, offset: int, size: int) -> bytes | bytearray | memoryview:
        """Read; the result is valid until the next await.

        Raises:
            CorruptRecordError: The record there does not decode.
        """
        return await self._reads.read(self._files[number], offset, size)

    def follows(self, number: int) -> bool:
        """Return whether reads of a file wait for records."""
        file = self._files.get(number)
        return file is not None and isinstance(file.node, FollowNode)

    def poll(self, number: int, handle: PollHandle | None) -> int:
        """Return the events a file is ready for; the handle is told when that changes."""
        file = self._files[number]
        if not isinstance(file.node, FollowNode):
            return READY
        events = self._follow_reads.poll(file, number, handle)
        if not events and isinstance(file.reader, GrowingFile):
            file.reader.note_place()
        return events

    def write_now(self, number: int, data: bytes, slot: int = NO_SLOT) -> int | Awaitable[int]:
        """Append lines like ``write``; for most writes that takes no await, and no coroutine.

        Returns:
            The bytes accepted, or what has to be awaited for them, in the same step.
        """
        file = self._files[number]
        executor = file.partition.executor
        if file.is_served and executor.lock is not None and executor.lock.take_slow():
            executor.note_slow()
        if file.syncs or file.has_long_line or file.has_rate or not executor.is_free:
            return self.write(number, data, slot)
        begun = executor.begin_change(file.append, data, self._now_ms(), slot)
        if not begun.is_done:
            return self._finish_write(file, begun)
        accepted = executor.end_change(begun)
        self._note_write(file)
        return accepted

    async def _finish_write(self, file: FileHandle, begun: Change[int]) -> int:
        accepted = await file.partition.executor.finish_change(begun)
        self._note_write(file)
        return accepted

    def _note_write(self, file: FileHandle) -> None:
        partition = file.partition
        if not file.syncs:
            file.note_write()
            self.fsyncs.foresee(file)
        if partition.log.maintenance_due:
            self._upkeep.want_maintenance(partition)
        self.native.note_write(file)

    async def write(self, number: int, data: bytes, slot: int = NO_SLOT) -> int:
        """Append lines; returns the bytes accepted, see ``LineWriter.write``."""
        file = self._files[number]
        if not file.has_rate:
            return await self._write(file, data, slot)
        log = file.partition.log.writable
        with self.throttling.writer() as ended:
            accepted = await self._write(file, data, slot)
            await self.throttling.wait(log, log.throttle_mark, ended)
            if file.limits is not None:
                await self.throttling.wait(file.limits, file.limits.throttle_mark, ended)
        return accepted

    async def _write(self, file: FileHandle, data: bytes, slot: int) -> int:
        partition = file.partition
        if file.has_long_line:
            partition.executor.expect_long()
        accepted = await partition.executor.change(file.append, data, self._now_ms(), slot)
        if file.syncs:
            await self.fsyncs.sync(file)
        self._note_write(file)
        return accepted

    async def sync(self, number: int) -> None:
        """Make everything that was written durable."""
        file = self._files[number]
        if not self._store.read_only:
            await self.fsyncs.sync(file)
            self.native.note_sync(file)

    def report_failure(self, number: int) -> None:
        """Raise the failure of an earlier call, once."""
        file = self._get(number)
        if file is not None:  # else it failed in an earlier daemon, which has reported it
            file.report_failure()

    async def release(self, number: int) -> None:
        """Close a file after its last close(2): its unfinished line becomes a record."""
        try:
            file = self._files.take(number)
        except (LogfsError, OSError):
            await self._release_lost(number)
            return
        if self.watching.is_on:
            self.watching.note_closed(number, file)
        self._follow_reads.forget(number)
        self.native.close(number, file)
        if file.ahead is not None:
            file.ahead.close()
        if file.following is not None:
            file.following.take()
        executor = file.partition.executor
        try:
            if file.ends_a_line:
                if file.has_long_line:
                    executor.expect_long()
                await executor.release(file.close, self._now_ms())
            elif isinstance(file.node, PlainNode | RangeNode):
                file.close(0)
            else:
                await executor.query(file.close, 0)
        finally:
            if file.is_passed:
                self._passthrough.release(file.node.ino)
            leave(file.node)
            self._kept.journal.released(number)

    async def _release_lost(self, number: int) -> None:
        """Close a file of an earlier daemon that cannot be restored, or was closed there."""
        opened = self._kept.journal.files.get(number)
        if opened is None:
            return
        partitions = self._kept.partitions_of(opened.ino)
        writer = self.writers.pop(number, None)
        try:
            if writer is not None and partitions:
                await partitions[0].executor.release(writer.close, self._now_ms())
        finally:
            for partition in partitions:
                partition.leave(1)
            if self._passthrough.is_passed(opened.ino):
                self._passthrough.release(opened.ino)
            self._kept.journal.released(number)

    async def close_all(self) -> None:
        """Close every file: the mount stops, and no RELEASE will come for them."""
        for number in [*self._files.numbers(), *self.writers]:
            try:
                await self.release(number)
            except (LogfsError, OSError) as error:
                logger.warning("at the end of an open file: %s", error)

    async def _look_at_cache(self, partition: MountedPartition) -> None:
        """Measure for ``.meta`` how much of a log is in the page cache: not often, not for long."""
        log = partition.log
        now_ms, started_s = self._now_ms(), self._monotonic_s()
        if log.residency is not None and now_ms - log.residency.time_ms < LOOK_AGAIN_MS:
            return

        def is_over() -> bool:
            return self._monotonic_s() - started_s > LOOK_S

        await partition.executor.read(log.look_at_cache, now_ms, is_over)

    async def reload_if_offline(self, partition: MountedPartition) -> None:
        """Reload a partition that went offline, if none of its files is open."""
        if partition.log.offline is None:
            return
        for number in self.native.opened_of(partition):
            self._files[number]  # its writes are refused until it is closed
        if partition.open_files:
            return
        if self._clock.monotonic_s() < partition.reload_after_s:
            return
        with self._names.changing():
            await partition.executor.change_in_thread(self._reload_now, partition)
            partition.replace_log(self._store.partition(*partition.topic_partition))
        if partition.log.offline is not None:
            partition.reload_after_s = self._clock.monotonic_s() + RELOAD_AGAIN_S

    def _reload_now(self, partition: MountedPartition) -> None:
        # While this waited for its turn, it may have been reloaded, or a file may have been opened.
        if partition.log.offline is not None and not partition.open_files:
            current = self._store.partition(*partition.topic_partition)
            if current is partition.log:
                self._store.reload(partition.topic_partition, self._now_ms())
