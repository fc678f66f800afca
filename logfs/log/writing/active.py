"""The active segment: the one that is appended to.

An append writes the batch with one pwrite and then the index entries that are due. Indexes are
hints: one that cannot be written is left out, and a look-up scans a little further. The log itself
is different: after a failed write the bytes that may be there are cut off again. Blocks for large
batches are set aside many at a time, which makes them cheaper; what is left over is given back when
the segment is sealed.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.remote.overlay import local_part
from logfs.disk.vfs import Disk, File
from logfs.log.indexes.index import TIME_INDEX, decode_time_entry
from logfs.log.indexes.indexfile import IndexFile
from logfs.log.indexes.txnindex import AbortedTransaction, append_aborted
from logfs.log.names import FileKind
from logfs.log.segments.scan import fill_segment
from logfs.log.segments.segment import (
    SEGMENT_FILE_KINDS,
    Segment,
    SegmentFiles,
    SegmentIndexes,
    active_indexes,
)
from logfs.log.segments.snapshot import LogEnd
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.log.writing._end import NativeEnd, PartitionLock
from logfs.records._indexing import IndexBuilder
from logfs.records.compression import Buffer, decompress
from logfs.records.encoded import EncodedBatch, EncodeOptions
from logfs.records.layout import MAX_RELATIVE_OFFSET
from logfs.types import Positions

logger = logging.getLogger(__name__)

_LARGE_BYTES = 64 * 1024
"""Room is made for batches from this size on."""
_LEAST_ROOM_BYTES = 1024 * 1024
_MOST_ROOM_BYTES = 16 * 1024 * 1024
_PART_FOR_ROOM = 4
"""A segment of 4 MiB and more gets no more room than a quarter of what is in it."""
_WITHOUT_END = 1 << 62


class SegmentFill(NamedTuple):
    """The facts of the active segment that decide when it is rolled."""

    base_offset: int
    size_bytes: int
    first_timestamp: int
    created_ms: int
    is_index_full: bool


class ActiveSegment:
    """Appends to one segment. One owner, which serialises the calls.

    Attributes:
        end: The end of the segment; appends to it.
        builder: The records, epochs, producers and problems that ``take_in`` has met.
        txn_index: Open once something was appended to it.
    """

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        files: SegmentFiles,
        end: NativeEnd,
        created_ms: int,
    ) -> None:
        segment.pinned_files = files
        segment.is_writable = True
        self.segment = segment
        self.end = end
        self._files = files
        self._indexes = files.indexes
        self._created_ms = created_ms
        self._log = files.log
        self._disk = disk
        self._room_end = 0
        self.txn_index: File | None = None
        self.builder = IndexBuilder(end.base_offset, end.index_interval_bytes, decompress)
        self._has_taken = False
        self._epoch_before = -1
        self._epochs_before = 0

    @classmethod
    def create(
        cls, disk: Disk, segment: Segment, config: TopicConfig, now_ms: int
    ) -> "ActiveSegment":
        """Make the files of a new segment, in place of others; all or (OSError) none."""
        segment.is_writable = True
        indexes = active_indexes(disk, segment, config, (0, 0, 0))
        try:
            _make_log(disk, segment, config)
            for index in indexes.all():
                index.truncate_entries(0)
            if disk.exists(segment.file_name(FileKind.TXN_INDEX)):
                disk.remove(segment.file_name(FileKind.TXN_INDEX))
        except OSError:
            remove_segment_files(disk, segment)
            raise
        files = SegmentFiles(disk, segment, indexes)
        return cls(disk, segment, files, _new_end(segment, files, config), now_ms)

    @classmethod
    def resume(
        cls,
        disk: Disk,
        segment: Segment,
        end: LogEnd,
        config: TopicConfig,
        now_ms: int,
        *,
        has_unsynced_indexes: bool = False,
    ) -> "ActiveSegment":
        """Continue with the last segment of a log that was loaded; its indexes are trimmed."""
        indexes = _usable_indexes(disk, segment, config)
        for index in indexes.all() if has_unsynced_indexes else ():
            index.must_sync()
        times, base = indexes.time.entries(), segment.base_offset
        count = len(times) // TIME_INDEX.entry_bytes
        last = decode_time_entry(times, count - 1, base) if count else None
        # The last entry has the largest timestamp, unless it could not be written.
        is_known = last is not None and last.timestamp >= end.max_timestamp
        lengths = end.positions.minus(segment.bases)
        segment.is_writable = True
        files = SegmentFiles(disk, segment, indexes)
        native = _new_end(segment, files, config)
        native.restore(
            file_position=end.file_size,
            next_offset=end.offset,
            max_timestamp=end.max_timestamp,
            offset_of_max_timestamp=last.offset if last and is_known else max(end.offset - 1, base),
            first_timestamp=segment.first_timestamp,
            last_time_entry=last.timestamp if last else -1,
            text=lengths.text,
            tsv=lengths.tsv,
            jsonl=lengths.jsonl,
        )
        return cls(disk, segment, files, native, now_ms)

    @property
    def size_bytes(self) -> int:
        """Bytes of the ``.log`` that hold records."""
        return self.end.file_position

    @property
    def ends(self) -> Positions:
        """Positions at which the segment ends now."""
        bases, end = self.segment.bases, self.builder if self._has_taken else self.end
        return Positions(bases[0] + end.text, bases[1] + end.tsv, bases[2] + end.jsonl)

    @property
    def log_end(self) -> LogEnd:
        """The place of the next record."""
        end, (text, tsv, jsonl) = self.end, self.segment.bases
        ends = Positions(text + end.text, tsv + end.tsv, jsonl + end.jsonl)
        return LogEnd(end.next_offset, ends, end.file_position, end.max_timestamp)

    def should_roll(
        self, size: tuple[int, int, int], config: TopicConfig, jitter_ms: int, now_ms: int
    ) -> bool:
        """Decide whether batches begin a new segment; see the function of that name.

        Args:
            size: Their bytes, last offset and max timestamp.
        """
        end, indexes = self.end, self._indexes
        fill = (
            end.base_offset,
            end.file_position,
            end.first_timestamp,
            self._created_ms,
            indexes.offset.is_full() or indexes.time.is_full(reserve=1),
        )
        return should_roll(fill, config, jitter_ms, size, now_ms)

    def append(self, batch: EncodedBatch) -> None:
        """Write one batch after the last one; after an OSError nothing of it is in the log."""
        end, size = self.end, len(batch.data)
        if size >= _LARGE_BYTES and end.file_position + size > self._room_end:
            self._make_room(end.file_position)
        if end.append(*batch):
            self._append_entries()

    def take_in(self, data: Buffer) -> int:
        """Check whole batches, and account for them as if they were written.

        They keep the offsets, leader epochs and producers that they have. ``write_taken`` writes
        them, ``leave_out`` undoes it.

        Returns:
            The bytes of those that may follow the last batch of the segment; why the next one may
            not is in ``builder.problem``.
        """
        builder = self.builder
        self._epoch_before = builder.max_leader_epoch
        builder.restore(**self.end.running(), max_leader_epoch=self._epoch_before)
        self._epochs_before = len(builder.leader_epochs)
        self._has_taken = True
        return builder.feed(data, 0, memoryview(data).nbytes, True)

    def leave_out(self) -> None:
        """Undo ``take_in``: nothing of it was written."""
        builder = self.builder
        builder.restore(**self.end.running(), max_leader_epoch=self._epoch_before)
        del builder.leader_epochs[self._epochs_before :]
        builder.produced.clear()
        builder.take()
        self._has_taken = False

    def write_taken(self, data: Buffer) -> None:
        """Write what ``take_in`` has used up; after an OSError nothing of it is in the log."""
        builder, end, size = self.builder, self.end, memoryview(data).nbytes
        if size >= _LARGE_BYTES and end.file_position + size > self._room_end:
            self._make_room(end.file_position)
        self._log.pwrite(data, end.file_position)
        self._append_entries()  # of what was appended before
        end.restore(**{name: getattr(builder, name) for name in end.running()})
        self._has_taken = False
        self._append_to_all(builder.take())

    def epochs_taken(self) -> list[tuple[int, int]]:
        """Return the leader epochs that begin in what ``take_in`` has used up, and where."""
        return self.builder.leader_epochs[self._epochs_before :]

    def arm(
        self,
        lock: PartitionLock,
        config: TopicConfig,
        options: EncodeOptions,
        jitter_ms: int,
        low: Positions,
        *,
        may_sync: bool,
    ) -> None:
        """Let the thread append until ``should_roll``, or the positions ``low``. With the lock.

        Nothing happens on a disk that only Python can write.
        """
        end, bases, log, indexes = self.end, self.segment.bases, self._log, self._indexes
        if log.fileno() < 0 or end.first_timestamp < 0:
            return
        lock.arm(
            end,
            log.fileno(),
            file_position=config.effective_segment_bytes,
            last_offset=end.base_offset + MAX_RELATIVE_OFFSET,
            timestamp=min(end.first_timestamp + config.max_segment_ms - jitter_ms, _WITHOUT_END),
            lengths=low.minus(bases),
            entries=min(indexes.offset.room, indexes.time.room - 1),
            max_batch_bytes=options.max_batch_bytes,
            leader_epoch=options.leader_epoch,
            room_end=self._room_end,
            may_sync=may_sync,
        )

    def append_aborted(self, entry: AbortedTransaction) -> None:
        """Append to the transaction index; the first time the file is made."""
        if self.txn_index is None:
            name = self.segment.file_name(FileKind.TXN_INDEX)
            self.txn_index = self._disk.open(name, write=True, create=True)
        append_aborted(self.txn_index, entry)

    def cut_failed_write(self) -> None:
        """Remove what a failed write may have left, for good; rare, and it may take a while."""
        self._log.truncate(self.end.file_position)
        self._room_end = 0
        self._log.sync()  # or whole batches of what was refused may be there after a power cut
        self.segment.is_padded = False

    def give_up_text_index(self) -> bool:
        """Free the room of the text index: look-ups scan instead; False if that cannot be."""
        index = self._indexes.text
        if self.segment.has_gaps or not index.count:
            return False
        index.truncate_entries(0)
        return True

    def close(self) -> None:
        """Trim the indexes, as on roll and clean stop; the last time index entry is added.

        Source: Kafka LogSegment.onBecomeInactiveSegment and close.
        """
        self._append_entries()  # of what the thread has appended
        final = self.end.final_time_entry()
        if final:
            self._append_to(self._indexes.time, final)
        for index in self._indexes.all():
            index.trim()

    def close_empty(self) -> None:
        """Let go of a new segment for now; the bytes of its indexes are durable.

        Later an index is synced only if it was written to, and there may be no entries.
        """
        self.close()
        for index in self._indexes.all():
            index.sync()
        self.segment.close_files()

    def seal(self) -> None:
        """Close it for good and note in the segment what it holds."""
        try:
            if self.segment.is_padded or self._may_have_room:
                self._log.truncate(self.end.file_position)
                self.segment.is_padded = False
            self.close()
            for index in self._indexes.all():
                index.seal()
        except OSError as error:
            logger.warning("%s: it could not be trimmed: %s", self.segment.name, error)
        self.segment.is_writable = False  # from now on it is opened for reading only
        fill_segment(self.segment, self.end)

    def sync_indexes(self) -> None:
        """Make the indexes of a sealed segment durable."""
        for index in self.segment.files().indexes.all():
            index.sync()
        if self.txn_index is not None:
            self.txn_index.sync()

    def sealed_entry(self) -> TableEntry:
        """Return the table entry it will have once it is sealed."""
        fill_segment(self.segment, self.end)
        return self.segment.entry(SegmentState.SEALED)

    @property
    def _may_have_room(self) -> bool:
        """Whether room was made, in this run or in one before, and may be left over."""
        return self.size_bytes >= _LEAST_ROOM_BYTES * _PART_FOR_ROOM

    def _make_room(self, position: int) -> None:
        room = min(position // _PART_FOR_ROOM, _MOST_ROOM_BYTES)
        if room >= _LEAST_ROOM_BYTES:
            is_made = self._log.make_room(position, room)
            self._room_end = position + room if is_made else _WITHOUT_END

    def _append_entries(self) -> None:
        self._append_to_all(self.end.take())

    def _append_to_all(self, entries: tuple[bytes, bytes, bytes]) -> None:
        for index, added in zip(self._indexes.all(), entries, strict=True):
            self._append_to(index, added)

    def _append_to(self, index: IndexFile, entries: bytes) -> None:
        try:
            index.append(entries)
        except (OSError, ValueError) as error:
            logger.warning("%s: an index entry is left out: %s", self.segment.name, error)


def should_roll(
    fill: SegmentFill | tuple[int, int, int, int, bool],
    config: TopicConfig,
    jitter_ms: int,
    batch: tuple[int, int, int],
    now_ms: int,
) -> bool:
    """Decide whether a batch begins a new segment: Kafka's five conditions.

    An empty segment always takes it (KAFKA-6388). The first timestamp is the first batch's maximum.

    Args:
        fill: The active segment; every append asks, and a plain tuple is made in no time.
        jitter_ms: Taken off ``segment.ms``, so that the segments of many partitions do not roll at
            the same moment; drawn once per segment.
        batch: Its size in bytes, its last offset and its max timestamp.

    Source: Kafka LogSegment.shouldRoll, RollParams.
    """
    size_bytes, last_offset, max_timestamp = batch
    base_offset, filled_bytes, first_timestamp, created_ms, is_index_full = fill
    if filled_bytes == 0:
        return False
    if filled_bytes > config.effective_segment_bytes - size_bytes:
        return True
    waited_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - created_ms
    if waited_ms > config.max_segment_ms - jitter_ms:
        return True
    return is_index_full or not 0 <= last_offset - base_offset <= MAX_RELATIVE_OFFSET


def _new_end(segment: Segment, files: SegmentFiles, config: TopicConfig) -> NativeEnd:
    return NativeEnd(files.log, segment.base_offset, config.index_interval_bytes)


def draw_jitter_ms(config: TopicConfig, new_id: Callable[[], bytes]) -> int:
    """Return what is taken off ``segment.ms``, at random up to ``segment.jitter.ms``."""
    limit = min(config.segment_jitter_ms, config.max_segment_ms)
    return int.from_bytes(new_id()[:4], "big") % limit if limit else 0


def _usable_indexes(disk: Disk, segment: Segment, config: TopicConfig) -> SegmentIndexes:
    """Describe the indexes of a segment that was loaded; one that cannot be read starts again."""
    counts: list[int | None] = []
    for index in active_indexes(disk, segment, config, (None, None, None)).all():
        try:
            index.entries()
        except OSError as error:
            logger.warning("%s: the index starts at the end of the segment", error)
            counts.append(0)
        else:
            counts.append(None)
    offset, time, text = counts
    return active_indexes(disk, segment, config, (offset, time, text))


def create_files(disk: Disk, segment: Segment, config: TopicConfig) -> None:
    """Make the files of a new segment that nothing is appended to yet, durable on return."""
    files = segment.pinned_files
    try:
        ActiveSegment.create(disk, segment, config, 0).close_empty()
        disk.sync_directory(segment.directory)
    except OSError:
        remove_segment_files(disk, segment)
        segment.pinned_files = files
        raise
    finally:
        segment.is_writable = False


def _make_log(disk: Disk, segment: Segment, config: TopicConfig) -> None:
    """Make the ``.log``, as long as it may get if the topic says so: a hole, as Kafka makes it.

    Source: Kafka FileRecords.open (``preallocate``), LogConfig.initFileSize.
    """
    log = disk.open(segment.name, write=True, create=True)
    log.truncate(0)
    if config.preallocate:
        log.truncate(config.effective_segment_bytes)
        segment.is_padded = True


def trim_padding(disk: Disk, segment: Segment, size: int) -> None:
    """Cut a ``.log`` that was made longer to its records, durable when this returns.

    Source: Kafka FileRecords.trim.
    """
    log = disk.open(segment.name, write=True)
    log.truncate(size)
    log.sync()
    segment.is_padded = False


def remove_segment_files(
    disk: Disk,
    segment: Segment,
    kinds: Sequence[FileKind] = SEGMENT_FILE_KINDS,
    pinned: SegmentFiles | None = None,
    *,
    has_both_names: bool = False,
) -> None:
    """Remove local files of a segment, and close what is open of it. It may take long.

    Each removal of a segment comes here. What a reader holds is closed by the reader.

    Args:
        kinds: Which files.
        pinned: Open files that fixed names continue to read; they go with the segment.
        has_both_names: Some have the name of a deleted file, and others the one before.
    """
    local = local_part(disk)
    for is_deleted in (False, True) if has_both_names else (segment.is_deleted,):
        for kind in kinds:
            name = segment.file_name(kind, is_deleted=is_deleted)
            if local.exists(name):
                local.remove(name)
    segment.close_files()  # last: a reader may have opened them meanwhile
    segment.pinned_files = pinned
