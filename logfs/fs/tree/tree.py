"""The names of the mount: from a name to its node, from a directory to its names.

    /                       topics, ".segments", TOPIC@FROM[..TO][.VIEW] (not listed)
    /TOPIC/                 PARTITION[@FROM[..TO]][.VIEW]; only the plain numbers are listed
    /.segments/             TOPIC-PARTITION
    /.segments/DIRECTORY/   raw files, and NNN.txt for every NNN.log (not listed)

``ls`` shows every record once: names that would show it a second time can be opened but are not
listed. Finding a node reads memory only, except when the log or the disk has to be asked. Then the
result is a ``DeferredLookup``, which the caller runs where it may block. No pyfuse3, no awaiting.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import tzinfo
from typing import Generic, NamedTuple, TypeVar

from logfs.disk.vfs import REFUSED
from logfs.errors import NoSuchTopicError, UnknownNameError
from logfs.fs.kernel.errnos import NotADirectoryNodeError, NotIndexedYetError
from logfs.fs.kernel.permissions import MountOwnership
from logfs.fs.partitions.executor import PartitionExecutor
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.tree.nodes import (
    DirectoryNode,
    FileNode,
    FixedNode,
    FollowNode,
    InNode,
    MergedNode,
    MergedPartitions,
    MetaNode,
    Node,
    PendingIn,
    PendingNode,
    PlainNode,
    RangeNode,
    RootNode,
    TopicNode,
)
from logfs.fs.tree.rawnodes import RawDirectoryNode, RawNode, SealedNode
from logfs.log import names
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.reading.address import (
    SEGMENTS_NAME,
    AtByte,
    Latest,
    PartitionAddress,
    Suffix,
    TopicRange,
    names_topic_range,
    parse_partition_name,
    parse_topic_range,
)
from logfs.log.reading.readable import ReadableLog
from logfs.log.segments.snapshot import Snapshot
from logfs.machine.host import Clock
from logfs.services.following.store import AnyStore
from logfs.services.views.resolve import (
    VIEWS,
    Resolved,
    resolve,
    resolve_records,
    resolve_segment,
)
from logfs.types import IsolationLevel, View

T = TypeVar("T")

HIDDEN_PREFIX = "__"
"""Topics whose names begin so are not listed. Source: Kafka Topic.isInternal, its convention."""

PLAIN_VIEWS = {suffix: VIEWS[suffix] for suffix in (Suffix.TEXT, Suffix.TSV, Suffix.JSONL)}
"""The suffixes of names that take appends and are read."""
_IN_VIEWS = {Suffix(suffix + Suffix.IN): view for suffix, view in PLAIN_VIEWS.items()}
APPEND_VIEWS = PLAIN_VIEWS | _IN_VIEWS
"""The suffixes of names that take appends."""
_MOST_WRITERS = 256
"""How many inodes a name that ends in ``.in`` has; more open files share them."""
_GIVEN_S = 0.01
"""How long after a look-up its open is expected."""
_DIRECTORIES = frozenset({b".", b".."})
_SEGMENT_TEXT = re.compile(r"([0-9]{20})\.txt")
_MAX_FOUND = 256
_SEALED_KINDS = frozenset(names.FileKind) - {names.FileKind.SNAPSHOT}


class DeferredLookup(NamedTuple, Generic[T]):
    """A look-up in the log or on the disk of a partition; ``ask(*args)`` may block."""

    partition: MountedPartition
    ask: Callable[..., T]
    args: tuple[object, ...]


class _Found(NamedTuple):
    """What a name was resolved to.

    Attributes:
        snapshot: The state of the log that it was resolved in.
        now_ms: The clock at the look-up.
        node: The node.
    """

    snapshot: Snapshot
    now_ms: int
    node: FileNode


class LookupCache:
    """The nodes that names with a selector were last resolved to, by partition and name.

    A node is returned again as long as nothing has changed in the log: a new look-up would give
    the same. Names that depend on the time of the look-up are not kept. Equal nodes of different
    look-ups are one inode in any case, see ``inodes``. ``put`` may come from any thread.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], _Found] = {}

    def get(self, identity: str, name: str, snapshot: Snapshot, now_ms: int) -> FileNode | None:
        """Return the node of a name, if a new look-up would give the same.

        Args:
            identity: The identity of the partition.
            name: Below the topic.
            snapshot: The present state of the log.
            now_ms: The clock. If it is before the time of the look-up, TO may be in the future.
        """
        found = self._found.get((identity, name))
        if found is None or found.snapshot is not snapshot or now_ms < found.now_ms:
            return None
        return found.node

    def put(
        self, identity: str, name: str, snapshot: Snapshot, now_ms: int, node: FileNode
    ) -> None:
        """Keep a node, with the state and the time it was resolved at."""
        if len(self._found) >= _MAX_FOUND:
            self._found = {}
        self._found[identity, name] = _Found(snapshot, now_ms, node)

    def drop(self, node: FileNode) -> None:
        """Forget a node that turned out to be stale, and all that are the same inode."""
        self._found = {key: f for key, f in self._found.items() if f.node.key != node.key}


