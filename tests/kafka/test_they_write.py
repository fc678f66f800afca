"""What a broker wrote, logfs reads as the broker's own consumer does, however the broker ended."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from logfs.log.indexes.index import TimestampOffset
from logfs.log.lines.writer import LineWriter
from logfs.records.record import Record
from logfs.services.views.kafkaoffsets import offset_by_timestamp, offset_of_max_timestamp
from logfs.types import IsolationLevel, View
from tests.kafka import ours
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.theirs import TIME_MS, TOPICS
from tests.kafka.written import killed, stopped, told
from tests.log.verifying import check
from tests.mounting import Mount
from tests.spark import reading as spark

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PREALLOCATED = "preallocated-0/"
"""After kill -9 the rest of its active segment is zeros, and logfs says what it makes of them."""
LEVELS = {
    READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    READ_COMMITTED: IsolationLevel.READ_COMMITTED,
}
TIMES = 6
"""For as many records of a topic, offsets are asked for just before, at and just after."""


@dataclass
class Seen:
    """What clients of a broker see of a topic; the dictionaries are by isolation level.

    Attributes:
        records: All that a consumer reads.
        start: The log start offset.
        ends: Where a consumer begins that asks for the latest.
        times: Offsets of some moments.
        newest: Offset of the record with the largest timestamp.
    """

    records: dict[str, list[Record]]
    start: int
    ends: dict[str, int]
    newest: int | None
    times: dict[str, dict[int, int | None]] = field(default_factory=dict)


@dataclass
class Written:
    """A broker's directory, and what its clients see in it, by topic.

    Attributes:
        data: The directory; of the broker that still runs, or a copy.
        ended: How the broker ended.
    """

    data: Path
    ended: str
    seen: dict[str, Seen]


def look(broker: Broker) -> dict[str, Seen]:
    client = Client(broker.bootstrap)
    records = {level: client.consume_all(TOPICS, isolation=level) for level in LEVELS}
    seen = {
        name: Seen(
            {level: records[level][name] for level in LEVELS},
            client.earliest(name),
            {level: client.latest(name, isolation=level) for level in LEVELS},
            client.offset_of_max_timestamp(name),
        )
        for name in TOPICS
    }
    for name, each in seen.items():
        found = records[READ_UNCOMMITTED][name]
        some = [r.timestamp for r in found[:: len(found) // TIMES + 1]]
        times = {t + delta for t in (*some, TIME_MS + 10**10) for delta in (-1, 0, 1)}
        for level in LEVELS:
            each.times[level] = {t: client.offset_for_time(name, t, isolation=level) for t in times}
    return seen


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Written]]:
    """The directory while the broker runs, after kill -9 and after a clean stop."""
    directory = tmp_path_factory.mktemp("theirs")
    seen = told(killed, "seen", look)
    broker = Broker(directory / "broker")
    stopped(broker.data)
    with broker:
        yield {
            "killed": Written(killed(directory / "killed"), "killed", seen),
            "stopped": Written(stopped(directory / "stopped"), "stopped", seen),
            "live": Written(broker.data, "live", look(broker)),
        }


@pytest.fixture(params=["killed", "stopped", "live"])
def written(every: dict[str, Written], request: pytest.FixtureRequest) -> Written:
    return every[request.param]


def test_what_was_written_is_what_was_meant(every: dict[str, Written]) -> None:
    for written in every.values():
        for name, seen in written.seen.items():
            all_of_it, committed = seen.records[READ_UNCOMMITTED], seen.records[READ_COMMITTED]
            assert (all_of_it == []) == (name in {"empty", "all-deleted"})
            # Of what was compacted, aborted records are gone.
            assert (committed != all_of_it) == (name in {"transactions", "open-transaction"})
            is_shortened = name in {"retention", "deleted-records", "all-deleted"}
            assert (seen.start > 0) == is_shortened
            is_open = name == "open-transaction"
            assert (seen.ends[READ_COMMITTED] < seen.ends[READ_UNCOMMITTED]) == is_open


@pytest.mark.allow_log(PREALLOCATED)
@pytest.mark.parametrize("name", TOPICS)
def test_a_reader_finds_what_a_consumer_finds(written: Written, name: str) -> None:
    log, seen = ours.seen(written.data, name), written.seen[name]
    for level, records in seen.records.items():
        assert ours.read(log, LEVELS[level]) == records, level
    assert log.log_start_offset == seen.start
    assert log.log_end_offset == seen.ends[READ_UNCOMMITTED]
    assert log.last_stable_offset == seen.ends[READ_COMMITTED]


@pytest.mark.spark
@pytest.mark.parametrize("level", LEVELS)
def test_spark_reads_what_a_consumer_reads(written: Written, level: str) -> None:
    for name, seen in written.seen.items():
        assert spark.records(written.data, name, level) == seen.records[level], name


@pytest.mark.allow_log(PREALLOCATED)
@pytest.mark.parametrize("name", TOPICS)
def test_offsets_of_moments_are_those_of_the_broker(written: Written, name: str) -> None:
    log, seen = ours.seen(written.data, name), written.seen[name]
    for level, times in seen.times.items():
        found = {t: offset_by_timestamp(log, t, LEVELS[level]) for t in times}
        assert {t: offset_of(answer) for t, answer in found.items()} == times, level
    newest = offset_of_max_timestamp(log, IsolationLevel.READ_UNCOMMITTED)
    assert offset_of(newest) == seen.newest


def offset_of(found: TimestampOffset | None) -> int | None:
    return None if found is None else found.offset


@pytest.mark.allow_log(PREALLOCATED)
def test_so_does_an_owner_and_it_continues_there(every: dict[str, Written], tmp_path: Path) -> None:
    for written in (every["killed"], every["stopped"]):
        data = copy_directory(written.data, tmp_path / written.ended)
        for appended in range(2):
            with ours.opened(data) as store:
                for name, seen in written.seen.items():
                    log = store.partition(name, 0)
                    records = ours.read(log)
                    old = len(records) - appended
                    assert records[:old] == seen.records[READ_UNCOMMITTED]
                    assert [r.key for r in records[old:]] == [b"appended"] * appended
                    assert log.log_start_offset == seen.start
                    assert log.log_end_offset == seen.ends[READ_UNCOMMITTED] + appended
                    writer = LineWriter(log, View.TSV)
                    writer.write(b"appended\tvalue\n", TIME_MS)
                    writer.close(TIME_MS)


@pytest.mark.fuse
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("options", [("ro",), ()], ids=["read-only", "owned"])
def test_a_mount_shows_it(
    every: dict[str, Written], tmp_path: Path, level: str, options: tuple[str, ...]
) -> None:
    written = every["stopped"]
    data = copy_directory(written.data, tmp_path / "data")
    with Mount(data, tmp_path / "mnt", f"isolation.level={level}", *options) as mount:
        assert set(TOPICS) <= {path.name for path in mount.point.iterdir()}
        for name, seen in written.seen.items():
            records = seen.records[level]
            topic = mount.point / name
            assert ours.parse((topic / "0.jsonl").read_bytes()) == records
            assert ours.parse((topic / "0@earliest..latest.jsonl").read_bytes()) == records
            lines = b"".join((r.value or b"") + b"\n" for r in records)
            assert (topic / "0").read_bytes() == lines


def test_a_check_finds_nothing(written: Written) -> None:
    verified = check(PosixDisk(written.data), wait=lambda _: time.sleep(0.2))
    assert verified.records >= sum(len(s.records[READ_UNCOMMITTED]) for s in written.seen.values())
    for finding in verified.damages:
        assert (written.ended, finding.problem.partition(" zeros ")[2]) == (
            "killed",
            "after the last batch",
        ), str(finding)
        assert finding.file.startswith(PREALLOCATED)
