"""The log start offsets on the disk: noted when they change, not when the next minute is over.

Kafka writes them once a minute, so that records which were given up may come back after a crash.
Here what was given up stays so. Only a start inside a segment needs to be noted: everything else
follows from the segments that are there.
"""

import contextlib
from collections.abc import Iterator

from logfs.disk.vfs import Disk
from logfs.log import checkpoints, names
from logfs.log.recoverypoint import WRITING
from logfs.types import TopicPartition


@contextlib.contextmanager
def noted_start_offset(disk: Disk, topic_partition: TopicPartition, offset: int) -> Iterator[None]:
    """Note, durably, that a log starts at an offset; it has to start there when the block ends.

    Nobody writes the checkpoint files meanwhile, or he would write the offset it started at before.

    Raises:
        CorruptCheckpointError: The file does not parse.
        OSError: It could not be written; nothing has changed.
    """
    with WRITING:
        offsets = dict(checkpoints.read_offsets(disk, names.LOG_START_OFFSET_CHECKPOINT))
        offsets[topic_partition] = offset
        checkpoints.write_offsets(disk, names.LOG_START_OFFSET_CHECKPOINT, offsets)
        yield
