"""The files of a partition directory as the head of the partition describes them. Pure.

They are those that a data directory would have after a clean stop just after the last tiered
record: all tiered segments are sealed, and an empty segment after them is closed. So nothing has to
be scanned. The small files are made from the head; all others are parts of objects.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from logfs.disk.remote.overlay import RemotePart
from logfs.disk.remote.treedisk import FoundFile, MadeFile
from logfs.log import names
from logfs.log.checkpoints import format_leader_epochs, format_partition_metadata
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.names import FileKind, FileSuffix, format_segment_file, parse_segment_file
from logfs.log.remote.entries import PartLengths, TieredEntry
from logfs.log.remote.head import Head
from logfs.log.remote.keys import PartitionPlace
from logfs.log.segments.table import SegmentState, TableEntry, encode_table
from logfs.log.topics import format_topic_config
from logfs.types import Positions

_PARTS: Mapping[FileKind, int] = {
    FileKind.OFFSET_INDEX: PartLengths._fields.index("offset"),
    FileKind.TIME_INDEX: PartLengths._fields.index("time"),
    FileKind.TXN_INDEX: PartLengths._fields.index("txn"),
    FileKind.TEXT_INDEX: PartLengths._fields.index("text"),
}
_SNAPSHOT = PartLengths._fields.index("snapshot")
_ALWAYS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TEXT_INDEX)


class HeadFiles:
    """The directory of one partition, of one version of its head.

    Attributes:
        place: The place of its objects.
        head: The head.
        entries: All tiered segments, those of spilled tables included.
        mtime_ms: The modification time of the directory.
        active: The empty segment at the end.
    """

    def __init__(
        self, place: PartitionPlace, head: Head, entries: Sequence[TieredEntry], mtime_ms: int
    ) -> None:
        self.place = place
        self.head = head
        self.entries = entries
        self.mtime_ms = mtime_ms
        self.inode = inode_of(place.prefix.encode())
        self.active = active_entry(head, entries)
        self._numbers = {entry.base_offset: number for number, entry in enumerate(entries)}
        self._last_mtime_ms = entries[-1].mtime_ms if entries else mtime_ms
        self._made: dict[str, MadeFile] = {}

    def find(self, name: str) -> FoundFile | None:
        """Return a file; None if there is none of this name."""
        parsed = parse_segment_file(name)
        if parsed is None:
            return self._small(name)
        if parsed.suffix is not FileSuffix.NONE:
            return None
        if parsed.base_offset == self.active.base_offset:
            return self._of_active(parsed.kind)
        number = self._numbers.get(parsed.base_offset)
        return None if number is None else self._part(number, parsed.kind)

    def names(self) -> Iterator[str]:
        """Return the names of all files."""
        yield from (names.PARTITION_METADATA, names.LEADER_EPOCH_CHECKPOINT, names.SEGMENT_TABLE)
        if self.head.config is not None:
            yield names.TOPIC_CONFIG
        for entry in self.entries:
            for kind in _ALWAYS:
                yield format_segment_file(entry.base_offset, kind)
            if entry.lengths.txn:
                yield format_segment_file(entry.base_offset, FileKind.TXN_INDEX)
        for kind in _ALWAYS:
            yield format_segment_file(self.active.base_offset, kind)
        if self.entries and self.entries[-1].lengths.snapshot:
            yield format_segment_file(self.active.base_offset, FileKind.SNAPSHOT)

    def inode_at(self, base_offset: int) -> int:
        """Return the inode of the ``.log`` with a base offset; 0 if there is none."""
        if base_offset == self.active.base_offset:
            return self._made_inode(f"active {base_offset}")
        number = self._numbers.get(base_offset)
        return 0 if number is None else segment_inode(self.entries[number], FileKind.LOG)

    def size_bytes(self) -> int:
        """Return the bytes of its ``.log`` files."""
        return sum(entry.size_bytes for entry in self.entries)

    def _part(self, number: int, kind: FileKind) -> RemotePart | None:
        entry, mtime_ms = self.entries[number], self.entries[number].mtime_ms
        place, base = self.place, entry.base_offset
        inode = segment_inode(entry, kind)
        if kind is FileKind.LOG:
            key, size = place.log(base, entry.segment_id), entry.size_bytes
            checks = entry.log_checks(place.indexes(base, entry.segment_id))
            after = self._following(number)
            return RemotePart(key, 0, size, size, mtime_ms, inode, after, checks)
        part = _PARTS.get(kind)
        if part is None or (kind is FileKind.TXN_INDEX and not entry.lengths.txn):
            return None
        return self._index_part(entry, part, inode)

    def _index_part(self, entry: TieredEntry, part: int, inode: int) -> RemotePart:
        lengths = entry.lengths
        return RemotePart(
            self.place.indexes(entry.base_offset, entry.segment_id),
            lengths.start_of(part),
            lengths[part],
            sum(lengths),
            entry.mtime_ms,
            inode,
            checks=entry.indexes_checks,
        )

    def _following(self, number: int) -> tuple[str, int] | None:
        if number + 1 == len(self.entries):
            return None
        entry = self.entries[number + 1]
        return self.place.log(entry.base_offset, entry.segment_id), entry.size_bytes

    def _of_active(self, kind: FileKind) -> FoundFile | None:
        base = self.active.base_offset
        if kind is FileKind.SNAPSHOT:
            last = self.entries[-1] if self.entries else None
            if last is None or not last.lengths.snapshot:
                return None
            return self._index_part(last, _SNAPSHOT, segment_inode(last, kind))
        if kind not in _ALWAYS:
            return None
        data = TEXT_INDEX.header if kind is FileKind.TEXT_INDEX else b""
        inode = self._made_inode(f"active{'' if kind is FileKind.LOG else kind.value} {base}")
        return MadeFile(data, self._last_mtime_ms, inode)

    def _small(self, name: str) -> MadeFile | None:
        found = self._made.get(name)
        if found is None:
            data = self._contents(name)
            if data is None:
                return None
            inode = self._made_inode(f"{name} {self.head.nonce.hex()}")
            found = self._made[name] = MadeFile(data, self.mtime_ms, inode)
        return found

    def _contents(self, name: str) -> bytes | None:
        if name == names.PARTITION_METADATA:
            return format_partition_metadata(self.place.topic_id)
        if name == names.LEADER_EPOCH_CHECKPOINT:
            return format_leader_epochs(self.head.leader_epochs)
        if name == names.SEGMENT_TABLE:
            entries = [*(tiered.entry for tiered in self.entries), self.active]
            return encode_table(self.head.generation, entries)
        if name == names.TOPIC_CONFIG and self.head.config is not None:
            return format_topic_config(self.head.config)
        return None

    def _made_inode(self, what: str) -> int:
        return inode_of(f"{self.place.prefix}{what}".encode())


def active_entry(head: Head, entries: Sequence[TieredEntry]) -> TableEntry:
    """Return the entry of an empty segment after all tiered ones, as a clean stop leaves it."""
    if entries:
        last = entries[-1]
        base_offset, bases = last.next_offset, last.entry.ends
    else:
        base_offset, bases = head.start
    return TableEntry(
        base_offset, SegmentState.CLOSED, bases, bases, base_offset, 0, lengths=Positions()
    )


def segment_inode(entry: TieredEntry, kind: FileKind) -> int:
    """Return the inode of a file of a tiered segment: the same wherever the segment is read."""
    return inode_of(entry.segment_id + kind.value.encode())


def inode_of(identity: bytes) -> int:
    """Return a number of 63 bits, never 0, that means one file."""
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "big") >> 1 | 1
