"""Where is it: from an offset or a moment to positions, by binary search and a short scan.

The segments are chosen from the snapshot, then one segment's indexes give a place in its ``.log``
at most an index interval before the target. An index is a hint: a place at which no fitting
batch was found is passed over and the scan begins with the segment.
"""

import contextlib
from collections.abc import Iterator

from logfs.errors import CorruptRecordError
from logfs.log.indexes import index, textindex
from logfs.log.indexes.index import TimestampOffset
from logfs.log.indexes.textindex import TextEntry
from logfs.log.reading.after_damage import (
    agrees_with_log,
    base_offset_at,
    offset_before,
    place_after,
)
from logfs.log.segments.abortedruns import transaction_table
from logfs.log.segments.batches import (
    LOOKUP_BYTES,
    SEQUENTIAL_BYTES,
    BatchWalk,
    FoundBatch,
    RefusedBatchError,
    Window,
    batch_after,
    batches_from,
)
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.records._reading import (
    find_offset,
    find_timestamp,
    header_last_offset,
    header_ok,
    measure,
    whole_batches,
)
from logfs.records.batch import decode_header
from logfs.records.compression import decompress
from logfs.records.layout import HEADER_BYTES, base_offset_of, crc_of, is_message
from logfs.types import NO_TIMESTAMP, IsolationLevel, Positions

_TRIED_ENTRIES = 8
"""Index entries tried one after the other before the segment is scanned from its start."""


def positions_of_offset(
    snapshot: Snapshot, offset: int, *, past_corrupt: bool = False
) -> Positions:
    """Return the positions at which the first record at or after an offset is.

    An offset below the log start gives the start, one at or beyond the log end the end. The offset
    of a removed record gives the place where it was: the next kept record lies after it. The
    offset of a record in a corrupt batch gives the place where that batch is, or with
    ``past_corrupt`` the place after it: what ends there must not end in silence before it. A batch
    that is refused for its offsets has none: the place is after it.
    """
    if offset <= snapshot.start.offset:
        return snapshot.start.positions
    if offset >= snapshot.end.offset:
        return snapshot.end.positions
    number = snapshot.index_of_offset(offset)
    if number < 0:
        return snapshot.start.positions
    segment = snapshot.segments[number]
    ends, next_offset, file_end = snapshot.end_of(number)
    if offset >= next_offset:
        return snapshot.segments[number + 1].bases
    lengths, after = _lengths_at(segment, offset, ends, file_end)
    return segment.bases.plus(after if past_corrupt else lengths)


