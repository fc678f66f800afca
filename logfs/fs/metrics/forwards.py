"""The metrics of partitions that are forwarded: what their notes say, see ``forwardfile``."""

from collections.abc import Callable, Iterator, Sequence

from logfs.fs.metrics.family import Family, Kind, Sample
from logfs.log.forwardfile import FAILED
from logfs.log.reading.readable import ReadableLog

_LABELS = ("topic", "partition", "to")

Facts = dict[str, object]


def _number(name: str, divisor: float = 1) -> Callable[[Facts], float | None]:
    def find(facts: Facts) -> float | None:
        value = facts.get(name)
        return value / divisor if isinstance(value, int | float) else None

    return find


_METRICS: tuple[tuple[str, Kind, str, Callable[[Facts], float | None]], ...] = (
    (
        "logfs_forward_lag_records",
        "gauge",
        "Offsets that were not acknowledged by the cluster yet.",
        _number("lag_records"),
    ),
    ("logfs_forward_bytes_total", "counter", "Bytes of batches acknowledged.", _number("bytes")),
    ("logfs_forward_records_total", "counter", "Records acknowledged.", _number("records")),
    (
        "logfs_forward_retries_total",
        "counter",
        "Times that the brokers were asked how far the cluster has got.",
        _number("retries"),
    ),
    (
        "logfs_forward_produce_seconds_total",
        "counter",
        "Time from sending a batch to its acknowledgement, over all batches.",
        _number("produce_seconds"),
    ),
    (
        "logfs_forward_last_ack_timestamp_seconds",
        "gauge",
        "When the cluster acknowledged a batch last, in seconds since the epoch.",
        _number("acknowledged", 1000),
    ),
    (
        "logfs_forward_failed",
        "gauge",
        "1 if the forward waits for its user to decide something, else 0.",
        lambda facts: float(facts.get("state") == FAILED),
    ),
)

HELD = "logfs_forward_held_bytes"
NAMES = frozenset({name for name, *_ in _METRICS} | {HELD})


def families(logs: Sequence[ReadableLog]) -> Iterator[Family]:
    """Yield the metrics of forwards; nothing if there is none."""
    rows = [(log, facts) for log in logs for facts in log.forward_meta]
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
        HELD,
        "gauge",
        "Bytes of the segments with records that were not acknowledged yet.",
        _LABELS,
        [Sample(_labels(log, facts), _held_bytes(log, facts)) for log, facts in rows],
    )


def _labels(log: ReadableLog, facts: Facts) -> tuple[str, str, str]:
    topic, partition = log.topic_partition
    return topic, str(partition), str(facts["to"])


def _held_bytes(log: ReadableLog, facts: Facts) -> float:
    snapshot, held = log.snapshot, facts["held_offset"]
    assert isinstance(held, int)
    ends = [snapshot.end_of(number) for number in range(len(snapshot.segments))]
    return float(sum(size for _, next_offset, size in ends if next_offset > held))
