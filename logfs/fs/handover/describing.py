"""The text that describes a node of the mount, so that a successor has it under the same number.

    topic      NAME  TOPIC-ID
    segments
    raw        NAME  PARTITION  IDENTITY
    plain      NAME  PARTITION  IDENTITY  VIEW
    in         NAME  PARTITION  IDENTITY  VIEW  SLOT
    meta       NAME  PARTITION  IDENTITY
    range      NAME  PARTITION  IDENTITY  VIEW  START  LIMIT            also follow
    fixed      NAME  PARTITION  IDENTITY  VIEW  START  END  RUNS  SEGMENTS  MTIME  KEY
    file       NAME  PARTITION  IDENTITY  DISK-INODE  FILE
    sealed     NAME  PARTITION  IDENTITY  DISK-INODE  SIZE  MTIME  REWRITES  CACHED  FILE
    pending    NAME  PARTITION  IDENTITY  DIRECTORY  TIME  SERIAL  FILE
    merged     START-STOP  FIXED  START-STOP  FIXED  ...

The fields have tabs between them; NAME is the topic. IDENTITY says which positions these are. A
fixed name has the positions that it shows (RUNS, as ``0-10,20-30``) and a checksum of its segments.
A merged one has the offsets and the text of the fixed name of each partition, with the character 30
between them.
"""

from collections.abc import Sequence
from hashlib import blake2b

from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.tree.nodes import (
    FileNode,
    FixedNode,
    FollowNode,
    InNode,
    MergedNode,
    MetaNode,
    Node,
    PendingNode,
    PlainNode,
    RangeNode,
    TopicNode,
)
from logfs.fs.tree.rawnodes import RawDirectoryNode, RawNode, SealedNode
from logfs.log.reading.address import format_point
from logfs.log.segments.segment import Segment
from logfs.types import View

TAB = "\t"
SEPARATOR = "\x1e"


def describe(node: Node) -> str:
    """Return the text of a node; "" if it ends with its daemon.

    That is the root, which every daemon has, and a name in a log whose positions are not known yet.
    """
    if isinstance(node, TopicNode):
        return f"topic\t{node.name}\t{node.topic_id or ''}" if node.parent else ""
    if not isinstance(node, RawDirectoryNode | FileNode):
        return "segments"
    if isinstance(node, MergedNode):
        return _describe_merged(node)
    place = _place(node.partition)
    if isinstance(node, PendingNode):
        return f"pending\t{place}\t{node.directory:d}\t{node.now_ms}\t{node.serial}\t{node.name}"
    return _describe_file(node, place) if isinstance(node, FileNode) else f"raw\t{place}"


def _place(partition: MountedPartition) -> str:
    topic, number = partition.topic_partition
    return f"{topic}\t{number}\t{partition.identity}"


def _describe_merged(node: MergedNode) -> str:
    if any(part.resolved.log.is_part for part, _ in node.parts):
        return ""
    parts = ["merged"]
    for part, offsets in node.parts:
        fixed = _describe_fixed(part, _place(part.partition))
        parts += [f"{offsets.start}-{offsets.stop}", fixed]
    return SEPARATOR.join(parts)


def _describe_file(node: FileNode, place: str) -> str:
    match node:
        case PlainNode():
            slot = f"\t{node.slot}" if isinstance(node, InNode) else ""
            return f"{'in' if slot else 'plain'}\t{place}\t{node.view:d}{slot}"
        case MetaNode():
            return f"meta\t{place}"
        case RangeNode():
            return "" if node.resolved.log.is_part else _describe_growing(node, place)
        case FixedNode():
            return "" if node.resolved.log.is_part else _describe_fixed(node, place)
        case SealedNode(found=found):
            return (
                f"sealed\t{place}\t{found.inode}\t{found.size}\t{found.mtime_ms}\t{node.rewrites}\t"
                f"{node.stays_cached:d}\t{node.name}"
            )
        case RawNode():
            return f"file\t{place}\t{node.disk_inode}\t{node.name}"
    raise TypeError(f"{type(node).__name__} cannot be described")


def _describe_growing(node: RangeNode, place: str) -> str:
    resolved = node.resolved
    kind = "follow" if isinstance(node, FollowNode) else "range"
    limit = "" if resolved.limit is None else format_point(resolved.limit)
    return f"{kind}\t{place}\t{resolved.view:d}\t{resolved.start}\t{limit}"


def _describe_fixed(node: FixedNode, place: str) -> str:
    resolved = node.resolved
    runs = ",".join(f"{start}-{end}" for start, end in resolved.runs)
    segments = segments_digest(resolved.segments, resolved.view)
    return (
        f"fixed\t{place}\t{resolved.view:d}\t{resolved.start}\t{resolved.end}\t{runs}\t{segments}\t"
        f"{node.mtime_ms()}\t{node.key}"
    )


def segments_digest(segments: Sequence[Segment], view: View) -> str:
    """Return a checksum of which records segments hold, the same after a restart."""
    digest = blake2b(digest_size=8)
    for segment in segments:
        text = f"{segment.base_offset}"
        if segment.has_gaps:  # a compacted segment keeps its base offset, but not its records
            text += f" {segment.lengths[view]} {segment.next_offset} {segment.size_bytes}"
            text += f" {segment.max_timestamp}"
        digest.update(f"{text};".encode())
    return digest.hexdigest()
