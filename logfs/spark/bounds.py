"""Where reading begins and ends: the options that say so, and what they mean in a partition. Pure.

A bound is a point of the addresses (``logfs.log.reading.address``), for all partitions or for each.

    from, to                                one point for all: 2026-11-20, -1h, offset=-100, latest
    startingTimestamp, endingTimestamp      milliseconds since the epoch, for all
    ...OffsetsByTimestamp                   {"orders": {"0": 1700000000000}}
    ...Offsets                              earliest, latest, {"orders": {"0": 23, "1": -2}}

``from`` and ``to`` mean what they mean in an address: what has not been reached is the end, what is
not kept any more is the first record that is. The others mean what they mean to Spark's Kafka
source, the upper ones before the lower ones. In JSON -2 is the earliest, -1 the latest offset.

Source: Spark KafkaSourceProvider, KafkaOffsetReaderAdmin.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from logfs.errors import BadSelectorError, DataLossError, InvalidConfigError
from logfs.library.points import BoundedLog, offset_in
from logfs.log.reading.address import (
    AtByte,
    AtOffset,
    Earliest,
    Latest,
    Moment,
    Point,
    parse_point,
    point_alone,
)
from logfs.records.jsontext import decode_json
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_EARLIEST, _LATEST = -2, -1
_FIRST_SECONDS, _FIRST_MS = 10**9, 4 * 10**9
"""Seconds since the epoch of the years 2001 to 2096; as milliseconds they are in 1970."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin, or to end.

    Attributes:
        everywhere: The point in every partition; None if each has its own.
        each: The point in each partition.
        is_selector: The point means the same as in an address.
        misses_are_latest: A time that nothing has reached is the end, not an error.
    """

    option: str
    everywhere: Point | None = None
    each: Mapping[TopicPartition, Point] | None = None
    is_selector: bool = False
    misses_are_latest: bool = False

    def check(self, partitions: Collection[TopicPartition]) -> None:
        """Check that it says something of just these partitions; raise InvalidConfigError."""
        if self.each is not None and self.each.keys() != set(partitions):
            word = "-1: latest" if self.option.startswith("ending") else "-2: earliest"
            raise InvalidConfigError(
                f"{self.option} must name all partitions that are read and no others ({word}): "
                f"it names {_listed(self.each)}, read are {_listed(partitions)}"
            )

    def point(self, topic_partition: TopicPartition) -> Point:
        """Return the point in a partition."""
        if self.everywhere is not None:
            return self.everywhere
        return (self.each or {})[topic_partition]


EVERYTHING = (Bound("startingOffsets", Earliest()), Bound("endingOffsets", Latest()))
"""The bounds of a batch query."""


def parse_starting(
    options: Mapping[str, str], zone: tzinfo, default: Point, *, is_stream: bool
) -> Bound:
    """Return where to begin.

    Args:
        zone: The zone of dates that name none.
        default: Without any of them.
        is_stream: Latest is a place to begin.

    Raises:
        InvalidConfigError, BadSelectorError: One of them does not parse, or makes no sense.
    """
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in {"error", "latest"}:
        raise InvalidConfigError(
            f"startingOffsetsByTimestampStrategy {strategy!r}: expected error or latest"
        )
    bound = _parse(options, ("from", "starting"), zone, misses_are_latest=strategy == "latest")
    bound = bound or Bound("startingOffsets", default)
    points = [bound.everywhere] if bound.each is None else list(bound.each.values())
    if not is_stream and not bound.is_selector and Latest() in points:
        raise InvalidConfigError(f"{bound.option} is latest, after which a batch reads nothing")
    return bound


def parse_ending(options: Mapping[str, str], zone: tzinfo) -> Bound:
    """Return where a batch ends; see ``parse_starting``."""
    bound = _parse(options, ("to", "ending"), zone, misses_are_latest=True)
    bound = bound or Bound("endingOffsets", Latest())
    points = [bound.everywhere] if bound.each is None else list(bound.each.values())
    if not bound.is_selector and Earliest() in points:
        raise InvalidConfigError(f"{bound.option} is earliest, before which there is nothing")
    return bound


def check_order(start: Bound, end: Bound) -> None:
    """Check that two bounds by partition have the same ones, in order; raise InvalidConfigError."""
    if start.each is None or end.each is None:
        return
    if start.each.keys() != end.each.keys():
        raise InvalidConfigError(
            f"{start.option} and {end.option} name different partitions: {_listed(start.each)}; "
            f"{_listed(end.each)}"
        )
    for topic_partition, first in start.each.items():
        last = end.each[topic_partition]
        if isinstance(first, AtOffset) and isinstance(last, AtOffset) and first.n > last.n:
            raise InvalidConfigError(
                f"{topic_partition}: {start.option} {first.n} is after {end.option} {last.n}"
            )


def start_of(bound: Bound, topic_partition: TopicPartition, log: BoundedLog, now_ms: int) -> int:
    """Return the offset at which reading begins, perhaps one that is gone already.

    Raises:
        DataLossError: It lies after the end; if that is no reason to stop, begin at the end.
        InvalidConfigError: Nothing has reached the time, and that is an error.
    """
    point = bound.point(topic_partition)
    if isinstance(point, AtOffset) and point.n >= 0 and not bound.is_selector:
        if point.n > log.latest():
            raise DataLossError(
                f"{topic_partition}: {bound.option} {point.n} lies after the end of the log, "
                f"{log.latest()}"
            )
        return point.n
    offset = offset_in(log, point, now_ms)
    if offset is None and not (bound.is_selector or bound.misses_are_latest):
        raise InvalidConfigError(
            f"{topic_partition}: no record is at or after the time of {bound.option}; "
            "startingOffsetsByTimestampStrategy=latest would begin at the end"
        )
    return log.latest() if offset is None else min(max(offset, log.earliest()), log.latest())


def end_of(bound: Bound, topic_partition: TopicPartition, log: BoundedLog, now_ms: int) -> int:
    """Return the offset at which reading ends, exclusive, perhaps one beyond the end of the log."""
    point = bound.point(topic_partition)
    if isinstance(point, AtOffset) and point.n >= 0 and not bound.is_selector:
        return point.n
    offset = offset_in(log, point, now_ms)
    return log.latest() if offset is None else min(offset, log.latest())


def _parse(
    options: Mapping[str, str], names: tuple[str, str], zone: tzinfo, *, misses_are_latest: bool
) -> Bound | None:
    selector, kind = names
    by_kafka = f"{kind}Timestamp", f"{kind}OffsetsByTimestamp", f"{kind}Offsets"
    given = [name for name in by_kafka if name in options]
    if selector in options:
        if given:
            raise InvalidConfigError(
                f"{selector} and {given[0]} both say where to {_VERBS[selector]}: give one"
            )
        return Bound(selector, parse_selector(selector, options[selector], zone), None, True)
    if not given:
        return None
    name, text = given[0], options[given[0]].strip()
    if name == f"{kind}Timestamp":
        _warn_of_seconds(name, _parse_ms(name, text))
        return Bound(name, Moment(_parse_ms(name, text)), None, False, misses_are_latest)
    if name == f"{kind}OffsetsByTimestamp":
        times = {one: Moment(n) for one, n in _parse_each(name, text, 0).items()}
        _warn_of_seconds(name, min((time.timestamp_ms for time in times.values()), default=0))
        return Bound(name, None, times, False, misses_are_latest)
    if text.lower() in _WORDS:
        return Bound(name, _WORDS[text.lower()])
    return Bound(name, None, {o: _kafka_point(n) for o, n in _parse_each(name, text, -2).items()})


def _warn_of_seconds(option: str, timestamp_ms: int) -> None:
    """Warn of a timestamp that is probably one in seconds, the unit of Unix."""
    if _FIRST_SECONDS <= timestamp_ms < _FIRST_MS:
        logger.warning(
            "%s %d is a time in January or February 1970: expected milliseconds since the epoch; "
            "in seconds it would be %s",
            option,
            timestamp_ms,
            datetime.fromtimestamp(timestamp_ms, UTC).isoformat(),
        )


_WORDS: dict[str, Point] = {"earliest": Earliest(), "latest": Latest()}
_VERBS = {"from": "begin", "to": "end"}


def parse_selector(option: str, text: str, zone: tzinfo) -> Point:
    """Return the point of an option or an address; raise BadSelectorError, also for bytes."""
    try:
        point = parse_point(text.strip(), zone)
    except BadSelectorError as error:
        raise BadSelectorError(f"{option} {error}") from None
    if isinstance(point, AtByte):
        raise BadSelectorError(f"{option} {text!r}: a byte is no place in a table; use offset=N")
    return point_alone(point)


def _kafka_point(number: int) -> Point:
    if number == _EARLIEST:
        return Earliest()
    return Latest() if number == _LATEST else AtOffset(number)


def _parse_ms(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise InvalidConfigError(f"{name} {text!r}: expected milliseconds since the epoch")
    return int(text)


def _parse_each(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    kind = "earliest, latest or " if name.endswith("Offsets") else ""
    wrong = InvalidConfigError(
        f'{name} {text!r}: expected {kind}JSON such as {{"orders": {{"0": 23, "1": 345}}}}'
    )

    def build(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic, int(number)): value
            for topic, row in found.items()
            for number, value in row.items()
        }

    try:
        each = decode_json(text, build)
    except ValueError:
        raise wrong from None
    if not each or not all(type(value) is int and value >= least for value in each.values()):
        raise wrong
    return each


def _listed(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"
