"""What one can ask of a partition without changing it: its identity, its offsets, its losses."""

from collections.abc import Callable

from logfs.config import TopicConfig
from logfs.log import options
from logfs.log.counters import CompactionStatus
from logfs.log.losses import Loss
from logfs.log.reading import lookup
from logfs.log.residency import Residency, look_at_cache
from logfs.log.segments.snapshot import Snapshot
from logfs.log.state import PartitionState
from logfs.log.writing.flushing import Flusher
from logfs.records.encoded import EncodeOptions
from logfs.types import IsolationLevel


class LogFacts:
    """The readable side of a partition.

    Attributes:
        topic_partition: Which one.
        directory: The name of its directory below the data directory.
        topic_id: 22 characters; None if a directory has none.
        snapshot: What readers see; replaced by every change.
        offline: Why it takes no appends any more; None while it does.
        is_deleted: Its topic was deleted; open readers go on.
        is_unreadable: It could not be loaded; reads are refused as well.
        last_modified_ms: Clock of the newest append.
        unflushed_since_ms: Clock of the oldest append that is not durable; None if all are.
        is_part: It begins in the middle of the partition, with positions of its own.
        table: The segment table. For this package.
        cleaning: What is known of its compaction.
        counters: What it counts while it works.
        residency: What of it was in the page cache when that was last looked at.
    """

    def __init__(self, state: PartitionState) -> None:
        self.disk = state.disk
        self.topic_partition = state.topic_partition
        self.directory = state.topic_partition.directory
        self.topic_id = state.topic_id
        self.snapshot: Snapshot = state.snapshot
        self.last_modified_ms = state.last_modified_ms
        self.read_only = state.read_only
        self.offline: str | None = None
        self.is_deleted = False
        self.is_unreadable = False
        self.is_part = False
        self.unflushed_since_ms: int | None = None
        self.table = state.table
        self.cleaning = CompactionStatus()
        self.counters = state.counters
        self.residency: Residency | None = None
        self._config = state.config
        self._epochs = state.epochs
        self._options = options.encode_options(state.config, state.epochs.latest)
        self._producers = state.producers
        self._snapshot_offset = state.snapshot_offset
        self._producer_expiration_ms = state.producer_expiration_ms
        self._has_new_epochs = state.has_new_epochs
        self._losses = state.losses
        table = None if state.read_only else state.table
        self._flusher = Flusher(
            state.disk,
            self.directory,
            table,
            state.recovery_point,
            state.counters,
            state.host.clock_s,
        )

    @property
    def generation(self) -> bytes:
        """Random bytes that change only when positions had to start again."""
        return self.table.generation

    @property
    def config(self) -> TopicConfig:
        """The topic's configuration."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._options = options.encode_options(config, self._epochs.latest)

    @property
    def indexing(self) -> tuple[int, int] | None:
        """How far the positions of somebody else's log are known: (bytes done, bytes in all).

        None once all are known.
        """
        return None

    @property
    def log_start_offset(self) -> int:
        """Offset of the first record that is kept."""
        return self.snapshot.start.offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self.snapshot.end.offset

    @property
    def high_watermark(self) -> int:
        """Where readers of that level end: the log end, but in a running broker's directory."""
        return self.snapshot.visible_end(IsolationLevel.HIGH_WATERMARK).offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction; the log end if none is open."""
        return self.snapshot.visible_end(IsolationLevel.READ_COMMITTED).offset

    @property
    def recovery_point(self) -> int:
        """First offset that is not known to be durable."""
        return self._flusher.recovery_point

    @property
    def losses(self) -> list[Loss]:
        """What was lost, oldest first."""
        return self._losses.all()

    def look_at_cache(self, now_ms: int, is_over: Callable[[], bool]) -> None:
        """See what of it is in the page cache; see ``residency.look_at_cache``. Any thread."""
        found = look_at_cache(self.disk, self.snapshot, now_ms, is_over)
        self.residency = found or self.residency

    def encode_options(self) -> EncodeOptions:
        """Return how records for this topic become batches."""
        return self._options

    def batch_crc_at(self, offset: int) -> int | None:
        """Return the CRC of the batch that was appended at an offset; see ``lookup``."""
        return lookup.batch_crc_at(self.snapshot, offset)
