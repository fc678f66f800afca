"""Open files and directories, and the numbers that the kernel knows them by.

Blocking, and free of FUSE.
"""

import os
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar
from zlib import crc32

import trio

from logfs.disk.remote.overlay import has_store
from logfs.errors import (
    CorruptRecordError,
    LogfsError,
    LogOfflineError,
    RecordTooLargeError,
    UnparsableLineError,
)
from logfs.fs.files.ahead import ReadAhead, Windows
from logfs.fs.files.nativereads import NativeFollowing, NativeReads
from logfs.fs.kernel.errnos import RefusedError
from logfs.fs.kernel.hooks import Hooks
from logfs.fs.kernel.passthrough import Passthrough
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.partitions.quotas import WriterLimits
from logfs.fs.tree.nodes import (
    DirectoryNode,
    FileNode,
    FixedNode,
    FollowNode,
    MergedNode,
    MetaNode,
    PlainNode,
    RangeNode,
)
from logfs.fs.tree.rawnodes import RawNode, SealedNode
from logfs.log.lines.writer import NO_SLOT, LineWriter, WriteNotes
from logfs.log.reading.readable import ReadableLog
from logfs.log.writing._end import NativeWriter
from logfs.services.following.followed import AnyLog
from logfs.services.views.buffers import Buffers
from logfs.services.views.files import FixedFile, GrowingFile, RawFile
from logfs.services.views.merging import MergedFile
from logfs.services.views.resolve import Resolved

T = TypeVar("T")

SYNCS_IN_A_ROW = 3
"""After so many writes that were synced one by one, the next is expected to be synced too."""

LONG_LINE_BYTES = 1024 * 1024
"""A longer unfinished line becomes a record in a thread."""

_REFUSED_LINE = (RecordTooLargeError, UnparsableLineError)


class FileReader(Protocol):
    """Reads one open file.

    Attributes:
        may_block: False: a read that would have to wait for the disk sets ``would_block``.
        would_block: The last read stopped for that reason. The bytes it returned are valid; a read
            of those after them, with ``may_block`` True, continues.
        ended_by: The error of the disk or the store that ended the last read after its first bytes;
            None: none did.
    """

    may_block: bool
    would_block: bool
    ended_by: OSError | None

    def read_into(self, out: memoryview, offset: int) -> int:
        """Fill ``out`` from an offset of the file; returns the bytes read, 0 at the end."""
        ...

    def close(self) -> None:
        """Release files and buffers."""
        ...


class BytesFile:
    """A file whose bytes were made when it was opened."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.may_block = True
        self.would_block = False
        self.ended_by: OSError | None = None

    def read_into(self, out: memoryview, offset: int) -> int:
        """Copy bytes out; see ``FileReader``."""
        part = self._data[offset : offset + len(out)]
        out[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Do nothing."""


class PinnedFile(FixedFile):
    """A fixed file whose segments stay readable, though deleted, until it is closed.

    Raises:
        DeletedError: The files of one are gone.
    """

    def __init__(self, resolved: Resolved, buffers: Buffers) -> None:
        resolved.log.pin(resolved.segments)
        super().__init__(resolved, buffers)
        self._resolved = resolved

    def close(self) -> None:
        """Release files, buffers and segments."""
        super().close()
        self._resolved.log.unpin(self._resolved.segments)


def open_reader(node: FileNode, buffers: Buffers) -> FileReader:
    """Open a file for reading; ``buffers`` are shared by all readers of the mount.

    Raises:
        DeletedError, StaleError: The segments or the file have been deleted since the look-up.
        LogOfflineError: The partition could not be loaded.
    """
    if not isinstance(node, MetaNode | RawNode):
        for log in [partition.log for partition in node.partitions]:
            if log.is_unreadable:
                raise LogOfflineError(f"{log.topic_partition}: {log.offline}")
    log = node.partition.log
    match node:
        case PlainNode():
            level = node.partition.level
            reader: FileReader = GrowingFile(log, node.view, 0, level=level, buffers=buffers)
        case RangeNode(resolved=resolved):
            start, level = resolved.start, resolved.level
            reader = GrowingFile(node.log, resolved.view, start, node.limit, level, buffers)
        case FixedNode():
            reader = PinnedFile(node.resolved, buffers)
        case MergedNode():
            reader = MergedFile(node.ranges(), node.view, buffers)
        case MetaNode():
            reader = BytesFile(node.text())
        case RawNode():
            reader = node.open()
        case _:
            raise TypeError(f"{type(node).__name__} cannot be read")
    reader.may_block = False
    return reader


