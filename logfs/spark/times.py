"""A table of the records of a time, which reads no more than an index says.

A ``where`` on the timestamp reads the whole topic: Spark gives no filters to sources in Python that
could be trusted. ``between`` sets the options that look the time up, and the filter as well.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from logfs.errors import InvalidConfigError
from logfs.library.points import milliseconds_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def between(
    reader: "DataFrameReader",
    path: str,
    start: datetime,
    end: datetime,
    *,
    sorted_times: bool = False,
) -> "DataFrame":
    """Return the table of the records from a moment up to, but not including, another one.

    The result is that of ``load(path).where(...)`` on the column ``timestamp``, which a ``schema``
    of the reader must contain. In each partition nothing is read before the first record at or
    after ``start``. Later records may be older than ``end``, so all of them are read and filtered,
    unless ``sorted_times`` is True.

    Args:
        reader: ``spark.read``, with options but those that say where to begin and end.
        path: As of ``load``, without a selector.
        start, end: Moments with a time zone.
        sorted_times: Timestamps never go back in a partition, as with
            ``message.timestamp.type=LogAppendTime``: nothing is read from the first record at or
            after ``end`` on. Where they do go back, records would be missing.

    Raises:
        InvalidConfigError: A moment has no time zone.
    """
    from pyspark.sql import functions

    for name, moment in (("start", start), ("end", end)):
        if moment.tzinfo is None:
            raise InvalidConfigError(
                f"{name}={moment.isoformat()}: no time zone; expected one, as in "
                f"datetime({moment.year}, {moment.month}, {moment.day}, tzinfo=UTC)"
            )
    reader = (
        reader.format("logfs")
        .option("startingTimestamp", str(milliseconds_of(start, UTC)))
        .option("startingOffsetsByTimestampStrategy", "latest")
    )
    if sorted_times:
        end_ms = -((_EPOCH - end) // _MILLISECOND)  # rounded up
        reader = reader.option("endingTimestamp", str(end_ms))
    time = functions.col("timestamp")
    return reader.load(path).where((time >= functions.lit(start)) & (time < functions.lit(end)))
