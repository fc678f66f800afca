"""The first half of a round: a map of the last offset of each key in the dirty part of a log.

The map holds as many keys as its memory allows. If the log has more, the map covers the log up to
the first keyed record without room in it. The next round starts at that record.

Source: Kafka Cleaner.buildOffsetMap.
"""

from collections.abc import Callable
from typing import NamedTuple

from logfs.disk.vfs import File
from logfs.log.segments.batches import read_pieces
from logfs.log.segments.snapshot import Snapshot
from logfs.records._compaction import OffsetMap
from logfs.records._reading import next_batch
from logfs.records.batch import decode_header, decode_records
from logfs.records.compression import decompress
from logfs.services.compaction.dirtyrange import DirtyRange
from logfs.services.compaction.tools import CleanerStats, CleaningTools
from logfs.services.compaction.transactions import CleanedTransactions


class SegmentLog(NamedTuple):
    """A ``.log``: the file, its name for messages, and how many of its bytes are batches."""

    file: File
    name: str
    size_bytes: int


class Keys(NamedTuple):
    """The last records of the keys of a log.

    Attributes:
        offsets: Last offset of each key, and how far of the log that is known.
        lasts: Called with the base offset of a segment and of the next one. Returns one bit for
            each offset of the segment: set if the record is the last of its key (see
            ``BatchFilter.begin_segment``). None: ``offsets`` decides.
    """

    offsets: OffsetMap
    lasts: Callable[[int, int], bytes | None]


FindKeys = Callable[[Snapshot, DirtyRange, CleaningTools, CleanerStats], Keys]
"""Finds the last offset of each key of a log, in this process or elsewhere."""


def find_keys(
    snapshot: Snapshot, dirty: DirtyRange, tools: CleaningTools, stats: CleanerStats
) -> Keys:
    """Find the keys that fit into ``tools.map_bytes``; a ``FindKeys``."""
    offsets = build_map(snapshot, dirty, tools, stats)
    return Keys(offsets, offsets.lasts)


def build_map(
    snapshot: Snapshot, dirty: DirtyRange, tools: CleaningTools, stats: CleanerStats
) -> OffsetMap:
    """Read the dirty segments of a log and return the last offsets of their keys.

    Raises:
        CorruptRecordError: A batch is damaged.
        CleaningAbortedError: See ``CleaningTools.spend``.
    """
    offsets = OffsetMap(tools.map_bytes, tools.load_factor, tools.new_id())
    start, stop = dirty.first_dirty, dirty.first_uncleanable
    transactions = CleanedTransactions()
    transactions.add_aborted(
        a for a in snapshot.aborted if a.last_offset >= start and a.first_offset < stop
    )
    first = max(snapshot.index_of_offset(start), 0)
    segments = [s for s in snapshot.segments[first:-1] if s.base_offset < stop]
    next_bases = [*(s.base_offset for s in segments), stop][1:]
    for segment, next_base in zip(segments, next_bases, strict=True):
        log = SegmentLog(segment.files().log, segment.name, segment.size_bytes)
        read_keys(log, offsets, start, transactions, tools)
        if offsets.is_full:
            break
        offsets.pass_to(next_base - 1)
    if not segments:
        offsets.pass_to(stop - 1)  # for a round that only removes expired tombstones and markers
    stats.map_bytes_read += offsets.bytes_read
    stats.map_messages_read += offsets.records_read
    stats.utilization = offsets.size / offsets.limit
    return offsets


def read_keys(
    log: SegmentLog,
    offsets: OffsetMap,
    start: int,
    transactions: CleanedTransactions,
    tools: CleaningTools,
) -> None:
    """Add the keys of a segment to a map, until the map is full.

    Args:
        start: Records below this offset are not added.

    Raises:
        CorruptRecordError: A batch is damaged.
        CleaningAbortedError: See ``CleaningTools.spend``.
    """

    def take(buffer: bytearray, size: int) -> int | None:
        tools.spend(size)
        at = 0
        while True:
            at = offsets.put_batches(buffer, at, size, start, decompress)
            if offsets.is_full:
                return None
            if not next_batch(buffer, at, size):
                return at
            header = decode_header(buffer, at)
            if header.is_control:
                transactions.read_marker(header, decode_records(buffer, at))
                is_aborted = True  # a marker has no key
            else:
                is_aborted = transactions.read_batch(header)
            behind = offsets.put_batch(buffer, at, size, start, decompress, is_aborted)
            if behind == at:
                return None
            at = behind

    read_pieces(log.file, log.name, log.size_bytes, tools.piece_bytes, take)
