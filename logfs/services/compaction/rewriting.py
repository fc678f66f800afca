"""The second half of a round: write one segment from a group of segments, as ``.cleaned`` files.

Source: Kafka Cleaner.cleanSegments and cleanInto.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.records._compaction import BatchFilter
from logfs.records._indexing import IndexBuilder
from logfs.records._reading import next_batch
from logfs.records.batch import decode_header, decode_records
from logfs.records.checksum import crc32c
from logfs.records.compression import decompress
from logfs.services.compaction.cleanedfiles import CleanedFiles
from logfs.services.compaction.offsetmap import Keys
from logfs.services.compaction.tools import CleanerStats, CleaningTools
from logfs.services.compaction.transactions import CleanedTransactions
from logfs.types import Positions


@dataclass(frozen=True, slots=True)
class CleaningRound:
    """What is the same for all groups of a round.

    Attributes:
        first_uncleanable: Offset at which cleaning ends. The last batch before it keeps its header.
        retained: Last offset of a batch -> the producer whose last batch it is.
        epochs: Producer id -> epoch, for producers whose last record is a marker.
        legacy_horizon_ms: Tombstones of formats v0 and v1 are removed from segments that were
            modified up to this time.
    """

    disk: Disk
    snapshot: Snapshot
    config: TopicConfig
    keys: Keys
    first_uncleanable: int
    retained: Mapping[int, int]
    epochs: Mapping[int, int]
    legacy_horizon_ms: int
    now_ms: int


class CleanedSegment:
    """The segment that replaces a group of segments. ``add`` each of them, then ``finish``.

    Nothing is written before the first difference, so an unchanged segment is only read.

    Args:
        group: The segments. The new one has the base offset and positions of the first.
    """

    def __init__(
        self,
        round_: CleaningRound,
        group: Sequence[Segment],
        transactions: CleanedTransactions,
        tools: CleaningTools,
    ) -> None:
        self._round = round_
        self._first = first = group[0]
        self._is_alone = len(group) == 1
        self._tools = tools
        self._transactions = transactions
        self._aborted_before = len(transactions.kept)
        interval = round_.config.index_interval_bytes
        self._builder = IndexBuilder(first.base_offset, interval, decompress)
        self._filter = BatchFilter(
            round_.keys.offsets,
            self._builder,
            now_ms=round_.now_ms,
            delete_retention_ms=round_.config.delete_retention_ms,
            upper_bound=round_.first_uncleanable,
            retained=dict(round_.retained),
            decompress=decompress,
        )
        self._files = CleanedFiles(round_.disk, first, tools)
        self._size = 0

    @property
    def has_changed(self) -> bool:
        """Whether the new segment differs from the group."""
        return not self._is_alone or self._filter.changes > 0

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The entries of its transaction index."""
        return self._transactions.kept[self._aborted_before :]

    def add(self, segment: Segment, next_base: int) -> None:
        """Filter the next segment of the group, which ends at offset ``next_base``.

        Raises:
            CorruptRecordError: A batch is damaged, or the text index of a segment with gaps.
            CleaningAbortedError: See ``CleaningTools.spend``.
        """
        round_ = self._round
        self._transactions.add_aborted(
            a
            for a in round_.snapshot.aborted
            if a.last_offset >= segment.base_offset and a.first_offset < next_base
        )
        text, tsv, jsonl = segment.bases.minus(self._first.bases)
        entries = segment.checked_text_entries() if segment.has_gaps else None
        drops_tombstones = round_.disk.stat(segment.name).mtime_ms <= round_.legacy_horizon_ms
        lasts = round_.keys.lasts(segment.base_offset, next_base)
        self._filter.begin_segment(
            segment.base_offset, text, tsv, jsonl, entries, drops_tombstones, lasts
        )
        self._files.read(segment, self._take)

    def finish(self, last: Segment, stats: CleanerStats) -> TableEntry:
        """Write and fsync all files; their final names are not given yet.

        Args:
            last: The last segment of the group. The new ``.log`` gets its modification time.
            stats: The bytes and records of this segment are added.

        Returns:
            The table entry, with the mark of the text index.
        """
        self._files.finish(self._builder.final_time_entry(), self.aborted, last)
        self._count(stats)
        return self._entry()

    def discard(self, stats: CleanerStats | None = None) -> None:
        """Remove the files; bytes and records are added to ``stats``."""
        self._files.discard()
        if stats is not None:
            self._count(stats)

    def _take(self, buffer: bytearray, size: int) -> int:
        batch_filter, transactions, at = self._filter, self._transactions, 0
        while True:
            at = batch_filter.filter_batches(buffer, at, size)
            if not next_batch(buffer, at, size):
                break
            header = decode_header(buffer, at)
            discard, is_empty, retain = False, False, False
            if header.is_control:
                is_empty = transactions.read_marker(header, decode_records(buffer, at))
                horizon = header.delete_horizon_ms
                discard = is_empty and horizon is not None and horizon <= self._round.now_ms
                epoch = self._round.epochs.get(header.producer_id)
                retain = header.producer_id >= 0 and header.producer_epoch == epoch
            else:
                discard = transactions.read_batch(header)
            at = batch_filter.filter_batch(
                buffer, at, size, discard=discard, is_empty=is_empty, retain=retain
            )
        self._write()
        return at

    def _write(self) -> None:
        data, *entries = self._filter.take()
        self._files.add_entries(entries)
        if self.has_changed:
            self._write_unchanged_start()
            self._files.append(data)
        self._size += len(data)

    def _write_unchanged_start(self) -> None:
        """Copy the bytes before the first change from the old segment."""
        log, files = self._first.files().log, self._files
        while files.size_bytes < self._size:
            size = min(self._tools.piece_bytes, self._size - files.size_bytes)
            self._tools.spend(size)
            files.append(log.pread(size, files.size_bytes))

    def _entry(self) -> TableEntry:
        first, builder, has_gaps = self._first, self._builder, self._filter.has_gaps
        return TableEntry(
            first.base_offset,
            SegmentState.SEALED,
            first.bases,
            first.bases.plus(self._filter.ends),
            builder.next_offset,
            self._size,
            builder.max_timestamp,
            builder.first_timestamp,
            Positions(*self._filter.kept_lengths),
            has_gaps,
            self._files.mark,
            crc32c(self._files.indexes[2][TEXT_INDEX.header_bytes :]) if has_gaps else 0,
            is_after_gap=first.is_after_gap,
        )

    def _count(self, stats: CleanerStats) -> None:
        batch_filter = self._filter
        stats.bytes_read += batch_filter.bytes_read
        stats.messages_read += batch_filter.messages_read
        stats.bytes_written += batch_filter.bytes_written
        stats.messages_written += batch_filter.messages_written
        stats.invalid_messages += batch_filter.invalid
