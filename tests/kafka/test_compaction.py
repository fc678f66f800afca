"""The same logs, compacted by a broker and by logfs with the same settings: the same is left.

Each round begins where the broker has left the one before, so that logfs also meets what a broker
made: delete horizons in batches, batches without records, segments without batches. After the last
round a broker is given what logfs has made.
"""

import os
import pickle
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from logfs.log.checkpoints import read_offsets
from logfs.log.partition import PartitionLog
from logfs.records.record import Record
from logfs.services.compaction.dirtyrange import find_dirty_range
from logfs.services.compaction.rounds import clean
from logfs.services.compaction.tools import CleaningTools
from logfs.types import IsolationLevel
from tests.kafka import ours, tools
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.theirs import COMPACT, batches, clean_all, numbered, transactions
from tests.kafka.written import written
from tests.log.support import batches_in
from tests.mounting import now_ms

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROUNDS = 3
LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
NO_DELAY = {**COMPACT, "file.delete.delay.ms": "0"}
COMPRESSED = {**NO_DELAY, "internal.segment.bytes": "3000"}


def keyed(round_: int, count: int = 700) -> list[Record]:
    """Return records whose keys come again, here and in other rounds, some as tombstones."""
    records = [
        r._replace(key=b"once %d" % r.timestamp) if n % 13 == 0 else r
        for n, r in enumerate(numbered(count, 1000 * round_, keys=37 + 11 * round_))
    ]
    return [
        r._replace(value=None, headers=((b"why", b"gone"),)) if n % 17 == 5 else r
        for n, r in enumerate(records)
    ]


def _plain(codec: str) -> Callable[[Client, str, int], None]:
    def write(client: Client, topic: str, round_: int) -> None:
        client.producer(compression_type=codec).batches(topic, batches(keyed(round_), 20))

    return write


def _idempotent(client: Client, topic: str, round_: int) -> None:
    # What was the last batch of a producer is kept, empty if need be. All write today: a producer
    # that has not written for a day is forgotten, by a broker every ten minutes, by logfs when it
    # loads.
    today = now_ms()
    first = numbered(10, keys=10)
    for records in (first, *(keyed(3 * round_ + n, 200) for n in range(3))):
        producer = client.producer(enable_idempotence="true")
        producer.batches(topic, batches([r._replace(timestamp=today) for r in records], 10))


def _transactional(client: Client, topic: str, round_: int) -> None:
    transactions(client, topic)
    client.producer().batches(topic, batches(keyed(round_), 20))


def _few(client: Client, topic: str, round_: int) -> None:
    """Write the same keys only, so that segments lose all they had."""
    client.producer().batches(topic, batches(numbered(900, 1000 * round_, keys=4), 30))


TOPICS: Mapping[str, tuple[Mapping[str, str], Callable[[Client, str, int], None]]] = {
    "plain": (NO_DELAY, _plain("none")),
    "kept-tombstones": ({**NO_DELAY, "delete.retention.ms": "86400000"}, _plain("none")),
    "zstd": (COMPRESSED, _plain("zstd")),
    "lz4-gzip": ({**COMPRESSED, "compression.type": "gzip"}, _plain("lz4")),
    "append-time": ({**COMPRESSED, "message.timestamp.type": "LogAppendTime"}, _plain("snappy")),
    "idempotent": (NO_DELAY, _idempotent),
    "transactional": (NO_DELAY, _transactional),
    "few-keys": (NO_DELAY, _few),
}
"""Name -> configuration, and what writes a round."""


@dataclass
class State:
    """What a compaction has left: what consumers read by level, and the batches."""

    records: dict[str, list[Record]]
    batches: list[tuple[int, int, int, bool]] = field(default_factory=list)


@dataclass
class Compared:
    """Each round of each topic, by topic.

    Attributes:
        data: The directory that logfs compacted in the last round.
        given: What consumers read of it once a broker has it, by isolation level and topic.
    """

    theirs: dict[str, list[State]]
    ours: dict[str, list[State]]
    data: Path
    given: dict[str, dict[str, list[Record]]]


def headers_of(partition: Path) -> list[tuple[int, int, int, bool]]:
    """Return base offset, last offset, count and whether it is control of every batch."""
    return [
        (h.base_offset, h.last_offset, h.record_count, h.is_control)
        for log in sorted(partition.glob("*.log"))
        for _, h in batches_in(log.read_bytes())
    ]


def copy_topics(data: Path, to: Path) -> Path:
    """Copy what concerns the topics, of a broker that runs and does nothing to them."""
    to.mkdir()
    for path in data.iterdir():
        if path.name.rpartition("-")[0] in TOPICS:
            copy_directory(path, to / path.name)
        elif path.is_file() and path.name != ".lock":
            shutil.copy2(path, to)
    return to


