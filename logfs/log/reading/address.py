"""Addresses: what a name of a partition or of a topic's range asks for. Pure: no disk, no clock.

    PARTITION[@FROM[..TO]][.VIEW]        0   0@-15m   0@2026-11-20..2026-11-21   0@offset=1500.jsonl
    TOPIC@FROM[..TO][.VIEW]              orders@-1h   orders@2026-11-20..2026-11-21.jsonl

The grammar is here and nowhere else; ``SELECTOR_TABLE`` and ``VIEW_TABLE`` are its rows for
people, printed by the README and by ``--help``. Parsing is strict, one spelling for one thing, so
that a typo is refused and never means something else. What a point *is* in a log (which offset,
which byte) is not decided here: that needs the log.

Where a local time does not exist or exists twice (the clock was changed), the answer is that of
``datetime`` with ``fold=0``: the offset from UTC that was in force before the change.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import TypeAlias

from logfs.errors import BadSelectorError, IllegalTopicNameError, UnknownNameError
from logfs.log.names import MAX_PARTITION

MAX_TOPIC_NAME_LENGTH = 249
SEGMENTS_NAME = ".segments"
"""The directory of raw files in the root of a mount; no topic can have its name."""

_MAX_INT64 = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST_MOMENT_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST_DATE_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND

SELECTOR_TABLE: tuple[tuple[str, str], ...] = (
    (
        "@2026-11-20",
        "from midnight that day, in the time zone of the daemon, or else of the caller",
    ),
    ("@2026-11-20T10:00", "from that minute; seconds may follow: T10:00:00 or T10:00:00.500"),
    ("@2026-11-20T10:00Z", "the same in UTC; +01:00 and -05:00 name other offsets"),
    ("@1700000000000", "from that many milliseconds after the epoch (all digits, but never eight)"),
    ("@-15m", "from a quarter of an hour ago; the units are ms s m h d w, as in -1h30m"),
    ("@now", "from the time of look-up"),
    ("@today", "from midnight of the day of look-up, like a date; also yesterday and tomorrow"),
    ("@earliest", "from the first retained record"),
    ("@latest", "from the end at the time of look-up"),
    ("@offset=1500", "from that offset"),
    ("@offset=-100", "from a hundred offsets before the end"),
    ("@byte=1048576", "from that byte of the view"),
    ("@byte=-4096", "from that many bytes before the end of the view"),
    ("@group=billing", "from the position that the consumer group has committed, or @earliest"),
    ("@2026-11-20..2026-11-21", "one day: FROM is inclusive, TO exclusive; any two of the above"),
    ("@earliest..latest", "the records retained now, as a file that starts at 0 and does not grow"),
)
"""Rows (example, meaning) of what may follow a partition number."""

VIEW_TABLE: tuple[tuple[str, str], ...] = (
    ("", "each value and a newline, nothing escaped"),
    (".tsv", r"key TAB value; \t \n \r \\ escaped, null is \N"),
    (".jsonl", "one JSON object a line: offset, timestamp, key, value, headers"),
    (".meta", "JSON: offsets, times, segments, sizes, durability, losses"),
    (".follow", "as without a view, but a read at the end waits for the next record"),
    (".in", "takes appends only; each open file has its own inode, for many writers"),
    (".tsv.in", "the same for lines as in .tsv"),
    (".jsonl.in", "the same for lines as in .jsonl"),
)
"""Rows (suffix, meaning) of what may end a name; selectors and views combine."""

_POINTS = (
    "a point is a date (2026-11-20, 2026-11-20T10:00:00.500, 2026-11-20T10:00Z), epoch milliseconds"
    " (1700000000000), a duration back from now (-90s, -15m, -1h, -7d), now, today, yesterday,"
    " tomorrow, earliest, latest, offset=N, byte=N or group=NAME"
)


class Suffix(StrEnum):
    """The view a name asks for, spelled as the name ends."""

    TEXT = ""
    TSV = ".tsv"
    JSONL = ".jsonl"
    META = ".meta"
    FOLLOW = ".follow"
    IN = ".in"
    TSV_IN = ".tsv.in"
    JSONL_IN = ".jsonl.in"

    @property
    def is_in(self) -> bool:
        """Whether such a name only takes appends: it has no records that could be selected."""
        return self in (Suffix.IN, Suffix.TSV_IN, Suffix.JSONL_IN)


class Time(ABC):
    """A point that is a time."""

    __slots__ = ()

    @abstractmethod
    def at(self, now_ms: int) -> int:
        """Return the time in ms since the epoch, for a look-up at ``now_ms``."""


@dataclass(frozen=True, slots=True)
class Moment(Time):
    """A fixed time, in ms since the epoch: from year 1 (negative before 1970) to ``2**63 - 1``."""

    timestamp_ms: int

    def at(self, now_ms: int) -> int:
        """Return the fixed time."""
        return self.timestamp_ms


@dataclass(frozen=True, slots=True)
class Ago(Time):
    """A duration back from the time of look-up, in ``[0, 2**63 - 1]`` ms."""

    duration_ms: int

    def at(self, now_ms: int) -> int:
        """Return the time before that of the look-up."""
        return now_ms - self.duration_ms


@dataclass(frozen=True, slots=True)
class Now(Time):
    """The time of look-up."""

    def at(self, now_ms: int) -> int:
        """Return the time of the look-up."""
        return now_ms


@dataclass(frozen=True, slots=True)
class Midnight(Time):
    """The first moment of a day.

    Attributes:
        days: How many days the day is after that of the look-up; -1 is yesterday.
        time_zone: The zone in which the day begins and the day of the look-up is determined.
    """

    days: int
    time_zone: tzinfo

    def at(self, now_ms: int) -> int:
        """Return the midnight with which the day begins."""
        day = self.day(now_ms)
        midnight = datetime(day.year, day.month, day.day, tzinfo=self.time_zone)
        return (midnight - _EPOCH) // _MILLISECOND

    def day(self, now_ms: int) -> date:
        """Return the date of the day, for a look-up at ``now_ms``."""
        utc = datetime(1970, 1, 1) + now_ms * _MILLISECOND
        local = utc
        for _ in range(2):  # the offset is known for local times only
            local = utc + (self.time_zone.utcoffset(local) or timedelta())
        return local.date() + timedelta(days=self.days)


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that is kept."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of the log as it is at look-up."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset; a negative one is relative to the log end offset. ``abs(n) <= 2**63 - 1``."""

    n: int


