"""What a fake disk holds: in its page cache, and on the platters. Used by ``tests.fakes`` only.

A file is its durable bytes and the changes since its last sync, in order. A directory is its
durable names; the changes of names that no ``sync_directory`` has covered are kept in one list, in
order. A crash applies some of both.
"""

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random


class Stopped(BaseException):
    """The process has died: nothing it does from now on reaches the disk."""


@dataclass
class Fault:
    """What is to go wrong, once or for as long as it lasts, and where; 0: the process dies."""

    operation: str
    pattern: str
    error: int
    after_bytes: int
    is_lasting: bool = False

    def exception(self, name: str) -> BaseException:
        return os_error(self.error, name) if self.error else Stopped(name)


CHANGES = frozenset(
    {
        *("open", "pwrite", "truncate", "sync", "rename", "remove", "remove_tree"),
        *("make_directory", "sync_directory", "touch_times"),
    }
)
"""Operations that may change what the next process finds."""


@dataclass
class Death:
    """When the process dies: before an operation, or in the middle of a write."""

    changes: int | None = None
    torn: float = 0.0
    is_over: bool = False

    def take(self, operation: str, size: int) -> int | None:
        """Take one operation; returns how much of a write is still done if it is the last one."""
        if self.changes is None:
            return None
        if self.is_over:
            raise Stopped(operation)
        if operation not in CHANGES:
            return None
        self.changes -= 1
        if self.changes >= 0:
            return None
        self.is_over = True
        if operation == "pwrite" and self.torn:
            return int(size * self.torn)
        raise Stopped(operation)