def compact(log: PartitionLog, checkpoint: int | None) -> None:
    dirt = find_dirty_range(log.snapshot, log.config, checkpoint, now_ms())
    assert dirt.cleanable_bytes
    work = CleaningTools(new_id=lambda: os.urandom(16), clock_s=time.monotonic)
    clean(log, dirt, now_ms(), work)


def compact_all(data: Path) -> dict[str, State]:
    """Compact every topic once, as the broker would."""
    with ours.opened(data) as store:
        done = read_offsets(store.disk, "cleaner-offset-checkpoint")
        states = {}
        for name, (config, _) in TOPICS.items():
            store.alter_topic(name, {**config, "min.compaction.lag.ms": "0"})
            log = store.partition(name, 0)
            compact(log, done.get(log.topic_partition))
            states[name] = State({level: ours.read(log, IsolationLevel(level)) for level in LEVELS})
    for name, state in states.items():
        state.batches = headers_of(data / f"{name}-0")
    return states


def write_and_clean(folder: Path) -> Path:
    """Have a broker write and compact all rounds.

    Returns:
        A directory with what there was before each compaction, ``round-N``; what the broker left in
        the end, ``left``; and what it left of each topic each time, ``states``.
    """
    kept = folder / "kept"
    kept.mkdir()
    states: dict[str, list[tuple[dict[str, list[Record]], list[tuple[int, int, int, bool]]]]]
    states = {name: [] for name in TOPICS}
    with Broker(folder / "broker") as broker:
        client = Client(broker.bootstrap)
        client.create_topics({name: config for name, (config, _) in TOPICS.items()})
        for round_ in range(ROUNDS):
            for name, (_, write) in TOPICS.items():
                write(client, name, round_)
            copy_topics(broker.data, kept / f"round-{round_}")
            clean_all(client, TOPICS, broker)
            records = {level: client.consume_all(TOPICS, isolation=level) for level in LEVELS}
            for name in TOPICS:
                found = {level: records[level][name] for level in LEVELS}
                states[name].append((found, headers_of(broker.partition(name))))
        broker.stop()
        broker.copy_data(kept / "left")
    (kept / "states").write_bytes(pickle.dumps(states))
    return kept


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    directory = tmp_path_factory.mktemp("compaction")
    kept = written("compaction", write_and_clean, directory / "kept")
    rounds = [kept / f"round-{number}" for number in range(ROUNDS)]
    each = [compact_all(data) for data in rounds]
    mine = {name: [states[name] for states in each] for name in TOPICS}
    states = pickle.loads((kept / "states").read_bytes())
    theirs = {name: [State(*state) for state in states[name]] for name in TOPICS}
    data = rounds[-1]
    given = Broker(directory / "given")
    copy_directory(kept / "left", given.data)
    for name in TOPICS:
        shutil.rmtree(given.partition(name))
        shutil.copytree(data / f"{name}-0", given.partition(name))
    with given:
        client = Client(given.bootstrap)
        read = {level: client.consume_all(TOPICS, isolation=level) for level in LEVELS}
    return Compared(theirs, mine, data, read)


@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("name", TOPICS)
def test_the_same_is_left(compared: Compared, name: str, round_: int) -> None:
    theirs, mine = compared.theirs[name][round_], compared.ours[name][round_]
    for level in LEVELS:
        assert mine.records[level] == theirs.records[level], level
    assert mine.batches == theirs.batches


def test_something_was_removed_and_something_kept(compared: Compared) -> None:
    for states in compared.theirs.values():
        for round_, state in enumerate(states):
            records = state.records[READ_UNCOMMITTED]
            assert 10 < len(records) < (round_ + 1) * 900
    tombstones = {
        name: sum(r.value is None for r in states[-1].records[READ_UNCOMMITTED])
        for name, states in compared.theirs.items()
    }
    assert tombstones["kept-tombstones"] > tombstones["plain"]
    assert any(count == 0 for *_, count, _ in compared.theirs["idempotent"][-1].batches)


@pytest.mark.parametrize("name", TOPICS)
def test_a_broker_reads_what_logfs_compacted(compared: Compared, name: str) -> None:
    for level, records in compared.ours[name][-1].records.items():
        assert compared.given[level][name] == records


def test_kafka_dump_log_finds_nothing_wrong(compared: Compared) -> None:
    files = [
        file
        for name in TOPICS
        for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")
        for file in sorted((compared.data / f"{name}-0").glob(f"*.{suffix}"))
    ]
    problems = tools.dump_log(files, "--deep-iteration").problems
    # Of what is compacted, by a broker too, the tool also says where offsets are missing and which
    # batches without records have no largest timestamp any more.
    gaps = ("Non-consecutive offsets in ", "is followed by")
    empty = ("Found timestamp mismatch in ", "log timestamp: -1")
    assert [line for line in problems if not any(part in line for part in (*gaps, *empty))] == []
    named = [line for line in problems if empty[0] in line]
    assert all("/idempotent-0/" in line or "/transactional-0/" in line for line in named)
