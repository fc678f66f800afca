"""Record batches of several partitions, merged by their timestamps.

The order of each partition is kept: a record is merged as if it had the largest timestamp of those
before it. A batch of each partition is in memory.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_TIME = "timestamp"
_ORDER = "\0order"


def merged(
    schema: pa.Schema, streams: Sequence[Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of streams whose batches have a column ``timestamp``, by time.

    Args:
        schema: The columns of the result; some of those of the batches.
        streams: One for each partition; those that come first are first among equal times.
    """
    sources = [_Source(stream) for stream in streams]
    sources = [source for source in sources if source.fill()]
    while sources:
        bound = min(source.last for source in sources)
        parts = [part for source in sources if (part := source.take(bound)) is not None]
        table = pa.Table.from_batches(parts)
        if len(parts) > 1:  # the sort is stable
            table = table.take(pc.sort_indices(table, sort_keys=[(_ORDER, "ascending")]))
        yield from table.select(schema.names).combine_chunks().to_batches()
        sources = [source for source in sources if source.fill()]


class _Source:
    """The next records of one partition, with the times by which they are merged."""

    def __init__(self, stream: Iterator[pa.RecordBatch]) -> None:
        self._stream = stream
        self._highest = -(2**63)
        self._batch: pa.RecordBatch | None = None
        self.last = 0

    def fill(self) -> bool:
        """Have at least one record; return False at the end."""
        if self._batch is not None and self._batch.num_rows:
            return True
        batch = next(self._stream, None)
        if batch is None:
            return False
        times = batch.column(_TIME).cast(pa.int64())
        order = pc.cumulative_max(times, start=self._highest)
        self.last = self._highest = order[-1].as_py()
        self._batch = batch.append_column(_ORDER, order)
        return True

    def take(self, bound: int) -> pa.RecordBatch | None:
        """Return the records up to a time, which are not among the next ones any more."""
        batch = self._batch
        assert batch is not None
        order = batch.column(_ORDER)
        if self.last <= bound:
            count = batch.num_rows
        else:
            count = pc.sum(pc.less_equal(order, bound)).as_py()
        self._batch = batch.slice(count)
        return batch.slice(0, count) if count else None
