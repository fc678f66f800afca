"""The record with the largest timestamp, of those that a reader can see.

The largest timestamp of a segment, which its table entry has, may be that of a marker, of an
aborted record, or of one that compaction has removed. So the segments are searched in the order of
those, until none that is left can hold a larger one.
"""

from logfs.log.indexes.index import TimestampOffset
from logfs.log.reading.lookup import batches_in, time_hint
from logfs.log.segments.abortedruns import transaction_table
from logfs.log.segments.snapshot import Snapshot
from logfs.types import NO_TIMESTAMP, IsolationLevel


def newest_record(snapshot: Snapshot, level: IsolationLevel) -> TimestampOffset | None:
    """Return timestamp and offset of the record with the largest timestamp, the first of equals.

    None if no record that the level shows has a timestamp.

    Raises:
        CorruptRecordError: A segment that may hold it cannot be read.
    """
    times = [segment.max_timestamp for segment in snapshot.segments]
    times[-1] = snapshot.end.max_timestamp
    newest: TimestampOffset | None = None
    for number in sorted(range(len(times)), key=lambda n: (-times[n], n)):
        if times[number] == NO_TIMESTAMP or (newest and times[number] < newest.timestamp):
            break
        found = _newest_in(snapshot, number, times[number], level)
        if found and (newest is None or _rank(found) > _rank(newest)):
            newest = found
    return newest


def _newest_in(
    snapshot: Snapshot, number: int, largest: int, level: IsolationLevel
) -> TimestampOffset | None:
    """Find the newest record of a segment: where the index says, else anywhere."""
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    hint = time_hint(segment, largest, segment.base_offset, file_end)
    found = _newest_from(snapshot, number, hint, largest, level)
    if hint and (found is None or found.timestamp < largest):
        found = _newest_from(snapshot, number, 0, largest, level)
    return found


def _newest_from(
    snapshot: Snapshot, number: int, position: int, largest: int, level: IsolationLevel
) -> TimestampOffset | None:
    aborted = b""
    if level is IsolationLevel.READ_COMMITTED:
        aborted = transaction_table(snapshot.aborted_in(number))
    start, end = snapshot.start.offset, snapshot.visible_end(level).offset
    newest: TimestampOffset | None = None
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    for batch in batches_in(segment, position, file_end):
        if batch.header.base_offset >= end or (newest and newest.timestamp == largest):
            break
        highest = newest.timestamp if newest else NO_TIMESTAMP
        if batch.header.max_timestamp > highest and batch.is_seen(aborted):
            for record in batch.records():
                if start <= record.offset < end and record.timestamp > highest:
                    highest = record.timestamp
                    newest = TimestampOffset(record.timestamp, record.offset)
    return newest


def _rank(found: TimestampOffset) -> tuple[int, int]:
    return found.timestamp, -found.offset
