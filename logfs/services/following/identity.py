"""Whether a segment that the cache describes is the file that is there now.

Another file of the same size may take its place between two mounts: a backup was restored, or a
disk was exchanged. The cache's entry of a sealed segment has an *identity* in the field in which an
entry of the open segment has a mark of the page cache:

    bytes   field        type
    0-3     file         uint32   checksum of its inode, its modification time and its size
    4-7     last batch   uint32   checksum of the first bytes of its last batch, its CRC among them

It is the same segment if either is the same. So a copy keeps its positions, and a segment that was
not touched is recognised without being opened. A copy is opened once: then it has the identity of
the new file. Zeros mean that it is not known: an earlier version of logfs wrote the entry.
"""

import struct
from collections.abc import Callable

from logfs.disk.vfs import Disk, File, FileStat
from logfs.log.indexes.index import Entries
from logfs.log.indexes.textindex import count_text_entries_before, decode_text_entry
from logfs.log.segments.segment import Segment
from logfs.records.checksum import crc32c
from logfs.services.following.tail import heads
from logfs.services.following.tailcheckpoint import MARK_BYTES

UNKNOWN = bytes(8)
_FILE = struct.Struct(">QqQ")
_CHECKSUM = struct.Struct(">I")


def identify(disk: Disk, segment: Segment, entries: Entries) -> bytes:
    """Return the identity of a sealed segment, from its file and its text index entries.

    Returns:
        ``UNKNOWN`` if another file has its name by now.
    """
    try:
        found = disk.stat(segment.name)
        if (found.inode, found.size) != (segment.inode, segment.size_bytes):
            return UNKNOWN
        last_batch = _of_last_batch(disk, segment, entries)
        return _CHECKSUM.pack(_of_file(found)) + _CHECKSUM.pack(last_batch)
    except OSError:
        return UNKNOWN


def confirmed(
    identity: bytes,
    disk: Disk,
    segment: Segment,
    found: FileStat,
    read_entries: Callable[[], Entries],
) -> bytes | None:
    """Return the identity that a segment has now; None if its name is that of another segment.

    Args:
        found: The file that ``disk.stat`` found under its name.
        read_entries: Returns the text index entries; called only if the file is another one.

    Raises:
        CorruptIndexError: The text index is damaged.
        OSError: The file or the text index cannot be read.
    """
    file = _CHECKSUM.pack(_of_file(found))
    if identity == UNKNOWN or identity[:4] == file:
        return identity
    last_batch = _of_last_batch(disk, segment, read_entries())
    if identity[4:] != _CHECKSUM.pack(last_batch) or (segment.size_bytes and not last_batch):
        return None
    return file + identity[4:]


def _of_file(found: FileStat) -> int:
    return crc32c(_FILE.pack(found.inode, found.mtime_ms, found.size))


def _of_last_batch(disk: Disk, segment: Segment, entries: Entries) -> int:
    """Walk to the last batch from the last one that the text index knows; 0 if none ends there."""
    count = count_text_entries_before(entries, segment.size_bytes)
    position = decode_text_entry(entries, count - 1).file_position if count else 0
    log: File = disk.open(segment.name)
    try:
        end, head = position, b""
        for end, head in heads(log, position, segment.size_bytes):  # noqa: B007 - the last one
            pass
        return crc32c(head[:MARK_BYTES]) if head and end == segment.size_bytes else 0
    finally:
        log.close()
