"""The metrics of topics with quotas; see ``logfs.log.quotas``."""

from collections.abc import Iterator, Mapping, Sequence

from logfs.fs.metrics.family import Family, Kind, Sample
from logfs.log.reading.readable import ReadableLog

_METRICS: tuple[tuple[str, Kind, str, str], ...] = (
    ("logfs_topic_quota_bytes", "gauge", "Bytes that the topic may have.", "bytes"),
    (
        "logfs_topic_quota_used_bytes",
        "gauge",
        "Bytes of the logs of the topic on this disk.",
        "used_bytes",
    ),
    (
        "logfs_topic_quota_producer_byte_rate",
        "gauge",
        "Bytes a second that may be appended to the topic.",
        "producer_byte_rate",
    ),
    (
        "logfs_topic_quota_refused_total",
        "counter",
        "Appends that were refused, because the topic has as many bytes as it may have.",
        "refused",
    ),
    (
        "logfs_topic_throttled_total",
        "counter",
        "Appends whose writers had to wait. kafka.server:type=Produce,name=throttle-time",
        "throttled",
    ),
    (
        "logfs_topic_throttled_seconds_total",
        "counter",
        "Seconds that writers had to wait.",
        "throttled_seconds",
    ),
)

NAMES = frozenset(name for name, *_ in _METRICS)


def families(topics: Mapping[str, Sequence[ReadableLog]]) -> Iterator[Family]:
    """Yield the metrics of the topics that have a quota; nothing if there is none."""
    found = {topic: facts for topic, logs in topics.items() if (facts := logs[0].quota_meta)}
    for name, kind, text, key in _METRICS:
        rows = [Sample((topic,), facts[key]) for topic, facts in found.items() if facts[key] >= 0]
        if rows:
            yield Family(name, kind, text, ("topic",), rows)
