"""A disk in memory that can tear writes, run full, fail, be slow, and lose power.

It lies in three ways, as real ones do. A crash keeps any sectors, or any prefix, of the bytes that
were not synced; it may leave wrong bytes among them; and a failed sync drops the dirty bytes for
good: they can still be read, and a later sync succeeds without them. Even the same bytes, written
to the same place again, are dropped. Names and their directories do the same.

    disk.fail_next_sync("*.log")          # the next fsync of a .log raises EIO
    disk.fail_next_write("*.log", errno.ENOSPC, after_bytes=10)
    disk.fail_next("rename", "*.swap")    # any operation, by its name in ``counts``
    disk.fail("pread", "*.snapshot")      # every such operation, until disk.heal()
    disk.space_bytes = 100_000            # then ENOSPC; holes are free
    disk.fill()                           # not a byte is free, until something is removed
    disk.before = lambda operation, name, size: ...   # observe, delay, raise, run something else
    disk.stop_before(7)                   # the process dies before its 8th change: raises Stopped
    disk.after_kill()                     # the disk the next process finds; all written is there
    disk.after_crash(seed)                # power was lost; seed None: nothing unsynced is left
    disk.lose_cache(seed)                 # the file system went away and returned, with no boot
"""

import errno
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from random import Random
from weakref import WeakValueDictionary

from logfs.disk.vfs import (
    SMALL_FILE_BYTES,
    Contents,
    File,
    FileStat,
    Lock,
    ReadableBuffer,
    check_size,
    replace_file,
)
from logfs.errors import LockedError
from logfs.log.writing._end import use_files
from tests import fakestate
from tests.fakestate import DirectoryNode, FileNode, Node, State, os_error, path_of
from tests.fakesyncs import BeginsSyncs

START_MS, _ROOMY = 1_700_000_000_000, 1 << 40


