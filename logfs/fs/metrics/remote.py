"""The metrics of tiered storage: what is in the object store, still to be copied, and read of it.

Names follow Kafka's ``BrokerTopicMetrics``, which the texts name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from logfs.disk.remote.counters import BlockCounters, JournalCounters
from logfs.disk.remote.overlay import counters_of
from logfs.disk.vfs import Disk
from logfs.fs.metrics.family import Family, Kind, Sample, counter
from logfs.log.partition import PartitionLog
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.of_disk import catalog_of
from logfs.log.remote.status import RemoteTotals

_KAFKA = "kafka.server:type=BrokerTopicMetrics,name="

_ROWS: tuple[tuple[str, Kind, str, Callable[[RemoteTotals], float | None]], ...] = (
    (
        "logfs_remote_log_size_bytes",
        "gauge",
        f"Bytes of the segments in the object store. {_KAFKA}RemoteLogSizeBytes",
        lambda t: t.size_bytes,
    ),
    (
        "logfs_remote_log_segments",
        "gauge",
        f"Segments in the object store. {_KAFKA}RemoteLogMetadataCount",
        lambda t: t.segments,
    ),
    (
        "logfs_remote_copy_lag_bytes",
        "gauge",
        f"Bytes of sealed segments that are not in the store yet. {_KAFKA}RemoteCopyLagBytes",
        lambda t: t.lag_bytes,
    ),
    (
        "logfs_remote_copy_lag_segments",
        "gauge",
        f"Sealed segments that are not in the store yet. {_KAFKA}RemoteCopyLagSegments",
        lambda t: t.lag_segments,
    ),
    (
        "logfs_remote_missing_since_timestamp_seconds",
        "gauge",
        "The loss of the machine loses records since this moment, those that are not sealed "
        "included; no sample: the store has all.",
        lambda t: None if t.missing_since_ms is None else t.missing_since_ms / 1000,
    ),
    (
        "logfs_remote_delete_lag_objects",
        "gauge",
        f"Objects of deleted segments that are still in the store. {_KAFKA}RemoteDeleteLagSegments",
        lambda t: t.waiting,
    ),
    (
        "logfs_remote_copy_failing",
        "gauge",
        "Partitions whose last attempt to copy has failed.",
        lambda t: t.failing,
    ),
    (
        "logfs_remote_copy_stopped",
        "gauge",
        "Partitions that are not copied any more: another process has taken over, or the store has "
        "other records.",
        lambda t: t.stopped,
    ),
    (
        "logfs_remote_copy_near_deletion_segments",
        "gauge",
        "Sealed segments that are not in the store, and have reached 80 % of retention.ms or "
        "retention.bytes.",
        lambda t: t.near_deletion,
    ),
    (
        "logfs_remote_copy_bytes_total",
        "counter",
        f"Bytes of segments that were copied. {_KAFKA}RemoteCopyBytesPerSec",
        lambda t: t.copied_bytes,
    ),
    (
        "logfs_remote_copy_requests_total",
        "counter",
        f"Segments that were copied. {_KAFKA}RemoteCopyRequestsPerSec",
        lambda t: t.copies,
    ),
    (
        "logfs_remote_copy_errors_total",
        "counter",
        f"Attempts that failed. {_KAFKA}RemoteCopyErrorsPerSec",
        lambda t: t.copy_errors,
    ),
    (
        "logfs_remote_delete_requests_total",
        "counter",
        f"Objects that were deleted. {_KAFKA}RemoteDeleteRequestsPerSec",
        lambda t: t.deletions,
    ),
)


_READS: tuple[tuple[str, str, Callable[[BlockCounters], float]], ...] = (
    (
        "logfs_remote_fetch_bytes_total",
        f"Bytes that reads have fetched from the object store. {_KAFKA}RemoteFetchBytesPerSec",
        lambda c: c.bytes,
    ),
    (
        "logfs_remote_fetch_requests_total",
        f"Requests that fetched them. {_KAFKA}RemoteFetchRequestsPerSec",
        lambda c: c.requests,
    ),
    (
        "logfs_remote_fetch_errors_total",
        f"Requests for data that failed. {_KAFKA}RemoteFetchErrorsPerSec",
        lambda c: c.errors,
    ),
    (
        "logfs_remote_fetch_wait_seconds_total",
        "Time that reads have waited for the object store.",
        lambda c: c.wait_s,
    ),
    (
        "logfs_remote_corrupt_blocks_total",
        "Blocks of the object store that came with another checksum, and were fetched again.",
        lambda c: c.corrupt,
    ),
    (
        "logfs_remote_memory_hits_total",
        "Reads of the object store that found their block in memory.",
        lambda c: c.hits,
    ),
    (
        "logfs_remote_memory_misses_total",
        "Reads of the object store that had to wait for their block.",
        lambda c: c.misses,
    ),
    (
        "logfs_remote_cache_bytes_total",
        "Bytes that came from the cache directory instead of the object store.",
        lambda c: c.loaded_bytes,
    ),
    (
        "logfs_remote_cache_errors_total",
        "Errors of the cache directory; the object store was read instead.",
        lambda c: c.cache_errors,
    ),
    (
        "logfs_remote_cache_corrupt_blocks_total",
        "Blocks of the cache directory with another checksum; they were fetched again.",
        lambda c: c.cache_corrupt,
    ),
)

_JOURNAL: tuple[tuple[str, Kind, str, Callable[[JournalCounters], float | None]], ...] = (
    (
        "logfs_remote_journal_rounds_total",
        "counter",
        "Rounds of the journal that were complete: one every freshness.ms.",
        lambda c: c.rounds,
    ),
    (
        "logfs_remote_journal_errors_total",
        "counter",
        "Rounds of the journal that failed.",
        lambda c: c.failures,
    ),
    (
        "logfs_remote_journal_objects_total",
        "counter",
        "Objects of the journal that were stored.",
        lambda c: c.objects,
    ),
    (
        "logfs_remote_journal_bytes_total",
        "counter",
        "Bytes of these objects.",
        lambda c: c.size_bytes,
    ),
    (
        "logfs_remote_journal_timestamp_seconds",
        "gauge",
        "The last complete round of the journal began at this moment; no sample: none was yet.",
        lambda c: c.complete_ms / 1000 if c.complete_ms else None,
    ),
)

NAMES = frozenset(name for name, *_ in (*_ROWS, *_READS, *_JOURNAL))
"""The names of all of them."""


def journal(disk: Disk) -> Iterator[Family]:
    """Yield what the journal of a data directory has cost; nothing without one."""
    catalog = catalog_of(disk)
    counters = None if catalog is None else catalog.journal
    for name, kind, text, value in _JOURNAL if counters is not None else ():
        found = None if counters is None else value(counters)
        yield Family(name, kind, text, (), [] if found is None else [Sample((), float(found))])


def reads(disk: Disk) -> Iterator[Family]:
    """Yield what reads from the store of a disk have cost; nothing before it was used."""
    counters = counters_of(disk)
    if counters is None:
        return
    for name, text, value in _READS:
        yield counter(name, text, float(value(counters)))


def families(topics: Mapping[str, Sequence[ReadableLog]]) -> Iterator[Family]:
    """Yield the metrics of topics that are in an object store; nothing without a store."""
    totals: dict[str, RemoteTotals] = {}
    for topic, logs in topics.items():
        for log in logs:
            state = log.state if isinstance(log, PartitionLog) else None
            if state is None or state.remote is None:
                continue
            config = state.config
            if state.tier is not None or config.remote_storage_enable:
                is_copied = config.remote_storage_enable and not config.remote_log_copy_disable
                total = totals.setdefault(topic, RemoteTotals())
                total.add(state.remote, state.snapshot, state.tier, is_copied=is_copied)
    for name, kind, text, value in _ROWS if totals else ():
        found = [(topic, value(total)) for topic, total in totals.items()]
        rows = [Sample((topic,), float(one)) for topic, one in found if one is not None]
        yield Family(name, kind, text, ("topic",), rows)