class Tree:
    """The names over a store. Event loop only, except for the calls of a ``DeferredLookup``.

    Args:
        store: The store.
        ownership: The owners and modes.
        time_zone: Zone of dates and times that name none.
        clock: The clocks.
        level: Which records readers see.

    Attributes:
        ownership: The owners and modes.
        root: The directory of the topics.
        segments: The directory ``.segments``.
        time_zone: Zone of dates and times that name none.
        meta_of_mount: Returns the facts of the mount for ``.meta``; set it before a look-up.
        opened_natively: Returns the inodes of a partition with files that Python does not know.
    """

    def __init__(
        self,
        store: AnyStore,
        ownership: MountOwnership,
        time_zone: tzinfo,
        clock: Clock,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self._store = store
        self.ownership = ownership
        self.time_zone = time_zone
        self.meta_of_mount: Callable[[], dict[str, object]] = dict
        self.opened_natively: Callable[[MountedPartition], Collection[int]] = lambda _: ()
        self._clock = clock
        self._level = level
        self._started_ms = clock.now_ms()
        self.root = RootNode(ownership, self._started_ms, time_zone)
        self.segments = DirectoryNode("segments", ownership, self.root, self._started_ms)
        self.lookup_cache = LookupCache()
        self._topics: dict[str, TopicNode] = {}
        self._partitions: dict[tuple[str, int], MountedPartition] = {}
        self._merged: dict[str, MergedPartitions] = {}

    # From a name to its node

    def find(self, parent: Node, name: bytes) -> "Node | DeferredLookup[Node]":
        """Find a name in a directory.

        Raises:
            UnknownNameError, NoSuchTopicError, NoSuchPartitionError: There is no such name.
            BadSelectorError: The part after ``@`` does not parse.
            NotADirectoryNodeError: ``parent`` is no directory.
        """
        if name in _DIRECTORIES and isinstance(parent, DirectoryNode):
            return parent.parent or parent if name == b".." else parent
        if isinstance(parent, TopicNode):
            node = parent.plain.get(name)
            if node is not None and node.is_current and self._is_live(node.partition):
                return node
            text = _decode(name)
            if parent is not self.root:
                return self._in_topic(parent, text)
            return self._range(text) if names_topic_range(text) else self._in_root(text)
        text = _decode(name)
        if isinstance(parent, RawDirectoryNode):
            return self._raw_lookup(parent.partition, text)
        if parent is self.segments:
            return self._in_segments(text)
        raise NotADirectoryNodeError(f"{text!r} is looked up in something that is no directory")

    def partition(self, topic: str, number: int) -> MountedPartition:
        """Return a partition that exists.

        Raises:
            NoSuchTopicError, NoSuchPartitionError: It does not exist.
        """
        log = self._store.partition(topic, number)
        known = self._partitions.get((topic, number))
        if known is None or (known.log is not log and known.log.is_deleted):
            known = MountedPartition(
                log, PartitionExecutor(self._clock.monotonic_s, self._clock.slept_s), self._level
            )
            self._partitions[topic, number] = known
        elif known.log is not log:
            known.replace_log(log)
        return known

    def executors(self) -> list[PartitionExecutor]:
        """Return the executors of the partitions that are in use. Any thread."""
        return [partition.executor for partition in list(self._partitions.values())]

    @contextmanager
    def kept_off_loop(self, topic: TopicNode) -> Iterator[None]:
        """Run all changes of a topic's partitions in threads inside the ``with`` block."""
        with ExitStack() as stack:
            for (name, _), partition in self._partitions.items():
                if name == topic.name:
                    stack.enter_context(partition.executor.kept_off_loop())
            yield

    def forget(self, topic: TopicNode) -> None:
        """Forget a topic that was deleted; its open files stay readable."""
        self._topics.pop(topic.name, None)
        self._merged.pop(topic.name, None)
        for key in [key for key in self._partitions if key[0] == topic.name]:
            self._partitions.pop(key).hold()

    def forget_deleted(self) -> None:
        """Forget partitions that another program has deleted; their open files continue."""
        for key, partition in list(self._partitions.items()):
            if partition.log.is_deleted:
                self._partitions.pop(key).hold()
                self._merged.pop(key[0], None)

    def note_config(self, topic: TopicNode) -> None:
        """Apply a change of a topic's configuration."""
        for (name, _), partition in self._partitions.items():
            if name == topic.name:
                partition.note_config()

    def parse(self, name: str) -> PartitionAddress:
        """Parse a name below a topic, with the daemon's time zone."""
        return parse_partition_name(name, self.time_zone)

    def is_live(self, node: Node) -> bool:
        """Whether a node is of topics as they are now, not of those that were deleted."""
        if isinstance(node, TopicNode):
            return node is self.root or self._topics.get(node.name) is node
        partitions: Sequence[MountedPartition | None] = (node.partition,)
        if isinstance(node, FileNode):
            if not node.is_current:
                return False
            partitions = node.partitions
        known = self._partitions
        return all(one is None or known.get(one.topic_partition) is one for one in partitions)

    def _is_live(self, partition: MountedPartition) -> bool:
        return self._store.partition(*partition.topic_partition) is partition.log

    def topic(self, name: str) -> TopicNode:
        """Return the directory of a topic.

        Raises:
            NoSuchTopicError: There is none.
        """
        topic_id = self._store.topic_id(name)
        known = self._topics.get(name)
        if known is None or known.topic_id != topic_id:
            known = TopicNode(name, topic_id, self.ownership, self.root, self._started_ms)
            self._topics[name] = known
        return known

    def _in_root(self, name: str) -> Node:
        return self.segments if name == SEGMENTS_NAME else self.topic(name)

    def _in_topic(self, topic: TopicNode, name: str) -> "Node | DeferredLookup[Node]":
        address = self.parse(name)
        if self.topic(topic.name) is not topic:
            raise NoSuchTopicError(f"{topic.name}: the topic has been deleted")
        partition = self.partition(topic.name, address.partition)
        view = PLAIN_VIEWS.get(address.view)
        partition.note_config()
        if address.view.is_in:
            return self._free_writer(topic, partition, _IN_VIEWS[address.view])
        if address.has_selector:
            snapshot, now_ms = partition.log.snapshot, self._clock.now_ms()
            return self.lookup_cache.get(
                partition.identity, name, snapshot, now_ms
            ) or DeferredLookup(partition, self._resolve, (partition, address, name, now_ms))
        node: FileNode
        if view is not None:
            node = PlainNode(partition, view, self.ownership)
        elif address.view is Suffix.META:
            node = MetaNode(partition, self.ownership, self.meta_of_mount)
        else:
            resolved = Resolved(partition.log, View.TEXT, 0, level=self._level)
            node = FollowNode(partition, resolved, self.ownership)
        topic.plain[name.encode()] = node
        return node

    def _free_writer(self, topic: TopicNode, partition: MountedPartition, view: View) -> InNode:
        """Return the first inode of a ``.in`` name that no program appends to."""
        opened, now_s = self.opened_natively(partition), self._clock.monotonic_s()
        slot, node = 0, self.writer(topic, partition, view, 0)
        while node.open_files or node.ino in opened or now_s - node.given_s < _GIVEN_S:
            slot += 1
            if slot == _MOST_WRITERS:
                node = min(topic.writers[partition.topic_partition.partition, view], key=_load)
                break
            node = self.writer(topic, partition, view, slot)
        node.given_s = now_s
        return node

    def writer(
        self, topic: TopicNode, partition: MountedPartition, view: View, slot: int
    ) -> InNode:
        """Return an inode of a name that ends in ``.in``, by its number."""
        key = partition.topic_partition.partition, view
        nodes = topic.writers.setdefault(key, [])
        if nodes and not (nodes[0].is_current and nodes[0].partition is partition):
            nodes.clear()
        while len(nodes) <= slot:
            nodes.append(InNode(partition, view, self.ownership, len(nodes)))
        return nodes[slot]

    def _range(self, name: str, now_ms: int | None = None) -> "DeferredLookup[Node]":
        """Return the look-up of a range of a topic.

        Args:
            now_ms: The clock at the look-up; None: now.
        """
        topic, _, _ = name.partition("@")
        numbers = self._store.partitions(self.topic(topic).name)
        found = parse_topic_range(name, self.time_zone)
        partitions = tuple(self.partition(topic, number) for number in numbers)
        for partition in partitions:
            partition.note_config()
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        merged = MergedPartitions(partitions, tuple(one.identity for one in partitions))
        if self._merged.get(topic) != merged:
            self._merged[topic] = merged
        return DeferredLookup(partitions[0], self._merge, (self._merged[topic], found, now_ms))

    def _in_segments(self, name: str) -> Node:
        parsed = names.parse_partition_directory(name)
        if parsed is None or parsed.state is not names.DirectoryState.NONE:
            raise UnknownNameError(f"{name!r}: expected TOPIC-PARTITION, as orders-0")
        partition = self.partition(parsed.topic, parsed.partition)
        return RawDirectoryNode(partition, self.ownership, self.segments, self._started_ms)

    def look_up_again(self, node: PendingNode) -> "DeferredLookup[Node]":
        """Return the look-up of a name that was not resolved when it was found."""
        partition, name = node.partition, node.name
        if node.directory is PendingIn.SEGMENTS:
            return self._raw_lookup(partition, name)
        if node.directory is PendingIn.ROOT:
            return self._range(name, node.now_ms)
        args = partition, self.parse(name), name, node.now_ms
        return DeferredLookup(partition, self._resolve, args)

    def _raw_lookup(self, partition: MountedPartition, name: str) -> "DeferredLookup[Node]":
        text = _SEGMENT_TEXT.fullmatch(name)
        if text is not None:
            return DeferredLookup(partition, self._segment_text, (partition, int(text[1])))
        return DeferredLookup(partition, self._raw_file, (partition, name))

    def passed_topic(self, parent: Node, name: bytes) -> str | None:
        """Return the topic of a range in the root: the kernel does not ask its directory.

        Raises:
            NoSuchTopicError: It does not exist.
        """
        text = name.decode(errors="replace")
        if parent is not self.root or not names_topic_range(text):
            return None
        return self.topic(text.partition("@")[0]).name

    # Deferred look-ups

    def _resolve(
        self, partition: MountedPartition, address: PartitionAddress, name: str, now_ms: int
    ) -> FileNode:
        log = partition.log
        snapshot, is_whole = log.snapshot, log.indexing is None
        node = self._answer(partition, address, now_ms)
        waits_for_clock = isinstance(node, RangeNode) and node.waits_for_clock
        depends = address.uses_clock or address.uses_groups or waits_for_clock
        if is_whole and not depends:
            # Kept under the earlier state: if the log has changed meanwhile, it is not used again.
            self.lookup_cache.put(partition.identity, name, snapshot, now_ms, node)
        return node

    def _answer(
        self, partition: MountedPartition, address: PartitionAddress, now_ms: int
    ) -> FileNode:
        log: ReadableLog = partition.log
        if address.uses_groups:
            address = self._without_groups(log, address)
        if log.indexing is not None:
            log, address = self._part(log, address, now_ms)
        resolved = resolve(log, address, now_ms, self._level)
        if resolved.grows:
            kind = FollowNode if address.view is Suffix.FOLLOW else RangeNode
            return kind(partition, resolved, self.ownership)
        return FixedNode(partition, resolved, self.ownership)

    def _merge(self, merged: MergedPartitions, found: TopicRange, now_ms: int) -> MergedNode:
        parts, offsets = [], []
        for partition in merged.partitions:
            log, address = partition.log, found.in_partition(partition.topic_partition.partition)
            if log.indexing is not None:
                raise NotIndexedYetError(log)
            if address.uses_groups:
                address = self._without_groups(log, address)
            resolved, present = resolve_records(log, address, now_ms, self._level)
            parts.append(FixedNode(partition, resolved, self.ownership))
            offsets.append(present)
        return MergedNode(parts, offsets, self.ownership, merged)

    def _without_groups(self, log: ReadableLog, address: PartitionAddress) -> PartitionAddress:
        """Look up what groups have committed; raise NotIndexedYetError until that can be read."""
        if OFFSETS_TOPIC in self._store.topics():
            for number in self._store.partitions(OFFSETS_TOPIC):
                offsets = self._store.partition(OFFSETS_TOPIC, number)
                if offsets.indexing is not None:
                    raise NotIndexedYetError(offsets)
        groups = self._store.groups
        return address.without_groups(lambda group: groups.position_in(log, group))

    def _part(
        self, log: ReadableLog, address: PartitionAddress, now_ms: int
    ) -> tuple[ReadableLog, PartitionAddress]:
        """Begin in the middle of a log whose positions are not known yet."""
        found = self._store.part_for_range(log, address, now_ms)
        if found is not None:
            return found
        if log.indexing is not None:
            raise NotIndexedYetError(log)
        return log, address

    def _segment_text(self, partition: MountedPartition, base_offset: int) -> FileNode:
        log = partition.log
        snapshot = log.snapshot
        index = snapshot.index_of_offset(base_offset)
        if index < 0 or snapshot.segments[index].base_offset != base_offset:
            raise UnknownNameError(f"{log.topic_partition}: no segment begins at {base_offset}")
        segment = snapshot.segments[index]
        if segment is not snapshot.active:
            resolved = resolve_segment(log, segment, View.TEXT, self._level)
        else:
            number = log.topic_partition.partition
            address = PartitionAddress(number, AtByte(segment.bases[View.TEXT]), Latest())
            resolved = resolve(log, address, self._clock.now_ms(), self._level)
        return FixedNode(partition, resolved, self.ownership)

    def _raw_file(self, partition: MountedPartition, name: str) -> FileNode:
        log = partition.log
        try:
            found = log.disk.stat(f"{log.directory}/{name}")
        except (FileNotFoundError, ValueError):
            found = None
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            found = None
        if found is None or found.is_directory:
            raise UnknownNameError(f"{log.directory}/{name}: no such file")
        parsed = names.parse_segment_file(name)
        if parsed is not None and parsed.kind in _SEALED_KINDS and not parsed.suffix:
            segments = log.snapshot.segments
            index = log.snapshot.index_of_offset(parsed.base_offset)
            if 0 <= index < len(segments) - 1 and (
                segments[index].base_offset == parsed.base_offset
            ):
                rewrites = segments[index].rewrites
                return SealedNode(partition, name, found, self.ownership, rewrites)
        return RawNode(partition, name, found.inode, self.ownership)

    # From a directory to its names

    def names(self, directory: Node) -> "list[str] | DeferredLookup[list[str]]":
        """List a directory.

        Raises:
            NotADirectoryNodeError: It is none.
            NoSuchTopicError: It has been deleted.
        """
        if directory is self.root:
            return [name for name in self._store.topics() if not name.startswith(HIDDEN_PREFIX)]
        if isinstance(directory, TopicNode):
            return [str(number) for number in self._store.partitions(directory.name)]
        if directory is self.segments:
            topics = self._store.topics()
            return [f"{name}-{n}" for name in topics for n in self._store.partitions(name)]
        if isinstance(directory, RawDirectoryNode):
            return DeferredLookup(directory.partition, _raw_names, (directory.partition,))
        raise NotADirectoryNodeError("a file is listed as a directory")


def _load(node: InNode) -> int:
    return node.open_files


def _raw_names(partition: MountedPartition) -> list[str]:
    log = partition.log
    return [name for name, is_directory in log.disk.list(log.directory) if not is_directory]


def _decode(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise UnknownNameError(f"{name!r} is not UTF-8") from None
