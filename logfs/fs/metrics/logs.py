"""The metrics of logs: of partitions, of topics, and of what is done to all of them together.

Names follow Kafka's, whose metrics the texts name: ``kafka.log:type=Log,name=Size`` is
``logfs_log_size_bytes``. Kafka's ``Log`` is a partition here, its ``BrokerTopicMetrics`` a topic.
"""

from collections.abc import Callable, Iterator, Sequence

from logfs.errors import LogfsError
from logfs.fs.metrics import forwards, mirrors, remote, topicquotas
from logfs.fs.metrics.family import Family, Kind, Sample, counter
from logfs.log.counters import APPEND_BOUNDS_S, FLUSH_BOUNDS_S, Histogram, LogCounters
from logfs.log.losses import EXPIRED, KINDS, Loss
from logfs.log.reading.readable import ReadableLog
from logfs.services.retention.logs import Rule
from logfs.services.retention.trimming import TRIM

_PARTITION = ("topic", "partition")
_REASONS = (*Rule, TRIM)

PerLog = Callable[[ReadableLog], float]
PerCounters = Callable[[LogCounters], float]


def _size(log: ReadableLog) -> int:
    return log.snapshot.size_bytes


def _unflushed(log: ReadableLog) -> int:
    return 0 if log.read_only else max(log.log_end_offset - log.recovery_point, 0)


_OF_PARTITIONS: tuple[tuple[str, str, PerLog], ...] = (
    ("logfs_log_size_bytes", "Bytes of the segments. kafka.log:type=Log,name=Size", _size),
    (
        "logfs_log_start_offset",
        "Offset of the first record that is kept. kafka.log:type=Log,name=LogStartOffset",
        lambda log: log.log_start_offset,
    ),
    (
        "logfs_log_end_offset",
        "Offset of the next record. kafka.log:type=Log,name=LogEndOffset",
        lambda log: log.log_end_offset,
    ),
    (
        "logfs_log_high_watermark",
        "Offset up to which records are replicated; the end offset, but in a broker's directory.",
        lambda log: log.high_watermark,
    ),
    (
        "logfs_log_last_stable_offset_lag",
        "Offsets from the oldest open transaction to the high watermark. "
        "kafka.cluster:type=MountedPartition,name=LastStableOffsetLag",
        lambda log: max(log.high_watermark - log.last_stable_offset, 0),
    ),
    (
        "logfs_log_segments",
        "Segments. kafka.log:type=Log,name=NumLogSegments",
        lambda log: len(log.snapshot.segments),
    ),
    (
        "logfs_log_unflushed_offsets",
        "Offsets that a power cut could take: written, and not flushed since.",
        _unflushed,
    ),
    (
        "logfs_log_offline",
        "1 if the partition takes no appends because of an error of the disk, else 0.",
        lambda log: log.offline is not None,
    ),
)

_OF_TOPICS: tuple[tuple[str, str, PerCounters], ...] = (
    (
        "logfs_topic_bytes_in_total",
        "Bytes of batches appended. kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
        lambda c: c.bytes_in,
    ),
    (
        "logfs_topic_messages_in_total",
        "Records appended. kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
        lambda c: c.records,
    ),
    (
        "logfs_topic_produce_requests_total",
        "Appends, of one batch or more. "
        "kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec",
        lambda c: c.appends,
    ),
    (
        "logfs_topic_failed_produce_requests_total",
        "Appends that met an error of the disk. "
        "kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec",
        lambda c: c.failed_appends,
    ),
    (
        "logfs_topic_bytes_out_total",
        "Bytes that the daemon gave to readers, as text; what the kernel keeps is not seen. "
        "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec",
        lambda c: c.bytes_out,
    ),
)

