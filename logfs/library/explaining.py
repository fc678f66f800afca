"""The meaning of an address now, as ``logfs explain`` prints it: offsets, and times of records."""

from functools import partial
from typing import NamedTuple

from logfs.errors import LogOfflineError, UnknownNameError
from logfs.library.directory import chosen, open_for_reading, partitions_of
from logfs.library.groups import Groups
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import shown_level
from logfs.library.places import Place
from logfs.library.points import offset_of
from logfs.library.zones import zone_of
from logfs.log.reading.address import (
    SEGMENTS_NAME,
    Earliest,
    PartitionAddress,
    Point,
    Suffix,
    Time,
    TopicRange,
    format_point,
    names_topic_range,
    parse_partition_name,
    parse_topic_range,
)
from logfs.log.reading.lookup import timestamp_of
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import system_clock
from logfs.services.views.resolve import resolve
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
    zone = zone_of(place)
    topic, name, *more = *place.address, "", ""
    found: TopicRange | PartitionAddress
    if names_topic_range(topic):
        found = parse_topic_range(topic, zone)
        topic, more = found.topic, [name, *more]
    elif not name or topic == SEGMENTS_NAME:
        raise UnknownNameError("expected a file of a topic, as TOPIC/0@-15m or TOPIC@-15m")
    else:
        found = parse_partition_name(name, zone)
    if any(more):
        raise UnknownNameError("a partition and a range of a topic are files: nothing lies below")
    disk = reading_disk(place, {topic})
    number = found.partition if isinstance(found, PartitionAddress) else None
    wanted = chosen(partitions_of(disk), topic, number)
    level, store = shown_level(place), open_for_reading(disk, wanted)
    with Groups(place._replace(address=())) as groups:
        return [_meaning(found, store.partition(*one), groups, level) for one in wanted]


def _meaning(
    found: TopicRange | PartitionAddress, log: ReadableLog, groups: Groups, level: IsolationLevel
) -> Meaning:
    if log.is_unreadable:
        raise LogOfflineError(f"{log.topic_partition}: {log.offline}")
    number, now_ms = log.topic_partition.partition, system_clock().now_ms()
    is_range = isinstance(found, TopicRange)
    address = found.in_partition(number) if isinstance(found, TopicRange) else found
    address = address.without_groups(partial(groups.position_in, log))

    def explained(point: Point) -> ExplainedPoint:
        offset = offset_of(log.snapshot, point, now_ms, level)
        time_ms = point.at(now_ms) if isinstance(point, Time) else None
        return ExplainedPoint(
            format_point(point), time_ms, offset, timestamp_of(log.snapshot, offset)
        )

    stop = None if address.end is None else explained(address.end)
    if address.view is Suffix.META:
        grows = True
    else:
        grows = not is_range and resolve(log, address, now_ms, level).grows
    return Meaning(number, address.view, explained(address.start or Earliest()), stop, grows)
