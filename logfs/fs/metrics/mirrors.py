"""The metrics of partitions that are mirrors: what the process that mirrors them has said last."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from logfs.fs.metrics.family import Family, Sample
from logfs.fs.metrics.noted import Facts, NotedMetric, families_of, labels_of, number
from logfs.log.counters import FETCH_BOUNDS_S, Histogram
from logfs.log.mirrorfile import FAILED
from logfs.log.reading.readable import ReadableLog

_LABELS = ("topic", "partition", "cluster")
_PEER = "cluster_id"

_METRICS = (
    NotedMetric(
        "logfs_mirror_lag_records",
        "gauge",
        "Offsets at the source that are not here yet.",
        number("lag_records"),
    ),
    NotedMetric(
        "logfs_mirror_source_log_end_offset",
        "gauge",
        "High watermark at the source.",
        number("source_high_watermark"),
    ),
    NotedMetric(
        "logfs_mirror_bytes_total", "counter", "Bytes of batches fetched.", number("bytes")
    ),
    NotedMetric("logfs_mirror_records_total", "counter", "Offsets fetched.", number("records")),
    NotedMetric(
        "logfs_mirror_diverged_total",
        "counter",
        "Times that records were cut, since the source had lost them, or were missed there.",
        number("losses"),
    ),
    NotedMetric(
        "logfs_mirror_throttled_seconds_total",
        "counter",
        "Time waited for a quota of the source.",
        number("throttled_ms", 1000),
    ),
    NotedMetric(
        "logfs_mirror_last_contact_timestamp_seconds",
        "gauge",
        "When the source answered last, in seconds since the epoch.",
        number("last_contact", 1000),
    ),
    NotedMetric(
        "logfs_mirror_failed",
        "gauge",
        "1 if the mirror waits for its user to decide something, else 0.",
        lambda facts: float(facts.get("state") == FAILED),
    ),
)

_LAG_S = "logfs_mirror_lag_seconds"
_ERRORS = "logfs_mirror_errors_total"
_FETCHES = "logfs_mirror_fetch_seconds"
NAMES = frozenset({metric.name for metric in _METRICS} | {_LAG_S, _ERRORS, f"{_FETCHES}_bucket"})
"""The names of all samples that exist only if there is a mirror."""


def families(logs: Sequence[ReadableLog]) -> Iterator[Family]:
    """Yield the metrics of mirrors; nothing if there is none."""
    rows = [(log, facts) for log in logs if (facts := log.mirror_meta) is not None]
    if not rows:
        return
    yield from families_of(rows, _METRICS, _LABELS, _PEER)
    yield Family(
        _LAG_S,
        "gauge",
        "Age of the last record here if there are more at the source, else 0.",
        _LABELS,
        [Sample(labels_of((log, facts), _PEER), _lag_s(log, facts)) for log, facts in rows],
    )
    errors = [
        Sample((*labels_of((log, facts), _PEER), str(name)), count)
        for log, facts in rows
        if isinstance(numbers := facts.get("errors"), dict)
        for name, count in numbers.items()
        if isinstance(count, int)
    ]
    if errors:
        labels = (*_LABELS, "error")
        yield Family(_ERRORS, "counter", "Errors met.", labels, errors)
    yield Family(
        _FETCHES,
        "histogram",
        "Time from a Fetch request to its answer, which waits for records for up to "
        "fetch.wait.max.ms; counted for each partition that is asked for.",
        ("topic", "cluster"),
        [Sample(labels, histogram) for labels, histogram in _fetches(rows).items()],
    )


def _fetches(rows: Sequence[tuple[ReadableLog, Facts]]) -> dict[tuple[str, str], Histogram]:
    """Return the times of fetches by topic and cluster: each partition would be many samples."""
    found: dict[tuple[str, str], Histogram] = defaultdict(lambda: Histogram(FETCH_BOUNDS_S))
    for row in rows:
        topic, _, cluster = labels_of(row, _PEER)
        known, told = found[topic, cluster], row[1].get("fetches")
        if not isinstance(told, dict):
            continue
        one, counts = Histogram(FETCH_BOUNDS_S), told.get("counts")
        if isinstance(counts, list) and [type(count) for count in counts] == [int] * len(
            one.counts
        ):
            one.counts, one.sum_s = counts, float(told.get("seconds", 0))
            known.add(one)
    return found


def _lag_s(log: ReadableLog, facts: Facts) -> float:
    reported, lag = number("reported")(facts), number("lag_records")(facts)
    latest = max([log.snapshot.end.max_timestamp, *log.snapshot.maxima[-1:]])
    if not lag or reported is None or latest < 0:
        return 0.0
    return max(0.0, (reported - latest) / 1000)
