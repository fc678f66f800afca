"""What logfs writes, a broker opens: its consumers read the same records, its tools are content.

A broker makes the topics and stops; logfs writes logs of these names; the broker starts on them, in
each of the ways of ``WAYS``. A broker takes a partition directory for its own only if the topic id
is the one it gave, so either logfs writes into the broker's own data directory, or the broker's
``partition.metadata`` and leader epochs stay and the segments are put beside them.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from logfs.config import CompressionType
from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import offset_for_time
from logfs.log.store import LogStore
from logfs.log.writing.lines import LineWriter
from logfs.records.record import Record
from logfs.types import View
from tests.kafka import ours, tools
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.records.oracle import rendering

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIME_MS = 1_700_000_000_000
SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "index.interval.bytes": "1000"}


@dataclass(frozen=True)
class Scenario:
    """A log: the topic's configuration, the view it is written through, and batches of records."""

    config: Mapping[str, str]
    view: View
    batches: list[list[Record]]

    def write(self, log: PartitionLog) -> list[Record]:
        """Write it, and return the records as every reader has to find them."""
        writer = LineWriter(log, self.view)
        expected: list[Record] = []
        for batch in self.batches:
            data = b"".join(rendering(self.view, record) for record in batch)
            # Each batch comes at the time of its last record.
            at = batch[-1].timestamp
            assert writer.write(data, at) == len(data)
            for record in batch:
                keeps_time = self.view is View.JSONL and "message.timestamp.type" not in self.config
                expected.append(
                    record._replace(
                        offset=len(expected), timestamp=record.timestamp if keeps_time else at
                    )
                )
        writer.close(TIME_MS)
        return expected


def numbered(batches: int, records: int) -> list[list[Record]]:
    """Return batches of records that differ in value and time."""
    numbers = [range(b * records, (b + 1) * records) for b in range(batches)]
    return [
        [Record(0, TIME_MS + 7 * n, None, b"record %d, some text" % n) for n in batch]
        for batch in numbers
    ]


def keyed(batches: list[list[Record]]) -> list[list[Record]]:
    return [[r._replace(key=b"key %d" % (n % 7)) for n, r in enumerate(b)] for b in batches]


ODD = [
    Record(0, TIME_MS, None, b"a plain value"),
    Record(0, TIME_MS - 5_000, b"key", None),
    Record(0, TIME_MS + 70_000, b"", b""),
    Record(0, TIME_MS + 1, b"\xff\x00", b"\xfe\n\t", ((b"h", b"\xff"), (b"h", None))),
    Record(0, TIME_MS + 2, "größe".encode(), "größe".encode(), (("größe".encode(), b""),)),
]
SCENARIOS = {
    "text": Scenario({}, View.TEXT, [[Record(0, TIME_MS, None, b"x"), Record(0, TIME_MS)]]),
    "tsv": Scenario({}, View.TSV, keyed(numbered(3, 5))),
    "jsonl": Scenario({}, View.JSONL, [ODD, ODD[:2], ODD[2:]]),
    **{
        codec.value: Scenario(
            {"compression.type": codec.value, **SMALL_SEGMENTS}, View.TEXT, numbered(60, 40)
        )
        for codec in CompressionType
    },
    "zstd-jsonl": Scenario({"compression.type": "zstd"}, View.JSONL, [ODD * 50] * 3),
    "segments": Scenario(SMALL_SEGMENTS, View.JSONL, numbered(200, 10)),
    "times-go-back": Scenario(SMALL_SEGMENTS, View.JSONL, numbered(60, 20)[::-1]),
    "append-time": Scenario(
        {"message.timestamp.type": "LogAppendTime", **SMALL_SEGMENTS}, View.TSV,
        keyed(numbered(60, 20)),
    ),
    "compacted-later": Scenario({"cleanup.policy": "compact"}, View.TSV, keyed(numbered(2, 9))),
    "empty": Scenario({}, View.TEXT, []),
}  # fmt: skip
# An empty value and a null one are the same line of text.
SCENARIOS["text"].batches[0][1] = SCENARIOS["text"].batches[0][1]._replace(value=b"")


def write_all(store: LogStore) -> dict[str, list[Record]]:
    return {name: s.write(store.partition(name, 0)) for name, s in SCENARIOS.items()}


