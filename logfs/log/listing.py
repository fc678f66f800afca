"""The partition directories of a data directory, and the files of segments in them."""

from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.log import names
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, parse_segment_file
from logfs.types import TopicPartition


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


def list_partitions(disk: Disk) -> list[TopicPartition]:
    """Return the partitions of a data directory, without those of deleted topics.

    A partition whose directory is a symbolic link is included: loading it fails, and that is
    reported.
    """
    found = []
    contents = disk.contents("")
    for name in sorted([*contents.directories, *(name for name, _ in contents.irregular)]):
        parsed = names.parse_partition_directory(name)
        if parsed is None or name == names.CLUSTER_METADATA_DIRECTORY:
            continue
        if parsed.state is names.DirectoryState.NONE:
            found.append(TopicPartition(parsed.topic, parsed.partition))
    return found