def offset_for_time(
    snapshot: Snapshot,
    timestamp: int,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> int | None:
    """Return the offset of the first record a reader can see at or after a moment.

    None if there is none. Unlike Kafka's own answer it is never a control record's, nor, under
    read_committed, an aborted one's; and an empty segment does not hide the ones after it.

    Source: Kafka UnifiedLog.fetchOffsetByTimestamp, with the differences above.
    """
    last, end = len(snapshot.segments) - 1, snapshot.visible_end(level).offset
    hides_aborted = level is IsolationLevel.READ_COMMITTED and bool(snapshot.aborted)
    for number in range(snapshot.index_of_time(timestamp), last + 1):
        segment = snapshot.segments[number]
        highest = snapshot.end.max_timestamp if number == last else segment.max_timestamp
        if highest < timestamp:
            continue
        if segment.base_offset >= end:
            return None
        table = transaction_table(snapshot.aborted_in(number)) if hides_aborted else b""
        found = _find_time(snapshot, number, timestamp, table)
        if found is not None:
            return found if found < end else None
    return None


def batch_crc_at(snapshot: Snapshot, offset: int) -> int | None:
    """Return the CRC field of the first batch that ends at or after an offset.

    That is the batch that was appended there, even if a power cut has damaged its base offset,
    which the CRC does not cover: the scan of recovery passes a higher one.

    Returns:
        None if there is no such batch, or if it begins before the offset.

    Raises:
        CorruptRecordError: What is before it is not known to be whole batches.
    """
    number = snapshot.index_of_offset(offset)
    if number < 0 or offset >= snapshot.end_of(number)[1]:
        return None
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    for window in _walk(segment, offset_hint(segment, offset, file_end), file_end):
        at = find_offset(window.buffer, 0, window.stop, offset)
        if at < window.stop:
            is_inside = base_offset_of(window.buffer, at) < offset
            return None if is_inside else crc_of(window.buffer, at)
    return None


def lengths_after(segment: Segment, offset: int, ends: Positions, file_end: int) -> Positions:
    """Return the lengths before the first record of a segment at or after an offset.

    Args:
        offset: If a corrupt batch holds it, the lengths are those up to after that batch.
        ends: Positions at which the segment ends.
        file_end: Bytes of its ``.log`` that hold batches.
    """
    return _lengths_at(segment, offset, ends, file_end)[1]


def _lengths_at(
    segment: Segment, offset: int, ends: Positions, file_end: int
) -> tuple[Positions, Positions]:
    """Return the lengths before the first record of a segment at or after an offset, twice.

    For a record of a corrupt batch: those before that batch, and those up to after it.
    """
    end = TextEntry(0, file_end, *ends.minus(segment.bases))
    entry, between = _text_hint(segment, offset, end)
    if between and whole_batches(between, 0, len(between), 0)[0] == len(between):
        with contextlib.suppress(CorruptRecordError):  # which the walk locates
            measured = measure(between, 0, len(between), offset, decompress)
            lengths = entry.lengths.plus(measured)
            return lengths, lengths
    after = 0
    while True:
        lengths, corrupt = _measure(segment, entry, offset, file_end, after)
        if corrupt is None:
            return lengths, lengths
        try:
            place = place_after(segment, corrupt, ends, file_end)
            if place is None:
                return lengths, ends.minus(segment.bases)
            if base_offset_at(segment, place.file_position, file_end) > offset:
                return lengths, place.lengths
        except CorruptRecordError as error:
            error.name_file(segment.name)
            raise
        entry, after = place, offset_before(segment, place.file_position)


def _text_hint(segment: Segment, offset: int, end: TextEntry) -> tuple[TextEntry, bytes]:
    """Return the last usable entry of the text index at or before an offset.

    Returns:
        The entry; and the batches from it to the next one if the offset is before that, as far as
        they were read to compare them. They begin with the record of the entry.
    """
    entries, relative_offset = segment.files().text_entries(), offset - segment.base_offset
    if segment.has_gaps:
        segment.gap_numbers(entries)  # raises CorruptRecordError for an index that is damaged
        entry = textindex.lookup_offset(entries, relative_offset)
        head = segment.files().log.pread(HEADER_BYTES, entry.file_position)
        if entry.relative_offset and header_ok(head, 0, end.file_position - entry.file_position):
            segment.check_holds(entry, head)
        return entry, b""
    last = textindex.count_text_offsets_up_to(entries, relative_offset) - 1
    for number in range(last, -1, -1):
        pair = textindex.entry_and_next(entries, number, end)
        if pair is None:
            continue
        between = _fitting(segment, *pair, end.file_position)
        if between is not None:
            is_whole = number == last and len(between) == pair[1][1] - pair[0][1]
            return pair[0], between if is_whole else b""
    return textindex.ZERO, b""


def _fitting(
    segment: Segment, entry: TextEntry, follower: TextEntry, file_end: int
) -> bytes | None:
    """Return the log from an entry to the next one, or its start, if they agree with it."""
    position = entry.file_position
    if not 0 <= position < file_end:
        return None
    size = min(max(follower.file_position - position, HEADER_BYTES), LOOKUP_BYTES)
    data = segment.files().log.pread(size, position)
    if not header_ok(data, 0, file_end - position):
        return None
    first = base_offset_of(data)
    if is_message(data):
        first = base_offset_at(segment, position, file_end)
    begin = segment.base_offset + entry.relative_offset
    agrees = first == begin and agrees_with_log(entry, follower, data, len(data))
    return data if agrees else None


def _measure(
    segment: Segment, entry: TextEntry, offset: int, file_end: int, after: int
) -> tuple[Positions, int | None]:
    """Return the lengths from an entry to an offset, and where a corrupt batch ended the count."""
    lengths = entry.lengths
    walk = _walk(segment, entry.file_position, file_end, ends_at_refused=True)
    walk.after = max(walk.after, after)
    before = segment.base_offset + entry.relative_offset if entry.relative_offset else 0
    try:
        while (window := _next_of(walk)) is not None:
            if isinstance(window, RefusedBatchError):
                lengths = lengths.plus((window.size_bytes,) * 3)
                walk.position += window.size_bytes
                continue
            stop, corrupt = window.stop, None
            try:
                measured = measure(window.buffer, 0, stop, offset, decompress)
            except CorruptRecordError as error:
                stop = error.position or 0
                corrupt = window.file_position + stop
                measured = measure(window.buffer, 0, stop, offset, decompress)
            skipped = measure(window.buffer, 0, stop, before, decompress)
            lengths, before = lengths.plus(measured).minus(skipped), 0
            if corrupt is not None:
                return lengths, corrupt
            if find_offset(window.buffer, 0, stop, offset) < stop:
                break
    except CorruptRecordError:
        return lengths, walk.position
    return lengths, None


def _next_of(walk: BatchWalk) -> Window | RefusedBatchError | None:
    """Return the next window, or the refused batch that is there instead."""
    try:
        return next(walk, None)
    except RefusedBatchError as refused:
        return refused


def _find_time(snapshot: Snapshot, number: int, timestamp: int, aborted: bytes) -> int | None:
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    start = snapshot.start.offset
    position = time_hint(segment, timestamp, start, file_end)
    for window in _walk(segment, position, file_end, SEQUENTIAL_BYTES):
        try:
            found = find_timestamp(window.buffer, 0, window.stop, timestamp, decompress, aborted)
        except CorruptRecordError as error:
            # Nothing says that the record is not in there, so that is the place.
            at = error.position or 0
            return max(start, base_offset_of(window.buffer, at))
        if found is not None and found[0] >= start:
            return int(found[0])
        if found is not None:
            return _first_from(snapshot, number, timestamp, aborted)
    return None


def _first_from(snapshot: Snapshot, number: int, timestamp: int, aborted: bytes) -> int | None:
    """Search record by record: the log start lies inside the batch that was found."""
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    start = snapshot.start.offset
    for batch in batches_in(segment, offset_hint(segment, start, file_end), file_end):
        if batch.header.max_timestamp >= timestamp and batch.is_seen(aborted):
            for record in batch.records():
                if record.offset >= start and record.timestamp >= timestamp:
                    return record.offset
    return None


def timestamp_of(snapshot: Snapshot, offset: int) -> int | None:
    """Return the timestamp of a record, None without; raise CorruptRecordError for damage."""
    number = snapshot.index_of_offset(offset)
    if number < 0 or offset < snapshot.start.offset:
        return None
    segment, (_, next_offset, file_end) = snapshot.segments[number], snapshot.end_of(number)
    if offset >= next_offset:
        return None
    for batch in batches_in(segment, offset_hint(segment, offset, file_end), file_end):
        if batch.header.last_offset >= offset:
            found = (r.timestamp for r in batch.records() if r.offset == offset)
            return next(found, None)
    return None


def time_hint(segment: Segment, timestamp: int, start: int, file_end: int) -> int:
    """Return a file position before which no record at or after a moment is.

    An entry says that every larger timestamp lies after its offset: true if the batch that ends
    there has its timestamp, else the scan begins with the segment.
    """
    base = segment.base_offset
    hint = index.lookup_timestamp(segment.files().time_entries(), base, timestamp)
    if hint.offset <= max(start, base):
        return offset_hint(segment, start, file_end)
    position = offset_hint(segment, hint.offset, file_end)
    for window in _walk(segment, position, file_end):
        at = find_offset(window.buffer, 0, window.stop, hint.offset)
        if at < window.stop:
            header = decode_header(window.buffer, at)
            if header.last_offset == hint.offset and header.max_timestamp == hint.timestamp:
                return window.file_position + at
            break
    return offset_hint(segment, start, file_end)


def offset_hint(segment: Segment, offset: int, file_end: int) -> int:
    """Return a file position at or before the batch that holds an offset."""
    entries, base = segment.files().offset_entries(), segment.base_offset
    count = index.count_offsets_up_to(entries, base, offset)
    for number in range(count - 1, max(count - 1 - _TRIED_ENTRIES, -1), -1):
        entry = index.decode_offset_entry(entries, number, base)
        if _fits(segment, entry.position, entry.offset, file_end):
            return entry.position
    return 0


def place_of_offset(
    segment: Segment, offset: int, file_end: int, *, goes_on: bool
) -> tuple[int, int]:
    """Return where a reader of records from an offset on begins in a segment.

    Args:
        goes_on: The reader has come to the first offset of the segment. It begins with the first
            byte, so that it meets what cannot be used there. Otherwise it begins with the first
            batch that is used and ends at or after the offset.

    Returns:
        File position of a batch, and the offset after those before it; 0 if it is not known.
    """
    if goes_on and offset <= segment.base_offset:
        return 0, segment.base_offset
    log, walk = (
        segment.files().log,
        _walk(segment, offset_hint(segment, offset, file_end), file_end),
    )
    while True:
        try:
            for window in walk:
                at = find_offset(window.buffer, 0, window.stop, offset)
                if at < window.stop:
                    return window.file_position + at, 0
        except CorruptRecordError:
            after = batch_after(log, walk.position, file_end) or file_end
            if after < file_end and base_offset_at(segment, after, file_end) <= offset:
                walk.position = after
                continue
        return min(walk.position, file_end), walk.after


def batches_in(segment: Segment, position: int, file_end: int) -> Iterator[FoundBatch]:
    """Read the batches of a segment from a position of one; CorruptRecordError names the file."""
    return batches_from(_walk(segment, position, file_end, SEQUENTIAL_BYTES))


def _walk(
    segment: Segment,
    position: int,
    file_end: int,
    next_chunk: int = LOOKUP_BYTES,
    *,
    ends_at_refused: bool = False,
) -> BatchWalk:
    """Walk over the batches of a segment, of which most look-ups need the first few."""
    return BatchWalk(
        segment.files().log,
        position,
        file_end,
        LOOKUP_BYTES,
        next_chunk=next_chunk,
        segment=segment,
        ends_at_refused=ends_at_refused,
    )


def _fits(segment: Segment, position: int, offset: int, file_end: int) -> bool:
    """Whether a batch that ends with an offset is where an entry of the offset index points."""
    if not 0 <= position < file_end:
        return False
    head = segment.files().log.pread(HEADER_BYTES, position)
    return header_ok(head, 0, file_end - position) and header_last_offset(head, 0) == offset


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
