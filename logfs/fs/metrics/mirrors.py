"""The metrics of partitions that are mirrors: what the process that mirrors them has said last."""

from collections.abc import Callable, Iterator, Sequence

from logfs.fs.metrics.family import Family, Kind, Sample
from logfs.log.mirrorfile import FAILED
from logfs.log.reading.readable import ReadableLog

_LABELS = ("topic", "partition", "cluster")

Facts = dict[str, object]


def _number(name: str) -> Callable[[Facts], float | None]:
    def find(facts: Facts) -> float | None:
        value = facts.get(name)
        return float(value) if isinstance(value, int | float) else None

    return find


_METRICS: tuple[tuple[str, Kind, str, Callable[[Facts], float | None]], ...] = (
    (
        "logfs_mirror_lag_records",
        "gauge",
        "Offsets at the source that are not here yet.",
        _number("lag_records"),
    ),
    (
        "logfs_mirror_source_log_end_offset",
        "gauge",
        "High watermark at the source.",
        _number("source_high_watermark"),
    ),
    ("logfs_mirror_bytes_total", "counter", "Bytes of batches fetched.", _number("bytes")),
    ("logfs_mirror_records_total", "counter", "Offsets fetched.", _number("records")),
    (
        "logfs_mirror_diverged_total",
        "counter",
        "Times that records were cut, since the source had lost them, or were missed there.",
        _number("losses"),
    ),
    (
        "logfs_mirror_last_contact_timestamp_seconds",
        "gauge",
        "When the source answered last, in seconds since the epoch.",
        lambda facts: None if (ms := _number("last_contact")(facts)) is None else ms / 1000,
    ),
    (
        "logfs_mirror_failed",
        "gauge",
        "1 if the mirror waits for its user to decide something, else 0.",
        lambda facts: float(facts.get("state") == FAILED),
    ),
)


NAMES = frozenset({name for name, *_ in _METRICS})
"""The names of those that have one value for each partition."""


def families(logs: Sequence[ReadableLog]) -> Iterator[Family]:
    """Yield the metrics of mirrors; nothing if there is none."""
    rows = [(log, facts) for log in logs if (facts := log.mirror_meta) is not None]
    if not rows:
        return
    for name, kind, text, value in _METRICS:
        samples = [
            Sample(_labels(log, facts), found)
            for log, facts in rows
            if (found := value(facts)) is not None
        ]
        if samples:
            yield Family(name, kind, text, _LABELS, samples)
    yield Family(
        "logfs_mirror_lag_seconds",
        "gauge",
        "Age of the last record here if there are more at the source, else 0.",
        _LABELS,
        [Sample(_labels(log, facts), _lag_s(log, facts)) for log, facts in rows],
    )
    errors = [
        Sample((*_labels(log, facts), str(name)), count)
        for log, facts in rows
        if isinstance(counts := facts.get("errors"), dict)
        for name, count in counts.items()
        if isinstance(count, int)
    ]
    if errors:
        labels = (*_LABELS, "error")
        yield Family("logfs_mirror_errors_total", "counter", "Errors met.", labels, errors)


def _labels(log: ReadableLog, facts: Facts) -> tuple[str, str, str]:
    topic, partition = log.topic_partition
    return topic, str(partition), str(facts["cluster_id"])


def _lag_s(log: ReadableLog, facts: Facts) -> float:
    reported, lag = _number("reported")(facts), _number("lag_records")(facts)
    latest = max([log.snapshot.end.max_timestamp, *log.snapshot.maxima[-1:]])
    if not lag or reported is None or latest < 0:
        return 0.0
    return max(0.0, (reported - latest) / 1000)
