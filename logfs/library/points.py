"""Points in a log as a program gives them, and the offsets they mean."""

from bisect import bisect_left
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol, TypeAlias

from logfs.errors import InvalidConfigError
from logfs.log.reading import address
from logfs.log.reading.address import (
    Ago,
    AtByte,
    AtOffset,
    Earliest,
    Latest,
    Moment,
    Time,
    parse_point,
    point_alone,
)
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.segments.snapshot import Snapshot
from logfs.types import IsolationLevel

Point: TypeAlias = str | int | datetime | timedelta
"""A point in a log:

    str        the selectors of an address, with or without ``@``: ``"-15m"``,
               ``"2026-11-20T10:00"``, ``"yesterday"``, ``"earliest"``,
               ``"latest"``, ``"now"``, ``"1700000000000"`` (ms since the epoch), ``"offset=-100"``,
               ``"byte=4096"`` (the first record that begins at or after that byte of the text),
               ``"group=billing"`` (what the consumer group has committed, or ``"earliest"``)
    int        an offset; a negative one is relative to the end
    datetime   a moment
    timedelta  a duration back from now

Dates without a time zone are in the zone of the daemon that serves the directory. If no daemon
serves it, they are in that of this process.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def point_of(given: Point, zone: tzinfo) -> address.Point:
    """Return a point as the log understands it.

    Args:
        zone: The time zone of dates without one.

    Raises:
        BadSelectorError: The text does not parse; the message lists the selectors.
        TypeError: The point has another type.
    """
    match given:
        case str():
            return parse_point(given.removeprefix("@"), zone)
        case bool():
            pass
        case int():
            return AtOffset(given)
        case datetime():
            return Moment(milliseconds_of(given, zone))
        case timedelta():
            return Ago(given // _MILLISECOND)
    raise TypeError(f"{given!r}: expected a selector, an offset, a datetime or a timedelta")


def milliseconds_of(moment: datetime, zone: tzinfo) -> int:
    """Return a moment in ms since the epoch, rounded down; ``zone`` is used if it has no zone."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return (moment - _EPOCH) // _MILLISECOND


def offset_of(snapshot: Snapshot, point: address.Point, now_ms: int, level: IsolationLevel) -> int:
    """Return the offset of the first record at or after a point.

    The offset is at least the log start, and at most the end that the level shows.

    Raises:
        CorruptRecordError: A corrupt batch precedes the point.
    """
    start, end = snapshot.start.offset, snapshot.visible_end(level).offset
    match point := point_alone(point):
        case Earliest():
            return start
        case Latest():
            return end
        case AtOffset(n):
            return min(max(n if n >= 0 else end + n, start), end)
        case AtByte(n):
            return _offset_at_byte(snapshot, n, level)
    found = offset_for_time(snapshot, point.at(now_ms), level)
    return end if found is None else found


class BoundedLog(Protocol):
    """The facts of a partition that a bound needs."""

    def earliest(self) -> int:
        """Return the log start offset."""
        ...

    def latest(self) -> int:
        """Return the offset after the last record that is seen."""
        ...

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after a moment; None if none is."""
        ...


def offset_in(log: BoundedLog, point: address.Point, now_ms: int) -> int | None:
    """Return the offset that a point means, perhaps one that is not kept or not reached.

    Returns:
        None if no record is at or after the time.

    Raises:
        InvalidConfigError: The point is a byte.
    """
    match point := point_alone(point):
        case Earliest():
            return log.earliest()
        case Latest():
            return log.latest()
        case AtOffset(n):
            return n if n >= 0 else log.latest() + n
        case AtByte():
            raise InvalidConfigError("byte=N means a place in a file, not in a table")
    return log.offset_for_time(point.at(now_ms))


def reached(
    snapshot: Snapshot, point: address.Point, now_ms: int, level: IsolationLevel
) -> int | None:
    """Return the offset at which to end before a point; None while no record has reached it."""
    end = snapshot.visible_end(level).offset
    match point:
        case AtOffset(n) if n >= 0:
            return n
        case Time():
            return offset_for_time(snapshot, point.at(now_ms), level)
        case AtByte(n) if n > snapshot.visible_end(level).positions.text:
            return None
    return min(offset_of(snapshot, point, now_ms, level), end)


def why_empty(
    start: address.Point, end: address.Point | None, log_end_offset: int, now_ms: int
) -> str | None:
    """Return why a range cannot contain a record that exists now; None if it can.

    A range without records in its time is no mistake, so there is no reason for it.

    Args:
        end: TO; None for a range without an end.
        log_end_offset: That of the partition.
    """
    if end is not None and _is_reversed(start, end, now_ms):
        return "no records: TO is not after FROM (FROM is inclusive, TO exclusive)"
    match start:
        case AtOffset(n) if n > log_end_offset:
            return f"no records: FROM is after the log end offset {log_end_offset}"
        case Time() if start.at(now_ms) > now_ms:
            return "no records: FROM is in the future"
    return None


def _is_reversed(start: address.Point, end: address.Point, now_ms: int) -> bool:
    match start, end:
        case (AtOffset(first), AtOffset(behind)) | (AtByte(first), AtByte(behind)):
            return (first < 0) == (behind < 0) and behind <= first
        case (Time(), Time()):
            return end.at(now_ms) <= start.at(now_ms)
    return isinstance(start, Latest) and isinstance(end, Earliest)


def _offset_at_byte(snapshot: Snapshot, n: int, level: IsolationLevel) -> int:
    """Return the offset of the first record that begins at or after a byte of the text."""
    point = snapshot.visible_end(level)
    byte = n if n >= 0 else point.positions.text + n
    offsets = range(snapshot.start.offset, point.offset)
    index = bisect_left(
        offsets, byte, key=lambda offset: positions_of_offset(snapshot, offset).text
    )
    return offsets.start + index
