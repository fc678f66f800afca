"""Idempotent and transactional producers: each knows of them what the other one wrote.

A broker forgets a producer a day after the time of its last record, so the records have the time of
the test.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logfs.log.indexes.txnindex import decode_txn_index
from logfs.log.names import parse_segment_file
from logfs.log.partition import PartitionLog
from logfs.log.producers.snapshots import decode_snapshot
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.services.views.files import GrowingFile
from logfs.types import IsolationLevel, View
from tests import cache
from tests.kafka import ours, theirs, tools
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import READ_COMMITTED, Client, RecordProducer
from tests.kafka.written import answered, with_topics, written
from tests.log.producing import rows_in, rows_of
from tests.log.support import read_all
from tests.mounting import now_ms

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SMALL = {"internal.segment.bytes": "2000", "index.interval.bytes": "512"}
COMPACT = {**theirs.COMPACT, **SMALL}
TOPICS = {"idempotent": SMALL, "transactions": SMALL, "open": SMALL, "compacted": COMPACT}
Rows = dict[int, tuple[int | None, ...]]


def numbered(count: int, first: int = 0) -> list[Record]:
    return [r._replace(timestamp=now_ms()) for r in theirs.numbered(count, first, keys=7)]


def transactions(client: Client, topic: str) -> None:
    """Three producers, some of whose transactions are aborted, and a plain one."""
    producers = [client.producer(transactional_id=f"{topic}-{n}") for n in range(3)]
    plain = client.producer()
    for n in range(6):
        for number, producer in enumerate(producers):
            producer.begin()
            producer.send(topic, numbered(10, 100 * n + 10 * number))
            producer.flush()
        plain.batches(topic, [numbered(3, 5000 + n)])
        for number, producer in enumerate(producers):
            (producer.abort if (n + number) % 3 == 0 else producer.commit)()


def fill(broker: Broker, client: Client) -> RecordProducer:
    """Make and fill the topics; returns a producer with a transaction open in ``open``."""
    client.create_topics(TOPICS)
    for first in (0, 300):
        producer = client.producer(enable_idempotence="true", compression_type="lz4")
        producer.batches("idempotent", theirs.batches(numbered(300, first), 20))
    for topic in ("transactions", "open", "compacted"):
        transactions(client, topic)
    theirs.clean(client, "compacted", broker)
    left_open = client.producer(
        transactional_id="left-open", transaction_timeout_ms=theirs.OPEN_FOR_MS
    )
    left_open.begin()
    left_open.send("open", numbered(10))
    left_open.flush()
    client.producer().batches("open", [numbered(20), numbered(5)])
    return left_open


def write_and_kill(folder: Path) -> Path:
    with Broker(folder) as broker:
        keep = fill(broker, Client(broker.bootstrap))
        broker.kill()
        del keep
    return broker.data


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a broker left when it was killed, and when it was stopped afterwards."""
    directory = tmp_path_factory.mktemp("theirs")
    killed = written("producers", write_and_kill, directory / "killed")

    def recover(folder: Path) -> Path:
        broker = Broker(folder)
        copy_directory(killed, broker.data)
        with broker:
            broker.stop()
        return broker.data

    made_of = (cache.sums_of(killed),)
    stopped = written("producers-stopped", recover, directory / "stopped", made_of)
    without = copy_directory(stopped, directory / "without")
    for file in [*without.glob("*/*.snapshot"), *without.glob("*/*.txnindex")]:
        file.unlink()
    for file in [without / ".kafka_cleanshutdown", *without.glob("*-checkpoint")]:
        file.unlink()
    return {"killed": killed, "stopped": stopped, "without": without}


def snapshots_in(partition: Path) -> dict[int, Rows]:
    found = {}
    for file in partition.glob("*.snapshot"):
        parsed = parse_segment_file(file.name)
        assert parsed is not None
        found[parsed.base_offset] = rows_of(decode_snapshot(file.read_bytes(), file.name))
    return found


def txn_indexes_in(partition: Path) -> dict[str, bytes]:
    """Those with an entry; recovery by a broker leaves empty files."""
    files = partition.glob("*.txnindex")
    return {file.name: data for file in files if (data := file.read_bytes())}


@pytest.mark.parametrize("topic", TOPICS)
def test_what_a_broker_left_behind_is_known(left: dict[str, Path], topic: str) -> None:
    data = left["stopped"]
    log = ours.seen(data, topic)
    theirs_at_end = snapshots_in(data / f"{topic}-0")[log.log_end_offset]
    assert rows_in(log) == theirs_at_end
    assert len(theirs_at_end) == {"idempotent": 2, "open": 4}.get(topic, 3)
    entries = [
        entry
        for _, data_ in sorted(txn_indexes_in(data / f"{topic}-0").items())
        for entry in decode_txn_index(data_)
    ]
    assert list(log.snapshot.aborted) == entries
    # How many a cleaner has left depends on how often it came by.
    assert len(entries) == (0 if topic == "idempotent" else 6) or topic == "compacted"
    assert (log.last_stable_offset < log.log_end_offset) == (topic == "open")


