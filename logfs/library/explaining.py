"""The meaning of an address now, as ``logfs explain`` prints it: offsets, and times of records."""

from typing import NamedTuple

from logfs.library.addresses import addresses_in, load_named
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import shown_level
from logfs.library.places import Place
from logfs.library.points import offset_of
from logfs.library.zones import zone_of
from logfs.log.reading.address import (
    Earliest,
    PartitionAddress,
    Point,
    Suffix,
    Time,
    TopicRange,
    format_point,
)
from logfs.log.reading.lookup import timestamp_of
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import system_clock
from logfs.services.views.resolve import VIEWS, resolve
from logfs.types import IsolationLevel


class ExplainedPoint(NamedTuple):
    """FROM or TO of an address in one partition.

    Attributes:
        point: The point as an address spells it, a date in UTC.
        time_ms: The time that the point means; None for a point that is no time.
        offset: The offset of the first record at or after the point.
        timestamp: The timestamp of that record; None: the point is the end of the log.
    """

    point: str
    time_ms: int | None
    offset: int
    timestamp: int | None


class Meaning(NamedTuple):
    """The meaning of an address in one partition.

    Attributes:
        stop: The bound TO, exclusive; None for a name without an end.
        grows: Whether later records will be added to the file.
    """

    partition: int
    view: Suffix
    start: ExplainedPoint
    stop: ExplainedPoint | None
    grows: bool


def explain(place: Place) -> list[Meaning]:
    """Look up an address in its partition; a range of a topic in all its partitions.

    Raises:
        BadSelectorError: The selector does not parse.
        LogfsError: The address is no file, or in a partition that does not exist or is offline.
    """
    found, logs = load_named(place, zone_of(place), lambda topic: reading_disk(place, {topic}))
    level, is_range = shown_level(place), isinstance(found, TopicRange)
    return [
        _meaning(log, address, level, is_range=is_range)
        for log, address in zip(logs, addresses_in(place, found, logs), strict=True)
    ]


def _meaning(
    log: ReadableLog, address: PartitionAddress, level: IsolationLevel, *, is_range: bool
) -> Meaning:
    number, now_ms = log.topic_partition.partition, system_clock().now_ms()

    def explained(point: Point) -> ExplainedPoint:
        offset = offset_of(log.snapshot, point, now_ms, level)
        time_ms = point.at(now_ms) if isinstance(point, Time) else None
        return ExplainedPoint(
            format_point(point), time_ms, offset, timestamp_of(log.snapshot, offset)
        )

    stop = None if address.end is None else explained(address.end)
    grows = not is_range and (
        address.view not in VIEWS or resolve(log, address, now_ms, level).grows
    )
    return Meaning(number, address.view, explained(address.start or Earliest()), stop, grows)
