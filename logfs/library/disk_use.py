"""How much of the disk topics and partitions take, and how long they are as files of a mount.

``du`` on a mount adds up positions, which only grow; here blocks are counted that the files take,
so holes, preallocated files and what is deleted but not removed yet come out as they are.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from logfs.disk.posix import PosixDisk
from logfs.errors import LogfsError, text_of
from logfs.library.directory import open_for_reading
from logfs.library.places import served_at
from logfs.log.listing import list_partitions
from logfs.log.names import FileKind, FileSuffix, parse_partition_directory, parse_segment_file
from logfs.machine.disks import disk_of, is_url
from logfs.services.overview import text_lengths, tiered_bytes
from logfs.types import TopicPartition

_BLOCK_BYTES = 512
_INDEXES = {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.TEXT_INDEX}


@dataclass(slots=True)
class Use:
    """What some files take, in bytes.

    Attributes:
        log: Blocks of ``.log`` files.
        index: Blocks of their indexes, text indexes included.
        other: Blocks of everything else: what is deleted but still there, snapshots, tables.
        kept: Length of the values that are kept, as text; None if it is not known.
        shown: Size of the file in a mount, holes included; None if it is not known.
        remote: Bytes of its segments and indexes in the object store of the data directory.
    """

    log: int = 0
    index: int = 0
    other: int = 0
    kept: int | None = None
    shown: int | None = None
    remote: int = 0

    @property
    def disk(self) -> int:
        """Blocks of all of it."""
        return self.log + self.index + self.other

    def add(self, more: "Use") -> None:
        """Add what other files take."""
        self.log, self.index = self.log + more.log, self.index + more.index
        self.other += more.other
        self.remote += more.remote
        self.kept = None if self.kept is None or more.kept is None else self.kept + more.kept
        known = self.shown is not None and more.shown is not None
        self.shown = self.shown + more.shown if known else None  # type: ignore[operator]


@dataclass(slots=True)
class DiskUse:
    """What a data directory takes: its partitions, its deleted topics, the files of the root.

    Attributes:
        unreadable: Why directories could not be added up; nothing or a part of them is.
    """

    partitions: dict[TopicPartition, Use] = field(default_factory=dict)
    deleted: Use = field(default_factory=Use)
    root: Use = field(default_factory=Use)
    unreadable: list[str] = field(default_factory=list)


def disk_use(data: str, only: Collection[TopicPartition] | None) -> DiskUse:
    """Add up a data directory or a store, or some of its partitions; takes no lock."""
    if is_url(data):
        return _store_use(data, only)
    found, seen = DiskUse(), set[tuple[int, int]]()
    point = served_at(data)
    for entry in sorted(_entries(data), key=lambda entry: entry.name):
        parsed = parse_partition_directory(entry.name) if entry.is_dir() else None
        try:
            if parsed is not None and not parsed.state:
                topic_partition = TopicPartition(parsed.topic, parsed.partition)
                if only is None or topic_partition in only:
                    use = found.partitions[topic_partition] = _directory(entry.path, seen)
                    use.kept, use.shown = _lengths(data, topic_partition, point)
                    use.remote = tiered_bytes(PosixDisk(data), topic_partition.directory)
            elif only is None and entry.is_dir():
                found.deleted.add(_directory(entry.path, seen))
            elif only is None:
                found.root.other += _blocks(entry, seen)
        except OSError as error:  # as du(1) does, it continues with the others
            found.unreadable.append(text_of(error))
    return found


def _store_use(url: str, only: Collection[TopicPartition] | None) -> DiskUse:
    """Add up the objects that the heads of a store name."""
    found, disk = DiskUse(), disk_of(url)
    for topic_partition in list_partitions(disk):
        if only is None or topic_partition in only:
            use = found.partitions[topic_partition] = Use()
            directory = topic_partition.directory
            for name in disk.contents(directory).files:
                size = disk.stat(f"{directory}/{name}").size
                parsed = parse_segment_file(name)
                if parsed is not None and parsed.kind is FileKind.LOG:
                    use.log += size
                elif parsed is not None and parsed.kind in _INDEXES:
                    use.index += size
                else:
                    use.other += size
            use.kept, use.shown = _lengths(url, topic_partition, None)
    return found


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            yield from entries
    except FileNotFoundError:
        return  # removed meanwhile


def _directory(path: str, seen: set[tuple[int, int]]) -> Use:
    use = Use()
    for entry in _entries(path):
        size = _blocks(entry, seen)
        parsed = parse_segment_file(entry.name)
        if parsed is None or parsed.suffix is not FileSuffix.NONE:
            use.other += size
        elif parsed.kind is FileKind.LOG:
            use.log += size
        elif parsed.kind in _INDEXES:
            use.index += size
        else:
            use.other += size
    return use


def _blocks(entry: os.DirEntry[str], seen: set[tuple[int, int]]) -> int:
    """Return the blocks of a file; 0 for further names of a file that was added before."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return 0
    if (found.st_dev, found.st_ino) in seen:
        return 0
    seen.add((found.st_dev, found.st_ino))
    return found.st_blocks * _BLOCK_BYTES


def _lengths(
    data: str, topic_partition: TopicPartition, point: str | None
) -> tuple[int | None, int | None]:
    """Return how long what is kept of a partition is, and its size in a mount."""
    try:
        found = text_lengths(disk_of(data), topic_partition.directory)
    except (LogfsError, OSError):
        return None, None if point is None else _size_in(point, topic_partition)
    if found is None:
        return None, None
    kept = found.kept
    if found.end is not None:
        return kept, found.end
    shown = None if point is None else _size_in(point, topic_partition)
    if shown is None:
        shown = _size_stored(data, topic_partition)
    if found.active is not None and shown is not None:
        kept += shown - found.active
    return (None if shown is None else kept), shown


def _size_in(point: str, topic_partition: TopicPartition) -> int | None:
    try:
        return Path(point, topic_partition.topic, str(topic_partition.partition)).stat().st_size
    except OSError:
        return None


def _size_stored(data: str, topic_partition: TopicPartition) -> int | None:
    """Return the size, for which the last segment may have to be read."""
    try:
        log = open_for_reading(disk_of(data), [topic_partition]).partition(*topic_partition)
    except (LogfsError, OSError):
        return None
    return None if log.is_unreadable else log.snapshot.end.positions.text
