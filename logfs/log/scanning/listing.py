"""One look at the names in a partition directory, for those who go by offsets."""

from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.log.names import FileKind, FileSuffix, parse_segment_file


class SegmentNames(NamedTuple):
    """What the names in a partition directory say.

    Attributes:
        logs: Base offset -> inode of every ``.log``, in the order of the offsets.
        swapped: Those of them that are still called ``.swap``: files are just being replaced, or
            somebody was stopped in the middle of it.
        indexed: Base offsets that have a transaction index.
        snapshots: Offsets of the producer snapshots.
    """

    logs: dict[int, int]
    swapped: frozenset[int]
    indexed: frozenset[int]
    snapshots: frozenset[int]


def list_names(disk: Disk, directory: str) -> SegmentNames:
    """Look at a partition directory.

    Raises:
        FileNotFoundError: It is gone.
    """
    logs: dict[int, int] = {}
    swaps: dict[int, int] = {}
    indexed, snapshots = set[int](), set[int]()
    for name, inode in disk.inodes(directory).items():
        parsed = parse_segment_file(name)
        if parsed is None:
            continue
        base_offset, kind, suffix = parsed
        if kind is FileKind.LOG and suffix is FileSuffix.NONE:
            logs[base_offset] = inode
        elif kind is FileKind.LOG and suffix is FileSuffix.SWAP:
            swaps[base_offset] = inode
        elif kind is FileKind.TXN_INDEX and suffix in {FileSuffix.NONE, FileSuffix.SWAP}:
            indexed.add(base_offset)
        elif kind is FileKind.SNAPSHOT and suffix is FileSuffix.NONE:
            snapshots.add(base_offset)
    # What was compacted is treated as soon as the files that it means are gone.
    swapped = frozenset(swaps.keys() - logs.keys())
    both = {base: logs.get(base, swaps.get(base, 0)) for base in sorted({*logs, *swapped})}
    return SegmentNames(both, swapped, frozenset(indexed), frozenset(snapshots))