@dataclass(frozen=True, slots=True)
class AtByte:
    """A position in the view; a negative one is relative to the end. ``abs(n) <= 2**63 - 1``."""

    n: int


@dataclass(frozen=True, slots=True)
class AtGroup:
    """The position that a consumer group has committed; the earliest record if it has none."""

    group: str


LogPoint: TypeAlias = Time | Earliest | Latest | AtOffset | AtByte
"""A point that the log itself can look up."""
Point: TypeAlias = LogPoint | AtGroup
"""A point of an address; ``point_in_log`` makes one of the log from it."""
Committed: TypeAlias = Callable[[str], int | None]
"""Returns the offset that a group has committed for the partition in question; None: none."""


@dataclass(frozen=True, slots=True)
class PartitionAddress:
    """What a name below a topic's directory asks for.

    Attributes:
        partition: In ``[0, 2**31 - 1]``.
        start: FROM, inclusive; None without a selector.
        end: TO, exclusive; None if the name has no end. Only together with ``start``.
        view: The suffix of the name.
    """

    partition: int
    start: Point | None = None
    end: Point | None = None
    view: Suffix = Suffix.TEXT

    @property
    def has_selector(self) -> bool:
        """Whether the name holds an ``@``."""
        return self.start is not None

    @property
    def uses_clock(self) -> bool:
        """Whether FROM or TO depends on the time of the look-up."""
        points = (self.start, self.end)
        return any(isinstance(point, Time) and not isinstance(point, Moment) for point in points)

    @property
    def uses_groups(self) -> bool:
        """Whether FROM or TO depends on what a consumer group has committed at the look-up."""
        return isinstance(self.start, AtGroup) or isinstance(self.end, AtGroup)

    def without_groups(self, committed: Committed) -> "PartitionAddress":
        """Return the address with offsets instead of groups."""
        if not self.uses_groups:
            return self
        start = None if self.start is None else point_in_log(self.start, committed)
        end = None if self.end is None else point_in_log(self.end, committed)
        return PartitionAddress(self.partition, start, end, self.view)


