"""What loading a partition finds out, and a ``PartitionLog`` goes on with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from logfs.log.epochs import LeaderEpochs
from logfs.log.host import Host
from logfs.log.producers.state import ProducerState
from logfs.log.reading.readable import ReadableState
from logfs.log.segments.segment import OpenSegments
from logfs.types import Positions


@dataclass(slots=True, kw_only=True, eq=False)
class PartitionState(ReadableState):
    """The state of a partition that was loaded.

    Attributes:
        host: The machine.
        opened: The open segments of the whole store.
        epochs: Its leader epochs; the latest goes into the batches that are appended.
        lease: No position beyond it was ever shown.
        producers: What is known of the producers at the log end.
        producer_expiration_ms: Kafka's ``producer.id.expiration.ms``.
        snapshot_offset: Of the newest producer snapshot.
        has_new_epochs: The file does not have all of ``epochs``.
        deferred: What loading could not do since the disk was full; see ``DeferredLog``. None: it
            has done everything.
    """

    host: Host
    opened: OpenSegments
    epochs: LeaderEpochs
    lease: Positions
    producers: ProducerState = field(default_factory=ProducerState)
    producer_expiration_ms: int = 86_400_000
    snapshot_offset: int = 0
    has_new_epochs: bool = False
    deferred: list[Callable[[], None]] | None = None
