"""What one listing of a partition directory that another process writes says."""

from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.log.listing import list_partition
from logfs.log.names import FileKind, FileSuffix

RACY_MS = 100
"""A time stamp this young may not change if the directory changes once more."""


class Listing(NamedTuple):
    """What a look found.

    Attributes:
        logs: Base offset -> inode of every ``.log``.
        is_swapping: Files are being put in the place of others: what is missing says nothing.
        mtime_ms: Of the directory, when it was looked at; None if it may change unseen.
    """

    logs: dict[int, int]
    is_swapping: bool
    mtime_ms: int | None

    def starting(self, base_offset: int) -> "Listing":
        """Return it without what lies before a base offset."""
        if not self.logs or base_offset <= min(self.logs):
            return self
        logs = {base: inode for base, inode in self.logs.items() if base >= base_offset}
        return self._replace(logs=logs)


def list_logs(disk: Disk, directory: str, now_ms: int) -> Listing:
    """Look at a partition directory; FileNotFoundError if it is gone."""
    mtime_ms = disk.stat(directory).mtime_ms
    files = list_partition(disk, directory)
    is_swapping = bool(files.inodes(FileKind.LOG, FileSuffix.SWAP))
    is_racy = mtime_ms > now_ms - RACY_MS
    return Listing(files.inodes(FileKind.LOG), is_swapping, None if is_racy else mtime_ms)


class SegmentNames(NamedTuple):
    """What the names in a partition directory say.

    Attributes:
        logs: Base offset -> inode of every ``.log``, in the order of the offsets.
        swapped: Those of them that are still called ``.swap``: the owner is replacing files, or
            was stopped while it did.
    """

    logs: dict[int, int]
    swapped: frozenset[int]
    indexed: frozenset[int]
    snapshots: frozenset[int]


def list_names(disk: Disk, directory: str) -> SegmentNames:
    """Look at a partition directory; raise FileNotFoundError if it is gone."""
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
