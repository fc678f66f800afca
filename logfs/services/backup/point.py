"""The state of a partition at one moment, at which a backup of a live directory ends."""

from typing import NamedTuple

from logfs.log import names
from logfs.log.partition import PartitionLog
from logfs.records.checksum import crc32c


class Point(NamedTuple):
    """One moment of a partition; fit for JSON.

    Attributes:
        base_offset: The base offset of the active segment.
        inode: The inode of its ``.log``.
        size_bytes: How much of it holds records.
        recovery_point: First offset that is not known to be durable.
        unfinished: Name of the file of each line that is no record yet -> its bytes, their CRC-32C.
        offline: Why the partition takes no appends; None while it does.
    """

    base_offset: int
    inode: int
    size_bytes: int
    start_offset: int
    end_offset: int
    recovery_point: int
    unfinished: dict[str, tuple[int, int]]
    offline: str | None


def take_point(log: PartitionLog) -> Point:
    """Return where a partition is now. Takes its lock: nothing is appended meanwhile."""
    with log.exclusive():
        snapshot = log.snapshot
        unfinished, consumed = {}, log.line_files.consumed_names()
        for name, is_directory in log.disk.list(log.directory):
            is_line = not is_directory and names.parse_unfinished_file(name) is not None
            if is_line and name not in consumed:
                data = log.disk.read(f"{log.directory}/{name}", None)
                unfinished[name] = (len(data), crc32c(data))
        return Point(
            snapshot.active.base_offset,
            log.disk.stat(snapshot.active.name).inode,
            snapshot.end.file_size,
            log.log_start_offset,
            log.log_end_offset,
            log.recovery_point,
            unfinished,
            log.offline,
        )
