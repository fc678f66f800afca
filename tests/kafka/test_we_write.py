"""What logfs writes, a broker opens: its consumers read the same records, its tools are content.

A broker makes the topics and stops; logfs writes logs of these names; the broker starts on them, in
each of the ways of ``WAYS``. A broker takes a partition directory for its own only if the topic id
is the one it gave, so either logfs writes into the broker's own data directory, or the broker's
``partition.metadata`` and leader epochs stay and the segments are put beside them.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from logfs.log.store import LogStore
from logfs.records.record import Record
from logfs.services.compaction.tools import CleaningTools
from logfs.services.packing.packer import is_packing, pack_now
from logfs.services.views.kafkaoffsets import offset_by_timestamp
from logfs.types import IsolationLevel
from tests.kafka import ours, tools
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.scenarios import SCENARIOS, TIME_MS, Expected, keyed, numbered
from tests.kafka.written import with_topics
from tests.mounting import now_ms

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def write_all(store: LogStore) -> dict[str, Expected]:
    return {name: s.write(store.partition(name, 0)) for name, s in SCENARIOS.items()}


def write_beside(data: Path, own: Path) -> dict[str, Expected]:
    """Write in a directory of logfs's own, and put the segments into the broker's."""
    own.mkdir()
    with ours.opened(own) as store:
        for name, scenario in SCENARIOS.items():
            store.create_topic(name, 1, {"retention.ms": "-1", **scenario.config}, TIME_MS)
        expected = write_all(store)
    for name in SCENARIOS:
        for pattern in (
            "*.log",
            "*.index",
            "*.timeindex",
            "*.txnindex",
            "*.snapshot",
            "*.textindex",
            "logfs.*",
        ):
            for file in (own / f"{name}-0").glob(pattern):
                shutil.copy2(file, data / f"{name}-0")
    return expected


def trusted(data: Path, own: Path) -> dict[str, Expected]:
    """The broker has stopped cleanly, so it takes the indexes as they are."""
    return write_beside(data, own)


def recovered(data: Path, own: Path) -> dict[str, Expected]:
    """The broker has to recover: it checks every batch, and makes the indexes again."""
    expected = write_beside(data, own)
    for file in [data / ".kafka_cleanshutdown", *data.glob("*-checkpoint")]:
        file.unlink()
    return expected


def write_in_place(data: Path, *, clean: bool, durable: bool = True) -> dict[str, Expected]:
    with ours.opened(data, clean=clean, durable=durable) as store:
        for name, scenario in SCENARIOS.items():
            # A topic of a broker brings no configuration along.
            store.alter_topic(name, {"retention.ms": "-1", **scenario.config})
        return write_all(store)


def in_place(data: Path, own: Path) -> dict[str, Expected]:
    """logfs has owned the broker's directory and stopped cleanly: all of it is ours."""
    return write_in_place(data, clean=True)


def in_place_killed(data: Path, own: Path) -> dict[str, Expected]:
    """As ``in_place``, but logfs was killed."""
    return write_in_place(data, clean=False)


def in_place_left(data: Path, own: Path) -> dict[str, Expected]:
    """As ``in_place``, but logfs has flushed nothing: there is its note, which is not Kafka's."""
    expected = write_in_place(data, clean=True, durable=False)
    assert (data / "logfs.closed").exists()
    return expected


def packed(data: Path, own: Path) -> dict[str, Expected]:
    """As ``in_place``, and sealed segments were packed."""
    expected = write_in_place(data, clean=True)
    codec = {"logfs.sealed.compression.type": "zstd"}
    work = CleaningTools(new_id=lambda: os.urandom(16), clock_s=time.monotonic)
    with ours.opened(data) as store:
        done = []
        for name in SCENARIOS:
            store.alter_topic(name, codec)
            if is_packing(store.topic_config(name)):
                done.append(pack_now(store.partition(name, 0), now_ms(), work))
    assert sum(one.packed for one in done) > 10
    return expected


WAYS: list[Callable[[Path, Path], dict[str, Expected]]] = [
    trusted,
    recovered,
    in_place,
    in_place_killed,
    in_place_left,
    packed,
]


