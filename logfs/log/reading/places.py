"""The place of a reader in the files, for one that has freed its memory, or for another one."""

from typing import NamedTuple

from logfs.disk.vfs import File
from logfs.log.segments.segment import Segment
from logfs.types import View

LARGEST_PLAIN_BYTES = 2 << 20
"""Larger batches are left to Python: CURSOR_LARGEST of ``_cursor.h``."""


class RecordPlace(NamedTuple):
    """Where a reader was inside a record when it freed its window.

    Attributes:
        log: The file; it stays open, so the record can be read after its segment was removed.
        file_end: A file position at which a later batch ends.
        delivered: Bytes of the record's rendering that were read.
    """

    log: File
    file_position: int
    file_end: int
    offset: int
    delivered: int


class PlainPlace(NamedTuple):
    """Where a reader is, for one that reads the same batches natively; see ``_cursor.h``.

    Attributes:
        segment: The segment.
        log: Its ``.log``.
        numbers: File positions at which the batch of the next byte begins and ends, the bytes of it
            that were read, and whether the next byte is inside a record (0 or 1).
        file_end: The end of the last batch of the segment.
        view: The rendering.
        is_active: Whether the segment grows.
    """

    segment: Segment
    log: File
    numbers: tuple[int, int, int, int]
    file_end: int
    view: View
    is_active: bool
