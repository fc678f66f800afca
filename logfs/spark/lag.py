"""The lag of streaming queries after each batch, which Spark's progress does not say for Python.

    spark.streams.addListener(LagListener(print))

``logfs offsets PATH --checkpoint DIRECTORY`` tells the same without the query.
"""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from logfs.errors import InvalidConfigError
from logfs.spark.streaming import from_json
from logfs.types import TopicPartition


class QueryLag(NamedTuple):
    """The lag of a query after a batch.

    Attributes:
        query: The name of the query, or its id if it has no name.
        batch: The number of the batch that was read last.
        rows: The rows of this batch.
        lag: The offsets after it, by partition.
    """

    query: str
    batch: int
    rows: int
    lag: dict[TopicPartition, int]

    @property
    def total(self) -> int:
        """The offsets after the batch, of all partitions."""
        return sum(self.lag.values())

    def __str__(self) -> str:
        """Return a line for a log."""
        return f"{self.query}: batch {self.batch}, {self.rows} rows, lag {self.total}"


def lags_of(progress: StreamingQueryProgress) -> Iterator[QueryLag]:
    """Yield the lag of each source of a query that is a directory of logs."""
    for source in progress.sources:
        try:
            ends, latest = (
                from_json(json.loads(text)) for text in (source.endOffset, source.latestOffset)
            )
        except (TypeError, ValueError, InvalidConfigError):
            continue  # of another kind
        lag = {one: max(end - ends.get(one, 0), 0) for one, end in latest.items()}
        name = progress.name or str(progress.id)
        yield QueryLag(name, progress.batchId, max(source.numInputRows, 0), lag)


class LagListener(StreamingQueryListener):
    """Reports the lag after each batch of every query of a session.

    Args:
        report: Called with each ``QueryLag``, in a thread of the driver.
    """

    def __init__(self, report: Callable[[QueryLag], object]) -> None:
        self._report = report

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report the lag of the query."""
        for lag in lags_of(event.progress):
            self._report(lag)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""