@dataclass
class Opened:
    """A broker on a directory that logfs wrote.

    Attributes:
        expected: What was written, by topic.
        found: What consumers read, by isolation level and topic.
        before: The directory as logfs left it.
    """

    broker: Broker
    client: Client
    expected: dict[str, Expected]
    found: dict[str, dict[str, list[Record]]]
    before: Path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that knows the topics and has stopped."""
    topics = {name: scenario.config for name, scenario in SCENARIOS.items()}
    return with_topics(topics, tmp_path_factory.mktemp("template") / "data")


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.__name__)
def opened(
    request: pytest.FixtureRequest, template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    directory = tmp_path_factory.mktemp(request.param.__name__)
    broker = Broker(directory / "broker")
    copy_directory(template, broker.data)
    expected = request.param(broker.data, directory / "own")
    before = broker.copy_data(directory / "before")
    with broker:
        client = Client(broker.bootstrap)
        levels = (READ_UNCOMMITTED, READ_COMMITTED)
        found = {level: client.consume_all(SCENARIOS, isolation=level) for level in levels}
        yield Opened(broker, client, expected, found, before)


@pytest.mark.parametrize("name", SCENARIOS)
def test_consumers_read_what_was_written(opened: Opened, name: str) -> None:
    client, expected = opened.client, opened.expected[name]
    assert opened.found[READ_UNCOMMITTED][name] == expected.records
    assert opened.found[READ_COMMITTED][name] == expected.committed
    assert client.earliest(name) == 0
    assert client.latest(name) == expected.end
    assert client.latest(name, isolation=READ_COMMITTED) == expected.stable


def test_consumers_that_start_in_the_middle_find_their_place(opened: Opened) -> None:
    starts = {name: 2 * expected.end // 3 for name, expected in opened.expected.items()}
    found = opened.client.consume_all(SCENARIOS, starts=starts)
    for name, start in starts.items():
        assert found[name] == [r for r in opened.expected[name].records if r.offset >= start]


def test_the_log_was_taken_as_it_is(opened: Opened) -> None:
    for name in SCENARIOS:
        for file in (opened.before / f"{name}-0").glob("*.log"):
            assert (opened.broker.partition(name) / file.name).read_bytes() == file.read_bytes()
    assert "stray" not in opened.broker.log
    assert "Corrupt" not in opened.broker.log
    assert not opened.broker.errors
    killed = ".kafka_cleanshutdown" not in {file.name for file in opened.before.iterdir()}
    assert ("no clean shutdown file was found" in opened.broker.log) == killed


def test_kafka_dump_log_finds_nothing_wrong(opened: Opened) -> None:
    files = [
        file
        for name in SCENARIOS
        for suffix in ("log", "index", "timeindex", "snapshot", "txnindex")
        for file in sorted((opened.before / f"{name}-0").glob(f"*.{suffix}"))
    ]
    assert len(files) > 80
    assert tools.dump_log(files, "--deep-iteration").problems == []
    indexes = [file for file in files if file.suffix == ".index"]
    assert tools.dump_log(indexes, "--index-sanity-check").problems == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_offsets_by_time_agree(opened: Opened, name: str) -> None:
    records = opened.expected[name].records
    step = max(1, len(records) // 6)
    times = {TIME_MS - 10**6, TIME_MS + 10**12}
    times |= {r.timestamp + delta for r in records[::step] for delta in (-1, 0, 1)}
    log = ours.seen(opened.before, name)
    for level in (READ_UNCOMMITTED, READ_COMMITTED):
        found = {at: offset_by_timestamp(log, at, IsolationLevel(level)) for at in times}
        assert {at: answer and answer.offset for at, answer in found.items()} == {
            at: opened.client.offset_for_time(name, at, isolation=level) for at in times
        }


def test_the_broker_knows_the_producers(opened: Opened) -> None:
    name = "open-transaction"
    entries = ours.seen(opened.before, name).producers.entries.values()
    known = {
        str(entry.producer_id): [
            *(str(x) for x in (entry.epoch, entry.coordinator_epoch, entry.last_sequence)),
            str(entry.last_timestamp),
            "None" if entry.transaction_offset is None else str(entry.transaction_offset),
        ]
        for entry in entries
    }
    assert len(known) == 4
    assert tools.describe_producers(opened.broker.bootstrap, name) == known


def test_the_broker_continues_where_logfs_stopped(opened: Opened) -> None:
    # The last test of a way: it changes the logs.
    for name in SCENARIOS:
        opened.client.produce(name, keyed(numbered(1, 2))[0])
    found = opened.client.consume_all(SCENARIOS)
    for name, expected in opened.expected.items():
        new = [expected.end, expected.end + 1]
        assert [r.offset for r in found[name]] == [*(r.offset for r in expected.records), *new]
