"""What an inode below ``.segments`` is: the raw files of a partition, and their directory."""

from logfs.disk.vfs import FileStat
from logfs.fs.errnos import StaleError
from logfs.fs.nodes import CACHED_S, DirectoryNode, FileNode, Ownership
from logfs.fs.partitions import Partition
from logfs.log.reading.files import RawFile


class RawDirectoryNode(DirectoryNode):
    """The raw files of one partition: whatever the topic's directory denies, this one denies."""

    def __init__(
        self, partition: Partition, ownership: Ownership, parent: DirectoryNode, mtime_ms: int
    ) -> None:
        super().__init__(f"{partition.identity}/raw", ownership, parent, mtime_ms)
        self._partition = partition
        self.owned_by = partition.topic_partition.topic

    @property
    def partition(self) -> Partition:
        """Return the partition."""
        return self._partition


class RawNode(FileNode):
    """A file of the partition directory. Those of sealed segments never change.

    Attributes:
        name: Its name in the directory.
    """

    asks_disk = True
    reads_log = False

    def __init__(self, partition: Partition, name: str, ownership: Ownership) -> None:
        super().__init__(f"raw {name}", partition, ownership)
        self.name = name

    def path(self) -> str:
        """Return where the file is now, below the data directory."""
        return f"{self._partition.log.directory}/{self.name}"

    def open(self) -> RawFile:
        """Open it.

        Raises:
            StaleError: It has been removed.
        """
        try:
            # What the kernel caches itself need not be in memory twice.
            disk, is_cached = self._partition.log.disk, self.is_cached
            return RawFile(disk, self.path(), in_passing=is_cached)
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
            return self._partition.log.disk.stat(self.path())
        except FileNotFoundError as error:
            raise StaleError(f"{self.path()} has been removed") from error


class SealedNode(RawNode):
    """A file of a sealed segment.

    Attributes:
        stays_cached: The kernel has been told to cache it, so it cannot be passed through any more.
    """

    attr_timeout_s = CACHED_S
    asks_disk = False
    is_cached = True

    def __init__(
        self,
        partition: Partition,
        name: str,
        found: FileStat,
        ownership: Ownership,
        rewrites: int = 0,
    ) -> None:
        # A file that is rewritten under its name, or replaced, is another inode.
        super().__init__(partition, name, ownership)
        self.key += f" {found.inode} {found.size} {found.mtime_ms} {rewrites}"
        self.stays_cached = False
        self._found = found

    def open(self) -> RawFile:
        """Open the file that was found when the name was looked up.

        Raises:
            StaleError: It has been removed or replaced since.
        """
        file = super().open()
        if file.inode() != self._found.inode or file.size() != self._found.size:
            file.close()
            raise StaleError(f"{self.path()} has been replaced")
        return file

    def _stat(self) -> FileStat:
        return self._found
