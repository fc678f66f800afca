"""Logs and addresses in them, and the model that resolved addresses are compared with."""

from functools import cache
from types import MappingProxyType

from logfs.log.reading.address import (
    AtByte,
    AtOffset,
    Earliest,
    Latest,
    Moment,
    PartitionAddress,
    Point,
    Suffix,
    Time,
)
from logfs.records.record import Record
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import Resolved, resolve
from logfs.types import View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog
from tests.log.readings import Rule
from tests.log.support import read_all

SUFFIXES = MappingProxyType(
    {View.TEXT: Suffix.TEXT, View.TSV: Suffix.TSV, View.JSONL: Suffix.JSONL}
)
SMALL = {"internal.segment.bytes": "600", "index.interval.bytes": "100"}
NOW_MS = START_MS + 1_000
"""The records are from 0 to 700 ms after START_MS, and in no order."""


def records(first: int, count: int) -> list[Record]:
    """Every 7 records the time runs back; some have no timestamp."""
    return [
        Record(0, -1 if n % 11 == 5 else START_MS + 10 * (n + 13 * (n % 7 - 3)), None, value, ())
        for n in range(first, first + count)
        for value in (b"v%d" % n if n % 5 else b"",)
    ]


def filled(count: int = 60) -> HoledLog:
    log = HoledLog(SMALL)
    for first in range(0, count, 3):
        log.append(records(first, 3))
    return log


@cache
def empty() -> HoledLog:
    return HoledLog(SMALL)


@cache
def dense() -> HoledLog:
    return filled()


@cache
def compacted() -> HoledLog:
    log = filled()
    log.compact(lambda offset: offset % 3 != 1 and not 20 < offset < 40)
    return log


@cache
def emptied_and_truncated() -> HoledLog:
    """Segments without bytes, and others whose batches have no records."""
    log = filled()
    log.compact(lambda offset: offset % 13 == 7, keep_last_batch=True)
    log.truncate(log.log.log_end_offset - 2)
    log.append(records(60, 5))
    log.compact(lambda offset: offset % 13 == 7)
    return log


@cache
def started_late() -> HoledLog:
    """The log starts in the middle of a batch, and that in a gap."""
    log = filled()
    log.compact(lambda offset: offset not in (24, 25, 30, 31))
    log.advance(25)
    return log


@cache
def started_inside_a_batch() -> HoledLog:
    """The first record of the batch 24, 25, 26 is not shown any more, but it is there."""
    log = filled()
    log.advance(25)
    return log


@cache
def ahead_of_time() -> HoledLog:
    """The first segment has a larger timestamp than most after it: maxima are not monotone."""
    log = HoledLog(SMALL)
    for first in range(0, 120, 3):
        late = 700 if first == 6 else 0
        log.append([r._replace(timestamp=r.timestamp + late) for r in records(first, 3)])
    return log


LOGS = (
    empty,
    dense,
    compacted,
    emptied_and_truncated,
    started_late,
    started_inside_a_batch,
    ahead_of_time,
)


def position_of(log: HoledLog, view: View, point: Point, now_ms: int) -> int:
    """Where the first record is that a point means, or the byte; the end if there is none."""
    model, end = log.model, log.model.end[view]
    start = model.position_of(view, model.start)
    start = end if start is None else start
    offset: int | None
    match point:
        case AtByte(n):
            return max(min(n if n >= 0 else end + n, end), min(start, end))
        case Earliest():
            return start
        case Latest():
            return end
        case AtOffset(n):
            offset = n if n >= 0 else model.end_offset + n
        case Time():
            offset = model.offset_for_time(point.at(now_ms))
    position = None if offset is None else model.position_of(view, offset)
    return end if position is None else position


def lies_ahead(log: HoledLog, view: View, point: Point | None, now_ms: int) -> bool:
    match point:
        case None:
            return True
        case Moment(timestamp):
            return timestamp > now_ms
        case AtOffset(n):
            return n > log.model.end_offset
        case AtByte(n):
            return n > log.model.end[view]
    return False


def kept_between(log: HoledLog, view: View, start: int, end: int) -> bytes:
    rule = Rule(log.model, view)
    return rule.text(rule.kept(start, end))


def address(view: View, start: Point | None, end: Point | None = None) -> PartitionAddress:
    return PartitionAddress(0, start, end, SUFFIXES[view])


def content(resolved: Resolved) -> bytes:
    if resolved.grows:
        return read_all(
            GrowingFile(
                resolved.log, resolved.view, resolved.start, resolved.limit, resolved.level
            ),
            333,
        )
    return read_all(FixedFile(resolved), 333)


def check(log: HoledLog, view: View, start: Point, end: Point | None) -> Resolved:
    """Resolve an address and compare what it is and shows with the model."""
    resolved = resolve(log.log, address(view, start, end), NOW_MS, log.level)
    first = position_of(log, view, start, NOW_MS)
    last = log.model.end[view] if end is None else position_of(log, view, end, NOW_MS)
    assert resolved.grows == lies_ahead(log, view, end, NOW_MS)
    assert resolved.start <= first
    assert content(resolved) == kept_between(log, view, first, last)
    assert kept_between(log, view, resolved.start, first) == b""
    return resolved