class FakeDisk:
    """A ``Disk`` in memory. See ``logfs.disk.vfs`` for the contract and above for the faults.

    Attributes:
        before: Called before every operation with its name, the file or directory and the
            bytes it concerns, outside of all locks: may block, look on, or raise.
        counts: How often each operation was called.
        bytes_of: Bytes read and written, by operation.
        now_ms: Modification time of what is written next.
        space_bytes: Room for the contents of all files together; None: no limit.
        names_need_room: A new file or directory needs its own room.
        writing: Position and bytes of the last write that ``before`` was told of.
        mounts: How often the file system was mounted; the cache is lost between two mounts.
        cold: Name patterns; ``pread_nowait_into`` of a match would wait.
        descriptors: Its files have these, so that native code writes to them; None: they have none.
    """

    def __init__(self) -> None:
        self.before: Callable[[str, str, int], object] | None = None
        self.counts: Counter[str] = Counter()
        self.bytes_of: Counter[str] = Counter()
        self.now_ms = START_MS
        self.space_bytes: int | None = None
        self.names_need_room = False
        self.writing = (0, b"")
        self.mounts = 1
        self.cold: list[str] = []
        self._state = State(DirectoryNode(START_MS))
        self.guard = threading.RLock()
        self.generation = 0
        self._faults: list[fakestate.Fault] = []
        self._death = fakestate.Death()
        self.locked: set[str] = set()
        self.opens: Counter[FileNode] = Counter()
        self.descriptors: Descriptors | None = None

    def fail_next(self, operation: str, pattern: str = "*", error: int = errno.EIO) -> None:
        """Let the next such operation on a matching name raise OSError, once, with no effect."""
        self._faults.append(fakestate.Fault(operation, pattern, error, 0))

    def fail(self, operation: str, pattern: str = "*", error: int = errno.EIO) -> None:
        """Let every such operation on a matching name raise OSError until ``heal``."""
        self._faults.append(fakestate.Fault(operation, pattern, error, 0, is_lasting=True))

    def heal(self) -> None:
        """Forget every fault that has not happened yet or that lasts."""
        with self.guard:
            self._faults.clear()

    def stop_before(self, changes: int, *, torn: float = 0.0) -> None:
        """Let the process die after so many more changes: what comes next raises ``Stopped``.

        From then on nothing reaches the disk until ``kill``, ``crash`` or ``lose_cache``.

        Args:
            changes: How many operations that may change something are still done.
            torn: If the next one is a write, this part of its bytes is written, from 0.0 to 1.0.
        """
        with self.guard:
            self._death = fakestate.Death(changes, torn)

    def live_on(self) -> None:
        """Take ``stop_before`` back."""
        self._death = fakestate.Death()

    def fail_next_sync(self, pattern: str = "*", error: int = errno.EIO) -> None:
        """Let the next sync of a matching file fail: what was not synced never gets to the disk."""
        self.fail_next("sync", pattern, error)

    def fail_next_write(
        self, pattern: str = "*", error: int = errno.EIO, after_bytes: int = 0
    ) -> None:
        """Let the next write to a matching file fail with its first ``after_bytes`` written."""
        self._faults.append(fakestate.Fault("pwrite", pattern, error, after_bytes))

    def fill(self, *, names_need_room: bool = True) -> None:
        """Leave no room: every write of new bytes is ENOSPC, and so may be every new name."""
        self.space_bytes = self.used_bytes
        self.names_need_room = names_need_room

    def kill(self) -> None:
        """End the process: files and locks are gone, all it wrote stays. See ``after_kill``."""
        with self.guard:
            self.generation += 1
            self._faults.clear()
            self._death = fakestate.Death()
            self.locked.clear()
            self.opens.clear()

    def crash(self, seed: int | None) -> None:
        """Lose power: see ``after_crash``."""
        with self.guard:
            self.kill()
            self._state.crash(None if seed is None else Random(seed))

    def lose_cache(self, seed: int | None) -> None:
        """Have the file system go away and return: as a crash, but the machine runs on."""
        self.crash(seed)
        self.mounts += 1

    def after_kill(self) -> "FakeDisk":
        """Return a disk as the next process finds it; this one stays as it is."""
        return self._copy()

    def after_crash(self, seed: int | None) -> "FakeDisk":
        """Return a disk as it is found after a power cut now; this one stays as it is.

        Args:
            seed: Decides what of the unsynced bytes and names is kept and what is damaged. None:
                nothing of it is kept, all that is left is what was promised.
        """
        disk = self._copy()
        disk.crash(seed)
        return disk

    def fitting(self, node: FileNode, position: int, size: int) -> int:
        """Return how many of ``size`` bytes can be written before the disk is full."""
        if self.space_bytes is None:
            return size
        room = max(0, self.space_bytes - self.used_bytes)
        return node.allocated.fitting(position, position + size, room) - position

    @property
    def used_bytes(self) -> int:
        """Bytes that count against ``space_bytes``: written, not holes, open or with a name."""
        with self.guard:
            nodes = set(self.opens) | set(self._state.files())
            return sum(node.allocated.size for node in nodes)

    def _copy(self) -> "FakeDisk":
        disk = FakeDisk()
        with self.guard:
            disk._state = self._state.copied()
            disk.now_ms, disk.space_bytes = self.now_ms, self.space_bytes
            disk.names_need_room = self.names_need_room
            disk.mounts = self.mounts
        return disk

    def tear(self, name: str, position: int, data: bytes) -> None:
        """Write to a file what a process has written when it is killed within a write."""
        self._state.file(name).write(position, data)

    def digest(self) -> int:
        """Return a number that is the same, in this process, for disks that are the same."""
        return self._state.digest()

    def removed_but_open(self) -> int:
        """Return how many files are open that have no name any more."""
        with self.guard:
            return len(set(self.opens) - set(self._state.files()))

    def has(self, node: FileNode) -> bool:
        """Return whether a file has a name."""
        return any(found is node for found in self._state.files())

    # The contract.

    def is_durable(self, name: str) -> bool:
        """Return whether a power cut now would keep a name."""
        directory, leaf = self._state.parent(name)
        return leaf in directory.durable

    def open(self, name: str, *, write: bool = False, create: bool = False, **_: bool) -> File:
        if create and not write:
            raise ValueError("create needs write")
        self.begin("open", name)
        with self.guard:
            directory, leaf = self._state.parent(name)
            if create and leaf and leaf not in directory.entries:
                self._check_room_for(name)
                self._change((directory, leaf, FileNode(self.now_ms)))
            return FakeFile(self, self._state.file(name), name, is_writable=write)

    def list(self, name: str) -> list[tuple[str, bool]]:
        self.begin("list", name)
        with self.guard:
            entries = self._state.directory(name).entries
            return sorted((leaf, isinstance(node, DirectoryNode)) for leaf, node in entries.items())

    def contents(self, name: str) -> Contents:
        listed = self.list(name)
        files = [leaf for leaf, is_directory in listed if not is_directory]
        return Contents(files, [leaf for leaf, is_directory in listed if is_directory], ())

    def inodes(self, name: str) -> dict[str, int]:
        self.begin("list", name)
        with self.guard:
            entries = self._state.directory(name).entries
            return {leaf: id(node) for leaf, node in entries.items()}

    def stat(self, name: str) -> FileStat:
        self.begin("stat", name)
        with self.guard:
            node = self._state.node(name)
            is_directory = isinstance(node, DirectoryNode)
            size = 4096 if isinstance(node, DirectoryNode) else node.content.size
            return FileStat(size, node.mtime_ms, is_directory, id(node))

    def exists(self, name: str) -> bool:
        try:
            self.stat(name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def make_directory(self, name: str) -> None:
        self.begin("make_directory", name)
        with self.guard:
            directory, leaf = self._state.parent(name)
            if not leaf or leaf in directory.entries:
                raise os_error(errno.EEXIST, name)
            self._check_room_for(name)
            self._change((directory, leaf, DirectoryNode(self.now_ms)))

    def rename(self, old: str, new: str) -> None:
        self.begin("rename", old)
        with self.guard:
            source, old_leaf = self._state.parent(old)
            node = self._state.node(old)
            target, new_leaf = self._state.parent(new)
            replaced = target.entries.get(new_leaf)
            if replaced is node:
                return
            if replaced and not (isinstance(replaced, FileNode) and isinstance(node, FileNode)):
                raise os_error(errno.EEXIST, old)  # not in the contract
            self._change((source, old_leaf, None), (target, new_leaf, node))

    def remove(self, name: str) -> None:
        self.begin("remove", name)
        with self.guard:
            self._state.file(name)
            self._change((*self._state.parent(name), None))

    def remove_tree(self, name: str) -> None:
        self.begin("remove_tree", name)
        with self.guard:
            self._remove_tree(self._state.directory(name))
            self._change((*self._state.parent(name), None))

    def sync_directory(self, name: str) -> None:
        fault = self.begin_tearable("sync_directory", name, 0)
        with self.guard:
            directory = self._state.directory(name)
            if fault is not None:
                self._state.lose_changes(directory)
                raise os_error(fault.error, name)
            self._state.sync_directory(directory)

    def read(self, name: str, most: int | None = SMALL_FILE_BYTES) -> bytes:
        file = self.open(name)
        check_size(file.size(), most, name)
        return file.pread(file.size(), 0)

    def replace(self, name: str, data: ReadableBuffer) -> None:
        replace_file(self, name, data)

    def touch_times(self, name: str, mtime_ms: int) -> None:
        self.begin("touch_times", name)
        with self.guard:
            self._state.node(name).mtime_ms = mtime_ms

    def lock(self, name: str) -> Lock:
        self.begin("lock", name)
        with self.guard:
            if name in self.locked:
                raise LockedError(f"{path_of(name)} is locked by this process already")
            self.open(name, write=True, create=True).close()
            self.locked.add(name)
            return _FakeLock(self, name)

    def is_locked(self, name: str) -> bool:
        return name in self.locked

    def cached_bytes(self, name: str) -> int | None:
        return self.stat(name).size  # what is in memory is in memory

    def mount_id(self) -> str | None:
        return str(self.mounts)

    def free(self) -> os.statvfs_result:
        self.begin("free", "")
        limit = _ROOMY if self.space_bytes is None else self.space_bytes
        room = max(0, limit - self.used_bytes)
        return os.statvfs_result((4096, 1, limit, room, room, 1 << 20, 1 << 20, 1 << 20, 0, 255))

    def begin(self, operation: str, name: str, size: int = 0) -> None:
        """Count an operation, tell the observer, and raise the fault that waits for it."""
        fault = self.begin_tearable(operation, name, size)
        if fault is not None:
            raise os_error(fault.error, name)

    def begin_tearable(self, operation: str, name: str, size: int) -> fakestate.Fault | None:
        """Do the same, but leave it to the caller to do a part and raise the fault."""
        with self.guard:
            self.counts[operation] += 1
            self.bytes_of[operation] += size
        if self.before is not None:
            self.before(operation, name, size)
        with self.guard:
            for fault in self._faults:
                if fault.operation == operation and fnmatchcase(name, fault.pattern):
                    if not fault.is_lasting:
                        self._faults.remove(fault)
                    return fault
            kept = self._death.take(operation, size)
            return None if kept is None else fakestate.Fault(operation, name, 0, kept)

    def _check_room_for(self, name: str) -> None:
        is_full = self.space_bytes is not None and self.used_bytes >= self.space_bytes
        if self.names_need_room and is_full:
            raise os_error(errno.ENOSPC, name)

    def _change(self, *effects: tuple[DirectoryNode, str, Node | None]) -> None:
        for directory, _leaf, _node in effects:
            directory.mtime_ms = self.now_ms
        self._state.change(*effects)

    def _remove_tree(self, directory: DirectoryNode) -> None:
        for leaf, node in list(directory.entries.items()):
            if isinstance(node, DirectoryNode):
                self._remove_tree(node)
            self._change((directory, leaf, None))


class Descriptors:
    """The files of fake disks by descriptors, for native code; see ``logfs.log.writing._end``."""

    def __init__(self) -> None:
        self._files: WeakValueDictionary[int, FakeFile] = WeakValueDictionary()
        self._numbers = itertools.count(1 << 20)  # none of the machine's

    def of(self, file: "FakeFile") -> int:
        """Return the descriptor of a file."""
        if file.descriptor < 0:
            file.descriptor = next(self._numbers)
            self._files[file.descriptor] = file
        return file.descriptor

    def write(self, descriptor: int, data: bytes, position: int, /) -> None:
        self._files[descriptor].pwrite(data, position)

    def cut(self, descriptor: int, size: int, /) -> None:
        self._files[descriptor].truncate(size)

    def sync(self, descriptor: int, /) -> None:
        self._files[descriptor].sync()


@contextmanager
def native_writes() -> Iterator[Descriptors]:
    """Let native code write to fake disks that get these descriptors."""
    descriptors = Descriptors()
    use_files(descriptors)
    try:
        yield descriptors
    finally:
        use_files(None)


class FakeFile(BeginsSyncs):
    """An open file of a ``FakeDisk``. See ``logfs.disk.vfs.File`` for the contract."""

    def __init__(self, disk: FakeDisk, node: FileNode, name: str, *, is_writable: bool) -> None:
        self._disk = disk
        self._node = node
        self._name = name
        self._is_writable = is_writable
        self._generation: int | None = disk.generation
        self.descriptor = -1
        disk.opens[node] += 1

    def size(self) -> int:
        with self._using("size"):
            return self._node.content.size

    def inode(self) -> int:
        return id(self._node)

    def fileno(self) -> int:
        return -1 if self._disk.descriptors is None else self._disk.descriptors.of(self)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        with self._using("pread", len(buffer)):
            return self._fill(buffer, position)

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        with self._using("pread_nowait", len(buffer)):
            if any(fnmatchcase(self._name, pattern) for pattern in self._disk.cold):
                return None
            return self._fill(buffer, position)

    def pread(self, size: int, position: int) -> bytes:
        with self._using("pread", size):
            return self._node.content.read(position, position + size)

    def next_data(self, position: int) -> int:
        with self._using("next_data"):
            return self._node.content.next_data(position)

    def make_room(self, position: int, length: int) -> bool:
        return position >= 0 and length > 0

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        copied = bytes(data)
        self._disk.writing = position, copied
        fault = self._disk.begin_tearable("pwrite", self._name, len(copied))
        with self._disk.guard:
            self._check(is_change=True)
            done = len(copied)
            if fault is not None:  # a write that fails has left something out
                done = max(0, min(fault.after_bytes, done - bool(fault.error)))
            fitting = self._disk.fitting(self._node, position, done)
            if fitting:
                self._node.write(position, copied[:fitting])
                self._node.mtime_ms = self._disk.now_ms
            if fitting < done:
                raise os_error(errno.ENOSPC, self._name)
            if fault is not None:
                raise fault.exception(self._name)

    def truncate(self, size: int) -> None:
        with self._using("truncate", size, is_change=True):
            self._node.resize(size)
            self._node.mtime_ms = self._disk.now_ms

    def sync(self) -> None:
        fault = self._disk.begin_tearable("sync", self._name, 0)
        with self._disk.guard:
            self._check()
            if fault is not None:
                self._node.lose_changes()
                raise os_error(fault.error, self._name)
            self._node.sync()

    def drop_cached(self) -> None:
        with self._using("drop_cached"):
            self._node.drop_cached()

    def has_name(self) -> bool:
        with self._using("has_name"):
            return self._disk.has(self._node)

    def close(self) -> None:
        with self._disk.guard:
            if self._generation == self._disk.generation:
                self._disk.opens[self._node] -= 1
                if not self._disk.opens[self._node]:
                    del self._disk.opens[self._node]
            self._generation = None

    __del__ = close

    def _fill(self, buffer: memoryview, position: int) -> int:
        data = self._node.content.read(position, position + len(buffer))
        buffer[: len(data)] = data
        return len(data)

    @contextmanager
    def _using(self, operation: str, size: int = 0, *, is_change: bool = False) -> Iterator[None]:
        self._disk.begin(operation, self._name, size)
        with self._disk.guard:
            self._check(is_change=is_change)
            yield

    def _check(self, *, is_change: bool = False) -> None:
        if self._generation != self._disk.generation or (is_change and not self._is_writable):
            raise os_error(errno.EBADF, self._name)


class _FakeLock:
    """A lock that is held."""

    def __init__(self, disk: FakeDisk, name: str) -> None:
        self._disk = disk
        self._name: str | None = name
        self._generation = disk.generation

    def close(self) -> None:
        name, self._name = self._name, None
        if name is not None and self._generation == self._disk.generation:
            self._disk.locked.discard(name)

    __del__ = close
