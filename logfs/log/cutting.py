"""What recovery cuts is copied first, into a plain file of the partition that a broker ignores."""

from logfs.disk.vfs import Disk, File
from logfs.log import names
from logfs.log.segment import Segment

_CHUNK_BYTES = 1024 * 1024


def cut_log(disk: Disk, segment: Segment, position: int, file_size: int) -> str | None:
    """Copy the end of a ``.log`` and cut it off, both durable when this returns.

    Returns:
        The name of the copy in the partition directory; None if the bytes were all zero, as a
        preallocated file or a power cut leaves them.
    """
    log = disk.open(segment.name, write=True)
    name = free_cut_name(disk, segment.directory, segment.base_offset, position)
    copied = None
    if not _is_zero(log, position, file_size):
        copied = name
        copy = disk.open(f"{segment.directory}/{name}", write=True, create=True)
        for start in range(position, file_size, _CHUNK_BYTES):
            data = log.pread(min(_CHUNK_BYTES, file_size - start), start)
            copy.pwrite(data, start - position)
        copy.sync()
        copy.close()
        disk.sync_directory(segment.directory)
    log.truncate(position)
    log.sync()
    log.close()
    return copied


def cut_segment(disk: Disk, segment: Segment) -> str:
    """Rename a whole ``.log`` to the name of a copy, and return that name."""
    name = free_cut_name(disk, segment.directory, segment.base_offset, 0)
    disk.rename(segment.name, f"{segment.directory}/{name}")
    disk.sync_directory(segment.directory)
    return name


def free_cut_name(disk: Disk, directory: str, base_offset: int, position: int) -> str:
    """Return a name for a copy that no earlier one has."""
    copy = 0
    while True:
        name = names.format_cut_file(base_offset, position, copy)
        if not disk.exists(f"{directory}/{name}"):
            return name
        copy += 1


def _is_zero(log: File, start: int, stop: int) -> bool:
    while start < stop:
        data = log.pread(min(_CHUNK_BYTES, stop - start), start)
        if not data or data.count(0) != len(data):
            return not data
        start += len(data)
    return True
