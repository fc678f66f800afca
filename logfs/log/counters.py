"""The counters of a partition: plain numbers for metrics and ``.meta``.

Counting is part of every append, so it is as cheap as can be: attributes that are added to under
locks that are held anyway (that of the partition for appends, that of the flusher for flushes).
Readers take no lock; what they see may be a moment apart.
"""

import threading
from bisect import bisect_left
from dataclasses import dataclass, field

APPEND_BOUNDS_S = (
    0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.001, 0.004, 0.016, 0.1, 1.0
)  # fmt: skip
FLUSH_BOUNDS_S = (
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1.0, 5.0
)  # fmt: skip
FETCH_BOUNDS_S = (
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0
)  # fmt: skip
_SHORTEST_PAUSE_MS = 60_000
_LONGEST_PAUSE_MS = 3_600_000


class Histogram:
    """How often something took how long.

    Attributes:
        bounds: Upper bounds of the classes in seconds, inclusive, ascending.
        counts: How often, for each class; one more for what took longer than all.
    """

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    def add(self, other: "Histogram") -> None:
        """Add what another one with the same bounds has counted."""
        if other.sum_s:
            self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
            self.sum_s += other.sum_s

    @property
    def count(self) -> int:
        """How often in all."""
        return sum(self.counts)

    def as_json(self) -> dict[str, float | None]:
        """Return it for people: how often, and within which bound half and 99 of 100 were."""
        count = self.count
        return {
            "count": count,
            "seconds": round(self.sum_s, 6),
            "p50_within": self._within(count * 0.5),
            "p99_within": self._within(count * 0.99),
        }

    def _within(self, wanted: float) -> float | None:
        """Return the bound within which so many were; None if there were none, or beyond all."""
        done = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            done += count
            if done and done >= wanted:
                return bound
        return None


