"""One look at the names in a partition directory, for reading by offsets."""

from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.log.listing import list_partition
from logfs.log.names import FileKind, FileSuffix


class SegmentNames(NamedTuple):
    """What the names in a partition directory say.

    Attributes:
        logs: Base offset -> inode of every ``.log``, in the order of the offsets.
        swapped: Those of them that are still called ``.swap``: files are just being replaced, or
            the process was stopped in the middle of it.
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
    files = list_partition(disk, directory)
    logs, swaps = files.inodes(FileKind.LOG), files.inodes(FileKind.LOG, FileSuffix.SWAP)
    indexed = {
        *files.inodes(FileKind.TXN_INDEX),
        *files.inodes(FileKind.TXN_INDEX, FileSuffix.SWAP),
    }
    # What was compacted is treated as soon as the files that it means are gone.
    swapped = frozenset(swaps.keys() - logs.keys())
    both = {base: logs.get(base, swaps.get(base, 0)) for base in sorted({*logs, *swapped})}
    return SegmentNames(
        both, swapped, frozenset(indexed), frozenset(files.inodes(FileKind.SNAPSHOT))
    )
