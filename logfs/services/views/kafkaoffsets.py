"""What a Kafka broker answers to ListOffsets, with all that a reader would not expect of it.

    time T >= 0     the first segment whose largest timestamp is >= T is searched, and no other: in
                    it the first record at or after T that is not below the log start. Control
                    records count, so do aborted ones. A segment's largest timestamp is that of
                    its batches, of those too that compaction has emptied; without any, the time
                    at which its .log was last changed.
    max timestamp   the first record with the largest timestamp of the first segment with the
                    largest one; nothing if compaction has emptied that batch
    latest          the high watermark; the last stable offset under read_committed

An answer at or beyond ``latest`` is given as none.

Source: Kafka UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp,
FileRecords.searchForTimestamp, Partition.fetchOffsetForTimestamp.
"""

from logfs.log.indexes.index import TimestampOffset
from logfs.log.reading.lookup import batches_in, time_hint
from logfs.log.reading.readable import ReadableLog
from logfs.log.segments.batches import FoundBatch
from logfs.log.segments.snapshot import Snapshot
from logfs.types import NO_TIMESTAMP, IsolationLevel


def latest_offset(log: ReadableLog, level: IsolationLevel) -> int:
    """Return the offset at which a consumer's ``latest`` begins."""
    if level is IsolationLevel.READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def offset_by_timestamp(
    log: ReadableLog, timestamp: int, level: IsolationLevel
) -> TimestampOffset | None:
    """Return what a broker answers for a time.

    Args:
        timestamp: Epoch milliseconds; below 0 Kafka knows no times, so that is taken for 0.
        level: The isolation level of the consumer that asks; ``high_watermark`` is Kafka's
            read_uncommitted.

    Raises:
        CorruptRecordError: The segment cannot be searched.
    """
    snapshot, timestamp = log.snapshot, max(timestamp, 0)
    for number in range(len(snapshot.segments)):
        if _largest_timestamp(log, snapshot, number) >= timestamp:
            found = _search(snapshot, number, timestamp)
            return _fetchable(found, latest_offset(log, level))
    return None


def offset_of_max_timestamp(log: ReadableLog, level: IsolationLevel) -> TimestampOffset | None:
    """Return what a broker answers for the largest timestamp; raise CorruptRecordError."""
    snapshot = log.snapshot
    times = [_max_timestamp(snapshot, number) for number in range(len(snapshot.segments))]
    largest = max(times)
    number = times.index(largest)
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    position = time_hint(segment, largest, segment.base_offset, file_end)
    for batch in batches_in(segment, position, file_end):
        if batch.header.max_timestamp == largest:
            return _fetchable(_first_at(batch, largest), latest_offset(log, level))
    return None


def _first_at(batch: FoundBatch, timestamp: int) -> TimestampOffset | None:
    """Source: Kafka RecordBatch.offsetOfMaxTimestamp."""
    found = (r.offset for r in batch.records() if r.timestamp == timestamp)
    offset = next(found, None) if batch.header.magic else None
    return None if offset is None else TimestampOffset(timestamp, offset)


def _search(snapshot: Snapshot, number: int, timestamp: int) -> TimestampOffset | None:
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    start = snapshot.start.offset
    position = time_hint(segment, timestamp, start, file_end)
    for batch in batches_in(segment, position, file_end):
        if batch.header.max_timestamp >= timestamp:
            for record in batch.records():
                if record.timestamp >= timestamp and record.offset >= start:
                    return TimestampOffset(record.timestamp, record.offset)
    return None


def _max_timestamp(snapshot: Snapshot, number: int) -> int:
    if number == len(snapshot.segments) - 1:
        return snapshot.end.max_timestamp
    return snapshot.segments[number].max_timestamp


def _largest_timestamp(log: ReadableLog, snapshot: Snapshot, number: int) -> int:
    """Source: Kafka LogSegment.largestTimestamp."""
    largest = _max_timestamp(snapshot, number)
    if largest > NO_TIMESTAMP:
        return largest
    return log.disk.stat(snapshot.segments[number].name).mtime_ms


def _fetchable(answer: TimestampOffset | None, latest: int) -> TimestampOffset | None:
    return None if answer is None or answer.offset >= latest else answer
