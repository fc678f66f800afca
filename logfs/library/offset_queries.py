"""The answers of ``logfs offsets``, from the files of a directory, with a daemon or without."""

from collections.abc import Callable
from datetime import tzinfo
from typing import NamedTuple, TypeAlias

from logfs.disk.vfs import Disk
from logfs.errors import (
    BadSelectorError,
    CorruptRecordError,
    LogfsError,
    LogOfflineError,
    UnknownNameError,
)
from logfs.library.directory import (
    all_partitions,
    chosen,
    open_for_reading,
    partitions_of,
    split_address,
)
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import shown_level
from logfs.library.places import Place
from logfs.library.zones import zone_of
from logfs.log.reading.address import (
    Earliest,
    Latest,
    Time,
    parse_point,
)
from logfs.log.reading.lookup import newest_record, offset_for_time, timestamp_of
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import system_clock
from logfs.services.views import kafkaoffsets
from logfs.types import IsolationLevel, TopicPartition

MAX_TIMESTAMP = "max-timestamp"
_EVERYTHING = ("earliest", "latest", MAX_TIMESTAMP)


class Found(NamedTuple):
    """An offset, and the timestamp of the record there; None where no record is meant."""

    offset: int
    timestamp: int | None


class Answer(NamedTuple):
    """A question about a partition, and the answer; None if there is none."""

    topic: str
    partition: int
    time: str
    found: Found | None


_Question: TypeAlias = Callable[[ReadableLog, IsolationLevel], Found | None]


def ask(
    place: Place, times: tuple[str, ...], level: IsolationLevel | None, *, as_kafka: bool
) -> tuple[list[Answer], list[LogfsError]]:
    """Look moments up in a partition, in all partitions of a topic, or in all there are.

    Args:
        times: As they were given; none for the ends and the largest timestamp.
        level: The level to show; None: that of the mount if a daemon serves it, else everything.
        as_kafka: Answer as a broker does.

    Returns:
        The answers, and why partitions that could not be loaded or read have none.

    Raises:
        LogfsError: There is no such partition, or a time does not parse.
    """
    now_ms = system_clock().now_ms()
    asked = times or _EVERYTHING
    questions = [_question(time, now_ms, zone_of(place), as_kafka=as_kafka) for time in asked]
    shown = shown_level(place)
    disk = reading_disk(place, place.address[:1] or None)
    answers: list[Answer] = []
    failures: list[LogfsError] = []
    partitions = _partitions(disk, place.address)
    store = open_for_reading(disk, partitions)
    for topic_partition in partitions:
        log = store.partition(*topic_partition)
        if log.is_unreadable:
            failures.append(LogOfflineError(f"{topic_partition}: {log.offline}"))
            continue
        try:
            answers += [
                Answer(*topic_partition, time, question(log, level or shown))
                for time, question in zip(asked, questions, strict=True)
            ]
        except CorruptRecordError as error:
            failures.append(error)
    return answers, failures


def _partitions(disk: Disk, address: tuple[str, ...]) -> list[TopicPartition]:
    topic, parsed = split_address(address)
    if not topic:
        return all_partitions(disk)
    if parsed is not None and (parsed.has_selector or parsed.view):
        raise UnknownNameError(
            f"{address[1]!r}: expected the number of a partition alone; moments go into --time"
        )
    number = None if parsed is None else parsed.partition
    return chosen(partitions_of(disk), topic, number)


def _question(time: str, now_ms: int, zone: tzinfo, *, as_kafka: bool) -> _Question:
    if time.removeprefix("@") == MAX_TIMESTAMP:
        return _newest_as_kafka if as_kafka else _newest
    match point := parse_point(time.removeprefix("@"), zone):
        case Earliest():
            return lambda log, _level: Found(log.log_start_offset, None)
        case Latest():
            return _latest_as_kafka if as_kafka else _latest
        case Time():
            timestamp = point.at(now_ms)
        case _:
            raise BadSelectorError(
                f"{time!r}: expected a time, earliest, latest or {MAX_TIMESTAMP}; "
                "an offset is one already"
            )
    search = _at_as_kafka if as_kafka else _at
    return lambda log, level: search(log, timestamp, level)


def _latest(log: ReadableLog, level: IsolationLevel) -> Found:
    return Found(log.snapshot.visible_end(level).offset, None)


def _latest_as_kafka(log: ReadableLog, level: IsolationLevel) -> Found:
    return Found(kafkaoffsets.latest_offset(log, level), None)


def _newest(log: ReadableLog, level: IsolationLevel) -> Found | None:
    found = newest_record(log.snapshot, level)
    return found and Found(found.offset, found.timestamp)


def _newest_as_kafka(log: ReadableLog, level: IsolationLevel) -> Found | None:
    found = kafkaoffsets.offset_of_max_timestamp(log, level)
    return found and Found(found.offset, found.timestamp)


def _at(log: ReadableLog, timestamp: int, level: IsolationLevel) -> Found | None:
    offset = offset_for_time(log.snapshot, timestamp, level)
    return None if offset is None else Found(offset, timestamp_of(log.snapshot, offset))


def _at_as_kafka(log: ReadableLog, timestamp: int, level: IsolationLevel) -> Found | None:
    found = kafkaoffsets.offset_by_timestamp(log, timestamp, level)
    return found and Found(found.offset, found.timestamp)
