"""The files of segments in a partition directory, found by their names."""

from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, parse_segment_file


class PartitionListing(NamedTuple):
    """The inode of each file of a partition at one moment, in the order of base offsets."""

    files: dict[SegmentFileName, int]

    def inodes(self, kind: FileKind, suffix: FileSuffix = FileSuffix.NONE) -> dict[int, int]:
        """Return base offset -> inode of the files of one kind, in the order of the offsets."""
        return {
            file.base_offset: inode
            for file, inode in self.files.items()
            if file.kind is kind and file.suffix is suffix
        }

    def kinds(self, suffix: FileSuffix = FileSuffix.NONE) -> dict[int, set[FileKind]]:
        """Return base offset -> the kinds of files that a segment has."""
        found: dict[int, set[FileKind]] = {}
        for file in self.files:
            if file.suffix is suffix:
                found.setdefault(file.base_offset, set()).add(file.kind)
        return found


def list_partition(disk: Disk, directory: str) -> PartitionListing:
    """List a partition directory; raise FileNotFoundError if the directory does not exist."""
    found = {}
    for name, inode in disk.inodes(directory).items():
        parsed = parse_segment_file(name)
        if parsed is not None:
            found[parsed] = inode
    return PartitionListing(dict(sorted(found.items())))