@pytest.mark.parametrize("how", ["killed", "without", "stopped"])
def test_each_recovers_the_same(left: dict[str, Path], how: str, tmp_path: Path) -> None:
    mine = copy_directory(left[how], tmp_path / "mine")

    def recover(folder: Path) -> dict[str, tuple[dict[int, Rows], dict[str, bytes]]]:
        broker = Broker(folder)
        copy_directory(left[how], broker.data)
        with broker:
            broker.stop()
        assert "Corrupt" not in broker.log
        return {topic: kept_in(broker.partition(topic)) for topic in TOPICS}

    theirs = answered(f"producers-{how}", recover, cache.sums_of(mine))
    with ours.opened(mine):
        pass
    assert {topic: kept_in(mine / f"{topic}-0") for topic in TOPICS} == theirs


def kept_in(partition: Path) -> tuple[dict[int, Rows], dict[str, bytes]]:
    """Return what is kept of producers and of aborted transactions."""
    return snapshots_in(partition), txn_indexes_in(partition)


# The other way round


def write_ours(log: PartitionLog) -> None:
    """Two transactional producers and an idempotent one; the last transaction stays open."""
    sequences = dict.fromkeys((1001, 1002, 1003), 0)
    for n in range(8):
        for producer_id in sequences:
            records = numbered(10, 100 * n)
            batch = ProducerBatch(producer_id, 0, sequences[producer_id], producer_id != 1003)
            assert not log.append_records(records, now_ms(), batch).is_duplicate
            assert log.append_records(records, now_ms(), batch).is_duplicate
            sequences[producer_id] += 10
        log.append_records(numbered(2), now_ms())
        for producer_id in (1001, 1002):
            if n < 7 or producer_id == 1001:
                log.appender.end_transaction(
                    producer_id, 0, commit=(n + producer_id) % 3 > 0, coordinator_epoch=0,
                    now_ms=now_ms(),
                )  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_topics({"ours": SMALL}, tmp_path_factory.mktemp("template") / "data")


def stopped(data: Path) -> None:
    """logfs stopped cleanly."""
    with ours.opened(data) as store:
        store.alter_topic("ours", SMALL)
        write_ours(store.partition("ours", 0))


def killed(data: Path) -> None:
    """logfs was killed."""
    with ours.opened(data, clean=False) as store:
        store.alter_topic("ours", SMALL)
        write_ours(store.partition("ours", 0))


def recovered(data: Path) -> None:
    """logfs was killed, recovered and stopped."""
    killed(data)
    with ours.opened(data):
        pass


@pytest.fixture(scope="module", params=[stopped, killed, recovered], ids=lambda way: way.__name__)
def opened(
    request: pytest.FixtureRequest, template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Path]]:
    """A broker on what logfs wrote, and a copy of what it found."""
    way: Callable[[Path], None] = request.param
    directory = tmp_path_factory.mktemp(way.__name__)
    broker = Broker(directory / "broker")
    copy_directory(template, broker.data)
    way(broker.data)
    before = broker.copy_data(directory / "before")
    with broker:
        yield broker, before


def test_a_broker_takes_our_snapshots_and_transactions(opened: tuple[Broker, Path]) -> None:
    broker, before = opened
    log = ours.seen(before, "ours")
    client = Client(broker.bootstrap)
    assert client.latest("ours") == log.log_end_offset
    found = client.consume("ours", isolation=READ_COMMITTED)
    committed = GrowingFile(log, View.JSONL, 0, level=IsolationLevel.READ_COMMITTED)
    assert ours.parse(read_all(committed)) == found
    assert 0 < len(found) < len(ours.read(log))
    assert found[-1].offset < log.last_stable_offset < log.log_end_offset
    assert len(log.snapshot.aborted) > 2
    assert not broker.errors
    assert not any(word in broker.log for word in ("orrupt", "Failed to load"))
    known = tools.describe_producers(broker.bootstrap, "ours")
    assert {int(producer_id) for producer_id in known} == {1001, 1002, 1003}
    for producer_id, (epoch, coordinator, sequence, timestamp, since) in known.items():
        row = rows_in(log)[int(producer_id)]
        assert (int(epoch), int(coordinator), int(timestamp)) == row[:3]
        assert (since, int(sequence)) == (str(row[3]), row[4])


def test_kafka_dump_log_finds_nothing_wrong(opened: tuple[Broker, Path]) -> None:
    _, before = opened
    files = [*(before / "ours-0").glob("*.snapshot"), *(before / "ours-0").glob("*.txnindex")]
    assert len(files) > 6
    dump = tools.dump_log(files)
    assert dump.problems == []
    assert "producerId: 1001" in dump.stdout


def test_the_broker_knows_the_same_after_its_own_stop(opened: tuple[Broker, Path]) -> None:
    broker, before = opened
    mine = copy_directory(before, before.parent / "mine")
    broker.stop()
    with ours.opened(mine):
        pass
    partition = mine / "ours-0"
    assert snapshots_in(partition) == snapshots_in(broker.data / "ours-0")
    assert txn_indexes_in(partition) == txn_indexes_in(broker.data / "ours-0")
    shutil.rmtree(mine)
