"""``cleaner-offset-checkpoint``: where the last compaction of each partition ended.

Written at the end of a compaction, when a log is truncated below that offset, and when a topic is
deleted.

Source: Kafka LogCleanerManager.updateCheckpoints, maybeTruncateCheckpoint.
"""

import logging
import threading
from collections.abc import Callable, Collection

from logfs.disk.vfs import Disk
from logfs.errors import LogfsError
from logfs.log import checkpoints, names
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_WRITING = threading.Lock()

Rows = dict[TopicPartition, int]


def read_cleaner_offsets(disk: Disk) -> Rows:
    """Return the first dirty offset of each partition that was compacted."""
    try:
        return dict(checkpoints.read_offsets(disk, names.CLEANER_OFFSET_CHECKPOINT))
    except (LogfsError, OSError) as error:
        logger.warning("%s; every log is dirty from its start", error)
        return {}


def note_cleaned(
    disk: Disk,
    topic_partition: TopicPartition,
    offset: int,
    existing: Collection[TopicPartition] | None = None,
) -> None:
    """Save where a compaction ended; durable on return.

    Args:
        existing: All partitions of the directory; rows of others are dropped. None: not known.
    """

    def change(rows: Rows) -> None:
        rows[topic_partition] = offset
        for gone in [tp for tp in rows if existing is not None and tp not in existing]:
            del rows[gone]

    _rewrite(disk, change)


def lower_cleaner_offset(disk: Disk, topic_partition: TopicPartition, offset: int) -> None:
    """Save that a log was truncated to an offset, so it is dirty from there on; durable."""

    def change(rows: Rows) -> None:
        if rows.get(topic_partition, 0) > offset:
            rows[topic_partition] = offset

    _rewrite(disk, change)


def forget_cleaner_offsets(disk: Disk, gone: Collection[TopicPartition]) -> None:
    """Remove the rows of a deleted topic: a new topic of that name was never compacted."""

    def change(rows: Rows) -> None:
        for topic_partition in [tp for tp in rows if tp in gone]:
            del rows[topic_partition]

    _rewrite(disk, change)


def _rewrite(disk: Disk, change: Callable[[Rows], None]) -> None:
    with _WRITING:
        rows = read_cleaner_offsets(disk)
        before = dict(rows)
        change(rows)
        if rows != before:
            checkpoints.write_offsets(disk, names.CLEANER_OFFSET_CHECKPOINT, rows)