class FileHandle:
    """One open file. Calls come one at a time, but ``sync`` may run beside them.

    Args:
        node: The inode.
        flags: The flags of open(2), already checked.
        syncs: Make every write durable before it returns.
        buffers: Shared by all readers of the mount.
        is_passed: The kernel reads it already, for an earlier daemon.

    Attributes:
        ahead: Reads ahead where that is possible, see ``ahead``.
        following: Reads of a ``.follow`` name natively; None: Python reads it.
        has_long_line: The unfinished line is too long to become a record on the loop.
        partition: The partition of the file.
        reader: Reads the file; None if it is open for writing only.
        is_cached: The kernel caches its bytes.
        is_passed: The kernel reads it itself; see ``passthrough``.
        is_served: The native thread applies its writes; see ``nativewrites``.
        limits: Those of its user; None: there are none.
        never_waits: It was opened with O_NONBLOCK.
        notes: What its writes note, which outlives the daemon; None: nothing does.
        syncs: Every write is durable when it returns.
        waiting: Set when the read that waits for the disk in a thread is done; None without one.
    """

    __slots__ = (
        "_failure",
        "_has_written",
        "_is_written_since",
        "_log",
        "_native_writes",
        "_read_log",
        "_syncs_in_a_row",
        "_writer",
        "ahead",
        "appends",
        "following",
        "has_long_line",
        "is_cached",
        "is_passed",
        "is_served",
        "limits",
        "never_waits",
        "node",
        "notes",
        "partition",
        "reader",
        "syncs",
        "waiting",
    )

    def __init__(
        self,
        node: FileNode,
        flags: int,
        syncs: bool,
        buffers: Buffers,
        *,
        is_passed: bool = False,
    ) -> None:
        mode = flags & os.O_ACCMODE
        self.node = node
        self.partition: MountedPartition = node.partition
        self.is_cached = node.is_cached and not node.is_damaged
        self.is_passed = is_passed
        self.ahead: ReadAhead | None = None
        self.following: NativeFollowing | None = None
        self.appends = mode != os.O_RDONLY and bool(flags & os.O_APPEND)
        self.never_waits = bool(flags & os.O_NONBLOCK)
        self.syncs = syncs or bool(flags & os.O_DSYNC)
        is_read = mode != os.O_WRONLY and not is_passed
        self.reader = open_reader(node, buffers) if is_read else None
        self.waiting: trio.Event | None = None
        self._log: AnyLog = node.partition.log
        self._read_log = node.log if isinstance(node, RangeNode) else self._log
        self.has_long_line = False
        self.notes: WriteNotes | None = None
        self._writer: LineWriter | None = None
        self._has_written = False
        self._failure: Exception | None = None
        self._is_written_since = False
        self._syncs_in_a_row = 0
        self.is_served = False
        self.limits: WriterLimits | None = None
        self._native_writes = 0

    @property
    def log(self) -> ReadableLog:
        """The log it reads."""
        node = self.node
        return node.resolved.log if isinstance(node, FixedNode) else self._read_log

    @property
    def is_behind(self) -> bool:
        """Whether it grows because existing records have not all been read yet."""
        node = self.node
        return isinstance(node, RangeNode) and node.log.indexing is not None

    @property
    def ends_a_line(self) -> bool:
        """Whether closing it may have to end an unfinished line."""
        return self._writer is not None and self._writer.has_file

    @property
    def damaged(self) -> MountedPartition:
        """The partition whose damage the last read has met."""
        if isinstance(self.reader, MergedFile):
            for partition in self.node.partitions:
                if partition.log is self.reader.damaged:
                    return partition
        return self.partition

    def count_read(self, size: int) -> None:
        """Count bytes for the metrics; those of a merged file for the partition with the most."""
        node = self.node
        partition = node.largest if isinstance(node, MergedNode) else self.partition
        partition.log.counters.bytes_out += size

    def pass_through(self, passthrough: Passthrough) -> None:
        """Leave reading to the kernel if this is a sealed file and the kernel can."""
        node, reader = self.node, self.reader
        if not (isinstance(node, SealedNode) and isinstance(reader, RawFile)):
            return
        if not self.is_cached or node.stays_cached:
            return
        if has_store(self._log.disk) and reader.fileno() < 0:
            return  # it is in the store alone
        self.is_passed = passthrough.hold(node.ino, reader.fileno())
        if self.is_passed:
            self.reader = None
            reader.close()
        else:
            node.stays_cached = True

    def read_ahead(
        self,
        hooks: Hooks,
        number: int,
        windows: Windows,
        note: Callable[[], None],
    ) -> None:
        """Read natively where possible, except logs that others write.

        Args:
            hooks: Answer the reads.
            number: The number of this open file.
            windows: Memory for the bytes ahead.
            note: Called when the hooks have answered small reads, or will do so.
        """

        def given(size: int) -> None:
            self.partition.log.counters.bytes_out += size
            note()

        if self.log.is_followed or not isinstance(self.reader, GrowingFile):
            return
        may_wait, native = isinstance(self.node, FollowNode), None
        if NativeReads.may_read(self.node) and hooks.serving.is_running:
            native = NativeReads(
                hooks.serving, number, self.reader, self.partition, may_wait=may_wait
            )
        if not may_wait:
            self.ahead = ReadAhead(hooks, number, self.reader, given, windows, native)
        elif native is not None and not self.never_waits:
            self.following = NativeFollowing(native)

    def resume(self, writer: LineWriter) -> None:
        """Continue with the unfinished line that this open file had in an earlier daemon."""
        self._writer = writer
        self._has_written = True
        writer.notes = self.notes
        self.has_long_line = writer.unfinished > LONG_LINE_BYTES

    def note_earlier_writes(self) -> None:
        """Note that lines were written through it before Python had it."""
        self._has_written = True

    def append(self, data: bytes, now_ms: int, slot: int = NO_SLOT) -> int:
        """Append lines; see ``LineWriter.write``."""
        writer = self._writer
        if writer is None:
            writer = self._make_writer()
        self._has_written = True
        try:
            if self.limits is not None:
                self.limits.admit(data)
            accepted = writer.write(data, now_ms, slot)
            if self.limits is not None:
                self.limits.spend(accepted)
        except _REFUSED_LINE as error:
            # The program gets the error, and its earlier lines are safe; the daemon logs where.
            name, text = str(self.partition.topic_partition), str(error)
            if isinstance(error, RecordTooLargeError):
                topic = self.partition.topic_partition.topic
                text += (
                    f"; 'logfs topic alter …/{topic} --config max.message.bytes={error.size_bytes}'"
                    " or more lets it in"
                )
            error.args = (text if name in text else f"{name}: {text}",)
            raise
        except (LogfsError, OSError) as error:
            self.note_failure(error)
            raise
        if self.has_long_line or not data.endswith(b"\n"):
            self.has_long_line = writer.unfinished > LONG_LINE_BYTES
        return accepted

    @property
    def flushed_log(self) -> AnyLog:
        """The log that ``sync`` flushes."""
        return self._log

    @property
    def is_all_records(self) -> bool:
        """Whether ``sync`` is a flush of the log, and nothing else."""
        return self._writer is None or self._writer.is_all_records

    @property
    def is_sync_expected(self) -> bool:
        """Whether earlier writes were synced one by one, so that the next probably will be too."""
        return self._syncs_in_a_row >= SYNCS_IN_A_ROW

    def note_write(self) -> None:
        """Note a write that Python has applied, for ``is_sync_expected``."""
        self._note_native_writes()
        self._note_writes(1)

    def note_sync(self) -> None:
        """Note a sync, for ``is_sync_expected``."""
        self._note_native_writes()
        if self._is_written_since:
            self._syncs_in_a_row += 1
            self._is_written_since = False

    def native_writer(self) -> NativeWriter:
        """Return what the native thread uses to write to this file."""
        writer = self._writer or self._make_writer()
        return writer.native

    @property
    def has_rate(self) -> bool:
        """Whether the rate of appends may have a quota."""
        return self.limits is not None or self._log.config.logfs_quota_producer_byte_rate > 0

    @property
    def may_be_served(self) -> bool:
        """Whether the native thread may apply writes."""
        return not (self.syncs or self.has_long_line or self.limits is not None)

    def _note_native_writes(self) -> None:
        if self._writer is not None:
            writes = self._writer.native.writes
            if writes > self._native_writes:
                self._has_written = True
                self._note_writes(writes - self._native_writes)
                self._native_writes = writes

    def _note_writes(self, writes: int) -> None:
        if self._is_written_since or writes > 1:
            self._syncs_in_a_row = 0
        self._is_written_since = True

    def note_failure(self, error: Exception) -> None:
        """Keep a failure for ``report_failure``."""
        self._failure = error
        if self._writer is not None:
            self._writer.native.has_failed = True  # close(2) is left to Python

    def sync(self) -> None:
        """Make everything durable that was written through this file, and everything before."""
        try:
            if self._writer is not None:
                self._writer.sync()
            else:
                self._log.flush()
        except (LogfsError, OSError) as error:
            self.note_failure(error)
            raise

    def report_failure(self) -> None:
        """Raise the failure of an earlier call or of the partition, once."""
        failure, self._failure = self._failure, None
        self._note_native_writes()
        if failure is None and self._has_written and self._log.offline is not None:
            failure = LogOfflineError(f"{self._log.topic_partition}: {self._log.offline}")
        if failure is not None:
            self._has_written = False
            raise failure

    def close(self, now_ms: int) -> None:
        """Close the file: an unfinished line becomes a record."""
        if self.reader is not None:
            self.reader.close()
        if self._writer is not None:
            self._writer.close(now_ms)

    def _make_writer(self) -> LineWriter:
        if not (self.appends and isinstance(self.node, PlainNode)):
            raise RefusedError("the file is not open for appending")
        self._writer = LineWriter(self._log.writable, self.node.view)
        self._writer.notes = self.notes
        return self._writer


