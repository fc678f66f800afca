"""The recovery points on the disk, which a truncation has to lower before it cuts anything."""

import threading

from logfs.disk.vfs import Disk
from logfs.log import checkpoints, names
from logfs.types import TopicPartition

WRITING = threading.Lock()
"""Held while checkpoint files are written, and the rows for them gathered."""


def lower_recovery_point(disk: Disk, topic_partition: TopicPartition, offset: int) -> None:
    """Note, durably, that nothing from an offset on is known to be durable.

    Raises:
        CorruptCheckpointError: The file does not parse.
        OSError: It could not be written.

    Source: Kafka LogManager.truncateTo.
    """
    with WRITING:
        offsets = dict(checkpoints.read_offsets(disk, names.RECOVERY_POINT_CHECKPOINT))
        if offsets.get(topic_partition, 0) > offset:
            offsets[topic_partition] = offset
            checkpoints.write_offsets(disk, names.RECOVERY_POINT_CHECKPOINT, offsets)
