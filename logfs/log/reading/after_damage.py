"""What is after a corrupt batch: found from what follows it, counting back.

A scan from an index entry ends at a corrupt batch, whose records cannot be counted. The next entry,
or the end of the segment, says how long everything before it is, so what lies between the
corrupt batch and there is measured and taken off.
"""

import contextlib

from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError
from logfs.log.indexes import textindex
from logfs.log.indexes.index import Entries
from logfs.log.indexes.textindex import TEXT_INDEX, TextEntry
from logfs.log.segments.batches import (
    LOOKUP_BYTES,
    BatchWalk,
    Window,
    batch_after,
    end_of_sound,
    measure_batches,
    read_exactly,
)
from logfs.log.segments.segment import Segment
from logfs.records._reading import first_offset, header_ok, measure, whole_batches
from logfs.records.compression import Buffer, decompress
from logfs.records.layout import (
    HEADER_BYTES,
    NO_OFFSET,
    base_offset_of,
    is_message,
    size_of,
)
from logfs.types import Positions


def place_after(segment: Segment, corrupt: int, ends: Positions, file_end: int) -> TextEntry | None:
    """Find where the first batch after a corrupt one is that can be read.

    Args:
        ends: Positions at which the segment ends.
        file_end: Bytes of its ``.log`` that hold batches.

    Returns:
        Its file position and the lengths before it; None if nothing can be read up to the end
        of the segment. Relative offset 0: the place is the start of a batch.
    """
    log, entries = segment.files().log, segment.files().text_entries()
    lengths = ends.minus(segment.bases)
    number = textindex.count_text_entries_before(entries, corrupt + 1)
    count = len(entries) // TEXT_INDEX.entry_bytes
    follower = end = TextEntry(0, file_end, *lengths)
    while number < count and not _is_usable(entries, number, corrupt, end):
        number += 1
    if number < count:
        follower = textindex.decode_text_entry(entries, number)
    stop, position = follower.file_position, corrupt
    while (position := batch_after(log, position, stop) or stop) < stop:
        between = log.pread(stop - position, position)
        if len(between) < stop - position:
            break  # the file was cut
        rest, at = measure_batches(between, offset_before(segment, position))
        if at < len(between):
            position += at
            continue
        inside = _measure_begin(segment, log, follower, file_end)
        place = TextEntry(0, position, *follower.lengths.minus(inside).minus(rest))
        return place if min(place.lengths) >= 0 else None
    if stop >= file_end:
        return None
    after_gap = number + 1
    if after_gap < count:
        second = textindex.decode_text_entry(entries, after_gap)
        if second[:2] == follower[:2]:
            return second
    return follower


def offset_before(segment: Segment, corrupt: int) -> int:
    """Return the offset after the used batches before a file position; 0 if it is not known."""
    entries = segment.files().text_entries()
    number = textindex.count_text_entries_before(entries, corrupt)
    position, after = 0, segment.base_offset
    if number:
        position, after = textindex.decode_text_entry(entries, number - 1).file_position, 0
    return end_of_sound(segment.files().log, position, after, corrupt)


def agrees_with_log(entry: TextEntry, follower: TextEntry, buffer: Buffer, stop: int) -> bool:
    """Tell whether the records from an entry to the next one are as long as the two entries say.

    Args:
        entry: One of a text index without gaps.
        follower: The next one.
        buffer: Whole batches, from the batch of the entry on.
        stop: How many bytes of it there are.

    Returns:
        True also if the buffer does not hold all of these records, or one is corrupt.
    """
    size = follower[1] - entry[1]
    if not 0 < size <= stop or whole_batches(buffer, 0, size, 0)[0] < size:
        return True
    try:
        text, tsv, jsonl = measure(buffer, 0, size, NO_OFFSET, decompress)
    except CorruptRecordError:
        return True
    return (
        entry[2] + text == follower[2]
        and entry[3] + tsv == follower[3]
        and entry[4] + jsonl == follower[4]
    )


def offset_after(
    segment: Segment, corrupt: int, ends: Positions, next_offset: int, file_end: int
) -> int:
    """Return the offset at which reading continues after a corrupt batch.

    Args:
        ends: Positions at which the segment ends.
        file_end: Bytes of its ``.log`` that hold batches.

    Raises:
        CorruptRecordError: What follows cannot be read either.
    """
    place = place_after(segment, corrupt, ends, file_end)
    if place is None:
        return next_offset
    if place.relative_offset:
        return segment.base_offset + place.relative_offset
    log, position = segment.files().log, place.file_position
    after = offset_before(segment, position)
    for window in BatchWalk(log, position, file_end, LOOKUP_BYTES, after=after):
        return first_offset(window.buffer, 0, window.stop)
    return next_offset


def base_offset_at(segment: Segment, position: int, file_end: int) -> int:
    """Return the first offset of a batch; raise CorruptRecordError if the file ends before."""
    log = segment.files().log
    head = read_exactly(log, min(HEADER_BYTES, file_end - position), position)
    if is_message(head):
        with contextlib.suppress(CorruptRecordError):
            for window in BatchWalk(log, position, file_end, LOOKUP_BYTES, ends_at_refused=True):
                return first_offset(window.buffer, 0, window.stop)
    return base_offset_of(head)


def explain(
    error: CorruptRecordError, segment: Segment, ends: Positions, next_offset: int, file_end: int
) -> None:
    """Add the file, and the offset at which reading continues, to what ends a read of a segment.

    Args:
        error: With the position of the batch.
        segment: The segment.
        ends: Positions at which it ends.
        next_offset: The offset after its last one.
        file_end: Bytes of its ``.log`` that hold batches.

    Raises:
        WouldWaitError: This thread must not wait for the disk.
    """
    error.name_file(segment.name)
    if error.file == segment.name and error.position is not None:
        with contextlib.suppress(CorruptRecordError, OSError):
            error.next_offset = offset_after(segment, error.position, ends, next_offset, file_end)


def placed(
    error: CorruptRecordError, segment: Segment | None, window: Window
) -> CorruptRecordError:
    """Return an error that a renderer raised with the file and the bytes of the batch."""
    begin = error.position or 0
    position = window.file_position + begin
    size = int.from_bytes(window.buffer[begin + 8 : begin + 12], "big", signed=True) + 12
    if not 0 < size <= window.stop - begin:
        size = window.stop - begin
    name = None if segment is None else segment.name
    return CorruptRecordError(f"{name} at byte {position}: {error}", position, name, size)


def _is_usable(entries: Entries, number: int, corrupt: int, end: TextEntry) -> bool:
    """Tell whether an entry is in order and names a batch after a corrupt one."""
    pair = textindex.entry_and_next(entries, number, end)
    return pair is not None and corrupt < pair[0].file_position < end.file_position


def _measure_begin(segment: Segment, log: File, entry: TextEntry, file_end: int) -> Positions:
    """Measure the records of an entry's batch that stand before the one it names."""
    if not entry.relative_offset:
        return Positions()
    head = log.pread(HEADER_BYTES, entry.file_position)
    if not header_ok(head, 0, file_end - entry.file_position):
        return Positions()
    offset = segment.base_offset + entry.relative_offset
    if not is_message(head) and base_offset_of(head) >= offset:
        return Positions()
    batch = read_exactly(
        log, min(size_of(head), file_end - entry.file_position), entry.file_position
    )
    return Positions(*measure(batch, 0, len(batch), offset, decompress))