class Ranges:
    """A set of byte numbers, as disjoint half-open ranges."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends, strict=True))

    @property
    def size(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def copied(self) -> "Ranges":
        copy = Ranges()
        copy._starts, copy._ends = list(self._starts), list(self._ends)
        return copy

    def cut(self, size: int) -> None:
        count = bisect_left(self._starts, size)
        del self._starts[count:], self._ends[count:]
        if count:
            self._ends[-1] = min(self._ends[-1], size)

    def fitting(self, start: int, end: int, room: int) -> int:
        """Return the largest e <= end such that [start, e) adds at most ``room`` new bytes."""
        at = start
        for held_start, held_end in self:
            if held_end <= at:
                continue
            if held_start >= end:
                break
            new = max(0, held_start - at)
            if new > room:
                return at + room
            room -= new
            at = held_end
        return min(end, max(at, start) + room) if at < end else end


@dataclass(frozen=True)
class Write:
    """Bytes written and not synced."""

    position: int
    data: bytes


@dataclass(frozen=True)
class Resize:
    """A truncation or extension that was not synced."""

    size: int


@dataclass
class Content:
    """Bytes of a file; the zeros after the last byte written take no memory."""

    data: bytearray = field(default_factory=bytearray)
    size: int = 0

    def read(self, position: int, end: int) -> bytes:
        end = min(end, self.size)
        return bytes(self.data[position:end]).ljust(max(0, end - position), b"\0")

    def copied(self) -> "Content":
        return Content(bytearray(self.data), self.size)

    @property
    def digest(self) -> tuple[int, int]:
        return hash(bytes(self.data)), self.size

    def next_data(self, position: int) -> int:
        return position if position < len(self.data) else max(position, self.size)

    def apply(self, change: Write | Resize) -> None:
        if isinstance(change, Resize):
            del self.data[change.size :]
            self.size = change.size
        elif change.data:
            end = change.position + len(change.data)
            self.data.extend(bytes(max(0, change.position - len(self.data))))
            self.data[change.position : end] = change.data
            self.size = max(self.size, end)


@dataclass(eq=False)
class FileNode:
    """A file, under any number of names."""

    mtime_ms: int
    content: Content = field(default_factory=Content)
    """What every process sees."""
    durable: Content = field(default_factory=Content)
    """What is on the disk for certain."""
    changes: list[Write | Resize] = field(default_factory=list)
    """What lies between the two and can still get there."""
    allocated: Ranges = field(default_factory=Ranges)
    unwritten: Ranges = field(default_factory=Ranges)
    """Where a sync has failed: what is written there again does not reach the disk, as on ext4."""

    def copied(self) -> "FileNode":
        return FileNode(
            self.mtime_ms,
            self.content.copied(),
            self.durable.copied(),
            list(self.changes),
            self.allocated.copied(),
            self.unwritten.copied(),
        )

    def write(self, position: int, data: bytes) -> None:
        self.allocated.add(position, position + len(data))
        self._change(Write(position, data))

    def resize(self, size: int) -> None:
        self.allocated.cut(size)
        self.unwritten.cut(size)
        self._change(Resize(size))

    def _change(self, change: Write | Resize) -> None:
        self.content.apply(change)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            if isinstance(change, Resize):
                self.durable.apply(change)
            else:
                self._reach_disk(change)
        self.changes.clear()

    def _reach_disk(self, write: Write) -> None:
        begin, end = write.position, write.position + len(write.data)
        self.durable.apply(Resize(max(self.durable.size, end)))
        for lost_begin, lost_end in [*self.unwritten, (end, end)]:
            stop = min(max(lost_begin, begin), end)
            self.durable.apply(
                Write(begin, write.data[begin - write.position : stop - write.position])
            )
            begin = min(max(begin, lost_end), end)

    def lose_changes(self) -> None:
        """A sync failed: the cache shows the bytes, now called clean; the disk never gets them."""
        size = self.durable.size
        for change in self.changes:
            if isinstance(change, Resize):
                self.durable.apply(change)  # lengths are in the journal, which did not fail
            else:  # what the disk has before it has its blocks
                self.unwritten.add(max(change.position, size), change.position + len(change.data))
        self.changes.clear()

    def drop_cached(self) -> None:
        """Forget what is called clean: the disk is read again, and its blocks are known."""
        self.content = self.durable.copied()
        for change in self.changes:
            self.content.apply(change)
        self.unwritten.cut(0)

    def crash(self, random: Random | None) -> None:
        """Keep what is durable and, if there is a random, some of the rest.

        Any sectors of the rest are kept, or a prefix, which may be damaged.
        """
        size = self.content.size
        if random is not None and self.changes and random.random() < 0.5:
            self.durable = any_sectors(self.durable, self.changes, random)
        elif random is not None:
            kept = self._prefix(random)
            for change in kept:
                self.durable.apply(change)
            if random.random() < 0.25 and self.durable.size < size:
                self.durable.apply(Resize(size))  # the new length arrived, the bytes did not
            self._damage([change for change in kept if isinstance(change, Write)], random)
        self.content = self.durable.copied()
        self.changes.clear()
        self.allocated.cut(self.content.size)
        self.unwritten.cut(0)

    def _prefix(self, random: Random) -> list[Write | Resize]:
        total = sum(_weight(change) for change in self.changes)
        left = random.choice((0, total, random.randint(0, total)))
        kept: list[Write | Resize] = []
        for change in self.changes:
            if left < _weight(change):
                if isinstance(change, Write):
                    kept.append(Write(change.position, change.data[:left]))
                break
            kept.append(change)
            left -= _weight(change)
        return kept

    def _damage(self, kept: list[Write], random: Random) -> None:
        """Make part of one write wrong: noise, a flipped byte, or zeros up to its end."""
        data = self.durable.data
        ranges = [
            (write.position, min(len(data), write.position + len(write.data))) for write in kept
        ]
        hittable = [(start, end) for start, end in ranges if start < end]
        if not hittable or random.random() < 0.4:
            return
        start, end = random.choice(hittable)
        start = random.randrange(start, end)
        match random.randrange(3):
            case 0:
                end = random.randint(start + 1, end)
                data[start:end] = random.randbytes(end - start)
            case 1:
                data[start] ^= random.randint(1, 255)
            case _:
                data[start:end] = bytes(end - start)


def any_sectors(durable: Content, changes: Sequence[Write | Resize], random: Random) -> Content:
    """Return what a power cut leaves of a file if the disk has written sectors in any order.

    Each sector is as it was after any of the changes. Lengths follow their own journal, in
    order: a cut that is in it has freed the sectors after it, so nothing older is found there;
    what was written after a cut that is not in it is not found either.
    """
    sector = random.choice((512, 4096))
    content = Content(bytearray(durable.data), durable.size)
    versions: dict[int, list[tuple[int, bytes, bool]]] = {}
    sizes = [content.size]
    for number, change in enumerate(changes):
        is_cut = isinstance(change, Resize)
        touched = list(_sectors(content, change, sector))
        for at in touched:
            versions.setdefault(at, [(-1, _padded(content, at, sector), False)])
        content.apply(change)
        for at in touched:
            versions[at].append((number, _padded(content, at, sector), is_cut))
        sizes.append(content.size)
    journal = random.randint(0, len(changes))
    size, data = sizes[journal], bytearray(durable.data)
    for at, rows in versions.items():
        found: list[bytes] = []
        for number, held, is_cut in rows:
            if is_cut and number >= journal:
                break
            found = [held] if is_cut else [*found, held]
        data.extend(bytes(max(0, at + sector - len(data))))
        data[at : at + sector] = found[-1] if random.random() < 0.4 else random.choice(found)
    del data[size:]
    return Content(data, size)


def _sectors(content: Content, change: Write | Resize, sector: int) -> range:
    """Return where the sectors begin that a change is about to touch."""
    if isinstance(change, Resize):
        begin, end = change.size, len(content.data)
    else:
        begin, end = change.position, change.position + len(change.data)
    return range(begin // sector * sector, end, sector) if begin < end else range(0)


def _padded(content: Content, position: int, size: int) -> bytes:
    return bytes(content.data[position : position + size]).ljust(size, b"\0")


@dataclass(eq=False)
class DirectoryNode:
    """A directory."""

    mtime_ms: int
    entries: "dict[str, Node]" = field(default_factory=dict)
    durable: "dict[str, Node]" = field(default_factory=dict)


Node = FileNode | DirectoryNode


@dataclass(eq=False)
class NameChange:
    """One making, renaming or removing of a name, not covered by a sync of its directories."""

    effects: list[tuple[DirectoryNode, str, Node | None]]
    """(directory, name, what it names afterwards, None for nothing)"""
    waits_for: list[DirectoryNode]
    is_lost: bool = False

    @property
    def names(self) -> set[tuple[int, str]]:
        return {(id(directory), name) for directory, name, _ in self.effects}

    def apply(self) -> None:
        for directory, name, node in self.effects:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


@dataclass(eq=False)
class State:
    """A whole disk."""

    root: DirectoryNode
    changes: list[NameChange] = field(default_factory=list)

    def copied(self) -> "State":
        """Return the same disk once more: a change of one is none of the other."""
        copies: dict[int, Node] = {}
        changes = [
            NameChange(
                [
                    (_copied_directory(directory, copies), name, node and _copied(node, copies))
                    for directory, name, node in change.effects
                ],
                [_copied_directory(directory, copies) for directory in change.waits_for],
                change.is_lost,
            )
            for change in self.changes
        ]
        return State(_copied_directory(self.root, copies), changes)

    def digest(self) -> int:
        """Return a number that is the same, in this process, for disks that are the same."""
        numbers: dict[int, int] = {}
        rows: list[object] = []
        directories = [self.root]
        for directory in directories:
            for names in (directory.entries, directory.durable):
                for name, node in sorted(names.items()):
                    is_new = id(node) not in numbers
                    rows.append((name, numbers.setdefault(id(node), len(numbers))))
                    if is_new and isinstance(node, FileNode):
                        rows += (node.content.digest, node.durable.digest, tuple(node.changes))
                    elif is_new and isinstance(node, DirectoryNode):
                        directories.append(node)
            rows.append("")
        for change in self.changes:
            rows += (numbers.get(id(held)) for held in change.waits_for)
            rows += ((name, node and numbers.get(id(node))) for _, name, node in change.effects)
        return hash(tuple(rows))

    def parent(self, name: str) -> tuple[DirectoryNode, str]:
        """Return the directory that holds a name, and the last part of the name."""
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"the name {name!r} leads out of {path_of('')}")
        directory = self.root
        *parents, leaf = name.split("/")
        for part in parents:
            node = directory.entries.get(part)
            if not isinstance(node, DirectoryNode):
                raise os_error(errno.ENOENT if node is None else errno.ENOTDIR, name)
            directory = node
        return directory, leaf

    def node(self, name: str) -> Node:
        directory, leaf = self.parent(name)
        node = directory.entries.get(leaf) if leaf else directory
        if node is None:
            raise os_error(errno.ENOENT, name)
        return node

    def file(self, name: str) -> FileNode:
        node = self.node(name)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, name)
        return node

    def directory(self, name: str) -> DirectoryNode:
        node = self.node(name)
        if isinstance(node, FileNode):
            raise os_error(errno.ENOTDIR, name)
        return node

    def files(self) -> Iterator[FileNode]:
        """Return all files that have a name."""
        directories = [self.root]
        while directories:
            for node in directories.pop().entries.values():
                if isinstance(node, DirectoryNode):
                    directories.append(node)
                else:
                    yield node

    def change(self, *effects: tuple[DirectoryNode, str, Node | None]) -> None:
        for directory, name, node in effects:
            if node is None:
                del directory.entries[name]
            else:
                directory.entries[name] = node
        self.changes.append(NameChange(list(effects), [effect[0] for effect in effects]))

    def sync_directory(self, directory: DirectoryNode) -> None:
        rest = []
        for change in self.changes:
            change.waits_for = [other for other in change.waits_for if other is not directory]
            if change.waits_for or change.is_lost:
                rest.append(change)
            else:
                change.apply()
        self.changes = rest

    def lose_changes(self, directory: DirectoryNode) -> None:
        for change in self.changes:
            change.is_lost |= directory in change.waits_for

    def crash(self, random: Random | None) -> None:
        """Keep what is durable and, if there is a random, any of the rest.

        Changes that share no name are independent of each other; of those that do, a journal keeps
        the first ones.
        """
        dropped: set[tuple[int, str]] = set()
        for change in self.changes:
            is_kept = random is not None and random.random() < 0.5
            if change.is_lost or not is_kept or not dropped.isdisjoint(change.names):
                dropped |= change.names
            else:
                change.apply()
        self.changes.clear()
        seen: set[int] = set()
        for node in _durable_nodes(self.root):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, FileNode):
                node.crash(random)
            else:
                node.entries = dict(node.durable)


def _copied(node: Node, copies: dict[int, Node]) -> Node:
    """Return the copy of a file or directory, which is made once."""
    if isinstance(node, DirectoryNode):
        return _copied_directory(node, copies)
    copy = copies.get(id(node))
    if copy is None:
        copy = copies[id(node)] = node.copied()
    return copy


def _copied_directory(node: DirectoryNode, copies: dict[int, Node]) -> DirectoryNode:
    found = copies.get(id(node))
    if isinstance(found, DirectoryNode):
        return found
    copy = copies[id(node)] = DirectoryNode(node.mtime_ms)
    for names, held in ((copy.entries, node.entries), (copy.durable, node.durable)):
        names.update((name, _copied(child, copies)) for name, child in held.items())
    return copy


def path_of(name: str) -> str:
    return f"/fake/{name}"


def os_error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), path_of(name))


def _weight(change: Write | Resize) -> int:
    return len(change.data) if isinstance(change, Write) else 1


def _durable_nodes(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, DirectoryNode):
        for child in list(node.durable.values()):
            yield from _durable_nodes(child)
