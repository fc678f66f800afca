"""The inodes below ``.segments``: the raw files of a partition, and their directory."""

from logfs.disk.vfs import FileStat
from logfs.fs.kernel.errnos import StaleError
from logfs.fs.kernel.permissions import FileAttributes, MountOwnership
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.tree.nodes import CACHED_S, DirectoryNode, FileNode
from logfs.services.views.files import RawFile

_LOG = ".log"
"""Only appended to, or replaced as a whole; small files are replaced at every change."""


class RawDirectoryNode(DirectoryNode):
    """The directory of the raw files of a partition, with the mode and owner of its topic.

    Its time of change is that of the directory on the disk: a program that follows the files sees
    at once when one was added or removed.
    """

    attr_timeout_s = 0.0
    asks_disk = True

    def __init__(
        self,
        partition: MountedPartition,
        ownership: MountOwnership,
        parent: DirectoryNode,
        mtime_ms: int,
    ) -> None:
        super().__init__(f"{partition.identity}/raw", ownership, parent, mtime_ms)
        self._partition = partition
        self.owned_by = partition.topic_partition.topic

    @property
    def partition(self) -> MountedPartition:
        """Return the partition."""
        return self._partition

    def attributes(self) -> FileAttributes:
        """Return what stat(2) tells now; asks the disk."""
        log = self._partition.log
        found = super().attributes()
        try:
            return found._replace(mtime_ms=log.disk.stat(log.directory).mtime_ms)
        except OSError:
            return found  # deleted while it is open, or a symbolic link


class RawNode(FileNode):
    """A file of the partition directory. Those of sealed segments never change.

    Attributes:
        name: Its name in the directory.
        disk_inode: The inode number of the file on the disk. It stays the same when a segment is
            sealed; the inode number in the mount changes then.
    """

    asks_disk = True
    reads_log = False

    def __init__(
        self, partition: MountedPartition, name: str, disk_inode: int, ownership: MountOwnership
    ) -> None:
        super().__init__(f"raw {name}", partition, ownership)
        self.name = name
        self.disk_inode = disk_inode

    def path(self) -> str:
        """Return where the file is now, below the data directory."""
        return f"{self._partition.log.directory}/{self.name}"

    def open(self) -> RawFile:
        """Open it.

        Raises:
            StaleError: It has been removed.
        """
        try:
            # The kernel caches the file in the mount; it need not be in memory twice.
            disk, is_cached = self._partition.log.disk, self.is_cached
            return RawFile(disk, self.path(), uncached=is_cached)
        except FileNotFoundError as error:
            raise StaleError(f"{self.path()} has been removed") from error

    def size(self) -> int:
        """Return the length in bytes; asks the disk."""
        return self._stat().size

    def mtime_ms(self) -> int:
        """Return the time of the last change; asks the disk."""
        return self._stat().mtime_ms

    def _stat(self) -> FileStat:
        try:
            found = self._partition.log.disk.stat(self.path())
        except FileNotFoundError as error:
            raise StaleError(f"{self.path()} has been removed") from error
        if self.name.endswith(_LOG) and found.inode != self.disk_inode:
            raise StaleError(f"{self.path()} has been replaced")
        return found


class SealedNode(RawNode):
    """A file of a sealed segment.

    Attributes:
        found: The facts that the directory had about it at the look-up.
        rewrites: How often compaction had replaced the segment since the start.
        stays_cached: The kernel was told to cache it, so it cannot be passed through any more.
    """

    attr_timeout_s = CACHED_S
    asks_disk = False
    is_cached = True

    def __init__(
        self,
        partition: MountedPartition,
        name: str,
        found: FileStat,
        ownership: MountOwnership,
        rewrites: int = 0,
    ) -> None:
        # A file that is rewritten under its name, or replaced, is another inode.
        super().__init__(partition, name, found.inode, ownership)
        self.key += f" {found.inode} {found.size} {found.mtime_ms} {rewrites}"
        self.stays_cached = False
        self.found = found
        self.rewrites = rewrites

    def open(self) -> RawFile:
        """Open the file that was found when the name was looked up.

        Raises:
            StaleError: It has been removed or replaced since.
        """
        file = super().open()
        if file.inode() != self.found.inode or file.size() != self.found.size:
            file.close()
            raise StaleError(f"{self.path()} has been replaced")
        return file

    def _stat(self) -> FileStat:
        return self.found
