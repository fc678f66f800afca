"""What loading a partition finds out, and a ``PartitionLog`` goes on with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log.counters import LogCounters
from logfs.log.epochs import LeaderEpochs
from logfs.log.host import Host
from logfs.log.losses import LossFile
from logfs.log.producers.state import ProducerState
from logfs.log.segments.segment import OpenSegments
from logfs.log.segments.snapshot import Snapshot
from logfs.log.segments.table import SegmentTable
from logfs.types import Positions, TopicPartition


@dataclass(slots=True)
class PartitionState:
    """The state of a partition that was loaded.

    Attributes:
        opened: The open segments of the whole store.
        topic_id: 22 characters; None if the directory has none.
        epochs: Its leader epochs; the latest goes into the batches that are appended.
        lease: No position beyond it was ever shown.
        recovery_point: First offset that is not known to be durable.
        producers: What is known of its producers.
        snapshot_offset: Of the newest producer snapshot.
        counters: What it counts.
        producer_expiration_ms: Kafka's ``producer.id.expiration.ms``.
        has_new_epochs: The file does not have all of ``epochs``.
        deferred: What loading could not do since the disk was full; see ``DeferredLog``. None: it
            has done everything.
    """

    disk: Disk
    host: Host
    opened: OpenSegments
    topic_partition: TopicPartition
    config: TopicConfig
    topic_id: str | None
    epochs: LeaderEpochs
    table: SegmentTable
    snapshot: Snapshot
    lease: Positions
    recovery_point: int
    last_modified_ms: int
    losses: LossFile
    read_only: bool = False
    producers: ProducerState = field(default_factory=ProducerState)
    snapshot_offset: int = 0
    producer_expiration_ms: int = 86_400_000
    counters: LogCounters = field(default_factory=LogCounters)
    has_new_epochs: bool = False
    deferred: list[Callable[[], None]] | None = None
