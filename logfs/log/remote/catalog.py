"""The files that the partitions of a data directory have in the store alone.

``TieredPartition`` is what is known of one partition. ``DirectoryCatalog`` finds the one that a
file belongs to; it is the ``RemoteCatalog`` of the ``OverlayDisk`` of a data directory. Nothing
here sends a request.

The owner of the directory notes changes in both at once. Any other process reads ``logfs.tiered``
again when it has changed.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from logfs.disk.remote.counters import JournalCounters
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import RemotePart
from logfs.disk.vfs import Disk
from logfs.errors import CorruptIndexError, UnsupportedFormatError
from logfs.log import names
from logfs.log.names import FileKind, FileSuffix, format_deleted_file, format_segment_file
from logfs.log.remote.entries import TieredEntry
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.rows import TieredRows
from logfs.log.segments.snapshot import LogPoint
from logfs.types import Positions, TopicPartition

PART_KINDS = {
    FileKind.OFFSET_INDEX: 0,
    FileKind.TIME_INDEX: 1,
    FileKind.SNAPSHOT: 2,
    FileKind.TXN_INDEX: 4,
    FileKind.TEXT_INDEX: 5,
}
"""Kind of file -> number of its part in the ``.indexes`` object."""
_ALWAYS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TEXT_INDEX)


class TieredPartition:
    """The tiered segments of one partition, and the files that they are. Any thread.

    Changes are made under the lock of the partition.

    Attributes:
        topic_partition: The partition.
        rows: The segments and their file.
        local: Base offsets of tiered segments that have a local ``.log``.
        retired: Segments that the log has dropped and that open files may read, by base offset and
            copy; see ``Segment.deleted_copy``.
    """

    def __init__(self, topic_partition: TopicPartition, rows: TieredRows) -> None:
        self.topic_partition = topic_partition
        self.rows = rows
        self.local: set[int] = set()
        self.retired: dict[tuple[int, int], TieredEntry] = {}

    @property
    def entries(self) -> dict[int, TieredEntry]:
        """The tiered segments by base offset, in their order."""
        return self.rows.entries

    @property
    def place(self) -> PartitionPlace:
        """The place of its objects."""
        return PartitionPlace(self.topic_partition, self.rows.topic_id)

    @property
    def next_offset(self) -> int | None:
        """The offset after the last tiered record; None if there is no tiered segment."""
        return self.rows.next_offset

    def positions_of_start(self, offset: int) -> Positions | None:
        """Return the positions of a log start that was noted."""
        return self.rows.starts.get(offset)

    def note_start(self, start: LogPoint) -> None:
        """Note, durably, a log start that is inside a tiered segment."""
        for entry in self.entries.values():
            if entry.base_offset < start.offset < entry.next_offset:
                self.rows.note_start(start)
                return

    def retire(self, base_offset: int, copy: int) -> None:
        """The log has dropped a segment: only open files read it, under its deleted name."""
        gone = self.rows.entries.pop(base_offset, None)
        self.local.discard(base_offset)
        if gone is not None:
            self.retired[base_offset, copy] = gone

    def forget_all(self) -> None:
        """Forget all segments, durably: those with local files are no tiered ones any more."""
        self.rows.forget_all()
        self.local.clear()
        self.rows.rewrite()

    def forget_retired(self, base_offset: int, copy: int) -> None:
        """No open file reads a dropped segment any more."""
        self.retired.pop((base_offset, copy), None)

    def is_used(self, key: str) -> bool:
        """Whether the object with a key is of a segment that the log or an open file reads."""
        return key in self.object_keys()

    def object_keys(self) -> set[str]:
        """Return the keys of the objects of all segments that the log or an open file reads."""
        entries = [*self.entries.values(), *self.retired.values()]
        place = self.place
        return {
            key(entry.base_offset, entry.segment_id)
            for entry in entries
            for key in (place.log, place.indexes)
        }

    def find(self, name: str) -> RemotePart | None:
        """Return where the contents of a file of the partition are."""
        parsed = names.parse_segment_file(name)
        if parsed is None:
            return self._find_retired(name) if names.is_leftover(name) else None
        base_offset, kind, suffix = parsed
        if suffix is FileSuffix.DELETED:
            return self._find_retired(name)
        if suffix is not FileSuffix.NONE:
            return None
        if kind is FileKind.SNAPSHOT:
            return self._find_snapshot(base_offset)
        entry = self.entries.get(base_offset)
        return None if entry is None else self._part(entry, kind)

    def names(self) -> Iterator[str]:
        """Return the names of its files."""
        for base_offset, entry in list(self.entries.items()):
            for kind in _ALWAYS:
                yield format_segment_file(base_offset, kind)
            if entry.lengths.txn:
                yield format_segment_file(base_offset, FileKind.TXN_INDEX)
        last = next(reversed(self.entries.values()), None)
        if last is not None and last.lengths.snapshot:
            yield format_segment_file(last.next_offset, FileKind.SNAPSHOT)

    def _find_snapshot(self, offset: int) -> RemotePart | None:
        last = next(reversed(self.entries.values()), None)
        if last is None or last.next_offset != offset or not last.lengths.snapshot:
            return None
        return self._part(last, FileKind.SNAPSHOT)

    def _find_retired(self, name: str) -> RemotePart | None:
        for (base_offset, copy), entry in list(self.retired.items()):
            for kind in (*_ALWAYS, FileKind.TXN_INDEX):
                if name == format_deleted_file(base_offset, kind, copy):
                    return self._part(entry, kind)
        return None

    def _part(self, entry: TieredEntry, kind: FileKind) -> RemotePart | None:
        place, inode = self.place, inode_of(entry)
        indexes = place.indexes(entry.base_offset, entry.segment_id)
        if kind is FileKind.LOG:
            key = place.log(entry.base_offset, entry.segment_id)
            size = entry.size_bytes
            after = self.entries.get(entry.next_offset)
            following = None
            if after is not None:
                following = place.log(after.base_offset, after.segment_id), after.size_bytes
            checks = entry.log_checks(indexes)
            return RemotePart(key, 0, size, size, entry.mtime_ms, inode, following, checks)
        number = PART_KINDS[kind]
        size = entry.lengths[number]
        if not size and kind is FileKind.TXN_INDEX:
            return None
        start = entry.lengths.start_of(number)
        return RemotePart(
            indexes,
            start,
            size,
            sum(entry.lengths),
            entry.mtime_ms,
            inode + number + 1,
            checks=entry.indexes_checks,
        )


def inode_of(entry: TieredEntry) -> int:
    """Return the inode of the ``.log`` of a tiered segment; those of its indexes follow it."""
    return (int.from_bytes(entry.segment_id[:7], "big") | 1) << 4


class DirectoryCatalog:
    """Which files of a data directory are in the store alone. Any thread; see ``RemoteCatalog``.

    Args:
        local: The local disk.
        store: Returns the store, which is opened once; raises OSError if that is not possible.
        url: Its address.

    Attributes:
        local, store, url: See above.
        fenced: Partition directory -> why it takes no records; "": why all do that are in the
            store. Another data directory owns them.
        journal: The cost of the journal; None: this process sends none.
    """

    def __init__(self, local: Disk, store: Callable[[], ObjectStore], url: str) -> None:
        self.local = local
        self.store = store
        self.url = url
        self.fenced: dict[str, str] = {}
        self.journal: JournalCounters | None = None
        self._partitions: dict[str, TieredPartition | None] = {}
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._owned: set[str] = set()
        self._guard = threading.Lock()

    def partition(self, directory: str) -> TieredPartition | None:
        """Return what is known of a partition directory; None if no segment was ever tiered."""
        if not directory or "/" in directory:
            return None
        if directory not in self._owned:
            self._look(directory)
        return self._partitions.get(directory)

    def own(self, directory: str) -> TieredPartition | None:
        """Read ``logfs.tiered`` again; from now on this process alone changes it.

        Raises:
            CorruptIndexError, UnsupportedFormatError, OSError: See ``TieredRows.load``.
        """
        try:
            rows = TieredRows.load(self.local, directory)
        except CorruptIndexError:
            with self._guard:  # until it is rebuilt, there are the local files alone
                self._owned.add(directory)
                self._partitions[directory] = None
            raise
        with self._guard:
            self._owned.add(directory)
            partition = self._partitions[directory] = self._made_of(directory, rows)
        if partition is not None:
            partition.local = self._local_bases(directory) & partition.entries.keys()
        return partition

    def begin(self, directory: str, topic_id: UUID, generation: bytes) -> TieredPartition:
        """Return the partition of a directory that has no tiered segment yet; writes nothing."""
        rows = TieredRows(self.local, directory, topic_id, generation)
        partition = self._made_of(directory, rows)
        if partition is None:
            raise ValueError(f"{directory} is no partition directory")
        with self._guard:
            self._owned.add(directory)
            self._partitions[directory] = partition
        return partition

    def move(self, old: str, new: str) -> None:
        """Follow a partition directory that was renamed."""
        with self._guard:
            partition = self._partitions.pop(old, None)
            if old in self._owned:
                self._owned.discard(old)
                self._owned.add(new)
                self._partitions[new] = partition
            if partition is not None:
                partition.rows.directory = new

    def forget(self, directory: str) -> None:
        """Forget a directory that is gone."""
        with self._guard:
            self._partitions.pop(directory, None)
            self._owned.discard(directory)
            self._seen.pop(directory, None)

    def find(self, name: str) -> RemotePart | None:
        """See ``RemoteCatalog``."""
        directory, _, file = name.rpartition("/")
        if file[:6] == "logfs." or not directory:
            return None
        partition = self.partition(directory)
        return None if partition is None else partition.find(file)

    def names(self, directory: str) -> Iterable[str]:
        """See ``RemoteCatalog``."""
        partition = self.partition(directory)
        return () if partition is None else partition.names()

    def _look(self, directory: str) -> None:
        """Read ``logfs.tiered`` of a directory of another process again if it has changed."""
        try:
            found = self.local.stat(f"{directory}/{names.TIERED}")
        except (FileNotFoundError, NotADirectoryError):
            with self._guard:
                self._partitions.pop(directory, None)
                self._seen.pop(directory, None)
            return
        seen = found.size, found.mtime_ms, found.inode
        if self._seen.get(directory) == seen:
            return
        try:
            rows = TieredRows.load(self.local, directory)
        except (CorruptIndexError, UnsupportedFormatError) as error:
            raise OSError(str(error)) from error
        with self._guard:
            if directory not in self._owned:
                self._partitions[directory] = self._made_of(directory, rows)
                self._seen[directory] = seen

    def _made_of(self, directory: str, rows: TieredRows | None) -> TieredPartition | None:
        parsed = names.parse_partition_directory(directory)
        if rows is None or parsed is None:
            return None
        return TieredPartition(TopicPartition(parsed.topic, parsed.partition), rows)

    def _local_bases(self, directory: str) -> set[int]:
        kinds, _ = names.group_segment_files(self.local.contents(directory).files)
        return {base for base, found in kinds.items() if FileKind.LOG in found}
