"""The metrics of partitions that are forwarded: what their notes say, see ``forwardfile``."""

from collections.abc import Iterator, Sequence

from logfs.fs.metrics.family import Family, Sample
from logfs.fs.metrics.noted import Facts, NotedMetric, families_of, labels_of, number
from logfs.log.forwardfile import FAILED
from logfs.log.reading.readable import ReadableLog

_LABELS = ("topic", "partition", "to")
_PEER = "to"

_METRICS = (
    NotedMetric(
        "logfs_forward_lag_records",
        "gauge",
        "Offsets that were not acknowledged by the cluster yet.",
        number("lag_records"),
    ),
    NotedMetric(
        "logfs_forward_bytes_total", "counter", "Bytes of batches acknowledged.", number("bytes")
    ),
    NotedMetric(
        "logfs_forward_records_total", "counter", "Records acknowledged.", number("records")
    ),
    NotedMetric(
        "logfs_forward_retries_total",
        "counter",
        "Times that the brokers were asked how far the cluster has got.",
        number("retries"),
    ),
    NotedMetric(
        "logfs_forward_produce_seconds_total",
        "counter",
        "Time from sending a batch to its acknowledgement, over all batches.",
        number("produce_seconds"),
    ),
    NotedMetric(
        "logfs_forward_throttled_seconds_total",
        "counter",
        "Time waited for a quota of the cluster.",
        number("throttled_ms", 1000),
    ),
    NotedMetric(
        "logfs_forward_last_ack_timestamp_seconds",
        "gauge",
        "When the cluster acknowledged a batch last, in seconds since the epoch.",
        number("acknowledged", 1000),
    ),
    NotedMetric(
        "logfs_forward_last_seen_timestamp_seconds",
        "gauge",
        "When the process that forwards was last seen, in seconds since the epoch.",
        number("reported", 1000),
    ),
    NotedMetric(
        "logfs_forward_failed",
        "gauge",
        "1 if the forward waits for its user to decide something, else 0.",
        lambda facts: float(facts.get("state") == FAILED),
    ),
)

HELD = "logfs_forward_held_bytes"
_LAG_S = "logfs_forward_lag_seconds"
NAMES = frozenset({metric.name for metric in _METRICS} | {HELD, _LAG_S})


def families(logs: Sequence[ReadableLog], now_ms: int) -> Iterator[Family]:
    """Yield the metrics of forwards; nothing if there is none."""
    rows = [(log, facts) for log in logs for facts in log.forward_meta]
    if not rows:
        return
    yield from families_of(rows, _METRICS, _LABELS, _PEER)
    ages = [
        Sample(labels_of((log, facts), _PEER), age_s)
        for log, facts in rows
        if (age_s := _lag_s(facts, now_ms)) is not None
    ]
    if ages:
        text = "Age of the oldest record that was not acknowledged by the cluster yet, else 0."
        yield Family(_LAG_S, "gauge", text, _LABELS, ages)
    yield Family(
        HELD,
        "gauge",
        "Bytes of the segments with records that were not acknowledged yet.",
        _LABELS,
        [Sample(labels_of((log, facts), _PEER), _held_bytes(log, facts)) for log, facts in rows],
    )


def _lag_s(facts: Facts, now_ms: int) -> float | None:
    """Return the age of the oldest record that waits; None: it has no timestamp."""
    oldest = facts["oldest"]
    if not facts["lag_records"]:
        return 0.0
    return max(0.0, (now_ms - oldest) / 1000) if isinstance(oldest, int) and oldest >= 0 else None


def _held_bytes(log: ReadableLog, facts: Facts) -> float:
    snapshot, held = log.snapshot, facts["held_offset"]
    assert isinstance(held, int)
    ends = [snapshot.end_of(number) for number in range(len(snapshot.segments))]
    return float(sum(size for _, next_offset, size in ends if next_offset > held))
