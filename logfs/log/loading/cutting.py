"""What recovery cuts is copied first, into a plain file of the partition that a broker ignores."""

from logfs.disk.vfs import TEMPORARY_SUFFIX, Disk, File
from logfs.log import names
from logfs.log.segments.scan import end_of_data
from logfs.log.segments.segment import Segment

_CHUNK_BYTES = 1024 * 1024


def copy_tail(disk: Disk, segment: Segment, log: File, position: int, file_size: int) -> str | None:
    """Copy the end of a ``.log``, whole and durable when this returns.

    Returns:
        The name of the copy in the partition directory, an earlier one if it is the same; None if
        the bytes are all zero, as a preallocated file or a power cut leaves them.
    """
    if end_of_data(log, position, file_size) == position:
        return None
    copy = 0
    while True:
        name = names.format_cut_file(segment.base_offset, position, copy)
        path = f"{segment.directory}/{name}"
        if not disk.exists(path):
            break
        if _is_copy(disk.open(path), log, position, file_size):
            return name
        copy += 1
    file = disk.open(path + TEMPORARY_SUFFIX, write=True, create=True)
    file.truncate(0)
    for start in range(position, file_size, _CHUNK_BYTES):
        file.pwrite(log.pread(min(_CHUNK_BYTES, file_size - start), start), start - position)
    file.sync()
    file.close()
    disk.rename(path + TEMPORARY_SUFFIX, path)
    disk.sync_directory(segment.directory)
    return name


def rewrite(disk: Disk, name: str, size: int) -> None:
    """Write the first ``size`` bytes of a file over themselves, and make them durable.

    After a failed fsync the page cache calls bytes clean that the disk does not have.
    """
    file = disk.open(name, write=True)
    for start in range(0, size, _CHUNK_BYTES):
        file.pwrite(file.pread(min(_CHUNK_BYTES, size - start), start), start)
    file.sync()
    file.close()


def _is_copy(copy: File, log: File, position: int, file_size: int) -> bool:
    if copy.size() != file_size - position:
        return False
    return all(
        copy.pread(_CHUNK_BYTES, start - position)
        == log.pread(min(_CHUNK_BYTES, file_size - start), start)
        for start in range(position, file_size, _CHUNK_BYTES)
    )
