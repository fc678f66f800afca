"""Where a reader was inside a record, for one that has freed its memory."""

from typing import NamedTuple

from logfs.disk.vfs import File


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
