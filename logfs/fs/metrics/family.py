"""A metric as data: its name, what it means, its values with their labels."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from logfs.log.counters import Histogram

Value = float | Histogram
Kind = Literal["gauge", "counter", "histogram"]


class Sample(NamedTuple):
    """One value of a metric, as Prometheus calls it.

    Attributes:
        labels: Values of the labels, in the order of the family's.
    """

    labels: tuple[str, ...]
    value: Value


class Family(NamedTuple):
    """A metric with all its values.

    Attributes:
        name: By the rules of Prometheus: with its unit, a counter with ``_total``.
        kind: Its type.
        text: Its meaning in a sentence, with Kafka's name if Kafka has it too.
        labels: Names of the labels.
        rows: The values.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...]
    rows: list[Sample]


def gauge(name: str, text: str, value: float) -> Family:
    """Return a metric that goes up and down, with one value."""
    return Family(name, "gauge", text, (), [Sample((), value)])


def counter(name: str, text: str, value: float) -> Family:
    """Return a metric that only goes up, with one value."""
    return Family(name, "counter", text, (), [Sample((), value)])


def as_json(families: Iterable[Family]) -> dict[str, Any]:
    """Return metrics for JSON, by name: a number, or a list of objects with their labels."""
    return {family.name: _plain(family) for family in families}


def _plain(family: Family) -> object:
    if not family.labels:
        return _number(family.rows[0].value)
    names = family.labels
    return [
        {**dict(zip(names, row.labels, strict=True)), "value": _number(row.value)}
        for row in family.rows
    ]


def _number(value: Value) -> object:
    return value.as_json() if isinstance(value, Histogram) else value


def cumulative(histogram: Histogram) -> Iterator[tuple[str, int]]:
    """Yield upper bounds, as Prometheus writes them, and how many were within each."""
    done = 0
    counts = list(histogram.counts)
    for bound, count in zip(histogram.bounds, counts, strict=False):
        done += count
        yield repr(bound), done
    yield "+Inf", sum(counts)
