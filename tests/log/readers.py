"""The logs that readers are tested with."""

from collections.abc import Callable

import pytest

from logfs.records.record import Record
from tests.fakes import START_MS
from tests.log.gaps import HoledLog

SMALL = {"internal.segment.bytes": "600", "index.interval.bytes": "100"}
VALUES = (b"a value", b"two\nlines", b"", None, b"x" * 30)


def records(first: int, count: int) -> list[Record]:
    """Records whose lengths differ in every view; some values are two lines, some are empty."""
    return [
        Record(0, START_MS + n, None if n % 4 else b"k\t%d" % n, VALUES[n % 5], ())
        for n in range(first, first + count)
    ]


def filled(count: int = 40, per_batch: int = 3, **properties: str) -> HoledLog:
    """A log of several segments."""
    log = HoledLog(SMALL | {name.replace("_", "."): text for name, text in properties.items()})
    for first in range(0, count, per_batch):
        log.append(records(first, min(per_batch, count - first)))
    return log


def dense() -> HoledLog:
    return filled()


def single_records() -> HoledLog:
    log = filled()
    log.compact(lambda offset: offset % 3 != 1)
    return log


def ends_of_batches() -> HoledLog:
    log = filled()
    log.compact(lambda offset: offset % 3 == 1)
    return log


def whole_batches() -> HoledLog:
    log = filled()
    log.compact(lambda offset: offset // 3 % 2 == 1)
    return log


def whole_segments() -> HoledLog:
    log = filled(80)
    log.compact(lambda offset: offset > 60)
    return log


def batches_without_records() -> HoledLog:
    log = filled(80)
    log.compact(lambda offset: offset % 30 == 4, keep_last_batch=True)
    return log


def compacted_twice() -> HoledLog:
    log = filled()
    log.compact(lambda offset: offset % 3 != 0)
    log.compact(lambda offset: offset % 5 != 0)
    return log


def compressed() -> HoledLog:
    log = filled(50, 10, compression_type="lz4", internal_segment_bytes="300")
    log.compact(lambda offset: offset % 7 != 2)
    return log


def deleted_into_a_gap() -> HoledLog:
    log = filled()
    log.compact(lambda offset: offset not in (4, 5, 6, 7))
    log.advance(5)
    return log


def deleted_segments() -> HoledLog:
    log = filled()
    log.compact(lambda offset: offset % 4 != 0)
    log.advance(25)
    return log


def truncated() -> HoledLog:
    log = filled(20)
    for offset in (18, 17):  # in the middle of batches
        log.truncate(offset)
        log.append(records(0, 3))
    return log


def truncated_to_nothing() -> HoledLog:
    """Two segments without bytes, one after the other, and a hole after each."""
    log = HoledLog(SMALL)
    for offset in (1, 2, 3):
        log.append(records(0, 3))
        log.truncate(offset)
    log.append(records(0, 4))
    return log


def truncated_into_gaps() -> HoledLog:
    """The cut is in a compacted segment: what is left of it has gaps, and they stay."""
    log = filled()
    log.compact(lambda offset: offset % 3 != 1)
    log.truncate(11)
    log.append(records(0, 4))
    return log


def hole_at_the_end() -> HoledLog:
    log = filled()
    log.truncate(35)
    return log


LOGS: tuple[Callable[[], HoledLog], ...] = (
    dense,
    single_records,
    ends_of_batches,
    whole_batches,
    whole_segments,
    batches_without_records,
    compacted_twice,
    compressed,
    deleted_into_a_gap,
    deleted_segments,
    truncated,
    truncated_to_nothing,
    truncated_into_gaps,
    hole_at_the_end,
)
each_log = pytest.mark.parametrize("make", LOGS)