def write_beside(data: Path, own: Path) -> dict[str, list[Record]]:
    """Write in a directory of logfs's own, and put the segments into the broker's."""
    own.mkdir()
    with ours.opened(own) as store:
        for name, scenario in SCENARIOS.items():
            store.create_topic(name, 1, {"retention.ms": "-1", **scenario.config}, TIME_MS)
        expected = write_all(store)
    for name in SCENARIOS:
        for pattern in ("*.log", "*.index", "*.timeindex", "*.snapshot", "*.textindex", "logfs.*"):
            for file in (own / f"{name}-0").glob(pattern):
                shutil.copy2(file, data / f"{name}-0")
    return expected


def trusted(data: Path, own: Path) -> dict[str, list[Record]]:
    """The broker has stopped cleanly, so it takes the indexes as they are."""
    return write_beside(data, own)


def recovered(data: Path, own: Path) -> dict[str, list[Record]]:
    """The broker has to recover: it checks every batch, and makes the indexes anew."""
    expected = write_beside(data, own)
    for file in [data / ".kafka_cleanshutdown", *data.glob("*-checkpoint")]:
        file.unlink()
    return expected


def write_in_place(data: Path, *, clean: bool) -> dict[str, list[Record]]:
    with ours.opened(data, clean=clean) as store:
        for name, scenario in SCENARIOS.items():
            # A topic of a broker brings no configuration along.
            store.alter_topic(name, {"retention.ms": "-1", **scenario.config})
        return write_all(store)


def in_place(data: Path, own: Path) -> dict[str, list[Record]]:
    """logfs has owned the broker's directory and stopped cleanly: all of it is ours."""
    return write_in_place(data, clean=True)


def in_place_killed(data: Path, own: Path) -> dict[str, list[Record]]:
    """As ``in_place``, but logfs was killed."""
    return write_in_place(data, clean=False)


WAYS: list[Callable[[Path, Path], dict[str, list[Record]]]] = [
    trusted,
    recovered,
    in_place,
    in_place_killed,
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
    expected: dict[str, list[Record]]
    found: dict[str, dict[str, list[Record]]]
    before: Path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that knows the topics and has stopped."""
    with Broker(tmp_path_factory.mktemp("template")) as broker:
        Client(broker.bootstrap).create_topics({n: s.config for n, s in SCENARIOS.items()})
        broker.stop()
        return broker.data


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
    for found in opened.found.values():
        assert found[name] == opened.expected[name]
    assert opened.client.earliest(name) == 0
    assert opened.client.latest(name) == len(opened.expected[name])


def test_consumers_that_start_in_the_middle_find_their_place(opened: Opened) -> None:
    starts = {name: 2 * len(expected) // 3 for name, expected in opened.expected.items()}
    found = opened.client.consume_all(SCENARIOS, starts=starts)
    assert found == {name: opened.expected[name][start:] for name, start in starts.items()}


def test_the_log_was_taken_as_it_is(opened: Opened) -> None:
    for name in SCENARIOS:
        for file in (opened.before / f"{name}-0").glob("*.log"):
            assert (opened.broker.partition(name) / file.name).read_bytes() == file.read_bytes()
    assert "stray" not in opened.broker.log
    assert "Corrupt" not in opened.broker.log
    assert " ERROR " not in opened.broker.log
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
    records = opened.expected[name]
    step = max(1, len(records) // 6)
    times = {TIME_MS - 10**6, TIME_MS + 10**9}
    times |= {r.timestamp + delta for r in records[::step] for delta in (-1, 0, 1)}
    snapshot = ours.seen(opened.before, name).snapshot
    found = {at: offset_for_time(snapshot, at) for at in times}
    assert found == {at: opened.client.offset_for_time(name, at) for at in times}


def test_the_broker_goes_on_where_logfs_stopped(opened: Opened) -> None:
    # The last test of a way: it changes the logs.
    for name in SCENARIOS:
        opened.client.produce(name, keyed(numbered(1, 2))[0])
    found = opened.client.consume_all(SCENARIOS)
    for name, expected in opened.expected.items():
        assert [r.offset for r in found[name]] == [*range(len(expected) + 2)]