def check_whole(file: FileHandle, reader: FileReader, stop: int) -> None:
    """Refuse a read of a cached file that ends early: the kernel would take it for end of file.

    The bytes before the damage are returned all the same: the kernel reads them page by page.
    """
    if stop < file.node.size():
        if reader.ended_by is not None:
            raise reader.ended_by  # the disk or the store has failed: that passes
        file.node.is_damaged = True
        reader.read_into(memoryview(bytearray(1)), stop)  # raises: it does not decode
        raise CorruptRecordError(
            f"{file.partition.topic_partition}: a read ended at byte {stop} of {file.node.size()}"
        )


def enter(node: FileNode) -> None:
    """Count an open file for the partitions that it reads."""
    for partition in node.partitions if node.reads_log else ():
        partition.open_files += 1
    node.note_opened()


def leave(node: FileNode) -> None:
    """Count a closed one."""
    for partition in node.partitions:
        partition.leave(node.reads_log)
    node.note_closed()


def read_blocking(reader: FileReader, buffer: memoryview, offset: int) -> int:
    """Read, and wait for the disk if need be."""
    reader.may_block = True
    try:
        return reader.read_into(buffer, offset)
    finally:
        reader.may_block = False


_NUMBERS = (1 << 32) - 1


class DirectoryHandle:
    """One open directory.

    Attributes:
        node: The directory.
        names: The names when the listing began, or when this daemon continued with it. Names may
            appear and disappear meanwhile.
    """

    __slots__ = ("names", "node")

    def __init__(self, node: DirectoryNode) -> None:
        self.node = node
        self.names: list[str] = []

    def number(self, position: int) -> int:
        """Return how many names come before a position; see ``position_after``.

        An earlier daemon may have given it, when there were other names.
        """
        names, number = self.names, position & _NUMBERS
        last = names[number - 1] if 0 < number <= len(names) else ""
        if not number or position_after(number, last) == position:
            return number
        tag = position - number
        found = (at for at, name in enumerate(names, 1) if position_after(at, name) - at == tag)
        return next(found, number)


