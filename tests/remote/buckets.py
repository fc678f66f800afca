"""A bucket made from a log directory, as a copier would leave it, and a plain way to read it."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import count

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import RemotePart
from logfs.disk.remote.readonlyfile import ReadOnlyFile
from logfs.disk.remote.treedisk import TreeDisk
from logfs.disk.vfs import Disk, File
from logfs.log import names
from logfs.log.checkpoints import read_leader_epochs, read_partition_metadata
from logfs.log.names import FileKind, format_segment_file
from logfs.log.remote.bucket import Bucket
from logfs.log.remote.entries import BLOCK_BYTES, PartLengths, TieredEntry
from logfs.log.remote.head import Head, SpilledTable, WritingDirectory, encode_head, encode_table
from logfs.log.remote.keys import STORE, PartitionPlace
from logfs.log.segments.snapshot import LogPoint
from logfs.log.segments.table import SegmentState, SegmentTable, TableEntry
from logfs.log.topics import read_properties
from logfs.records.checksum import crc32c
from logfs.types import TopicPartition
from tests.remote.fakestore import FakeStore

TP = TopicPartition("t", 0)
_IDS = count(1)


def unique_id() -> bytes:
    return hashlib.md5(next(_IDS).to_bytes(8, "big"), usedforsecurity=False).digest()


class TieredPartition:
    """A partition of a data directory and its objects in a fake store.

    Attributes:
        store: The objects.
        place: Where they are.
        entries: The tiered segments.
        tables: Tables that have left the head.
        start: The log start; None: that of the first segment.
    """

    def __init__(self, disk: Disk, store: FakeStore, topic_partition: TopicPartition = TP) -> None:
        self.disk = disk
        self.store = store
        self.directory = topic_partition.directory
        topic_id = read_partition_metadata(disk, self.directory)
        assert topic_id is not None
        self.place = PartitionPlace(topic_partition, topic_id)
        self.entries: list[TieredEntry] = []
        self.tables: list[SpilledTable] = []
        self.start: LogPoint | None = None
        self.config: Mapping[str, str] | None = read_properties(disk, self.directory)
        self._counter = 0
        store.objects.setdefault(STORE, b'{"version": 1}')

    def copy(self, most: int = 1_000_000) -> "TieredPartition":
        """Copy sealed segments that are not in the store yet, and write the head."""
        done = {entry.base_offset for entry in self.entries}
        table = SegmentTable.load(self.disk, self.directory)
        sealed = [e for e in sorted(table.entries.values()) if e.state is SegmentState.SEALED]
        for entry in [e for e in sealed if e.base_offset not in done][:most]:
            self.entries.append(self._copy(entry))
        self.write_head()
        return self

    def drop_first(self, number: int = 1) -> list[TieredEntry]:
        """Move the log start over the first segments, as retention does; objects stay."""
        gone, self.entries = self.entries[:number], self.entries[number:]
        self.start = LogPoint(gone[-1].next_offset, gone[-1].entry.ends)
        self.write_head()
        return gone

    def delete_objects(self, entries: Sequence[TieredEntry]) -> None:
        for entry in entries:
            del self.store.objects[self.place.log(entry.base_offset, entry.segment_id)]
            del self.store.objects[self.place.indexes(entry.base_offset, entry.segment_id)]

    def spill(self, number: int) -> None:
        """Move the first entries into a table."""
        spilled, self.entries = tuple(self.entries[:number]), self.entries[number:]
        data, key = encode_table(spilled), self.place.table(spilled[0].base_offset, unique_id())
        self.store.objects[key] = data
        self.tables.append(
            SpilledTable(
                key,
                number,
                spilled[0].base_offset,
                spilled[-1].next_offset,
                max(entry.entry.max_timestamp for entry in spilled),
                sum(entry.size_bytes for entry in spilled),
                crc32c(data),
            )
        )
        self.write_head()

    def write_head(self) -> None:
        """Put a new version of the head in place."""
        self._counter += 1
        self.store.now_ms += 1000
        table = SegmentTable.load(self.disk, self.directory)
        first = min(table.entries.values())
        start = self.start or LogPoint(first.base_offset, first.bases)
        head = Head(
            nonce=unique_id(),
            counter=self._counter,
            epoch=1,
            writer=WritingDirectory(bytes(range(16)), "host", 1_700_000_000_000),
            topic_id=self.place.topic_id,
            generation=table.generation,
            start=start,
            config=self.config,
            leader_epochs=tuple(read_leader_epochs(self.disk, self.directory)),
            tables=tuple(self.tables),
            entries=tuple(self.entries),
        )
        self.store._store(self.place.head, encode_head(head))

    def _copy(self, entry: TableEntry) -> TieredEntry:
        log = self._file(entry.base_offset, FileKind.LOG)
        blocks = range(0, len(log), BLOCK_BYTES)
        crcs = b"".join(crc32c(log[at : at + BLOCK_BYTES]).to_bytes(4, "big") for at in blocks)
        assert entry.next_offset is not None
        parts = [
            self._file(entry.base_offset, FileKind.OFFSET_INDEX),
            self._file(entry.base_offset, FileKind.TIME_INDEX),
            self._file(entry.next_offset, FileKind.SNAPSHOT),
            self._read(names.LEADER_EPOCH_CHECKPOINT),
            self._file(entry.base_offset, FileKind.TXN_INDEX),
            self._file(entry.base_offset, FileKind.TEXT_INDEX),
            crcs,
        ]
        indexes, segment_id = b"".join(parts), unique_id()
        self.store.objects[self.place.log(entry.base_offset, segment_id)] = log
        self.store.objects[self.place.indexes(entry.base_offset, segment_id)] = indexes
        name = f"{self.directory}/{format_segment_file(entry.base_offset, FileKind.LOG)}"
        return TieredEntry(
            entry,
            segment_id,
            self.disk.stat(name).mtime_ms,
            PartLengths(*map(len, parts)),
            crc32c(log),
            crc32c(indexes),
        )

    def _file(self, base_offset: int, kind: FileKind) -> bytes:
        return self._read(format_segment_file(base_offset, kind))

    def _read(self, name: str) -> bytes:
        try:
            return self.disk.read(f"{self.directory}/{name}", None)
        except FileNotFoundError:
            return b""


class DirectPart(ReadOnlyFile):
    """A part of an object; each read is one request. For stores that are as near as a disk."""

    __slots__ = ("_part", "_store")

    def __init__(self, store: ObjectStore, name: str, part: RemotePart) -> None:
        super().__init__(name)
        self._store = store
        self._part = part

    def inode(self) -> int:
        return self._part.inode

    def size(self) -> int:
        return self._part.size

    def pread_into(self, buffer: memoryview, position: int) -> int:
        size = min(len(buffer), self._part.size - position)
        if size <= 0:
            return 0
        buffer[:size] = self._store.get_range(self._part.key, self._part.start + position, size)
        return size

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        return None


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def bucket_disk(store: FakeStore, clock: Clock | None = None) -> TreeDisk:
    """Return the disk of a fake store; it asks again in the foreground."""
    bucket = Bucket(store, clock or Clock(), background=lambda function: function())

    def open_part(name: str, part: RemotePart) -> File:
        return DirectPart(store, name, part)

    return TreeDisk(store.url, bucket, open_part)
