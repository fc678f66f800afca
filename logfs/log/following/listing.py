"""One look at a partition directory: which ``.log`` files are there."""

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
