"""Nodes and open files of the predecessor, restored when a request uses them for the first time.

A number is restored from its entry in the journal, in the memory of the store alone: nothing here
waits for the disk. A node is restored only if its number still means the same: the same topic, the
same positions, and for a fixed name the same segments. Everything else is stale (ESTALE).

What has to be right before the first use is counted at the take-over: how many files of each
partition and of each user are open, and how many read from a backing file.
"""

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC
from typing import cast

from logfs.disk.vfs import FileStat
from logfs.errors import LogfsError
from logfs.fs.handover.describing import SEPARATOR, TAB, describe
from logfs.fs.handover.journal import Journal, NoJournal
from logfs.fs.handover.segments import SegmentNotes, look_back
from logfs.fs.kernel.errnos import StaleError
from logfs.fs.kernel.passthrough import Passthrough
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.partitions.quotas import Quotas
from logfs.fs.tree.nodes import (
    FileNode,
    FixedNode,
    FollowNode,
    KnownParts,
    MergedNode,
    MergedPartitions,
    Node,
    PendingIn,
    PendingNode,
    RangeNode,
)
from logfs.fs.tree.rawnodes import RawDirectoryNode, RawNode, SealedNode
from logfs.fs.tree.tree import PLAIN_VIEWS, Tree
from logfs.log.partition import PartitionLog
from logfs.log.reading.address import PartitionAddress, Suffix, format_address, parse_point
from logfs.log.segments.segment import Segment
from logfs.services.views.resolve import Limit, Resolved
from logfs.types import View

logger = logging.getLogger(__name__)

_SUFFIX = {view: suffix for suffix, view in PLAIN_VIEWS.items()}
_READS_LOG = frozenset({"plain", "in", "range", "follow", "fixed"})
"""The kinds of files whose partition is not reloaded while they are open."""
_MERGED = "merged" + SEPARATOR
_LARGEST_MERGED_BYTES = 4 << 20
"""A merged name with a longer text, of some 16,000 partitions, ends with its daemon."""
_MOST_MERGED_BYTES = 32 << 20
"""So long are the texts of all open merged names together, a quarter of what the journal takes."""