@dataclass(slots=True)
class Deleted:
    """The deletions for one reason: segments, and bytes of their ``.log`` files."""

    segments: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class LogCounters:
    """The counters of one partition, since its daemon started.

    Attributes:
        appends: Requests that appended something; Kafka's produce requests.
        failed_appends: Requests that met an error of the disk.
        records, bytes_in: The appends: records, and bytes of the ``.log``.
        bytes_out: Bytes that readers got, rendered; those that the kernel keeps are not seen.
        append_s: How long appends took, from batch to visible.
        flush_s: How long flushes took that had something to do.
        recoveries: How often it was loaded after an unclean stop.
        recovered_segments, recovered_bytes: The scans of recovery.
        deleted: The deletions from the start of the log, by reason.
        retention_ms: Clock of the last look of retention; None if there was none.
        expired, expired_bytes: How often readers found that what they were about to read had been
            deleted, and how much that was, as text.
        compacted_bytes_in, compacted_bytes_out: The bytes that compaction read, and left.
        packed_segments: Segments that became smaller by packing.
        packed_bytes_in, packed_bytes_out: The bytes that packing read, and wrote.
    """

    appends: int = 0
    failed_appends: int = 0
    records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    append_s: Histogram = field(default_factory=lambda: Histogram(APPEND_BOUNDS_S))
    flush_s: Histogram = field(default_factory=lambda: Histogram(FLUSH_BOUNDS_S))
    failed_flushes: int = 0
    recoveries: int = 0
    recovered_segments: int = 0
    recovered_bytes: int = 0
    recovery_s: float = 0.0
    deleted: dict[str, Deleted] = field(default_factory=dict)
    retention_ms: int | None = None
    expired: int = 0
    expired_bytes: int = 0
    compactions: int = 0
    compacted_bytes_in: int = 0
    compacted_bytes_out: int = 0
    compaction_s: float = 0.0
    packed_segments: int = 0
    packed_bytes_in: int = 0
    packed_bytes_out: int = 0
    packing_s: float = 0.0

    def count_deleted(self, reason: str, segments: int, size_bytes: int) -> None:
        """Count segments that were given up."""
        deleted = self.deleted.setdefault(reason, Deleted())
        deleted.segments += segments
        deleted.size_bytes += size_bytes

    def add_appends(
        self, appends: int, records: int, bytes_in: int, seconds: float, durations: list[int]
    ) -> None:
        """Add appends, by classes of ``APPEND_BOUNDS_S``, that were counted elsewhere."""
        self.appends += appends
        self.records += records
        self.bytes_in += bytes_in
        self.append_s.counts = [a + b for a, b in zip(self.append_s.counts, durations, strict=True)]
        self.append_s.sum_s += seconds

    def add_flushes(self, seconds: float, durations: list[int]) -> None:
        """Add flushes, by classes of ``FLUSH_BOUNDS_S``, that were counted elsewhere."""
        self.flush_s.counts = [a + b for a, b in zip(self.flush_s.counts, durations, strict=True)]
        self.flush_s.sum_s += seconds

    def add(self, other: "LogCounters") -> None:
        """Add what others have counted: a partition reloaded continues, one deleted has been."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.append_s.add(other.append_s)
        self.flush_s.add(other.flush_s)
        for reason, deleted in list(other.deleted.items()):
            self.count_deleted(reason, deleted.segments, deleted.size_bytes)
        if other.retention_ms is not None:
            self.retention_ms = max(other.retention_ms, self.retention_ms or 0)

    def retention_as_json(self) -> dict[str, object]:
        """Return what retention and trimming did, for ``.meta``."""
        deleted = dict(self.deleted)
        return {
            "last_look": self.retention_ms,
            "deleted_segments": sum(row.segments for row in deleted.values()),
            "deleted_bytes": sum(row.size_bytes for row in deleted.values()),
            "deleted_because_of": {reason: row.segments for reason, row in deleted.items()},
        }

    def activity_as_json(self) -> dict[str, object]:
        """Return what was done with it since the start of the daemon, for ``.meta``."""
        return {
            "appends": self.appends,
            "records_in": self.records,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "recoveries": self.recoveries,
            "recovered_bytes": self.recovered_bytes,
            "readers_fell_behind": self.expired,
            "bytes_missed": self.expired_bytes,
        }


_SUMS = (
    "appends",
    "failed_appends",
    "records",
    "bytes_in",
    "bytes_out",
    "failed_flushes",
    "recoveries",
    "recovered_segments",
    "recovered_bytes",
    "recovery_s",
    "expired",
    "expired_bytes",
    "compactions",
    "compacted_bytes_in",
    "compacted_bytes_out",
    "compaction_s",
    "packed_segments",
    "packed_bytes_in",
    "packed_bytes_out",
    "packing_s",
)


@dataclass(slots=True)
class RewritingStatus:
    """When the segments of one partition are rewritten again after a failure.

    Attributes:
        pause_ms: How long it was left alone the last time, since the disk was full; 0 if it is not.
        paused_until_ms: Clock until which it is left alone.
    """

    pause_ms: int = 0
    paused_until_ms: int = 0

    def pause(self, now_ms: int) -> None:
        """Leave it alone for a while, each time for longer."""
        self.pause_ms = longer_pause(self.pause_ms)
        self.paused_until_ms = now_ms + self.pause_ms


def longer_pause(pause_ms: int) -> int:
    """Return how long a log is left alone after another failure, from a minute to an hour."""
    return min(max(2 * pause_ms, _SHORTEST_PAUSE_MS), _LONGEST_PAUSE_MS)


@dataclass(slots=True)
class PackingStatus(RewritingStatus):
    """The packing of one partition, as far as this process has seen it.

    Attributes:
        failed: Base offset of a segment that could not be packed -> the reason.
    """

    failed: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class CompactionStatus(RewritingStatus):
    """The compaction of one partition, as far as this process has seen it.

    Attributes:
        lock: Held while it is compacted.
        read_bytes, written_bytes: The bytes that were read, and those that were left of them.
        dirty_ratio: Share of the bytes that could be cleaned when that was last looked at.
        unsaved_offset: ``end_offset`` as long as the checkpoint file does not have it.
        uncleanable: Why it is not compacted any more until the next start; None if it is.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    cleaned_ms: int | None = None
    end_offset: int | None = None
    read_bytes: int = 0
    written_bytes: int = 0
    dirty_ratio: float | None = None
    uncleanable: str | None = None
    unsaved_offset: int | None = None

    def as_json(self) -> dict[str, object]:
        """Return them for ``.meta``."""
        return {
            "last_cleaned": self.cleaned_ms,
            "first_dirty_offset": self.end_offset,
            "bytes_read": self.read_bytes,
            "bytes_written": self.written_bytes,
            "dirty_ratio": self.dirty_ratio,
            "uncleanable": self.uncleanable,
        }
