"""Messages of formats v0 and v1, and segments that span too much, beside a broker.

No broker of today writes them, so they are put into the directories of topics that it knows; it
recovers them when it starts. What Kafka's own library wrote in these formats is in
``tests.records.messages``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from logfs.records.compression import Compression
from logfs.records.record import Record
from logfs.services.views.kafkaoffsets import offset_by_timestamp
from logfs.types import IsolationLevel
from tests.kafka import oldformats, ours, tools
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import Client
from tests.records.messages import message
from tests.records.strategies import NOW_MS

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def flipped() -> tuple[bytes, list[Record]]:
    """A bit is wrong in the second half of the messages."""
    records = oldformats.records_of(1, 0, oldformats.COUNT)
    log = [message(1, record) for record in records]
    bad = bytearray(log[150])
    bad[30] ^= 4
    return b"".join(log[:150]) + bytes(bad) + b"".join(log[151:]), records[:150]


def torn() -> tuple[bytes, list[Record]]:
    log, records = oldformats.upgraded(Compression.GZIP, (1,))
    return log + message(1, Record(len(records), 1, b"k", b"v"))[:-1], records


LOGS: dict[str, Callable[[], tuple[bytes, list[Record]]]] = {
    **oldformats.LOGS,
    "flipped": flipped,
    "torn": torn,
}

SPANNING = "spanning"
FAR = 2**31


def spanning() -> tuple[bytes, list[Record]]:
    offsets = [3, 4, FAR + 2, FAR + 3, FAR + 4, 2 * FAR + 9]
    records = [Record(offset, NOW_MS + n, b"k", b"%d" % n) for n, offset in enumerate(offsets)]
    return b"".join(
        oldformats.encoded(2, Compression.NONE, [record]) for record in records
    ), records


def as_java(records: list[Record]) -> list[Record]:
    """What librdkafka reads, with Kafka's own word for no timestamp; librdkafka says 0."""
    return [r._replace(timestamp=-1) if r.timestamp == 0 else r for r in records]


@dataclass
class Recovered:
    """What each has made of the directory."""

    client: Client
    theirs: Broker
    ours: Path
    found: dict[str, list[Record]]


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recovered]:
    directory = tmp_path_factory.mktemp("old")
    made = {**LOGS, SPANNING: spanning}
    config = {"index.interval.bytes": "100"}
    with Broker(directory / "broker") as broker:
        Client(broker.bootstrap).create_topics(dict.fromkeys(made, config))
        broker.stop()
        for name, make in made.items():
            partition = broker.partition(name)
            for file in partition.glob("0*"):
                file.unlink()
            (partition / f"{0:020}.log").write_bytes(make()[0])
        for file in [broker.data / ".kafka_cleanshutdown", *broker.data.glob("*-checkpoint")]:
            file.unlink()
        own = copy_directory(broker.data, directory / "own")
        for name in made:
            (own / f"{name}-0" / "logfs.config").write_text("index.interval.bytes=100\n")
        with ours.opened(own):
            pass
        broker.start()
        client = Client(broker.bootstrap)
        found = {name: as_java(records) for name, records in client.consume_all(made).items()}
        yield Recovered(client, broker, own, found)


@pytest.mark.parametrize("name", [*LOGS, SPANNING])
def test_both_read_the_same(recovered: Recovered, name: str) -> None:
    expected = spanning()[1] if name == SPANNING else LOGS[name]()[1]
    log = ours.seen(recovered.ours, name)
    assert recovered.found[name] == expected
    assert ours.read(log) == expected
    assert log.log_end_offset == recovered.client.latest(name)
    assert log.log_start_offset == recovered.client.earliest(name)


@pytest.mark.parametrize("name", [*LOGS, SPANNING])
def test_both_leave_the_same_files(recovered: Recovered, name: str) -> None:
    theirs = sorted(recovered.theirs.partition(name).glob("*.log"))
    assert {p.name for p in theirs} == {
        p.name for p in (recovered.ours / f"{name}-0").glob("*.log")
    }
    for path in theirs:
        own = recovered.ours / f"{name}-0" / path.name
        assert own.read_bytes() == path.read_bytes()
        for suffix in (".index", ".timeindex"):
            # That of the active segment is extended with zeros while a broker runs.
            mine = own.with_suffix(suffix).read_bytes()
            data = path.with_suffix(suffix).read_bytes()
            assert data[: len(mine)] == mine
            assert not any(data[len(mine) :])


@pytest.mark.parametrize("name", LOGS)
def test_offsets_by_time_agree(recovered: Recovered, name: str) -> None:
    log = ours.seen(recovered.ours, name)
    times = {record.timestamp + 1 for record in LOGS[name]()[1][::7] if record.timestamp > 0}
    answers = {at: offset_by_timestamp(log, at, IsolationLevel.READ_UNCOMMITTED) for at in times}
    assert {at: answer and answer.offset for at, answer in answers.items()} == {
        at: recovered.client.offset_for_time(name, at) for at in times
    }


def test_kafka_dump_log_finds_nothing_wrong(recovered: Recovered) -> None:
    files = [
        path
        for name in [*LOGS, SPANNING]
        for suffix in ("log", "index", "timeindex")
        for path in sorted((recovered.ours / f"{name}-0").glob(f"*.{suffix}"))
    ]
    found = tools.dump_log([path for path in files if path.suffix != ".timeindex"])
    assert found.problems == []


def test_what_logfs_appends_after_them_is_read_by_a_broker(
    recovered: Recovered, tmp_path: Path
) -> None:
    broker = Broker(tmp_path / "broker")
    copy_directory(recovered.ours, broker.data)
    with ours.opened(broker.data) as store:
        for name in LOGS:
            log = store.partition(name, 0)
            log.append_records([Record(0, NOW_MS, b"k", b"appended")], NOW_MS)
    with broker:
        found = Client(broker.bootstrap).consume_all(LOGS)
    for name, make in LOGS.items():
        assert as_java(found[name][:-1]) == make()[1]
        assert found[name][-1][2:4] == (b"k", b"appended")
