"""The record with the largest timestamp, as the levels show it."""

from collections.abc import Callable

import pytest

from logfs.log.indexes.index import TimestampOffset
from logfs.log.reading.lookup import newest_record, timestamp_of
from logfs.records.record import Record
from logfs.types import IsolationLevel
from tests.fakes import START_MS
from tests.log.gaps import HoledLog
from tests.log.isolation import LEVELS, LOGS
from tests.log.resolving import LOGS as PLAIN_LOGS
from tests.log.transactions import TransactionLog


def newest_of(log: HoledLog) -> TimestampOffset | None:
    found = [TimestampOffset(k.record.timestamp, k.record.offset) for k in log.model.visible]
    return max(found, key=lambda row: (row.timestamp, -row.offset), default=None)


@pytest.mark.parametrize("make", LOGS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_newest_record_is_one_that_is_shown(
    make: Callable[[], TransactionLog], level: IsolationLevel
) -> None:
    seen = make().seen(level)
    assert newest_record(seen.log.snapshot, level) == newest_of(seen)


@pytest.mark.parametrize("make", PLAIN_LOGS)
def test_the_newest_record_is_one_that_is_kept(make: Callable[[], HoledLog]) -> None:
    log = make()
    assert newest_record(log.log.snapshot, IsolationLevel.READ_UNCOMMITTED) == newest_of(log)


@pytest.mark.parametrize("make", PLAIN_LOGS)
def test_the_timestamp_of_every_record(make: Callable[[], HoledLog]) -> None:
    log = make()
    expected = {k.record.offset: k.record.timestamp for k in log.model.visible}
    for offset in range(log.model.end_offset + 2):
        assert timestamp_of(log.log.snapshot, offset) == expected.get(offset)


def test_the_newest_record_is_not_one_below_the_log_start() -> None:
    log = HoledLog({})
    times = [START_MS + 9, START_MS + 1, START_MS + 5, START_MS + 5]
    log.append([Record(0, timestamp, None, b"v") for timestamp in times])
    log.advance(1)
    found = newest_record(log.log.snapshot, IsolationLevel.READ_UNCOMMITTED)
    assert found == newest_of(log) == (START_MS + 5, 2)
