"""Metrics of what another process notes of partitions: mirrors and forwards."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from logfs.fs.metrics.family import Family, Kind, Sample
from logfs.log.reading.readable import ReadableLog

Facts = dict[str, object]
"""The facts of one partition that ``.meta`` shows."""
Row = tuple[ReadableLog, Facts]


class NotedMetric(NamedTuple):
    """A metric with one value for each partition.

    Attributes:
        value: Finds the value among the facts; None: it is not known.
    """

    name: str
    kind: Kind
    text: str
    value: Callable[[Facts], float | None]


def number(name: str, divisor: float = 1) -> Callable[[Facts], float | None]:
    """Return the function that finds a number by its name, and divides it."""

    def find(facts: Facts) -> float | None:
        value = facts.get(name)
        return value / divisor if isinstance(value, int | float) else None

    return find


def labels_of(row: Row, peer: str) -> tuple[str, str, str]:
    """Return the values of three labels: topic, partition, and the fact that names the cluster."""
    log, facts = row
    topic, partition = log.topic_partition
    return topic, str(partition), str(facts[peer])


def families_of(
    rows: Sequence[Row], metrics: Sequence[NotedMetric], labels: tuple[str, str, str], peer: str
) -> Iterator[Family]:
    """Yield the metrics of which a value is known; see ``labels_of``."""
    for metric in metrics:
        samples = [
            Sample(labels_of(row, peer), value)
            for row in rows
            if (value := metric.value(row[1])) is not None
        ]
        if samples:
            yield Family(metric.name, metric.kind, metric.text, labels, samples)
