"""The record batches of a range of offsets, straight from its files."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from logfs.arrow.batches import BatchMaker
from logfs.arrow.columns import ArrowColumn, taken
from logfs.disk.vfs import Disk
from logfs.records.columns import Columns
from logfs.services.scanning.ranges import OffsetRange, RangeReader

RecordBatch: TypeAlias = pa.RecordBatch
RecordBatchReader: TypeAlias = pa.RecordBatchReader
Schema: TypeAlias = pa.Schema


def read_range(  # noqa: PLR0913 - two of them are rarely given
    disk: Disk,
    offsets: OffsetRange,
    columns: Sequence[ArrowColumn],
    *,
    hides_aborted: bool,
    on_loss: Callable[[int, int], None],
    text: Collection[str] = (),
    contains: bytes = b"",
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in batches of up to 65536 records or 4 MiB; none is empty.

    Args:
        on_loss: Called with the first of some offsets that are gone and the offset after them. It
            may raise.
        text: The columns of bytes to read as text.
        contains: Only records whose values have these bytes are read; empty: all records.

    Raises:
        CorruptRecordError: After the records before the damage.
        UndecodableTextError: A key or value that is to be text is not UTF-8.
    """
    wanted = taken(columns)
    if text:
        wanted |= Columns.OFFSET  # to name the record that is no text
    reader = RangeReader(
        disk, offsets, wanted, hides_aborted=hides_aborted, on_loss=on_loss, contains=contains
    )
    maker = BatchMaker(columns, offsets.topic_partition, text)
    return map(maker.make, reader.columns())


def reader_of(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return a reader of batches; errors of the iterator are raised by the reader."""
    return pa.RecordBatchReader.from_batches(schema, batches)
