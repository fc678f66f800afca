"""The lag of a position: what the group has not read yet."""

from typing import NamedTuple

from logfs.log.reading.lookup import timestamp_of
from logfs.log.reading.readable import ReadableLog
from logfs.types import IsolationLevel


class Lag(NamedTuple):
    """The lag of a position.

    Attributes:
        end_offset: The end offset of the partition, as the isolation level shows it.
        records: Offsets from the position to the end; those that were deleted are not counted.
        seconds: The age of the next record; 0 if there is none. None: that record has no timestamp,
            or was compacted away.
    """

    end_offset: int
    records: int
    seconds: float | None


class Next(NamedTuple):
    """The next record of a position, which takes a look in the log.

    Attributes:
        offset: Its offset.
        timestamp: The timestamp of the record; None: unknown.
    """

    offset: int
    timestamp: int | None


def lag_of(
    log: ReadableLog,
    offset: int,
    level: IsolationLevel,
    now_ms: int,
    known: Next | None = None,
) -> tuple[Lag, Next]:
    """Return the lag of an offset in a log, and the next record, to be ``known`` the next time.

    Raises:
        CorruptRecordError: The record there is damaged.
    """
    snapshot = log.snapshot
    end = snapshot.visible_end(level).offset
    first = max(offset, snapshot.start.offset)
    if first >= end:
        return Lag(end, 0, 0.0), Next(first, None)
    if known is None or known.offset != first or known.timestamp is None:
        known = Next(first, timestamp_of(snapshot, first))
    timestamp = known.timestamp
    seconds = None if timestamp is None or timestamp < 0 else max(0, now_ms - timestamp) / 1000
    return Lag(end, end - first, seconds), known
