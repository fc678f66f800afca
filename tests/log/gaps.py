"""Compaction as far as readers can tell: records go, and what is left keeps offset and position.

    compact(bench, lambda offset: offset % 3 == 0)     # stops the store cleanly and opens it again

The ``.log`` of every sealed segment is rewritten with the batches that still hold something;
a batch keeps its base and last offset. The text index has a pair of entries for each gap, as
``logfs.log.indexes.textindex`` describes them, and the segment table says what is kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log.indexes.textindex import TEXT_INDEX, decode_text_entry, encode_text_entry, find_gaps
from logfs.log.names import FileKind
from logfs.log.partition import PartitionLog
from logfs.log.segments.scan import SegmentScan, rebuild_indexes, scan_segment
from logfs.log.segments.segment import OpenSegments, Segment
from logfs.log.segments.table import SegmentState, SegmentTable, TableEntry
from logfs.records.batch import BatchFields, BatchHeader, decode_records, encode_batch
from logfs.records.record import Record
from logfs.types import IsolationLevel, Positions
from tests.log.model import Model
from tests.log.support import DIRECTORY, Bench, batches_in, lengths_of

Keeps = Callable[[int], bool]
"""Whether the record with an offset stays."""

_ZERO = Positions()


@dataclass
class _Placed:
    """A record and the lengths before it, from where its segment begins."""

    record: Record
    begin: Positions

    @property
    def end(self) -> Positions:
        return self.begin.plus(lengths_of(self.record))


@dataclass
class _Batch:
    header: BatchHeader
    data: bytes
    records: list[_Placed]

    def encoded(self) -> bytes:
        header = self.header
        if header.is_control:
            return self.data
        fields = BatchFields(
            compression=header.compression,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_log_append_time=header.is_log_append_time,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp if header.is_log_append_time else None,
        )
        return encode_batch([placed.record for placed in self.records], fields)


class HoledLog:
    """A partition and what must be seen of it, through everything that makes holes.

    Attributes:
        bench: The store.
        model: Every record that is kept, at the positions it was given when it was appended.
        level: What readers are shown of it.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.bench = Bench(properties)
        self.model = Model()
        self.level = IsolationLevel.READ_UNCOMMITTED

    @property
    def log(self) -> PartitionLog:
        return self.bench.log

    def append(self, records: Sequence[Record]) -> None:
        """Append records as one batch, if they fit."""
        self.bench.append(records)
        for record in records:
            self.model.append(record)

    def roll(self) -> None:
        self.log.roll(self.bench.now_ms)

    def compact(self, keeps: Keeps, *, keep_last_batch: bool = False) -> None:
        """Remove records from all segments but the last."""
        active = self.log.snapshot.active.base_offset
        compact(self.bench, keeps, keep_last_batch=keep_last_batch)
        self.model.records = [
            k for k in self.model.records if k.record.offset >= active or keeps(k.record.offset)
        ]

    def advance(self, offset: int) -> None:
        """Give up the records below an offset; files without a reader go at once."""
        now_ms = self.bench.now_ms
        self.log.advance_log_start_offset(offset, now_ms)
        self.log.remove_due_files(now_ms + self.log.config.file_delete_delay_ms)
        self.model.start = max(self.model.start, offset)

    def truncate(self, offset: int) -> None:
        """Remove the records from an offset on, and the batch that holds it."""
        base_offset = offset
        for name in self.bench.names(".log"):
            for _, header in batches_in(self.bench.file(name)):
                if header.base_offset <= offset <= header.last_offset:
                    base_offset = header.base_offset
        self.log.truncate_to(offset, self.bench.now_ms)
        self.model.truncate(offset, base_offset)

    def restart(self) -> None:
        self.bench.restart()

    def kill(self) -> None:
        """Kill the process: an advanced log start that no checkpoint had is where it was before."""
        self.bench.kill()
        assert self.log.log_start_offset <= self.model.start
        self.model.start = self.log.log_start_offset

    def lose_power(self) -> None:
        """Cut the power with everything flushed: the next record is after the reservation."""
        self.log.flush()
        before = self.model.end
        self.bench.crash()
        self.model.end = self.log.snapshot.end.positions
        assert all(new > old for new, old in zip(self.model.end, before, strict=True))


def compact(bench: Bench, keeps: Keeps, *, keep_last_batch: bool = False) -> None:
    """Stop cleanly, remove records from the sealed segments, start again."""
    config = bench.log.config
    bench.store.close(bench.now_ms)
    compact_directory(bench.disk, DIRECTORY, config, keeps, keep_last_batch=keep_last_batch)
    bench.store = bench.open()