@dataclass(frozen=True, slots=True)
class TopicRange:
    """What a name beside a topic's directory asks for: a range of all its partitions, merged.

    Attributes:
        topic: The name of the topic, which may not exist.
        start: FROM in each partition, inclusive.
        end: TO in each partition, exclusive; None: the end at the time of look-up.
        view: Not ``META`` or ``FOLLOW``.
    """

    topic: str
    start: Point
    end: Point | None
    view: Suffix

    def in_partition(self, number: int) -> PartitionAddress:
        """Return the same range of one partition."""
        return PartitionAddress(number, self.start, self.end, self.view)


def point_in_log(point: Point, committed: Committed) -> LogPoint:
    """Return a point as the log can look it up: an offset instead of a group."""
    if not isinstance(point, AtGroup):
        return point
    offset = committed(point.group)
    return Earliest() if offset is None else AtOffset(offset)


def point_alone(point: Point) -> LogPoint:
    """Return the point; raise BadSelectorError if it is the position of a group."""
    if isinstance(point, AtGroup):
        raise _refusal(
            format_point(point),
            "the position of a group is no point here; it is one in the address of a partition, in "
            "--since and --until, and in reads of the library",
        )
    return point


def parse_partition_name(name: str, time_zone: tzinfo) -> PartitionAddress:
    """Parse a name below a topic's directory.

    Args:
        time_zone: Zone of dates and times that name none.

    Raises:
        BadSelectorError: The name begins with a partition number and ``@``, but does not parse.
        UnknownNameError: Any other name outside the grammar.
    """
    number = re.match(r"0|[1-9][0-9]{0,9}", name)
    if number is None or int(number[0]) > MAX_PARTITION:
        raise _unknown(name)
    selector, view = _split_view(name[number.end() :])
    if not selector:
        return PartitionAddress(int(number[0]), view=view)
    if not selector.startswith("@"):
        raise _unknown(name)
    start, end = _parse_selector(selector[1:], time_zone)
    if view is Suffix.META or view.is_in:
        raise UnknownNameError(f"{name!r}: {view} goes without a selector")
    return PartitionAddress(int(number[0]), start, end, view)


def names_topic_range(name: str) -> bool:
    """Return whether a name beside the topics means a range of one; no topic has an ``@``."""
    return "@" in name


def parse_topic_range(name: str, time_zone: tzinfo) -> TopicRange:
    """Parse a name beside a topic's directory, ``TOPIC@FROM[..TO][.VIEW]``.

    Args:
        time_zone: Zone of dates and times that name none.

    Raises:
        BadSelectorError: The part after the topic does not parse, or has a point ``byte=N``.
        IllegalTopicNameError: No topic can have the name before the ``@``.
        UnknownNameError: The view does not go with it.
    """
    topic, _, rest = name.partition("@")
    parse_topic_name(topic)
    selector, view = _split_view(rest)
    if view in (Suffix.META, Suffix.FOLLOW) or view.is_in:
        raise UnknownNameError(
            f"{name!r}: {view} is a view of one partition; expected TOPIC@FROM[..TO], "
            "TOPIC@FROM[..TO].tsv or TOPIC@FROM[..TO].jsonl"
        )
    start, end = _parse_selector(selector, time_zone)
    if isinstance(start, AtByte) or isinstance(end, AtByte):
        raise _refusal(
            "@" + selector, "a byte is a point of one partition; name a time or an offset"
        )
    return TopicRange(topic, start, end, view)


def parse_point(text: str, time_zone: tzinfo) -> Point:
    """Parse one FROM or TO.

    Args:
        text: Any string; ``SELECTOR_TABLE`` shows what is valid, there after an ``@``.
        time_zone: Zone of dates and times that name none.

    Raises:
        BadSelectorError: The text is no point; the message says what is expected.
    """
    word = _words(time_zone).get(text)
    if word is not None:
        return word
    for pattern, parse in _FORMS:
        match = re.fullmatch(pattern, text)
        if match is not None:
            return parse(match, time_zone)
    raise _refusal(text, f"not a point in a log; {_meant_by(text)}{_POINTS}")


