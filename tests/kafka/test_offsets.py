"""The offsets of moments: as in a broker's ListOffsets, and as one can read them."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import newest_record, offset_for_time, timestamp_of
from logfs.records.record import Record
from logfs.services.views import kafkaoffsets
from logfs.types import IsolationLevel
from tests.kafka import ours
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.theirs import TOPICS
from tests.kafka.written import EMPTIED, stopped, told
from tests.mounting import now_ms

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LEVELS = {
    READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    READ_COMMITTED: IsolationLevel.READ_COMMITTED,
}
SAMPLES = 40
ALL_TOPICS = (*TOPICS, EMPTIED)
Question = tuple[str, int | str]
Answers = dict[str, tuple[int, int] | None]


@dataclass
class Asked:
    """What a broker answered, and the directory that it left.

    Attributes:
        data: The directory, after a clean stop.
        records: What its consumers read, by isolation level and topic.
        answers: By isolation level and time.
    """

    data: Path
    records: dict[str, dict[str, list[Record]]]
    answers: dict[Question, Answers]


def ask(broker: Broker) -> tuple[dict[str, dict[str, list[Record]]], dict[Question, Answers]]:
    """Ask a broker for what consumers read, and for the offsets of many times."""
    client = Client(broker.bootstrap)
    records = {level: client.consume_all(ALL_TOPICS, isolation=level) for level in LEVELS}
    times = {record.timestamp for row in records[READ_UNCOMMITTED].values() for record in row}
    chosen = [*sorted(times)[:: max(len(times) // SAMPLES, 1)], now_ms()]
    ends: list[int | str] = ["earliest", "latest", "max_timestamp"]
    moments = {time + step for time in chosen for step in (0, 1)} | {0, 2**62}
    questions = [(level, time) for level in LEVELS for time in [*ends, *sorted(moments)]]
    return records, {
        (level, time): client.list_offsets(ALL_TOPICS, time, isolation=level)
        for level, time in questions
    }


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    directory = tmp_path_factory.mktemp("offsets")
    return Asked(stopped(directory / "stopped"), *told(stopped, "offsets", ask))


def answer(log: PartitionLog, time: int | str, level: IsolationLevel) -> tuple[int, int] | None:
    match time:
        case "earliest":
            return -1, log.log_start_offset
        case "latest":
            return -1, kafkaoffsets.latest_offset(log, level)
        case "max_timestamp":
            return kafkaoffsets.offset_of_max_timestamp(log, level)
        case int():
            return kafkaoffsets.offset_by_timestamp(log, time, level)
    raise AssertionError(time)


@pytest.mark.parametrize("name", ALL_TOPICS)
@pytest.mark.parametrize("level", LEVELS)
def test_as_kafka_is_what_the_broker_answered(asked: Asked, name: str, level: str) -> None:
    log = ours.seen(asked.data, name)
    expected = {time: row[name] for (at, time), row in asked.answers.items() if at == level}
    assert {time: answer(log, time, LEVELS[level]) for time in expected} == expected


@pytest.mark.parametrize("name", ALL_TOPICS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_default_is_the_first_record_that_a_consumer_reads(
    asked: Asked, name: str, level: str
) -> None:
    log, records = ours.seen(asked.data, name), asked.records[level][name]
    for at, time in asked.answers:
        if at == level and isinstance(time, int):
            expected = next((r for r in records if r.timestamp >= time), None)
            offset = offset_for_time(log.snapshot, time, LEVELS[level])
            assert offset == (expected and expected.offset)
            if expected is not None:
                assert timestamp_of(log.snapshot, expected.offset) == expected.timestamp
    newest = max(records, key=lambda r: (r.timestamp, -r.offset), default=None)
    found = newest_record(log.snapshot, LEVELS[level])
    assert found == (newest and (newest.timestamp, newest.offset))


def test_the_two_differ_where_kafka_misses_records(asked: Asked) -> None:
    """Else the tests above prove little: markers are in the way, and what compaction emptied."""
    missed, others = set(), set()
    for (level, time), row in asked.answers.items():
        for name, found in row.items() if isinstance(time, int) else ():
            readable = [r for r in asked.records[level][name] if r.timestamp >= int(time)]
            if found is None and readable:
                missed.add(name)
            elif found and found[1] not in {r.offset for r in readable[:1]}:
                others.add(name)
    assert missed >= {EMPTIED, "compacted-zstd"}
    assert others >= {"transactions", "open-transaction"}
    assert asked.answers[READ_UNCOMMITTED, "max_timestamp"][EMPTIED] is None
