"""The three checkpoint files of a store: written from its partitions, read before they are loaded.

Source: Kafka LogManager.checkpointLogRecoveryOffsets, checkpointLogStartOffsets.
"""

import logging
from collections.abc import Collection, Iterable, Mapping

from logfs.disk.vfs import Disk
from logfs.errors import LogfsError
from logfs.log import checkpoints, names
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.of_disk import bucket_of
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_FILES = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.REPLICATION_OFFSET_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
)


def read_checkpoint(disk: Disk, name: str) -> dict[TopicPartition, int]:
    """Read one of the files; one that does not parse, or cannot be read, says nothing.

    Without recovery points everything is recovered. Without log start offsets a log starts where
    its first segment does: records that were trimmed inside that segment are shown again.
    """
    try:
        return dict(checkpoints.read_offsets(disk, name))
    except (LogfsError, OSError) as error:
        logger.warning("%s: %s; every partition is taken to begin at 0 there", name, error)
        return {}


def read_start_offsets(disk: Disk) -> Mapping[TopicPartition, int]:
    """Return where logs start, if that is not at their first segment; of a bucket by its heads."""
    bucket = bucket_of(disk)
    if bucket is not None:
        return bucket.start_offsets()
    return read_checkpoint(disk, names.LOG_START_OFFSET_CHECKPOINT)


class WatchedCheckpoints:
    """The files that another process writes: read again when they have changed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._read: dict[str, tuple[tuple[int, int, int], dict[TopicPartition, int]]] = {}

    def read(self, name: str) -> dict[TopicPartition, int]:
        """Return what a file says now; nothing if it is not there."""
        try:
            found = self._disk.stat(name)
        except FileNotFoundError:
            return {}
        key = found.size, found.mtime_ms, found.inode
        known = self._read.get(name)
        if known is None or known[0] != key:
            known = self._read[name] = key, read_checkpoint(self._disk, name)
        return known[1]


def forget_partitions(disk: Disk, gone: Collection[TopicPartition]) -> None:
    """Remove the rows of partitions that do not exist any more, durable when this returns.

    Raises:
        OSError: A file could not be written; some may have been.
    """
    with checkpoints.WRITING:
        for name in _FILES:
            offsets = read_checkpoint(disk, name)
            if not offsets.keys().isdisjoint(gone):
                kept = {tp: offset for tp, offset in offsets.items() if tp not in gone}
                checkpoints.write_offsets(disk, name, kept)


def add_start_offsets(disk: Disk, starts: dict[TopicPartition, int]) -> None:
    """Add log start offsets of partitions that are about to get their names; durable on return.

    Raises:
        OSError: The file could not be written.
    """
    with checkpoints.WRITING:
        name = names.LOG_START_OFFSET_CHECKPOINT
        checkpoints.write_offsets(disk, name, read_checkpoint(disk, name) | starts)


def write_checkpoints(disk: Disk, logs: Iterable[ReadableLog]) -> None:
    """Write the files; a partition that could not be loaded keeps the rows it has."""
    with checkpoints.WRITING:
        _write_checkpoints(disk, list(logs))


def _write_checkpoints(disk: Disk, logs: list[ReadableLog]) -> None:
    readable = {log.topic_partition: log for log in logs if not log.is_unreadable}
    unreadable = {log.topic_partition for log in logs if log.is_unreadable}
    rows = {
        names.RECOVERY_POINT_CHECKPOINT: {tp: x.recovery_point for tp, x in readable.items()},
        names.REPLICATION_OFFSET_CHECKPOINT: {tp: x.high_watermark for tp, x in readable.items()},
        names.LOG_START_OFFSET_CHECKPOINT: {
            tp: x.log_start_offset
            for tp, x in readable.items()
            if x.log_start_offset > x.snapshot.segments[0].base_offset
        },
    }
    for name, offsets in rows.items():
        if unreadable:
            old = read_checkpoint(disk, name)
            offsets |= {tp: old[tp] for tp in unreadable & old.keys()}
        checkpoints.write_offsets(disk, name, offsets)
