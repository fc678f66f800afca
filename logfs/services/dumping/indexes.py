"""Offset and time indexes, checked against the ``.log`` they belong to.

An entry of an offset index must point to a batch that ends with its offset. An entry of a time
index must have the last offset of a batch and the largest timestamp of its records. Timestamps
must increase. From the second entry on, an entry at the base offset is the zeros of a preallocated
file, and so the end. Zeros in the first entry are printed and checked, like in Kafka's tool, but
they are not damage: the active segment of a running broker has such indexes.

Sources: Kafka DumpLogSegments.dumpIndex, dumpTimeIndex; OffsetIndex, TimeIndex, AbstractIndex.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from logfs.disk.vfs import File
from logfs.errors import CorruptIndexError
from logfs.log.indexes.index import (
    OFFSET_INDEX,
    TIME_INDEX,
    OffsetPosition,
    TimestampOffset,
    decode_offset_entry,
    decode_time_entry,
)
from logfs.records._dumping import largest_timestamp
from logfs.records.compression import decompress
from logfs.records.layout import HEADER_BYTES, RECORD_COUNT_AT
from logfs.services.dumping.legacy import largest_legacy_timestamp
from logfs.services.dumping.output import DumpOptions, Findings, Streams
from logfs.services.dumping.source import BatchWindow, DumpFile, Frame
from logfs.types import NO_TIMESTAMP

_WINDOW_BYTES = 1 << 16
_WARM_ENTRIES = 8192 // OFFSET_INDEX.entry_bytes


class _OffsetIndex:
    """The entries of an offset index, zeros at the end included."""

    def __init__(self, data: bytes, base_offset: int) -> None:
        self.count = len(data) // OFFSET_INDEX.entry_bytes
        self.base_offset = base_offset
        self._data = data

    def entry(self, number: int) -> OffsetPosition:
        return decode_offset_entry(self._data, number, self.base_offset)

    def position_of(self, offset: int) -> int:
        """Return the position at which Kafka starts to search for an offset.

        The search is exactly Kafka's, because the zeros at the end of a preallocated file make the
        entries unsorted. Source: Kafka AbstractIndex.indexSlotRangeFor.
        """
        if self.count == 0:
            return 0
        hot = max(0, self.count - 1 - _WARM_ENTRIES)
        low, high = 0, hot
        if self.entry(hot).offset < offset:
            low, high = hot, self.count - 1
        elif self.entry(0).offset > offset:
            return 0
        while low < high:
            middle = (low + high + 1) >> 1
            found = self.entry(middle).offset
            if found == offset:
                return self.entry(middle).position
            if found > offset:
                high = middle - 1
            else:
                low = middle
        return self.entry(low).position


def dump_index(
    source: DumpFile, options: DumpOptions, streams: Streams, findings: Findings
) -> None:
    """Print an offset index.

    Raises:
        CorruptIndexError: It is obviously wrong, or an entry does not point to a batch.
        OSError: It, or the ``.log``, cannot be read.
    """
    base_offset = source.base_offset
    with _log_of(source) as file:
        data = source.disk.read(source.name, None)
        index = _OffsetIndex(data, base_offset)
        if index.count == 0:
            streams.print(f"{source.path} is empty.")
        elif options.sanity_only:
            _check_offset_index(source, data, index)
            streams.print(f"{source.path} passed sanity check.")
        else:
            _dump_offsets(index, file, source, options, streams, findings)


def _dump_offsets(
    index: _OffsetIndex,
    file: File,
    source: DumpFile,
    options: DumpOptions,
    streams: Streams,
    findings: Findings,
) -> None:
    size = file.size()
    window = BatchWindow(file, size, source.path, _WINDOW_BYTES)
    for number in range(index.count):
        entry = index.entry(number)
        if entry.offset == index.base_offset and number > 0:
            return
        frame = _first_frame(window, entry.position, options.max_message_bytes, size)
        is_unused = entry == (index.base_offset, 0)
        if frame is None and is_unused:
            return
        if frame is None:
            raise CorruptIndexError(
                f"{source.path}: entry {number}, offset {entry.offset}: expected a whole batch at "
                f"position {entry.position} of the log"
            )
        found = window.last_offset(frame)
        if found != entry.offset:
            findings.index_mismatch(source.absolute, entry.offset, found, is_harmless=is_unused)
        if not options.verify_only:
            streams.print(f"offset: {entry.offset} position: {entry.position}")


def dump_time_index(
    source: DumpFile, options: DumpOptions, streams: Streams, findings: Findings
) -> None:
    """Print a time index.

    Raises:
        CorruptIndexError: It is obviously wrong.
        CorruptRecordError: A batch of an entry does not decode.
        OSError: It, the ``.log`` or the ``.index`` cannot be read.
    """
    base_offset = source.base_offset
    with _log_of(source) as file:
        offsets = _OffsetIndex(source.disk.read(source.sibling(".index"), None), base_offset)
        data = source.disk.read(source.name, None)
        if options.sanity_only:
            _check_time_index(source, data, base_offset)
            streams.print(f"{source.path} passed sanity check.")
            return
        window = BatchWindow(file, file.size(), source.path, _WINDOW_BYTES)
        before = NO_TIMESTAMP
        for number in range(len(data) // TIME_INDEX.entry_bytes):
            entry = decode_time_entry(data, number, base_offset)
            if entry.offset == base_offset and number > 0:
                return
            _check_time(entry, before, offsets, window, source, findings)
            if not options.verify_only:
                streams.print(f"timestamp: {entry.timestamp} offset: {entry.offset}")
            before = entry.timestamp


def _check_time(
    entry: TimestampOffset,
    before: int,
    offsets: _OffsetIndex,
    window: BatchWindow,
    source: DumpFile,
    findings: Findings,
) -> None:
    position = offsets.position_of(entry.offset)
    frame = _frame_ending_behind(window, position, entry.offset)
    last_offset = -1 if frame is None else window.last_offset(frame)
    is_unused = entry == (0, offsets.base_offset)
    if frame is None or last_offset != entry.offset:
        findings.not_found(source.absolute, entry.offset, last_offset, is_harmless=is_unused)
        return
    found, is_empty = _largest_timestamp(window, frame)
    if found != entry.timestamp:
        findings.timestamp_mismatch(
            source.absolute, entry.timestamp, found, is_harmless=is_empty or is_unused
        )
    if before >= entry.timestamp:
        findings.out_of_order(source.absolute, entry.timestamp, before)


def _frame_ending_behind(window: BatchWindow, position: int, offset: int) -> Frame | None:
    """Return the first batch from a position on whose last offset is >= ``offset``."""
    while (frame := window.frame(position)) is not None:
        if window.last_offset(frame) >= offset:
            return window.frame(position)  # its header may have moved the window
        position += frame.size_bytes
    return None


def _largest_timestamp(window: BatchWindow, frame: Frame) -> tuple[int, bool]:
    """Return the largest timestamp of a batch's records, and whether compaction emptied it."""
    index = window.index_of(frame.position, frame.size_bytes)
    stop = index + frame.size_bytes
    if frame.is_legacy:
        return largest_legacy_timestamp(bytes(window.buffer[index:stop])), False
    is_empty = not any(window.buffer[index + RECORD_COUNT_AT : index + HEADER_BYTES])
    return largest_timestamp(window.buffer, index, stop, decompress), is_empty


