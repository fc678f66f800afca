"""A start: the log and the journal are compared, and the log gets what the disk has lost.

A power cut may take records from the disk that were appended and not synced. If the journal has
them, their bytes are written into the files again, before the log is recovered: offsets and
positions are as they were.
"""

import logging
from collections.abc import Iterable, Mapping

from logfs.disk.remote.overlay import local_part
from logfs.disk.vfs import Disk
from logfs.errors import CorruptRecordError, LogfsError
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.host import Host, cache_mark
from logfs.log.listing import list_partition, list_partitions
from logfs.log.names import FileKind, format_segment_file
from logfs.log.partition import PartitionLog
from logfs.log.remote.rows import TieredRows
from logfs.log.segments.segment import Segment
from logfs.log.segments.table import SegmentTable
from logfs.records.batch import decode_header
from logfs.records.checksum import crc32c
from logfs.services.journaling.assembly import JournaledPartition, ReadJournal, assemble
from logfs.services.journaling.kept import SegmentId
from logfs.services.journaling.objects import PartitionId
from logfs.services.journaling.writing import (
    SentBefore,
    copied_offset,
    ends_in_files,
    is_journaled,
    partition_id,
)
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_CRC_FIELD_END = 21
"""The CRC of a batch is over all that follows it."""


def compare(journal: ReadJournal, logs: Iterable[PartitionLog]) -> dict[SegmentId, SentBefore]:
    """Return the segments whose bytes in the journal are those of the log.

    Args:
        journal: All its objects.
        logs: The partitions of the data directory.

    Raises:
        OSError: The disk failed.
    """
    ends: Mapping[PartitionId, JournaledPartition] = assemble(journal)
    found: dict[SegmentId, SentBefore] = {}
    for log in logs:
        if log.is_unreadable or log.offline is not None or log.topic_id is None:
            continue
        partition = partition_id(log)
        if partition in ends and is_journaled(log.config):
            found |= _same(partition, log, ends[partition])
    return found


def missing_partitions(journal: ReadJournal, logs: Iterable[PartitionLog]) -> list[TopicPartition]:
    """Return the partitions of which a journal has records that the logs do not have."""
    known = {partition_id(log): log for log in logs if log.topic_id is not None}
    same, found = compare(journal, known.values()), set()
    for partition, end in assemble(journal).items():
        copied = copied_offset(known[partition]) if partition in known else 0
        for one in end.segments:
            if one.base_offset >= copied and SegmentId(partition, one.base_offset) not in same:
                found.add(end.topic_partition)
    return sorted(found)


def may_have_lost(disk: Disk, host: Host) -> bool:
    """Whether a log may have had records in a page cache that is gone, as after a power cut.

    Args:
        disk: The local disk of the data directory, which no process uses.
        host: The machine.
    """
    mark = cache_mark(host, disk)
    for one in list_partitions(disk):
        try:
            boots = SegmentTable.load(disk, one.directory).state.boots
        except (LogfsError, OSError):
            return True
        if boots - {mark}:
            return True
    return False


def heal(journal: ReadJournal, disk: Disk) -> int:
    """Write into the files of logs what only the journal has; before the logs are recovered.

    Args:
        journal: All its objects.
        disk: The local disk of the data directory, which no process uses.

    Returns:
        The bytes that were written, durably.

    Raises:
        LogfsError, OSError: The disk failed, or a small file does not decode.
    """
    return sum(_heal_partition(disk, *one) for one in assemble(journal).items())


def _heal_partition(disk: Disk, partition: PartitionId, end: JournaledPartition) -> int:
    directory = end.topic_partition.directory
    if not disk.exists(directory):
        return 0
    if read_partition_metadata(disk, directory) != partition.topic_id:
        return 0
    rows = TieredRows.load(disk, directory)
    copied = 0 if rows is None else rows.next_offset or 0
    there = [
        base
        for base, kinds in list_partition(disk, directory).kinds().items()
        if FileKind.LOG in kinds
    ]
    size = 0
    policy = "" if end.facts.config is None else end.facts.config.get("cleanup.policy", "")
    # What is below was deleted; or it was compacted, and the log has the result of that.
    first = max(there, default=0) if "compact" in policy else min(there, default=0)
    for one in end.segments:
        if one.base_offset >= max(copied, first):
            name = f"{directory}/{format_segment_file(one.base_offset, FileKind.LOG)}"
            size += _heal_file(disk, name, one.data)
    if size:
        disk.sync_directory(directory)
        logger.warning(
            "%s: %d bytes of records that the disk had lost are back, from the journal",
            end.topic_partition, size,
        )  # fmt: skip
    return size


def _heal_file(disk: Disk, name: str, data: bytes) -> int:
    """Write what a file lacks of the bytes that the journal has; returns how many."""
    file = disk.open(name, write=True, create=True)
    try:
        local = bytes(file.pread(len(data), 0))
        if local == data:
            return 0
        start = first_difference(data, local)
        if _is_other_batch(local, data, start):
            return 0  # the records of the log are right
        file.pwrite(data[start:], start)
        file.sync()
        return len(data) - start
    finally:
        file.close()


def first_difference(data: bytes, local: bytes) -> int:
    """Return where the first batch begins that a file does not have."""
    at = 0
    while (end := end_of_batch(data, at)) is not None and local[at:end] == data[at:end]:
        at = end
    return at


def end_of_batch(data: bytes, start: int) -> int | None:
    """Return where the batch at a position ends; None: there is no whole header."""
    try:
        return start + decode_header(data, start).size_bytes
    except CorruptRecordError:
        return None


def _is_other_batch(local: bytes, data: bytes, start: int) -> bool:
    """Whether a file has a whole batch at a position, with other records than the journal."""
    end = end_of_batch(local, start)
    if end is None or end > len(local):
        return False
    header = decode_header(local, start)
    if header.magic < 2 or crc32c(local[start + _CRC_FIELD_END : end]) != header.crc:
        return False
    checked = start + _CRC_FIELD_END  # the fields before are not covered by the checksum
    return local[checked:end] != data[checked:end]


def _same(
    partition: PartitionId, log: PartitionLog, end: JournaledPartition
) -> dict[SegmentId, SentBefore]:
    """Return the segments whose bytes in the journal are those of the log."""
    found = {}
    ends = {one.base_offset: one for one in end.segments}
    for segment, size, following in ends_in_files(log.snapshot, copied_offset(log)):
        one = ends.get(segment.base_offset)
        if one is None:
            continue
        is_complete = 0 <= one.next_offset == following
        if segment.is_packed:
            is_same = is_complete
        elif is_complete and len(one.data) != size:
            is_same = False
        else:
            is_same = len(one.data) <= size and _local(log, segment, len(one.data)) == one.data
        if is_same:
            found[SegmentId(partition, one.base_offset)] = SentBefore(
                one.content, len(one.data), is_complete
            )
        elif not log.config.is_compacted:  # else it was compacted since
            logger.warning(
                "%s: the journal has other records than the log from offset %d on: those of the "
                "log replace them", log.topic_partition, one.base_offset,
            )  # fmt: skip
    return found


def _local(log: PartitionLog, segment: Segment, size: int) -> bytes:
    file = local_part(log.disk).open(segment.name)
    try:
        return bytes(file.pread(size, 0))
    finally:
        file.close()
