"""Repairing a damaged base offset: no checksum covers the first bytes of a batch.

The other batches can prove the right one. The batch begins where the previous batch ends, and the
next batch, or the next segment, begins where it ends. A base offset that this contradicts is
replaced, if the checksum of the batch is right. Without such proof the batch stays as it is.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from logfs.disk.vfs import File
from logfs.log.segments.scan import SegmentScan
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


class BatchHead(NamedTuple):
    """The fields of the header of a batch; ``offsets`` is the number of its offsets."""

    position: int
    size: int
    base_offset: int
    offsets: int


def repair_base_offset(
    log: File, segment: Segment, scan: SegmentScan, following: Sequence[int]
) -> bool:
    """Replace the base offset at which a scan stopped; durable on return. False: it is not proven.

    Args:
        log: The segment's file, open for writing.
        scan: A scan that passed over no batch.
        following: Base offsets of the later segments.
    """
    found = proven_offset(log, segment.base_offset, scan, following)
    if found is None or not _is_sound(log, found[0]):
        return False
    wrong, right = found
    log.pwrite(right.to_bytes(8, "big"), wrong.position)
    log.sync()
    logger.warning(
        "%s: the base offset of the batch at byte %d was %d; the batches around it prove that it "
        "is %d, so it was repaired",
        segment.name, wrong.position, wrong.base_offset, right,
    )  # fmt: skip
    return True


def proven_offset(
    log: File, base_offset: int, scan: SegmentScan, following: Sequence[int]
) -> tuple[BatchHead, int] | None:
    """Return a batch with a wrong base offset, and the right one; None if none is proven.

    Args:
        base_offset: That of the segment. The other arguments are those of ``repair_base_offset``.
    """
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
    previous, right = _previous(log, base_offset, here)
    if previous is None or begins != right + previous.offsets:
        return None
    return previous, right


def _head(log: File, position: int, stop: int) -> BatchHead | None:
    """Return the header of a whole v2 batch; None if there is none."""
    data = log.pread(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES or data[MAGIC_AT] != MAGIC:
        return None
    size, delta = size_of(data), last_offset_delta_of(data)
    if not HEADER_BYTES <= size <= stop - position or delta < 0:
        return None
    return BatchHead(position, size, base_offset_of(data), delta + 1)


def _begin_after(log: File, position: int, stop: int, following: Sequence[int]) -> int | None:
    """Return the base offset of the batch at a position, or of the next segment at the end."""
    if position == stop:
        return following[0] if following else None
    head = _head(log, position, stop)
    return None if head is None else head.base_offset


def _previous(log: File, base_offset: int, stop: int) -> tuple[BatchHead | None, int]:
    """Return the last batch before a position, and the offset at which the one before it ends."""
    position, before, end = 0, base_offset, base_offset
    last: BatchHead | None = None
    while position < stop:
        last = _head(log, position, stop)
        if last is None:
            break
        before, end = end, last.base_offset + last.offsets
        position += last.size
    return last, before


def _is_sound(log: File, head: BatchHead) -> bool:
    data = log.pread(head.size, head.position)
    return len(data) == head.size and crc32c(data[CRC_START:]) == crc_of(data)