def compact_directory(
    disk: Disk, directory: str, config: TopicConfig, keeps: Keeps, *, keep_last_batch: bool = False
) -> None:
    """Remove records from the sealed segments of a partition that was closed cleanly.

    Args:
        disk: The data directory.
        directory: The partition.
        config: Gives the index interval.
        keeps: What stays.
        keep_last_batch: The last batch of a segment stays, if need be without records, as Kafka
            does to remember its last offset. Without it a segment may be left with no bytes.
    """
    table = SegmentTable.load(disk, directory)
    entries = []
    for _, entry in sorted(table.entries.items()):
        if entry.state is not SegmentState.SEALED:
            entries.append(entry)
            continue
        segment = Segment.from_entry(OpenSegments(disk), directory, entry)
        batches = list(_filtered(disk, segment, keeps, keep_last_batch=keep_last_batch))
        entries.append(_rewritten(disk, segment, entry, config, batches))
    table.rewrite(entries)
    table.close()


def _filtered(
    disk: Disk, segment: Segment, keeps: Keeps, *, keep_last_batch: bool
) -> Iterator[_Batch]:
    """What stays of a segment."""
    found = list(_placed_batches(disk, segment))
    for batch in found:
        kept = [placed for placed in batch.records if keeps(placed.record.offset)]
        if kept or batch.header.is_control or (keep_last_batch and batch is found[-1]):
            yield _Batch(batch.header, batch.data, kept)


def _placed_batches(disk: Disk, segment: Segment) -> Iterator[_Batch]:
    """The batches of a segment; the gaps that it has already are in its text index."""
    behind_gaps = {}
    if segment.has_gaps:
        entries = segment.files().text_entries()
        for number in find_gaps(entries):
            second = decode_text_entry(entries, number + 1)
            behind_gaps[segment.base_offset + second.relative_offset] = second.lengths
    data = disk.read(segment.name)
    lengths = _ZERO
    for position, header in batches_in(data):
        batch = _Batch(header, data[position : position + header.size_bytes], [])
        for record in () if header.is_control else decode_records(data, position):
            batch.records.append(_Placed(record, behind_gaps.get(record.offset, lengths)))
            lengths = batch.records[-1].end
        yield batch


def _rewritten(
    disk: Disk, segment: Segment, entry: TableEntry, config: TopicConfig, batches: Sequence[_Batch]
) -> TableEntry:
    """Write the files of a segment; returns its table entry."""
    pieces = [batch.encoded() for batch in batches]
    _write(disk, segment.name, b"".join(pieces))
    scan = scan_segment(disk.open(segment.name), segment, config)
    assert scan.valid_bytes == scan.file_size, scan.problem
    rebuild_indexes(disk, segment, scan, but_text=True)
    text, has_gaps = _text_entries(segment.base_offset, batches, list(map(len, pieces)), scan)
    _write(disk, segment.file_name(FileKind.TEXT_INDEX), TEXT_INDEX.header + text)
    left = [placed for batch in batches for placed in batch.records]
    return entry._replace(
        ends=entry.bases.plus(left[-1].end if left else _ZERO),
        next_offset=scan.builder.next_offset,
        size_bytes=scan.file_size,
        max_timestamp=scan.builder.max_timestamp,
        first_timestamp=scan.builder.first_timestamp,
        lengths=reduce(Positions.plus, (lengths_of(placed.record) for placed in left), _ZERO),
        has_gaps=has_gaps,
    )


def _text_entries(
    base_offset: int, batches: Sequence[_Batch], sizes: Sequence[int], scan: SegmentScan
) -> tuple[bytes, bool]:
    """The entries that the index interval asks for, and a pair for each gap; are there gaps?"""
    dense = scan.text_entries
    due = {
        decode_text_entry(dense, number).file_position
        for number in range(len(dense) // TEXT_INDEX.entry_bytes)
    }
    data, end, file_position, has_gaps = b"", _ZERO, 0, False
    for batch, size in zip(batches, sizes, strict=True):
        if file_position in due and (not batch.records or batch.records[0].begin == end):
            relative = batch.header.base_offset - base_offset
            data += encode_text_entry(relative, file_position, end)
        for placed in batch.records:
            if placed.begin != end:
                relative = placed.record.offset - base_offset
                data += encode_text_entry(relative, file_position, end)
                data += encode_text_entry(relative, file_position, placed.begin)
                has_gaps = True
            end = placed.end
        file_position += size
    return data, has_gaps


def _write(disk: Disk, name: str, data: bytes) -> None:
    """Replace a file by a new one: the old one may be mapped."""
    disk.remove(name)
    file = disk.open(name, write=True, create=True)
    file.pwrite(data, 0)
    file.sync()
    file.close()
