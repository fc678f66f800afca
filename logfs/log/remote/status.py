"""How far a partition is copied to its store, and what was done for that: for people and metrics.

The daemon's task writes the numbers; readers take no lock, so that they may be a moment apart.
"""

from dataclasses import dataclass
from typing import NamedTuple

from logfs.disk.remote.overlay import OverlayDisk
from logfs.disk.vfs import Disk
from logfs.log.remote.catalog import TieredPartition
from logfs.log.segments.snapshot import Snapshot


@dataclass(slots=True)
class RemoteStatus:
    """What the task of this process did for one partition, and why it failed.

    Attributes:
        url: The store.
        epoch: The epoch in which this process writes it; 0 before it has asked the store.
        error: Why the last attempt failed; None after a good one.
        is_stopped: No attempt follows: another process has taken over, or the store has other
            records.
        failures: Attempts that failed one after the other.
        copies, copied_bytes, copy_errors: Segments that were copied, their bytes, failures.
        deletions, delete_errors: Objects that were deleted, failures.
        waiting: Objects that are still to be deleted.
        dropped_segments: Segments whose local files went.
        near_deletion: Segments that are not copied, and that retention deletes soon.
        oldest_ms: Timestamp of the oldest record that is in no segment of the store, those of the
            active segment included; None: there is none.
        journal_ms: The journal has all that was appended before this moment; None: the partition is
            in no journal.
        journal_error: Why the last round of the journal failed; None after a good one.
        fenced: Another data directory owns the partition, so that it takes no more records: how
            that is known. None: it takes them.
    """

    url: str = ""
    epoch: int = 0
    error: str | None = None
    is_stopped: bool = False
    failures: int = 0
    copies: int = 0
    copied_bytes: int = 0
    copy_errors: int = 0
    deletions: int = 0
    delete_errors: int = 0
    waiting: int = 0
    dropped_segments: int = 0
    near_deletion: int = 0
    oldest_ms: int | None = None
    journal_ms: int | None = None
    journal_error: str | None = None
    fenced: str | None = None

    def fence(self, reason: str) -> None:
        """Take no more records; ``reason`` is how it is known that another directory owns them."""
        self.fenced = self.error = reason
        self.is_stopped = True

    @property
    def problem(self) -> str | None:
        """What keeps records from the store; None: nothing does."""
        return self.error or self.journal_error

    @property
    def missing_since_ms(self) -> int | None:
        """The loss of this machine loses records since this moment; None: it loses none."""
        if self.oldest_ms is None or self.journal_ms is None:
            return self.oldest_ms
        return max(self.oldest_ms, self.journal_ms)


class CopyLag(NamedTuple):
    """Sealed segments that are not in the store yet.

    Attributes:
        segments: How many.
        size_bytes: Bytes of their ``.log``.
        latest_ms: The latest timestamp of the oldest one; None if there are none.

    Source: Kafka RemoteLogManager.RLMCopyTask, RemoteCopyLagBytes, RemoteCopyLagSegments.
    """

    segments: int
    size_bytes: int
    latest_ms: int | None


class TieredSize(NamedTuple):
    """What the store has of a partition: segments, and bytes of their ``.log``.

    ``only`` are those without a local ``.log``.
    """

    segments: int
    size_bytes: int
    only_segments: int
    only_bytes: int


def copy_lag(snapshot: Snapshot, tier: TieredPartition | None) -> CopyLag:
    """Return what is sealed and not in the store."""
    done = -1 if tier is None else tier.next_offset or -1
    count, size, oldest = 0, 0, None
    for segment in reversed(snapshot.segments[:-1]):
        if segment.base_offset < done:
            break
        count, size, oldest = count + 1, size + segment.size_bytes, segment
    latest = None if oldest is None or oldest.max_timestamp < 0 else oldest.max_timestamp
    return CopyLag(count, size, latest)


def tiered_size(tier: TieredPartition | None) -> TieredSize:
    """Return what the store has of a partition."""
    if tier is None:
        return TieredSize(0, 0, 0, 0)
    entries = list(tier.entries.values())
    only = [entry for entry in entries if entry.base_offset not in tier.local]
    return TieredSize(
        len(entries),
        sum(entry.size_bytes for entry in entries),
        len(only),
        sum(entry.size_bytes for entry in only),
    )


@dataclass(slots=True)
class RemoteTotals:
    """The copies and deletions of some partitions together; see ``RemoteStatus``."""

    segments: int = 0
    size_bytes: int = 0
    lag_segments: int = 0
    lag_bytes: int = 0
    waiting: int = 0
    stopped: int = 0
    failing: int = 0
    copies: int = 0
    copied_bytes: int = 0
    copy_errors: int = 0
    deletions: int = 0
    near_deletion: int = 0
    missing_since_ms: int | None = None

    def add(
        self,
        status: RemoteStatus,
        snapshot: Snapshot,
        tier: TieredPartition | None,
        *,
        is_copied: bool,
    ) -> None:
        """Add a partition; without ``is_copied``, by its settings, it lags behind nothing."""
        size = tiered_size(tier)
        lag = copy_lag(snapshot, tier) if is_copied else CopyLag(0, 0, None)
        self.segments += size.segments
        self.size_bytes += size.size_bytes
        self.lag_segments += lag.segments
        self.lag_bytes += lag.size_bytes
        self.waiting += status.waiting
        self.stopped += status.is_stopped
        self.failing += status.problem is not None
        self.copies += status.copies
        self.copied_bytes += status.copied_bytes
        self.copy_errors += status.copy_errors
        self.deletions += status.deletions
        self.near_deletion += status.near_deletion
        since_ms = status.missing_since_ms
        if is_copied and since_ms is not None:
            self.missing_since_ms = min(self.missing_since_ms or since_ms, since_ms)


def remote_as_json(
    status: RemoteStatus, snapshot: Snapshot, tier: TieredPartition | None, disk: Disk
) -> dict[str, object]:
    """Return the facts for ``.meta``; ``disk`` is that of the data directory."""
    lag, size = copy_lag(snapshot, tier), tiered_size(tier)
    return {
        "url": status.url,
        "epoch": status.epoch,
        "segments": size.segments,
        "bytes": size.size_bytes,
        "remote_only_segments": size.only_segments,
        "remote_only_bytes": size.only_bytes,
        "cached_bytes": _cached_bytes(tier, disk),
        "lag": {"segments": lag.segments, "bytes": lag.size_bytes, "oldest": lag.latest_ms},
        "missing_since": status.missing_since_ms,
        "near_deletion": status.near_deletion,
        "waiting_deletions": status.waiting,
        "stopped": status.is_stopped,
        "read_only": status.fenced is not None,
        "error": status.problem,
    }


def _cached_bytes(tier: TieredPartition | None, disk: Disk) -> int:
    """Return how much of the objects of a partition is in the cache directory."""
    if tier is None or not isinstance(disk, OverlayDisk):
        return 0
    return disk.object_cache_bytes(tier.object_keys())