def _words(time_zone: tzinfo) -> dict[str, Point]:
    """Return the points that are words."""
    return {
        "now": Now(),
        "yesterday": Midnight(-1, time_zone),
        "today": Midnight(0, time_zone),
        "tomorrow": Midnight(1, time_zone),
        "earliest": Earliest(),
        "latest": Latest(),
    }


def _meant_by(text: str) -> str:
    """Return what to write instead, as far as a text can be guessed; "" if it cannot."""
    ago = re.fullmatch(_AGO, text.strip().lower())
    if ago is not None:
        return f"did you mean -{ago[1]}{ago[2]}? "
    word = text.strip().lower()
    return f"did you mean {word}? " if word in _words(UTC) else ""


def parse_topic_name(name: str) -> str:
    """Check the name of a topic and return it.

    Raises:
        IllegalTopicNameError: It is not 1 to 249 of the characters ``a-z A-Z 0-9 . _ -``, or is
            ``.``, ``..`` or ``.segments``.

    Source: Kafka Topic.validate.
    """
    legal = re.fullmatch(rf"[a-zA-Z0-9._-]{{1,{MAX_TOPIC_NAME_LENGTH}}}", name)
    if legal is None:
        raise IllegalTopicNameError(
            f"illegal topic name {name!r}: expected 1 to {MAX_TOPIC_NAME_LENGTH} of the characters "
            "a-z A-Z 0-9 . _ -"
        )
    if name in {".", "..", SEGMENTS_NAME}:
        raise IllegalTopicNameError(f"illegal topic name {name!r}: the name has another meaning")
    return name


def format_address(address: PartitionAddress) -> str:
    """Write an address as a name that parses to an equal one in every time zone.

    The name of a day means a day in the zone of the reader.
    """
    text = str(address.partition)
    if address.start is not None:
        text += "@" + format_point(address.start)
        if address.end is not None:
            text += ".." + format_point(address.end)
    return text + address.view


def format_point(point: Point) -> str:
    """Write a point so that it parses to an equal one; a moment as a date in UTC.

    The name of a day parses to an equal one in its zone.
    """
    match point:
        case Moment(timestamp_ms):
            return _format_moment(timestamp_ms)
        case Ago(duration_ms):
            unit = next(u for u in reversed(_UNITS_MS) if duration_ms % _UNITS_MS[u] == 0)
            return f"-{duration_ms // _UNITS_MS[unit]}{unit}"
        case AtOffset(n):
            return f"offset={n}"
        case AtByte(n):
            return f"byte={n}"
        case AtGroup(group):
            return f"group={group}"
        case _:
            zone = point.time_zone if isinstance(point, Midnight) else UTC
            return next(text for text, word in _words(zone).items() if word == point)


def _format_moment(timestamp_ms: int) -> str:
    if timestamp_ms > _LAST_DATE_MS:
        return str(timestamp_ms)
    # A date even where digits would do: people read names, and eight digits do not parse.
    moment = datetime(1970, 1, 1) + timestamp_ms * _MILLISECOND
    return moment.isoformat(timespec="milliseconds" if timestamp_ms % 1000 else "seconds") + "Z"


def _split_view(text: str) -> tuple[str, Suffix]:
    """Return what is before the view at the end of a name, and the view."""
    view = max((suffix for suffix in Suffix if text.endswith(suffix)), key=len)
    return text.removesuffix(view), view


def _refusal(text: str, reason: str) -> BadSelectorError:
    return BadSelectorError(f"{text!r}: {reason}", text)


def _unknown(name: str) -> UnknownNameError:
    return UnknownNameError(
        f"{name!r}: no such name; expected PARTITION[@FROM[..TO]][.VIEW], as in 0, 0@-15m.jsonl; "
        f"a partition has no leading zeros and is at most {MAX_PARTITION}, a view is one of "
        + " ".join(suffix for suffix in Suffix if suffix)
    )


