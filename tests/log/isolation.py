"""Logs with open and aborted transactions, and what each isolation level shows of them."""

from functools import cache

import pytest

from logfs.records.compression import Compression
from logfs.records.record import Record
from logfs.types import IsolationLevel
from tests.fakes import START_MS
from tests.log.transactions import ABORT, COMMIT, TransactionLog

SMALL = {
    "internal.segment.bytes": "1500",
    "index.interval.bytes": "200",
    "segment.ms": "1000000000",
}
LEVELS = list(IsolationLevel)
each_level = pytest.mark.parametrize("level", LEVELS)


def records(log: TransactionLog, count: int) -> list[Record]:
    """Records with times that do not always grow, some of them empty lines."""
    first = log.model.end_offset
    return [
        Record(
            0,
            START_MS + n + (n * 37 % 11),
            b"k%d" % n,
            b"record %d%s" % (n, b"." * (n * 7 % 31)) if n % 6 else b"",
            (),
        )
        for n in range(first, first + count)
    ]


def put(log: TransactionLog, producer: int, count: int = 3, codec: int = 0) -> None:
    """Append records: without a transaction (producer 0), or to one."""
    if producer == 0:
        log.append(records(log, count))
        log.publish()
    else:
        log.produce(producer, records(log, count), Compression(codec))


def finish(log: TransactionLog, producer: int, kind: int) -> None:
    """End a transaction; the marker has its own time, ahead of the records'."""
    log.end(producer, kind, START_MS + log.model.end_offset + 40)


@cache
def interleaved() -> TransactionLog:
    """Batches of several producers between each other, over many segments."""
    log = TransactionLog(SMALL)
    for turn in range(15):
        for producer in (1, 0, 2, 3):
            put(log, producer, 1 + (turn + producer) % 3, (turn + producer) % 5)
        for producer in (1, 2, 3):
            if turn % (producer + 2) == producer:
                finish(log, producer, ABORT if (turn + producer) % 2 else COMMIT)
    for producer in (1, 2, 3):
        finish(log, producer, ABORT)
    put(log, 0)
    return log


@cache
def spanning() -> TransactionLog:
    """One aborted transaction fills several segments; another begins and ends the log."""
    log = TransactionLog(SMALL)
    put(log, 2)
    finish(log, 2, ABORT)
    put(log, 0, 4)
    for turn in range(30):
        put(log, 1, 4)
        if turn in (10, 11, 26):
            put(log, 0, 2)
    finish(log, 1, ABORT)
    put(log, 0, 5)
    put(log, 2, 5)
    finish(log, 2, ABORT)
    return log


@cache
def held_back() -> TransactionLog:
    """Transactions that are still open, one of them since some segments ago."""
    log = TransactionLog(SMALL)
    for turn in range(10):
        put(log, 1)
        put(log, 0)
        finish(log, 1, ABORT if turn % 2 else COMMIT)
    put(log, 1)
    for _ in range(20):
        put(log, 2, 4)
        put(log, 0)
        finish(log, 2, ABORT)
    put(log, 2)
    log.watermark = log.stable_offset + 20
    log.publish()
    return log


@cache
def nothing_but_aborted() -> TransactionLog:
    log = TransactionLog(SMALL)
    for _ in range(30):
        put(log, 1)
        finish(log, 1, ABORT)
    return log


@cache
def open_from_the_first_record() -> TransactionLog:
    log = TransactionLog(SMALL)
    for _ in range(30):
        put(log, 1)
        put(log, 0)
    log.watermark = 0
    log.publish()
    return log


@cache
def compacted() -> TransactionLog:
    """Gaps before, inside and after aborted batches."""
    log = TransactionLog(SMALL)
    for turn in range(18):
        put(log, 1, 3, turn % 5)
        put(log, 0, 3)
        put(log, 2, 2)
        finish(log, 1, ABORT if turn % 3 else COMMIT)
        if turn % 7 == 6:
            finish(log, 2, ABORT)
    finish(log, 2, COMMIT)
    log.compact(lambda offset: offset % 5 > 1 and not 60 < offset < 90)
    log.publish()
    return log


@cache
def started_late() -> TransactionLog:
    """The log starts inside an aborted batch."""
    log = TransactionLog(SMALL)
    put(log, 0, 5)
    for _ in range(20):
        put(log, 1, 4)
        put(log, 0)
    finish(log, 1, ABORT)
    put(log, 0)
    log.advance(log.transactions[0].first_offset + 30)
    log.publish()
    return log


LOGS = (
    interleaved,
    spanning,
    held_back,
    nothing_but_aborted,
    open_from_the_first_record,
    compacted,
    started_late,
)
each_log = pytest.mark.parametrize("make", LOGS)
