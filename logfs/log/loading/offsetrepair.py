"""Repairing a damaged base offset: no checksum covers the first bytes of a batch.

The other batches can prove the right one. The batch begins where the previous batch ends, and the
next batch, or the next segment, begins where it ends. A base offset that this contradicts is
replaced, if the checksum of the batch is right. Without such proof the batch stays as it is.

In a read-only store the file stays as it is, and a ``RepairedFile`` shows it repaired. A segment
that nothing has to scan is not checked: ``logfs verify`` finds the damage, and ``logfs reindex``
repairs it.
"""

import logging
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import File, ReadableBuffer, Sync, Syncs
from logfs.log.segments.scan import Scan, scan_segment
from logfs.log.segments.segment import Segment
from logfs.records.checksum import crc32c
from logfs.records.layout import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    base_offset_of,
    crc_of,
    last_offset_delta_of,
    size_of,
)

logger = logging.getLogger(__name__)

_MOST_REPAIRS = 16
"""Base offsets that are repaired in one segment, each with another scan."""


class _Head(NamedTuple):
    """What the header of a batch says; ``offsets`` is the number of its offsets."""

    position: int
    size: int
    base_offset: int
    offsets: int


class RepairedFile(File):
    """A ``.log`` of a read-only store; what is written to it is seen by its readers only."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._written: dict[int, bytes] = {}

    @property
    def is_repaired(self) -> bool:
        """Whether its readers see other bytes than the file has."""
        return bool(self._written)

    def size(self) -> int:
        """Return the length of the file."""
        return self._file.size()

    def inode(self) -> int:
        """Return which file it is."""
        return self._file.inode()

    def fileno(self) -> int:
        """Return -1: the kernel would read the file as it is."""
        return -1

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer with the repaired bytes."""
        return self._repair(buffer, position, self._file.pread_into(buffer, position))

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """Fill a buffer with the repaired bytes if they are in the page cache."""
        got = self._file.pread_nowait_into(buffer, position)
        return None if got is None else self._repair(buffer, position, got)

    def pread(self, size: int, position: int) -> bytes:
        """Read repaired bytes."""
        data = bytearray(self._file.pread(size, position))
        self._repair(memoryview(data), position, len(data))
        return bytes(data)

    def next_data(self, position: int) -> int:
        """Return the position of the next byte that may not be zero."""
        return self._file.next_data(position)

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """Show these bytes to readers; the file stays as it is."""
        self._written[position] = bytes(data)

    def make_room(self, position: int, length: int) -> bool:
        """Return False."""
        return False

    def truncate(self, size: int) -> None:
        """Refuse: it is read-only."""
        raise NotImplementedError

    def sync(self) -> None:
        """Do nothing."""

    def begin_sync(self, syncs: Syncs) -> Sync | None:
        """Return None."""
        return None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _repair(self, buffer: memoryview, position: int, got: int) -> int:
        for at, data in self._written.items():
            first, stop = max(at, position), min(at + len(data), position + got)
            if first < stop:
                buffer[first - position : stop - position] = data[first - at : stop - at]
        return got


def scan_and_repair(
    log: File,
    segment: Segment,
    config: TopicConfig,
    following: int | None,
    *,
    pass_over_corrupt: bool,
) -> Scan:
    """Scan a segment, and repair the base offsets in it that are proven.

    Args:
        log: The segment's file, open for writing.
        following: Base offset of the next segment; None: there is none.
        pass_over_corrupt: See ``scan_segment``.

    Raises:
        OSError: The disk failed.
    """
    scan = scan_segment(log, segment, config, pass_over_corrupt=pass_over_corrupt)
    for _ in range(_MOST_REPAIRS):
        stopped = scan_segment(log, segment, config) if scan.corrupt else scan
        if not _repair_base_offset(log, segment, stopped, following):
            break
        scan = scan_segment(log, segment, config, pass_over_corrupt=pass_over_corrupt)
    return scan


def _repair_base_offset(log: File, segment: Segment, scan: Scan, following: int | None) -> bool:
    """Replace the base offset at which a scan stopped; durable on return. False: it is not proven.

    The scan has skipped no batch.
    """
    found = _proven(log, segment, scan, following)
    if found is None or not _is_sound(log, found[0]):
        return False
    wrong, right = found
    log.pwrite(right.to_bytes(8, "big"), wrong.position)
    log.sync()
    how = "is shown repaired" if isinstance(log, RepairedFile) else "was repaired"
    logger.warning(
        "%s: the base offset of the batch at byte %d was %d; the batches around it prove that it "
        "is %d, so it %s",
        segment.name, wrong.position, wrong.base_offset, right, how,
    )  # fmt: skip
    return True


def _proven(
    log: File, segment: Segment, scan: Scan, following: int | None
) -> tuple[_Head, int] | None:
    """Return a batch with a wrong base offset, and the right one; None if none is proven."""
    here, stop = scan.valid_bytes, scan.file_size
    expected, head = scan.builder.next_offset, _head(log, here, stop)
    begins = _begin_after(log, here, stop, following)
    if begins is None or begins == expected:
        return None
    if head is not None:
        if not _is_sound(log, head):
            return None
        after = _begin_after(log, here + head.size, stop, following)
        if after == expected + head.offsets:
            return head, expected
    if begins > expected:
        return None
    previous, right = _previous(log, segment, here)
    if previous is None or begins != right + previous.offsets:
        return None
    return previous, right


def _head(log: File, position: int, stop: int) -> _Head | None:
    """Return the header of a whole v2 batch; None if there is none."""
    data = log.pread(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES or data[MAGIC_AT] != MAGIC:
        return None
    size, delta = size_of(data), last_offset_delta_of(data)
    if not HEADER_BYTES <= size <= stop - position or delta < 0:
        return None
    return _Head(position, size, base_offset_of(data), delta + 1)


def _begin_after(log: File, position: int, stop: int, following: int | None) -> int | None:
    """Return the base offset of the batch at a position, or of the next segment at the end."""
    if position == stop:
        return following
    head = _head(log, position, stop)
    return None if head is None else head.base_offset


def _previous(log: File, segment: Segment, stop: int) -> tuple[_Head | None, int]:
    """Return the last batch before a position, and the offset at which the one before it ends."""
    position, before, end = 0, segment.base_offset, segment.base_offset
    last: _Head | None = None
    while position < stop:
        last = _head(log, position, stop)
        if last is None:
            break
        before, end = end, last.base_offset + last.offsets
        position += last.size
    return last, before


def _is_sound(log: File, head: _Head) -> bool:
    data = log.pread(head.size, head.position)
    return len(data) == head.size and crc32c(data[CRC_START:]) == crc_of(data)
