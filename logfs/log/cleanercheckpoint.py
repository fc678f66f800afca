"""``cleaner-offset-checkpoint``: where the last compaction of each partition ended.

Written when one has ended, when a log is truncated before that, and when a topic is deleted.

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
        logger.warning("%s; every log is taken to be dirty from its start on", error)
        return {}


def note_cleaned(
    disk: Disk,
    topic_partition: TopicPartition,
    offset: int,
    existing: Collection[TopicPartition] | None = None,
) -> None:
    """Note where a compaction ended; durable on return.

    Args:
        disk: The data directory.
        topic_partition: What was compacted.
        offset: The first dirty one from now on.
        existing: All partitions there are: rows of others are dropped. None: not known.
    """

    def change(rows: Rows) -> None:
        rows[topic_partition] = offset
        for gone in [tp for tp in rows if existing is not None and tp not in existing]:
            del rows[gone]

    _rewrite(disk, change)


def lower_cleaner_offset(disk: Disk, topic_partition: TopicPartition, offset: int) -> None:
    """Note, durably, that a log was cut: what comes after an offset is dirty."""

    def change(rows: Rows) -> None:
        if rows.get(topic_partition, 0) > offset:
            rows[topic_partition] = offset

    _rewrite(disk, change)


def forget_cleaner_offsets(disk: Disk, gone: Collection[TopicPartition]) -> None:
    """Forget partitions of a deleted topic: others with their names were never compacted."""

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
