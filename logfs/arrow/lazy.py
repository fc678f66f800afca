"""A lazy frame of Polars over record batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from logfs.arrow.pruning import ANY, ReadLimits, limits_of

if TYPE_CHECKING:
    import polars as pl

Read = Callable[[Sequence[str], ReadLimits], Iterator[pa.RecordBatch]]
"""Returns batches with some columns, and at least the records within limits."""


def lazy_frame(schema: pa.Schema, read: Read) -> "pl.LazyFrame":
    """Return a frame that reads when it is collected: needed columns, and by its filter.

    Raises:
        ImportError: Polars is missing, or too old.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    empty = pl.DataFrame(schema.empty_table())

    def source(
        with_columns: list[str] | None,
        predicate: "pl.Expr | None",
        n_rows: int | None,
        _batch_size: int | None,
    ) -> "Iterator[pl.DataFrame]":
        columns = schema.names if with_columns is None else with_columns
        needed = list(columns)
        limits = ANY
        if predicate is not None:
            needed += [name for name in predicate.meta.root_names() if name not in needed]
            limits = limits_of(predicate.meta.serialize(format="json"))
        left = n_rows
        for batch in read(needed or ["offset"], limits):
            frame = pl.DataFrame(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            frame = frame.select(columns)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame
            if left == 0:
                return

    return register_io_source(source, schema=empty.schema)
