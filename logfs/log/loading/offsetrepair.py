"""Repairing a damaged base offset: no checksum covers the first bytes of a batch.

The other batches can prove the right one. The batch begins where the previous batch ends, and the
next batch, or the next segment, begins where it ends. A base offset that this contradicts is
replaced, if the checksum of the batch is right. Without such proof the batch stays as it is.

A salvage also asks right after damage, where there is no previous batch. There the next batch alone
proves that a base offset is too large, or too small to follow the batches before the damage.
"""

import logging
from collections.abc import Iterator, Sequence
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

_MAX_OFFSET = 2**63 - 1


class Run(NamedTuple):
    """Consecutive batches of a segment, up to the place where a scan stopped.

    Attributes:
        position: Where the first one begins.
        offset: The offset at which it begins, or which it has at least if ``is_after_damage``.
        is_after_damage: No batch ends where the first one begins.
    """

    position: int
    offset: int
    is_after_damage: bool = False


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
    found = proven_offset(log, Run(0, segment.base_offset), scan, following)
    if found is None or not _is_sound(log, found[0], scan.file_size):
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
    log: File, run: Run, scan: SegmentScan, following: Sequence[int]
) -> tuple[BatchHead, int] | None:
    """Return a batch with a wrong base offset, and the right one; None if none is proven.

    Args:
        run: The batches before the place where the scan stopped. The other arguments are those of
            ``repair_base_offset``.
    """
    limit = following[0] if following else _MAX_OFFSET
    for head, right in _contradicted(log, run, scan, following):
        if right + head.offsets <= limit:
            return head, right
    return None


def _contradicted(
    log: File, run: Run, scan: SegmentScan, following: Sequence[int]
) -> Iterator[tuple[BatchHead, int]]:
    """Yield the batches next to the place of a scan whose base offsets their neighbours refute."""
    here, stop, expected = scan.valid_bytes, scan.file_size, scan.builder.next_offset
    head = _head(log, here)
    begins = _begin_after(log, here, stop, following)
    if begins is None or begins == expected:
        return
    if head is not None:
        if not _is_sound(log, head, stop):
            return
        right, after = expected, _head(log, here + head.size)
        if run.is_after_damage and run.position == here and after and _is_sound(log, after, stop):
            right = max(expected, after.base_offset - head.offsets)
        begins_after = _begin_after(log, here + head.size, stop, following)
        if begins_after == right + head.offsets and right != begins:
            yield head, right
    if begins > expected:
        return
    previous, before = _previous(log, run, here)
    if previous is not None:
        right = begins - previous.offsets
        is_first = run.is_after_damage and previous.position == run.position
        if right == before or (is_first and before <= right < previous.base_offset):
            yield previous, right


def _head(log: File, position: int) -> BatchHead | None:
    """Return the header of a v2 batch, which may be damaged or cut; None if there is none."""
    data = log.pread(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES or data[MAGIC_AT] != MAGIC:
        return None
    size, delta = size_of(data), last_offset_delta_of(data)
    if size < HEADER_BYTES or delta < 0:
        return None
    return BatchHead(position, size, base_offset_of(data), delta + 1)


def _begin_after(log: File, position: int, stop: int, following: Sequence[int]) -> int | None:
    """Return the base offset of the batch at a position, or of the next segment at the end."""
    if position == stop:
        return following[0] if following else None
    head = _head(log, position)
    return None if head is None else head.base_offset


def _previous(log: File, run: Run, stop: int) -> tuple[BatchHead | None, int]:
    """Return the last batch before a position, and the offset at which the one before it ends."""
    position, before, end = run.position, run.offset, run.offset
    last: BatchHead | None = None
    while position < stop:
        last = _head(log, position)
        if last is None:
            break
        before, end = end, last.base_offset + last.offsets
        position += last.size
    return last, before


def _is_sound(log: File, head: BatchHead, stop: int) -> bool:
    if head.size > stop - head.position:
        return False
    data = log.pread(head.size, head.position)
    return len(data) == head.size and crc32c(data[CRC_START:]) == crc_of(data)