_OF_ALL: tuple[tuple[str, str, PerCounters], ...] = (
    (
        "logfs_log_failed_flushes_total",
        "Fsyncs that met an error; each takes its partition offline.",
        lambda c: c.failed_flushes,
    ),
    (
        "logfs_recoveries_total",
        "Partitions that were loaded after an unclean stop.",
        lambda c: c.recoveries,
    ),
    (
        "logfs_recovered_segments_total",
        "Segments that were scanned for that.",
        lambda c: c.recovered_segments,
    ),
    ("logfs_recovered_bytes_total", "Bytes of those segments.", lambda c: c.recovered_bytes),
    (
        "logfs_recovery_seconds_total",
        "Time that loading them took, of all partitions together; several are loaded at once.",
        lambda c: c.recovery_s,
    ),
    (
        "logfs_log_cleaner_rounds_total",
        "Rounds of compaction that were finished.",
        lambda c: c.compactions,
    ),
    (
        "logfs_log_cleaner_bytes_read_total",
        "Bytes that compaction went through.",
        lambda c: c.compacted_bytes_in,
    ),
    (
        "logfs_log_cleaner_bytes_written_total",
        "Bytes that compaction left of them.",
        lambda c: c.compacted_bytes_out,
    ),
    (
        "logfs_log_cleaner_seconds_total",
        "Time that compaction took.",
        lambda c: c.compaction_s,
    ),
    (
        "logfs_packed_segments_total",
        "Segments that became smaller by packing.",
        lambda c: c.packed_segments,
    ),
    (
        "logfs_packing_bytes_read_total",
        "Bytes that packing went through.",
        lambda c: c.packed_bytes_in,
    ),
    (
        "logfs_packing_bytes_written_total",
        "Bytes that packing left of them.",
        lambda c: c.packed_bytes_out,
    ),
    ("logfs_packing_seconds_total", "Time that packing took.", lambda c: c.packing_s),
)


def families(
    logs: Sequence[ReadableLog], now_ms: int, *, by_topic: bool = True
) -> Iterator[Family]:
    """Yield the metrics of partitions and topics; else those of all topics, as one without a name.

    Without names a scrape stays small, however many topics there are, and shows none of them.
    """
    ordered = sorted(logs, key=lambda log: log.topic_partition)
    topics: dict[str, list[ReadableLog]] = {} if by_topic else {"": ordered}
    if by_topic:
        for name, text, of_log in _OF_PARTITIONS:
            rows = [Sample(_labels(log), float(of_log(log))) for log in ordered]
            yield Family(name, "gauge", text, _PARTITION, rows)
        yield from _residency(ordered)
        for log in ordered:
            topics.setdefault(log.topic_partition.topic, []).append(log)
    yield from _following(ordered, by_topic=by_topic)
    yield from mirrors.families(ordered)
    yield from forwards.families(ordered, now_ms)
    for name, text, of_counters in _OF_TOPICS:
        rows = [
            Sample((topic,), sum(of_counters(log.counters) for log in members))
            for topic, members in topics.items()
        ]
        yield Family(name, "counter", text, ("topic",), rows)
    yield from _deleted(topics)
    yield from _losses(topics)
    yield from remote.families(topics)
    if by_topic:
        yield from topicquotas.families(topics)


def totals(logs: Sequence[ReadableLog], retired: LogCounters) -> Iterator[Family]:
    """Yield the metrics of all logs together.

    Args:
        logs: All partitions.
        retired: The counters of deleted ones.
    """
    counters = [retired, *(log.counters for log in logs)]
    for name, text, of_counters in _OF_ALL:
        yield counter(name, text, sum(map(of_counters, counters)))
    append, flush = Histogram(APPEND_BOUNDS_S), Histogram(FLUSH_BOUNDS_S)
    for each in counters:
        append.add(each.append_s)
        flush.add(each.flush_s)
    kind: Kind = "histogram"
    yield Family(
        "logfs_log_append_duration_seconds",
        kind,
        "Time of an append, from batches to records that readers see. "
        "kafka.network:type=RequestMetrics,name=LocalTimeMs,request=Produce",
        (),
        [Sample((), append)],
    )
    yield Family(
        "logfs_log_flush_duration_seconds",
        kind,
        "Time of a flush that had something to make durable. "
        "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
        (),
        [Sample((), flush)],
    )


