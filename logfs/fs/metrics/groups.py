"""The metrics of consumer groups: where they are in their partitions, and their lag."""

import threading
from collections.abc import Iterator

from logfs.errors import LogfsError
from logfs.fs.metrics.family import Family, Sample
from logfs.services.following.store import AnyStore
from logfs.services.views.lag import Lag, Next, lag_of
from logfs.types import IsolationLevel, TopicPartition

_LABELS = ("group", "topic", "partition")

NAMES = frozenset({
    "logfs_group_committed_offset", "logfs_group_lag_records", "logfs_group_lag_seconds",
})  # fmt: skip
"""The names of those that have one value for each position of a group."""


class GroupMetrics:
    """Collects the metrics. Any thread may ask; the result of a look in the log is kept."""

    def __init__(self, store: AnyStore, level: IsolationLevel) -> None:
        self._store = store
        self._level = level
        self._lock = threading.Lock()
        self._known: dict[tuple[str, TopicPartition], Next] = {}

    def families(self, now_ms: int) -> Iterator[Family]:
        """Yield the metrics; nothing if there is no group."""
        offsets: list[Sample] = []
        lags: list[Sample] = []
        ages: list[Sample] = []
        with self._lock:
            for labels, offset, lag in self._rows(now_ms):
                offsets.append(Sample(labels, offset))
                if lag is not None:
                    lags.append(Sample(labels, lag.records))
                    if lag.seconds is not None:
                        ages.append(Sample(labels, lag.seconds))
        if not offsets:
            return
        text = "Offset that the consumer group has committed."
        yield Family("logfs_group_committed_offset", "gauge", text, _LABELS, offsets)
        text = "Offsets that the group has not read. kafka.consumer:records-lag"
        yield Family("logfs_group_lag_records", "gauge", text, _LABELS, lags)
        text = "Age of the first record that the group has not read; 0 without such a record."
        yield Family("logfs_group_lag_seconds", "gauge", text, _LABELS, ages)

    def _rows(self, now_ms: int) -> Iterator[tuple[tuple[str, str, str], int, Lag | None]]:
        try:
            groups = self._store.groups.groups()
        except (LogfsError, OSError):
            return  # the log of the daemon has said why the topic cannot be read
        known: dict[tuple[str, TopicPartition], Next] = {}
        for group in groups.values():
            for one, position in sorted(group.positions.items()):
                labels = group.name, one.topic, str(one.partition)
                key = group.name, one
                lag = None
                try:
                    log = self._store.partition(*one)
                    lag, known[key] = lag_of(
                        log, position.offset, self._level, now_ms, self._known.get(key)
                    )
                except (LogfsError, OSError):
                    pass  # the topic is on another broker, or the record there is damaged
                yield labels, position.offset, lag
        self._known = known
