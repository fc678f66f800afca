"""The inodes of the mount: their keys, their attributes, and whether they grow or may be cached.

An inode grows or is cached, never both. A growing inode is read directly and its attributes are
asked for every time. The bytes of all others never change, so the kernel caches them.

No pyfuse3, no awaiting. ``attributes`` reads memory only, except for nodes with ``asks_disk``.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import tzinfo
from enum import IntEnum
from hashlib import blake2b
from typing import ClassVar, NamedTuple

from logfs.fs.kernel.errnos import StaleError
from logfs.fs.kernel.permissions import FileAttributes, MountOwnership, common
from logfs.fs.partitions.partition import MountedPartition
from logfs.log.reading.address import AtByte, Moment
from logfs.log.reading.readable import ReadableLog
from logfs.services.meta import format_meta, partition_meta
from logfs.services.views.merging import MergedPart
from logfs.services.views.resolve import Resolved, growing_end
from logfs.types import View

CACHED_S = 60.0
"""How long the kernel keeps the attributes of inodes that never change."""
NAMES_S = 1.0
"""How long it keeps names that mkdir, touch and rmdir change, and directory attributes."""
MOST_KNOWN_PARTS = 1 << 16
"""Parts of merged nodes in memory, of about a kilobyte each; the last looked up node has all."""

_READ_ONLY = ~0o222
_APPEND_ONLY = ~0o444


class Node:
    """One inode.

    Attributes:
        key: Equal keys are the same inode; see ``inodes``.
        ino: The inode number; 0 until the inode table assigns one.
        attr_timeout_s: How long the kernel may keep its attributes.
        entry_timeout_s: How long the kernel may keep its name.
        asks_disk: ``attributes`` may have to wait for the disk.
    """

    attr_timeout_s: ClassVar[float] = 0.0
    entry_timeout_s: ClassVar[float] = 0.0
    asks_disk: ClassVar[bool] = False

    def __init__(self, key: str) -> None:
        self.key = key
        self.ino = 0

    @property
    def shown_key(self) -> str:
        """Return the key whose number programs see: that of another inode with the same bytes."""
        return self.key

    @property
    def partition(self) -> MountedPartition | None:
        """Return the partition whose executor runs its requests, if it belongs to one."""
        return None

    def attributes(self) -> FileAttributes:
        """Return the present attributes."""
        raise NotImplementedError


class DirectoryNode(Node):
    """A directory: the root, a topic, ``.segments`` and what is in it.

    Attributes:
        parent: None for the root.
        owned_by: The topic with its mode and owner; "" is the root.
        mtime_ms: When a name was last created or removed in it, as far as this mount knows.
    """

    attr_timeout_s = NAMES_S
    entry_timeout_s = NAMES_S
    owned_by = ""

    def __init__(
        self, key: str, ownership: MountOwnership, parent: "DirectoryNode | None", mtime_ms: int
    ) -> None:
        super().__init__(key)
        self.parent = parent
        self.mtime_ms = mtime_ms
        self._ownership = ownership

    def attributes(self) -> FileAttributes:
        """Return the present attributes, without write permission for any user."""
        mode, uid, gid = self._ownership.of_directory(self.owned_by)
        return FileAttributes(mode & _READ_ONLY, uid, gid, 0, self.mtime_ms)


class TopicNode(DirectoryNode):
    """A topic, or the root of the mount, whose name is "".

    Attributes:
        name: The name of the topic.
        plain: The plain names that were looked up, a cache for the tree.
        writers: The inodes of the names that end in ``.in``, by partition and view.
    """

    def __init__(
        self,
        name: str,
        topic_id: str | None,
        ownership: MountOwnership,
        parent: DirectoryNode | None,
        mtime_ms: int,
    ) -> None:
        super().__init__(f"topic {topic_id or '/' + name}", ownership, parent, mtime_ms)
        self.name = name
        self.topic_id = topic_id
        self.plain: dict[bytes, FileNode] = {}
        self.writers: dict[tuple[int, View], list[InNode]] = {}

    def attributes(self) -> FileAttributes:
        """Return the present attributes."""
        mode, uid, gid = self._ownership.of_directory(self.name)
        return FileAttributes(mode, uid, gid, 0, self.mtime_ms)


class RootNode(TopicNode):
    """The root of the mount.

    Attributes:
        facts: The extended attributes, by name.
        time_zone: Zone of dates and times that name none.
    """

    def __init__(self, ownership: MountOwnership, mtime_ms: int, time_zone: tzinfo) -> None:
        super().__init__("", None, ownership, None, mtime_ms)
        self.time_zone = time_zone
        self.facts: dict[str, str] = {}


class FileNode(Node):
    """A file of a partition.

    Attributes:
        is_cached: The bytes never change, so the kernel may cache them; otherwise it grows.
        takes_appends: The file may be opened for writing, with O_APPEND.
        reads_log: While it is open, the partition is not reloaded.
        is_damaged: A read of it ended early. From then on it is read directly: the kernel caches
            whole pages only, so the bytes before the damage would be lost.
    """

    is_cached: ClassVar[bool] = False
    reads_log: ClassVar[bool] = True
    takes_appends: ClassVar[bool] = False

    def __init__(self, kind: str, partition: MountedPartition, ownership: MountOwnership) -> None:
        super().__init__(f"{partition.identity}/{kind}")
        self.is_damaged = False
        self._identity = partition.identity
        self._partition = partition
        self._ownership = ownership

    @property
    def partition(self) -> MountedPartition:
        """Return the partition."""
        return self._partition

    @property
    def partitions(self) -> Sequence[MountedPartition]:
        """Return the partitions that it reads."""
        return (self._partition,)

    @property
    def is_current(self) -> bool:
        """Whether positions still mean what they meant when the node was created."""
        return self._partition.identity == self._identity

    def attributes(self) -> FileAttributes:
        """Return the present attributes.

        Raises:
            StaleError: The partition was reloaded, and positions have another meaning.
        """
        partition = self._partition
        if not self.is_current:
            raise StaleError(f"{partition.topic_partition} has been reloaded")
        mode, uid, gid = self._ownership.of_file(*partition.topic_partition)
        if not self.takes_appends:
            mode &= _READ_ONLY
        return FileAttributes(mode, uid, gid, self.size(), self.mtime_ms())

    def note_opened(self) -> None:
        """Note that Python has a file of the inode open, or has restored it."""

    def note_closed(self) -> None:
        """Note that such a file was closed."""

    def size(self) -> int:
        """Return the length in bytes."""
        raise NotImplementedError

    def mtime_ms(self) -> int:
        """Return the time of the last change."""
        return self._partition.log.last_modified_ms


class PlainNode(FileNode):
    """A growing name without a selector, ``0``, ``0.tsv`` or ``0.jsonl``; it takes appends."""

    entry_timeout_s = NAMES_S
    takes_appends = True

    def __init__(self, partition: MountedPartition, view: View, ownership: MountOwnership) -> None:
        super().__init__(f"plain {view.name}", partition, ownership)
        self.view = view

    def size(self) -> int:
        """Return the end of the visible bytes, holes included; 0 while positions are not known."""
        partition = self._partition
        if partition.log.indexing is not None:
            return 0
        return partition.log.snapshot.end_position(partition.level, self.view)


class InNode(PlainNode):
    """A name that ends in ``.in`` and only takes appends; each open file has another such inode.

    The kernel lets one write of an inode run at a time, so that writers of ``0`` wait for each
    other. Source: fuse_direct_write_iter in fs/fuse/file.c.

    Args:
        slot: The number of the inode among those of its name.

    Attributes:
        open_files: How many open files the inode has, without those that were opened natively.
        given_s: When a look-up was last answered with it that no open has followed.
    """

    entry_timeout_s = 0.0

    def __init__(
        self, partition: MountedPartition, view: View, ownership: MountOwnership, slot: int
    ) -> None:
        super().__init__(partition, view, ownership)
        self._shown_key = self.key
        self.key += f" in {slot}"
        self.slot = slot
        self.open_files = 0
        self.given_s = -math.inf

    @property
    def shown_key(self) -> str:
        """Return the key of the name without ``.in``: programs that compare see one file."""
        return self._shown_key

    def note_opened(self) -> None:
        """Note that Python has a file of the inode open, or has restored it."""
        self.open_files += 1
        self.given_s = -math.inf

    def note_closed(self) -> None:
        """Note that such a file was closed."""
        self.open_files -= 1

    def attributes(self) -> FileAttributes:
        """Return the present attributes, without read permission for any user.

        Raises:
            StaleError: The partition was reloaded, and positions have another meaning.
        """
        found = super().attributes()
        return found._replace(mode=found.mode & _APPEND_ONLY)


class RangeNode(FileNode):
    """A name with a selector that grows; its first byte stays at ``start``.

    Attributes:
        limit: The end. Once that is known it stays, also when retention removes records.
    """

    def __init__(
        self, partition: MountedPartition, resolved: Resolved, ownership: MountOwnership
    ) -> None:
        super().__init__(
            f"from {resolved.view.name} {resolved.start} {resolved.limit}{_part_of(resolved)}",
            partition,
            ownership,
        )
        self.resolved = resolved
        self.limit = resolved.limit

    @property
    def waits_for_clock(self) -> bool:
        """Whether the name grows because the time of its end is in the future."""
        return isinstance(self.resolved.limit, Moment)

    @property
    def log(self) -> ReadableLog:
        """Return the log that it reads: after a reload the new one."""
        found = self.resolved.log
        return found if found.is_part else self._partition.log

    def size(self) -> int:
        """Return the distance from the start to the end, or to the limit once it is reached."""
        resolved, snapshot = self.resolved, self.log.snapshot
        end = growing_end(snapshot, resolved.view, self.limit, resolved.level)
        if self.limit is not None and end < snapshot.end_position(resolved.level, resolved.view):
            self.limit = AtByte(end)
        return max(end - resolved.start, 0)


class FollowNode(RangeNode):
    """A name that ends in ``.follow`` and grows: a read at its end waits; see ``followreads``."""

    def __init__(
        self, partition: MountedPartition, resolved: Resolved, ownership: MountOwnership
    ) -> None:
        super().__init__(partition, resolved, ownership)
        self.key += " follow"


def _part_of(resolved: Resolved) -> str:
    """Return a part of the key: positions in a part of a log are others than in the log."""
    return f" part {resolved.log.generation.hex()}" if resolved.log.is_part else ""


class FixedNode(FileNode):
    """A name whose end was found at look-up: an ordinary file that never changes."""

    attr_timeout_s = CACHED_S
    is_cached = True

    def __init__(
        self,
        partition: MountedPartition,
        resolved: Resolved,
        ownership: MountOwnership,
        mtime_ms: int | None = None,
    ) -> None:
        segments = blake2b(digest_size=8)
        for segment in resolved.segments:
            # A compacted segment keeps its base offset, but not its records.
            kept = segment.lengths[resolved.view] if segment.has_gaps else None
            segments.update(f"{segment.base_offset} {kept} {segment.rewrites};".encode())
        super().__init__(
            f"fixed {resolved.view.name} {resolved.start} {resolved.end} {segments.hexdigest()}"
            f"{_part_of(resolved)}",
            partition,
            ownership,
        )
        self.resolved = resolved
        self._size = resolved.size
        # It must not change: the kernel drops what it has cached when it sees another time.
        self._mtime_ms = partition.log.last_modified_ms if mtime_ms is None else mtime_ms

    @property
    def is_current(self) -> bool:
        """Whether its segments belong to the log that is in use."""
        log = self.resolved.log
        return log is self._partition.log or (log.is_part and not log.is_deleted)

    def size(self) -> int:
        """Return the bytes of the retained records in the range."""
        return self._size

    def mtime_ms(self) -> int:
        """Return the time of the last append before the look-up."""
        return self._mtime_ms


class MergedPartitions(NamedTuple):
    """The partitions of a topic, which all of its merged nodes share, and their identities."""

    partitions: tuple[MountedPartition, ...]
    identities: tuple[str, ...]


class MergedNode(FileNode):
    """A range of a topic: all partitions merged by time, up to what was there at look-up.

    Its requests run beside those of the first partition. Without its parts it is small, and has
    its attributes, but is opened only after another look-up; see ``KnownParts``.

    Args:
        parts: The range in each partition, by number; at least one.
        offsets: The offsets of its records.
        merged: The partitions.

    Attributes:
        view: The rendering.
        largest: The partition with the most bytes.
    """

    attr_timeout_s = CACHED_S
    is_cached = True

    def __init__(
        self,
        parts: Sequence[FixedNode],
        offsets: Sequence[range],
        ownership: MountOwnership,
        merged: MergedPartitions,
    ) -> None:
        self._parts = tuple(zip(parts, offsets, strict=True))
        self.view = parts[0].resolved.view
        self.largest = max(parts, key=FixedNode.size).partition
        self._merged = merged
        self._size = sum(part.size() for part in parts)
        self._mtime_ms = max(part.mtime_ms() for part in parts)
        keys = "\n".join(part.key for part in parts)
        digest = blake2b(keys.encode(), digest_size=16).hexdigest()
        super().__init__(f"merged {digest}", parts[0].partition, ownership)

    @property
    def parts(self) -> Sequence[tuple[FixedNode, range]]:
        """Return range and offsets in each partition, by number; nothing if they are forgotten."""
        return self._parts

    def ranges(self) -> list[MergedPart]:
        """Return what an open file has of each partition. Any thread.

        Raises:
            StaleError: The parts are forgotten.
        """
        parts = self._parts
        if not parts:
            topic = self.partition.topic_partition.topic
            raise StaleError(f"{topic}@…: many other ranges were looked up before it was opened")
        return [MergedPart(part.resolved, offsets) for part, offsets in parts]

    def forget_parts(self) -> None:
        """Forget the parts; open files keep theirs."""
        self._parts = ()

    @property
    def partitions(self) -> Sequence[MountedPartition]:
        """Return the partitions that it reads."""
        return self._merged.partitions

    @property
    def is_current(self) -> bool:
        """Whether the file can be opened: it has its parts, of the logs that are in use."""
        parts = self._parts
        return bool(parts) and self._has_positions and all(part.is_current for part, _ in parts)

    @property
    def _has_positions(self) -> bool:
        partitions, identities = self._merged
        return all(one.identity == known for one, known in zip(partitions, identities, strict=True))

    def attributes(self) -> FileAttributes:
        """Return the present attributes: readable by users that may read every partition.

        Raises:
            StaleError: A partition was reloaded, and positions have another meaning.
        """
        if not (self.is_current if self._parts else self._has_positions):
            raise StaleError(
                f"{self.partition.topic_partition.topic}@…: reloaded since the look-up"
            )
        owners = (self._ownership.of_file(*one.topic_partition) for one in self.partitions)
        mode, uid, gid = common([FileAttributes(*owner, 0, 0) for owner in owners])
        return FileAttributes(mode & _READ_ONLY, uid, gid, self._size, self._mtime_ms)

    def size(self) -> int:
        """Return the bytes of the records in the range."""
        return self._size

    def mtime_ms(self) -> int:
        """Return the time of the last append before the look-up."""
        return self._mtime_ms


class KnownParts:
    """The parts of the merged nodes that the kernel knows: those of the last look-ups.

    The kernel keeps an inode long after its last use, and a user can look up any number of them.
    A node that has lost its parts is replaced at its next look-up. Event loop only.
    """

    def __init__(self) -> None:
        self._nodes: OrderedDict[int, tuple[MergedNode, int]] = OrderedDict()
        self._count = 0

    def note(self, node: MergedNode) -> None:
        """Keep the parts of a node; make room for them."""
        self.forget(node.ino)
        self._nodes[node.ino] = node, len(node.parts)
        self._count += len(node.parts)
        while self._count > MOST_KNOWN_PARTS and len(self._nodes) > 1:
            oldest, _ = self._nodes[next(iter(self._nodes))]
            self.forget(oldest.ino)
            oldest.forget_parts()

    def forget(self, ino: int) -> None:
        """Note that the kernel does not know a number any more."""
        _, count = self._nodes.pop(ino, (None, 0))
        self._count -= count


class PendingIn(IntEnum):
    """The directory of a name that cannot be resolved without waiting."""

    TOPIC = 0
    SEGMENTS = 1
    ROOT = 2


class PendingNode(FileNode):
    """A name that cannot be resolved without waiting; see ``lookups``.

    It is another inode at each look-up, until it is resolved. Until then its size is 0.

    Attributes:
        name: The name, with its selector.
        directory: The directory of the name: a topic, ``.segments`` or the root.
        now_ms: The clock at the look-up.
        serial: Differs from that of every other look-up at this time.
    """

    reads_log = False

    def __init__(
        self,
        partition: MountedPartition,
        ownership: MountOwnership,
        name: str,
        *,
        directory: PendingIn,
        now_ms: int,
        serial: int,
    ) -> None:
        super().__init__(f"pending {now_ms} {serial} {directory:d} {name}", partition, ownership)
        self.name = name
        self.directory = directory
        self.now_ms = now_ms
        self.serial = serial

    def size(self) -> int:
        """Return 0: it is not known."""
        return 0


class MetaNode(FileNode):
    """The facts about a partition as JSON, with those of the mount, fixed when it is opened."""

    entry_timeout_s = NAMES_S
    asks_disk = True
    reads_log = False

    def __init__(
        self,
        partition: MountedPartition,
        ownership: MountOwnership,
        of_mount: Callable[[], dict[str, object]],
    ) -> None:
        super().__init__("meta", partition, ownership)
        self._of_mount = of_mount

    def text(self) -> bytes:
        """Return the JSON."""
        meta = partition_meta(self._partition.log, self._partition.level) | self._of_mount()
        return format_meta(meta)

    def size(self) -> int:
        """Return the present length."""
        return len(self.text())
