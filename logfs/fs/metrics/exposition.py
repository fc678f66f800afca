"""Metrics in the text format of Prometheus or in OpenMetrics, as a client asks.

The import takes a tenth of a second, so callers import this module only when they need it.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from logfs.fs.metrics.family import Family, cumulative, gauge
from logfs.fs.metrics.mounts import MountMetrics
from logfs.log.counters import Histogram

_TURN_S = 0.000_5
"""While text is made, other threads get the interpreter after this time, not after 5 ms: an append
must not be delayed."""


class Exposition:
    """Makes the text. Any thread."""

    def __init__(self, metrics: MountMetrics) -> None:
        self._registry = CollectorRegistry()
        self._own = _OwnCollector(metrics)
        self._registry.register(self._own)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self, accept: str = "", *, mount_answers: bool | None = None) -> tuple[bytes, str]:
        """Return all metrics, and what kind of text that is.

        Args:
            accept: The formats that the client understands (the header ``Accept``).
            mount_answers: Whether the mount has answered just now; None if it was not asked.
        """
        self._own.mount_answers = mount_answers
        encode, kind = choose_encoder(accept)
        with _taking_turns():
            return encode(self._registry), kind

    def kind(self, accept: str) -> str:
        """Return what kind of text ``render`` would return."""
        return str(choose_encoder(accept)[1])


class _OwnCollector(Collector):
    def __init__(self, metrics: MountMetrics) -> None:
        self._metrics = metrics
        self.mount_answers: bool | None = None

    def describe(self) -> Iterable[Metric]:
        return []  # nothing is collected to find out names that are known to differ

    def collect(self) -> Iterator[Metric]:
        if self.mount_answers is not None:
            text = "1 if the mount answered statvfs(2) within two seconds, else 0; as /healthz."
            yield _metric(gauge("logfs_mount_answers", text, self.mount_answers))
        yield from map(_metric, self._metrics.families())


def _metric(family: Family) -> Metric:
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Metric(name, family.text, family.kind)
    for row in family.rows:
        labels = dict(zip(family.labels, row.labels, strict=True))
        if isinstance(row.value, Histogram):
            _add_histogram(metric, labels, row.value)
        else:
            metric.add_sample(family.name, labels, row.value)
    return metric


def _add_histogram(metric: Metric, labels: dict[str, str], histogram: Histogram) -> None:
    count = 0
    for bound, count in cumulative(histogram):
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, count)
    metric.add_sample(f"{metric.name}_count", labels, count)
    metric.add_sample(f"{metric.name}_sum", labels, histogram.sum_s)


@contextmanager
def _taking_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(_TURN_S, before))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