def _parse_selector(selector: str, time_zone: tzinfo) -> tuple[Point, Point | None]:
    start, dots, end = selector.partition("..")
    if not start:
        raise _refusal(
            "@" + selector, f"FROM is missing; write earliest for the beginning; {_POINTS}"
        )
    if dots and not end:
        raise _refusal(
            "@" + selector, "TO is missing; leave out the dots for a name without an end"
        )
    return parse_point(start, time_zone), parse_point(end, time_zone) if dots else None


def _parse_number(digits: str, match: re.Match[str]) -> int:
    """Return digits as a number, or refuse the text of the match."""
    # The length is checked first: int() refuses thousands of digits with its own error.
    if len(digits) > 1 and digits.startswith("0"):
        raise _refusal(match.string, "a number has no leading zeros")
    if len(digits) > len(str(_MAX_INT64)) or int(digits) > _MAX_INT64:
        raise _refusal(match.string, f"a number is at most {_MAX_INT64}")
    return int(digits)


def _parse_epoch_ms(match: re.Match[str], _time_zone: tzinfo) -> Point:
    digits = match[0]
    if len(digits) == 8:
        raise _refusal(
            digits,
            "eight digits could be a date or epoch milliseconds; "
            f"write {digits[:4]}-{digits[4:6]}-{digits[6:]} or {_format_moment(int(digits))}",
        )
    return Moment(_parse_number(digits, match))


def _parse_duration(match: re.Match[str], _time_zone: tzinfo) -> Point:
    count, unit, more = match.groups()
    parts = [(count, unit), *re.findall(r"([0-9]+)([A-Za-z]+)", more)]
    units = [unit for _, unit in parts]
    if not set(units) <= _UNITS_MS.keys():
        raise _refusal(match.string, f"a duration ends in one of the units {' '.join(_UNITS_MS)}")
    if units != sorted(set(units), key=lambda name: -_UNITS_MS[name]):
        raise _refusal(match.string, "the units of a duration go from large to small, as in -1h30m")
    duration_ms = sum(_parse_number(count, match) * _UNITS_MS[unit] for count, unit in parts)
    if duration_ms > _MAX_INT64:
        raise _refusal(match.string, f"a duration is at most {_MAX_INT64} ms")
    return Ago(duration_ms)


def _parse_count(match: re.Match[str], _time_zone: tzinfo) -> Point:
    name, minus, digits = match.groups()
    number = _parse_number(digits, match)
    if minus and number == 0:
        # 0 is the beginning, so "0 before the end" must not be read as 0.
        raise _refusal(match.string, "-0 is neither the beginning nor the end; write 0 or latest")
    signed = -number if minus else number
    return AtOffset(signed) if name == "offset" else AtByte(signed)


def _parse_date(match: re.Match[str], time_zone: tzinfo) -> Point:
    year, month, day, hour, minute, second, fraction, zone = match.groups(default="")
    try:
        local = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int(fraction.ljust(6, "0")),
            tzinfo=_parse_zone(zone) if zone else time_zone,
        )
    except ValueError as error:
        raise _refusal(match.string, f"not a date: {error}") from error
    timestamp_ms = (local - _EPOCH) // _MILLISECOND
    if timestamp_ms < _FIRST_MOMENT_MS:
        raise _refusal(match.string, "not a date: before year 1 in UTC")
    return Moment(timestamp_ms)


def _parse_zone(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError("the offset from UTC must be less than 24:00")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text.startswith("-") else offset)


_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_AGO = r"-?([0-9]+) *([smhdw])(?:ec|in|our|ay|eek|econd|inute)?s?(?:[ -]*ago)?"
# [0-9] and not \d, which also takes the digits of other scripts.
_FORMS: tuple[tuple[str, Callable[[re.Match[str], tzinfo], Point]], ...] = (
    (r"[0-9]+", _parse_epoch_ms),
    (r"-([0-9]+)([A-Za-z]*)((?:[0-9]+[A-Za-z]+)*)", _parse_duration),
    (r"(offset|byte)=(-?)([0-9]+)", _parse_count),
    (r"group=([^/\0]+)", lambda match, _time_zone: AtGroup(match[1])),
    (
        (
            r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
            r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,3}))?)?"
            r"(Z|[+-][0-9]{2}:[0-9]{2})?)?"
        ),
        _parse_date,
    ),
)
