"""The metrics of tiered storage: what is in the object store, and what is still to be copied.

Names follow Kafka's ``BrokerTopicMetrics``, which the texts name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from logfs.fs.metrics.family import Family, Kind, Sample
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.status import RemoteTotals
from logfs.log.writing.state import PartitionState

_KAFKA = "kafka.server:type=BrokerTopicMetrics,name="

_ROWS: tuple[tuple[str, Kind, str, Callable[[RemoteTotals], float]], ...] = (
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


NAMES = frozenset(name for name, *_ in _ROWS)
"""The names of all of them."""


def families(topics: Mapping[str, Sequence[ReadableLog]]) -> Iterator[Family]:
    """Yield the metrics of topics that are in an object store; nothing without a store."""
    totals: dict[str, RemoteTotals] = {}
    for topic, logs in topics.items():
        for log in logs:
            state = log.state
            if not isinstance(state, PartitionState) or state.remote is None:
                continue
            if state.tier is not None or state.config.remote_storage_enable:
                total = totals.setdefault(topic, RemoteTotals())
                total.add(state.remote, state.snapshot, state.tier)
    for name, kind, text, value in _ROWS if totals else ():
        rows = [Sample((topic,), float(value(total))) for topic, total in totals.items()]
        yield Family(name, kind, text, ("topic",), rows)
