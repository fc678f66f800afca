"""Logs whose text is known, and all that a growing file shows of them."""

from collections.abc import Callable
from functools import cache

from logfs.log.reading.address import Earliest, Latest, PartitionAddress, Suffix
from logfs.records.record import Record
from logfs.services.views.resolve import Resolved, resolve
from logfs.types import View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog

VIEWS = list(View)
SUFFIXES = {View.TEXT: Suffix.TEXT, View.TSV: Suffix.TSV, View.JSONL: Suffix.JSONL}
SMALL = {"internal.segment.bytes": "900", "index.interval.bytes": "150"}


def filled(count: int, per_batch: int = 3, **properties: str) -> HoledLog:
    """A log of several segments; every value is one line, so that lines are records."""
    log = HoledLog(SMALL | {name.replace("_", "."): text for name, text in properties.items()})
    for first in range(0, count, per_batch):
        add(log, first, per_batch)
    return log


def add(log: HoledLog, first: int, count: int = 3) -> None:
    numbers = range(first, first + count)
    values = [b"line %d%s" % (n, b"." * (n * 7 % 31)) if n % 6 else b"" for n in numbers]
    log.append([Record(0, START_MS + n, None, v, ()) for n, v in zip(numbers, values, strict=True)])


@cache
def dense() -> HoledLog:
    return filled(30)


@cache
def between_segments() -> HoledLog:
    log = filled(60)
    log.truncate(50)
    add(log, 50)
    log.truncate(52)
    add(log, 52, 6)
    log.advance(31)
    return log


@cache
def inside_segments() -> HoledLog:
    log = filled(60)
    log.compact(lambda offset: offset % 3 == 1 or 20 < offset < 24)
    return log


@cache
def everywhere() -> HoledLog:
    """Deleted, compacted and truncated; nearly nothing is left in the middle."""
    log = filled(90)
    log.truncate(80)
    add(log, 80, 9)
    log.compact(lambda offset: offset % 5 != 0 and not 25 < offset < 60)
    log.advance(7)
    return log


LOGS: tuple[Callable[[], HoledLog], ...] = (dense, between_segments, inside_segments, everywhere)


def everything(log: HoledLog, view: View) -> Resolved:
    return resolve(log.log, PartitionAddress(0, Earliest(), Latest(), SUFFIXES[view]), START_MS)