def _first_frame(window: BatchWindow, position: int, limit: int, size: int) -> Frame | None:
    """Return the batch at a position, if it is whole within the next ``limit`` bytes."""
    if not 0 <= position <= size:
        return None
    window.end = min(size, position + limit)
    frame = window.frame(position)
    window.end = size
    return frame


@contextmanager
def _log_of(source: DumpFile) -> Iterator[File]:
    file = source.disk.open(source.sibling(".log"))
    try:
        yield file
    finally:
        file.close()


def _check_offset_index(source: DumpFile, data: bytes, index: _OffsetIndex) -> None:
    """Check that the entries are plausible. Source: Kafka OffsetIndex.sanityCheck."""
    last = index.entry(index.count - 1).offset
    if last < index.base_offset:
        raise CorruptIndexError(
            f"{source.path}: the last entry's offset {last} is less than the base offset "
            f"{index.base_offset}"
        )
    _check_length(source, data, OFFSET_INDEX.entry_bytes)


def _check_time_index(source: DumpFile, data: bytes, base_offset: int) -> None:
    """Check that the entries are plausible. Source: Kafka TimeIndex.sanityCheck."""
    count = len(data) // TIME_INDEX.entry_bytes
    if count:
        first = decode_time_entry(data, 0, base_offset)
        last = decode_time_entry(data, count - 1, base_offset)
        if last.timestamp < first.timestamp:
            raise CorruptIndexError(
                f"{source.path}: the last entry's timestamp {last.timestamp} is less than the "
                f"first one's, {first.timestamp}"
            )
        if last.offset < base_offset:
            raise CorruptIndexError(
                f"{source.path}: the last entry's offset {last.offset} is less than the base "
                f"offset {base_offset}"
            )
    _check_length(source, data, TIME_INDEX.entry_bytes)


def _check_length(source: DumpFile, data: bytes, entry_bytes: int) -> None:
    if len(data) % entry_bytes:
        raise CorruptIndexError(
            f"{source.path}: {len(data)} bytes, expected a multiple of {entry_bytes}"
        )