def position_after(number: int, name: str) -> int:
    """Return where a listing continues after so many names, of which one is the last.

    It has the number, and 31 bits of a checksum of the name for the next daemon.
    """
    return number | crc32(name.encode()) >> 1 << 32


class HandleTable(Generic[T]):
    """Open files or directories, by the numbers the kernel uses. Event loop only.

    Args:
        restore: Returns what an earlier daemon of the same mount had open under a number. It raises
            ``StaleError`` if that is not known, or is gone.
    """

    def __init__(self, restore: Callable[[int], T]) -> None:
        self._open: dict[int, T] = {}
        self._restore = restore
        self._last = 0

    def numbers(self) -> list[int]:
        """Return the numbers in use, except of those that have not been restored."""
        return list(self._open)

    def all(self) -> list[T]:
        """Return everything that is open. Any thread."""
        return list(self._open.values())

    def add(self, handle: T, number: int) -> int:
        """Keep an opened file or directory.

        Args:
            handle: It.
            number: The number of the request that opens it: so a request that the kernel sends
                again gives the same. 0 if that is not known.

        Returns:
            Its number.
        """
        if not number:
            self._last += 1
            number = self._last
        self._open[number] = handle
        return number

    def __getitem__(self, number: int) -> T:
        try:
            return self._open[number]
        except KeyError:
            pass
        handle = self._open[number] = self._restore(number)
        return handle

    def get(self, number: int) -> T | None:
        """Return what is open under a number; None if it has not been restored."""
        return self._open.get(number)

    def take(self, number: int) -> T:
        """Remove a number; returns what was open under it."""
        handle = self[number]
        del self._open[number]
        return handle