def _labels(log: ReadableLog) -> tuple[str, str]:
    return log.topic_partition.topic, str(log.topic_partition.partition)


def _residency(logs: Sequence[ReadableLog]) -> Iterator[Family]:
    """Yield what of the logs was in the page cache when that was last looked at."""
    known = [(_labels(log), found) for log in logs if (found := log.residency) is not None]
    yield Family(
        "logfs_log_page_cache_bytes",
        "gauge",
        "Bytes of the segments that are in the page cache, of those looked at.",
        _PARTITION,
        [Sample(labels, found.cached_bytes) for labels, found in known],
    )
    yield Family(
        "logfs_log_page_cache_looked_at_bytes",
        "gauge",
        "Bytes of the segments that were looked at for that, the newest first: it must not take "
        "long.",
        _PARTITION,
        [Sample(labels, found.looked_at_bytes) for labels, found in known],
    )


def _following(logs: Sequence[ReadableLog], *, by_topic: bool) -> Iterator[Family]:
    unread = [(_labels(log), unread_bytes(log)) for log in logs if log.is_followed]
    if unread and not by_topic:
        unread = [(("", ""), sum(size for _, size in unread))]
    if unread:
        yield Family(
            "logfs_following_lag_bytes",
            "gauge",
            "Bytes that another program has written and readers do not see yet.",
            _PARTITION,
            [Sample(labels, size) for labels, size in unread],
        )


def unread_bytes(log: ReadableLog) -> int:
    """Return how many bytes of another program's log have not been read yet; asks the disk."""
    indexing, snapshot = log.indexing, log.snapshot
    if indexing is not None:
        return max(indexing[1] - indexing[0], 0)
    try:
        size = log.disk.stat(snapshot.active.name).size
    except OSError:
        return 0  # deleted or replaced: the next look tells
    return max(size - snapshot.end.file_size, 0)


def _deleted(topics: dict[str, list[ReadableLog]]) -> Iterator[Family]:
    segments, size = [], []
    for topic, logs in topics.items():
        for reason in _REASONS:
            rows = [row for log in logs if (row := log.counters.deleted.get(reason)) is not None]
            segments.append(Sample((topic, reason), sum(row.segments for row in rows)))
            size.append(Sample((topic, reason), sum(row.size_bytes for row in rows)))
    labels, kind = ("topic", "reason"), "Segments that retention and trimming deleted"
    yield Family("logfs_retention_deleted_segments_total", "counter", f"{kind}.", labels, segments)
    yield Family(
        "logfs_retention_deleted_bytes_total", "counter", f"{kind}, in bytes.", labels, size
    )


def _losses(topics: dict[str, list[ReadableLog]]) -> Iterator[Family]:
    """Yield what was lost, ever: losses are kept in the partitions, what expired is not."""
    count, size = [], []
    for topic, logs in topics.items():
        losses = [loss for log in logs for loss in _losses_of(log)]
        for kind in KINDS:
            sizes = [loss.bytes for loss in losses if loss.kind == kind]
            count.append(Sample((topic, kind), len(sizes)))
            size.append(Sample((topic, kind), sum(sizes)))
        expired = [log.counters for log in logs]
        count.append(Sample((topic, EXPIRED), sum(c.expired for c in expired)))
        size.append(Sample((topic, EXPIRED), sum(c.expired_bytes for c in expired)))
    labels = ("topic", "kind")
    text = (
        "cut after a crash, corrupt batches that readers or recovery met, lines set aside, "
        "positions that had to start again, records that expired under a reader"
    )
    yield Family("logfs_losses_total", "counter", f"Losses: {text}.", labels, count)
    yield Family("logfs_lost_bytes_total", "counter", "Bytes that were lost.", labels, size)


def _losses_of(log: ReadableLog) -> list[Loss]:
    try:
        return list(log.losses)
    except (LogfsError, OSError):
        return []  # its file cannot be read; that makes it no loss more
