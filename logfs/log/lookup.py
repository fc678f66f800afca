"""Where is it: from an offset or a moment to positions, by binary search and a short scan.

The segments are chosen from the snapshot, then one segment's indexes give a place in its ``.log``
at most an index interval in front of the target. An index is a hint: a place at which no fitting
batch stands is passed over and the scan begins with the segment.
"""

import struct

from logfs.log import index, textindex
from logfs.log.segment import Segment
from logfs.log.snapshot import Snapshot
from logfs.log.window import LOOKUP_BYTES, SEQUENTIAL_BYTES, Window
from logfs.records._native import find_offset, find_timestamp, measure
from logfs.records.compression import decompress
from logfs.types import Positions

_BASE_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_CRC_AT = 17


def positions_of_offset(snapshot: Snapshot, offset: int) -> Positions:
    """Return the positions at which the first record at or after an offset stands.

    An offset below the log start gives the start, one at or beyond the log end the end. The offset
    of a removed record gives the place where it stood: the next kept record lies behind it.

    Raises:
        CorruptRecordError: A batch between the last index entry and the record does not decode.
    """
    if offset <= snapshot.start.offset:
        return snapshot.start.positions
    if offset >= snapshot.end.offset:
        return snapshot.end.positions
    number = snapshot.index_of_offset(offset)
    if number < 0:
        return snapshot.start.positions
    segment = snapshot.segments[number]
    _, next_offset, file_end = snapshot.end_of(number)
    if offset >= next_offset:
        return snapshot.segments[number + 1].bases
    entry = textindex.lookup_offset(segment.files().text_entries(), offset - segment.base_offset)
    if entry.file_position >= file_end:
        entry = textindex.ZERO
    lengths = _measure(segment, entry, offset, file_end)
    return segment.bases.plus(lengths)


def offset_for_time(snapshot: Snapshot, timestamp: int) -> int | None:
    """Return the offset of the first record a reader can see at or after a moment.

    None if there is none. Unlike Kafka's own answer it is never a control record's, and an empty
    segment does not hide the ones behind it.

    Source: Kafka UnifiedLog.fetchOffsetByTimestamp, with the differences above.
    """
    last = len(snapshot.segments) - 1
    for number in range(snapshot.index_of_time(timestamp), last + 1):
        segment = snapshot.segments[number]
        highest = snapshot.end.max_timestamp if number == last else segment.max_timestamp
        if highest < timestamp:
            continue
        found = _find_time(snapshot, number, timestamp)
        if found is not None:
            return found
    return None


def batch_crc_at(snapshot: Snapshot, offset: int) -> int | None:
    """Return the CRC field of the batch that begins at an offset; None if none begins there."""
    number = snapshot.index_of_offset(offset)
    if number < 0 or offset >= snapshot.end_of(number)[1]:
        return None
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    window, position = Window(), _offset_hint(segment, offset)
    while position < file_end:
        window.load(segment.files().log, position, file_end, LOOKUP_BYTES, True)
        at = find_offset(window.buffer, 0, window.stop, offset)
        if at < window.stop:
            if _BASE_OFFSET.unpack_from(window.buffer, at)[0] != offset:
                return None
            return int(_CRC.unpack_from(window.buffer, at + _CRC_AT)[0])
        position = window.file_end
    return None


def _measure(segment: Segment, entry: textindex.TextEntry, offset: int, file_end: int) -> Positions:
    """Add up the lengths of the records from an entry up to an offset."""
    window, position = Window(), entry.file_position
    lengths = entry.lengths
    log = segment.files().log
    is_first = True
    while position < file_end:
        window.load(log, position, file_end, LOOKUP_BYTES, True)
        if is_first:
            is_first = False
            before = segment.base_offset + entry.relative_offset
            skipped = measure(window.buffer, 0, window.stop, before, decompress)
            lengths = Positions(*(a - b for a, b in zip(lengths, skipped, strict=True)))
        lengths = lengths.plus(measure(window.buffer, 0, window.stop, offset, decompress))
        if find_offset(window.buffer, 0, window.stop, offset) < window.stop:
            break
        position = window.file_end
    return lengths


def _find_time(snapshot: Snapshot, number: int, timestamp: int) -> int | None:
    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    files = segment.files()
    base = segment.base_offset
    hint = index.lookup_timestamp(files.time_entries(), base, timestamp)
    position = _offset_hint(segment, max(hint.offset, snapshot.start.offset))
    if position >= file_end:
        position = 0
    window, chunk = Window(), LOOKUP_BYTES
    while position < file_end:
        window.load(files.log, position, file_end, chunk, True)
        found = find_timestamp(window.buffer, 0, window.stop, timestamp, decompress)
        if found is not None and found[0] >= snapshot.start.offset:
            return int(found[0])
        if found is not None:
            return _first_from(snapshot, number, timestamp)
        position, chunk = window.file_end, SEQUENTIAL_BYTES
    return None


def _first_from(snapshot: Snapshot, number: int, timestamp: int) -> int | None:
    """Search record by record: the log start lies inside the batch that was found."""
    from logfs.records.batch import decode_records

    segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
    window = Window()
    start = snapshot.start.offset
    position = _offset_hint(segment, start)
    while position < file_end:
        window.load(segment.files().log, position, file_end, LOOKUP_BYTES, True)
        at = find_offset(window.buffer, 0, window.stop, start)
        while at < window.stop:
            for record in decode_records(window.buffer, at):
                if record.offset >= start and record.timestamp >= timestamp:
                    return record.offset
            at += int.from_bytes(window.buffer[at + 8 : at + 12], "big") + 12
        position = window.file_end
    return None


def _offset_hint(segment: Segment, offset: int) -> int:
    """Return a file position at or in front of the batch that holds an offset."""
    entries = segment.files().offset_entries()
    position = index.lookup_offset(entries, segment.base_offset, offset).position
    return position if _fits(segment, position, offset) else 0


def _fits(segment: Segment, position: int, offset: int) -> bool:
    """Whether a batch with a fitting offset stands where an index entry points."""
    if position == 0:
        return True
    try:
        header = segment.files().log.pread(17, position)
    except OSError:
        return False
    if len(header) < 17 or header[16] > 2:
        return False
    base_offset = _BASE_OFFSET.unpack_from(header)[0]
    return bool(segment.base_offset <= base_offset <= offset)