class KeptNodes:
    """Notes the nodes that the kernel knows, and restores those noted earlier. Event loop only.

    Args:
        tree: The names.

    Attributes:
        journal: The journal with the notes.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._merged: dict[int, int] = {}  # lengths of texts, by inode
        self._parts = KnownParts()
        self.journal: Journal = NoJournal()

    def note(self, node: Node) -> None:
        """Note a node before the kernel knows its number; a merged one only when it is opened.

        The kernel looks a name that is not open up again if its number means nothing.
        """
        if isinstance(node, MergedNode):
            self._parts.note(node)
        elif self.journal.is_kept:
            self._note(node.ino, describe(node))

    def note_open(self, node: Node) -> None:
        """Note a node before it is opened."""
        if not self.journal.is_kept:
            return
        if isinstance(node, MergedNode) and not node.parts:
            return  # forgotten while it was opened: the open file ends with its daemon
        text = describe(node)
        if isinstance(node, MergedNode):
            self._merged.pop(node.ino, None)
            room = _MOST_MERGED_BYTES - sum(self._merged.values())
            if len(text) > min(room, _LARGEST_MERGED_BYTES):
                logger.warning(
                    "%s@…: open files of this name, which merges %d partitions, end with this "
                    "daemon: there is no room to note all of it",
                    node.partition.topic_partition.topic, len(node.parts),
                )  # fmt: skip
                text = ""
            self._merged[node.ino] = len(text)
        self._note(node.ino, text)

    def _note(self, ino: int, text: str) -> None:
        if text:
            self.journal.node(ino, text)
        else:
            self.journal.forgotten(ino)

    def forget(self, ino: int) -> None:
        """Note that the kernel does not know a number any more."""
        self._merged.pop(ino, None)
        self._parts.forget(ino)
        self.journal.forgotten(ino)

    def restore(self, ino: int) -> Node | None:
        """Return the node of a number that the predecessor noted; None if it noted none.

        Raises:
            StaleError: The number means nothing any more.
        """
        text = self.journal.nodes.get(ino)
        if text is None:
            return None
        node = restore_node(self._tree, text)
        node.ino = ino
        if isinstance(node, MergedNode):
            self._parts.note(node)
        return node

    def with_parts(self, node: Node | None) -> Node | None:
        """Return a node of an open file; if it has lost its parts, restored again."""
        if isinstance(node, MergedNode) and not node.parts:
            return self.restore(node.ino)
        return node

    def numbers(self) -> list[int]:
        """Return the numbers that the kernel may know."""
        return list(self.journal.nodes)

    def partitions_of(self, ino: int) -> list[MountedPartition]:
        """Return the partitions that an open file of a noted node keeps from being reloaded."""
        texts = self.journal.nodes.get(ino, "").split(SEPARATOR)
        found = []
        for text in texts[2::2] if len(texts) > 1 else texts:
            kind, *place = text.split(TAB, 4)[:4]
            if kind in _READS_LOG:
                with suppress(LogfsError):  # its files are stale
                    found.append(_partition(self._tree, *place))
        return found

    def note_deletions(self, node: Node) -> None:
        """Note which segments of a fixed name are deleted, before it is opened."""
        if not self.journal.is_kept or not isinstance(node, FixedNode | MergedNode):
            return
        parts = [part for part, _ in node.parts] if isinstance(node, MergedNode) else [node]
        for part in parts:
            log = part.resolved.log
            if isinstance(log, PartitionLog):
                log.removal.deleted.notes = SegmentNotes(self.journal, log.directory)

    def fixed_files(self) -> list[int]:
        """Return the open files whose segments must stay readable when they are deleted."""
        nodes = self.journal.nodes
        files = self.journal.files.items()
        kinds = "fixed" + TAB, _MERGED
        return [fh for fh, file in files if nodes.get(file.ino, "").startswith(kinds)]

    def take_over(self, journal: Journal, passthrough: Passthrough, quotas: Quotas) -> None:
        """Note in a journal from now on, and count the open files that it has already.

        Args:
            journal: That of the mount.
            passthrough: Continues with the backing files.
            quotas: Limit the open files of users.
        """
        self.journal = journal
        for ino, text in journal.nodes.items():
            if text.startswith(_MERGED):
                self._merged[ino] = len(text)
        passthrough.note = journal.backing
        files = Counter(file.ino for file in journal.files.values())
        for ino, count in files.items():
            for partition in self.partitions_of(ino):
                partition.open_files += count
        for ino, number in list(journal.backings.items()):
            passthrough.resume(ino, number, files[ino])
        for kind, opened in (("file", journal.files), ("directory", journal.directories)):
            for fh, file in opened.items():
                quotas.note_opened(file.uid, kind, fh)


def restore_node(tree: Tree, text: str) -> Node:
    """Return the node that a text describes, without a number; see ``describing``.

    Raises:
        StaleError: The topic or the partition is another one by now, or a segment is gone.
    """
    kind, *fields = text.split(SEPARATOR)
    if kind == "merged":
        return _restore_merged(tree, fields)
    kind, *fields = text.split(TAB)
    try:
        if kind == "segments":
            return tree.segments
        if kind == "topic":
            return _topic(tree, *fields)
        partition = _partition(tree, *fields[:3])
    except StaleError:
        raise
    except LogfsError as error:
        raise StaleError(str(error)) from error
    return _MAKERS[kind](tree, partition, fields[3:])


def _topic(tree: Tree, name: str, topic_id: str) -> Node:
    node = tree.topic(name)
    if (node.topic_id or "") != topic_id:
        raise StaleError(f"{name}: the topic has been deleted and created again")
    return node


def _partition(tree: Tree, topic: str, number: str, identity: str) -> MountedPartition:
    partition = tree.partition(topic, int(number))
    if partition.identity != identity:
        raise StaleError(f"{topic}-{number}: another partition has this name by now")
    return partition


def _named(tree: Tree, partition: MountedPartition, suffix: Suffix) -> Node:
    topic, number = partition.topic_partition
    name = format_address(PartitionAddress(number, view=suffix))
    return cast("Node", tree.find(tree.topic(topic), name.encode()))


def _restore_in(tree: Tree, partition: MountedPartition, fields: list[str]) -> FileNode:
    view, slot = View(int(fields[0])), int(fields[1])
    return tree.writer(tree.topic(partition.topic_partition.topic), partition, view, slot)


def _restore_range(tree: Tree, partition: MountedPartition, fields: list[str]) -> FileNode:
    return RangeNode(partition, _growing(partition, fields), tree.ownership)


def _restore_follow(tree: Tree, partition: MountedPartition, fields: list[str]) -> FileNode:
    return FollowNode(partition, _growing(partition, fields), tree.ownership)


def _growing(partition: MountedPartition, fields: list[str]) -> Resolved:
    view, start, text = fields
    limit = cast("Limit", parse_point(text, UTC)) if text else None
    return Resolved(partition.log, View(int(view)), int(start), limit=limit, level=partition.level)


def _restore_fixed(tree: Tree, partition: MountedPartition, fields: list[str]) -> FileNode:
    view, (start, end) = View(int(fields[0])), map(int, fields[1:3])
    _, _, _, text, digest, mtime_ms, key = fields
    runs = tuple((int(a), int(b)) for a, b in (run.split("-") for run in text.split(",") if run))
    log, snapshot = partition.log, partition.log.snapshot
    segments: tuple[Segment, ...] = ()
    if runs:
        deleted = log.removal.deleted.segments if isinstance(log, PartitionLog) else []
        found = look_back(snapshot, deleted, view, (runs[0][0], runs[-1][1]), digest)
        if found is None:
            raise StaleError(f"{partition.topic_partition}: segments of {key} have been deleted")
        snapshot, segments = found
    resolved = Resolved(log, view, start, end, None, runs, snapshot, segments, partition.level)
    node = FixedNode(partition, resolved, tree.ownership, int(mtime_ms))
    node.key = key  # it contains the rewrites since the start of the predecessor
    return node


def _restore_sealed(tree: Tree, partition: MountedPartition, fields: list[str]) -> FileNode:
    inode, size, mtime_ms, rewrites, stays_cached = map(int, fields[:5])
    found = FileStat(size=size, mtime_ms=mtime_ms, inode=inode, is_directory=False)
    node = SealedNode(partition, TAB.join(fields[5:]), found, tree.ownership, rewrites)
    node.stays_cached = bool(stays_cached)
    return node


def _restore_pending(tree: Tree, partition: MountedPartition, fields: list[str]) -> FileNode:
    directory, now_ms, serial = map(int, fields[:3])
    name, owners = TAB.join(fields[3:]), tree.ownership
    kind = PendingIn(directory)
    return PendingNode(partition, owners, name, directory=kind, now_ms=now_ms, serial=serial)


def _restore_merged(tree: Tree, fields: list[str]) -> MergedNode:
    parts, offsets = [], []
    for text, fixed in zip(fields[::2], fields[1::2], strict=True):
        start, _, stop = text.partition("-")
        parts.append(cast("FixedNode", restore_node(tree, fixed)))
        offsets.append(range(int(start), int(stop)))
    partitions = tuple(part.partition for part in parts)
    merged = MergedPartitions(partitions, tuple(one.identity for one in partitions))
    return MergedNode(parts, offsets, tree.ownership, merged)


_MAKERS: dict[str, Callable[[Tree, MountedPartition, list[str]], Node]] = {
    "raw": lambda tree, partition, _: RawDirectoryNode(
        partition, tree.ownership, tree.segments, tree.segments.mtime_ms
    ),
    "plain": lambda tree, partition, fields: _named(tree, partition, _SUFFIX[View(int(fields[0]))]),
    "in": _restore_in,
    "meta": lambda tree, partition, _: _named(tree, partition, Suffix.META),
    "range": _restore_range,
    "follow": _restore_follow,
    "fixed": _restore_fixed,
    "file": lambda tree, partition, fields: RawNode(
        partition, TAB.join(fields[1:]), int(fields[0]), tree.ownership
    ),
    "sealed": _restore_sealed,
    "pending": _restore_pending,
}
