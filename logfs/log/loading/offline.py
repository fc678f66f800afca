"""A partition that could not be loaded: it is listed, says why, and refuses everything else."""

import logging

from logfs.config import TopicConfig
from logfs.log.epochs import LeaderEpochs
from logfs.log.loading.given import Loading
from logfs.log.losses import LossFile
from logfs.log.partition import PartitionLog
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogEnd, LogPoint, Snapshot
from logfs.log.segments.table import SegmentTable
from logfs.log.state import PartitionState
from logfs.types import Positions, TopicPartition

logger = logging.getLogger(__name__)


def offline_partition(
    loading: Loading, topic_partition: TopicPartition, reason: Exception
) -> PartitionLog:
    """Stand in for a partition that could not be loaded; its log is empty and unreadable."""
    # For daemons' logs: a command that is asked for the partition says so itself.
    logger.warning(
        "%s could not be loaded: %s", topic_partition, reason, extra={"is_told_by_commands": True}
    )
    directory, nothing = topic_partition.directory, Positions()
    segment = Segment(loading.opened, directory, 0, nothing)
    snapshot = Snapshot((segment,), LogPoint(0, nothing), LogEnd(0, nothing, 0, -1))
    log = PartitionLog(
        PartitionState(
            loading.disk,
            loading.host,
            loading.opened,
            topic_partition,
            TopicConfig(),
            None,
            LeaderEpochs([]),
            SegmentTable(loading.disk, directory, bytes(16)),
            snapshot,
            nothing,
            loading.recovery_points.get(topic_partition, 0),
            0,
            LossFile(loading.disk, directory, read_only=True),
            loading.read_only,
        )
    )
    log.offline = f"it could not be loaded: {reason}"
    log.is_unreadable = True
    return log
