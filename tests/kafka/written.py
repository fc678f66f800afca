"""What brokers wrote and answered: made once a day, and kept between sessions, see ``tests.cache``.

    written("killed", write_and_kill, tmp_path / "data")     a copy of it, for this test alone
    answered("offsets", ask, "what decides it")              what a broker said about the same bytes

``killed`` and ``stopped`` have all that ``theirs`` writes, and more. They are not kept for longer,
because a broker forgets a producer after a day. A transaction that was left open stays so for
weeks.
"""

import functools
import pickle
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import confluent_kafka
from confluent_kafka import Consumer

from tests import cache
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.theirs import (
    COMPACT,
    OPEN_FOR_MS,
    SMALL,
    TIME_MS,
    batches,
    clean,
    fill,
    numbered,
)
from tests.mounting import PATIENCE_S

_T = TypeVar("_T")
HERE = Path(__file__).parent
EMPTIED = "compacted-idempotent"
"""Its first segment keeps a batch without records, with the largest timestamp of all."""
_KEPT_S = 72_000
"""20 hours: what is used at their end is less than a day old when the session ends."""


def written(
    name: str, write: Callable[[Path], Path], to: Path, made_of: tuple[str | Path, ...] = ()
) -> Path:
    """Return a copy of a directory that a broker has written.

    Args:
        name: The name of the directory.
        write: Gets a folder, and returns a data directory of a broker in it that has ended.
        to: Where the copy is to be, a path that does not exist.
        made_of: What decides what is written, besides ``write`` and the modules of this folder.
    """
    return _copy(_entry(name, write, *made_of), to)


def answered(name: str, ask: Callable[[Path], _T], *made_of: str | Path) -> _T:
    """Return what a broker, or a tool of it, has answered; it is asked once for the same question.

    Args:
        name: The name of the question.
        ask: Gets an empty folder, and asks.
        made_of: What decides the answer, besides ``ask`` and the modules of this folder: a checksum
            of the directory that a broker serves, say.
    """

    def make(entry: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (entry / "answer").write_bytes(pickle.dumps(ask(Path(folder))))

    found = cache.kept(f"answer-{name}", [*_made_of(ask), *made_of], make)
    answer: _T = pickle.loads((found / "answer").read_bytes())
    return answer


def killed(to: Path) -> Path:
    """Return a copy of what a broker left that was killed after it had written everything."""
    return _copy(_killed_entry(), to)


def stopped(to: Path) -> Path:
    """Return a copy of the same after a broker has recovered it and was stopped."""
    return _copy(_stopped_entry(), to)


def told(directory: Callable[[Path], Path], name: str, ask: Callable[[Broker], _T]) -> _T:
    """Return what a broker has answered on ``killed`` or ``stopped``; it is asked once, see above.

    Args:
        directory: Which of them.
        name: The name of the question.
        ask: Gets the broker, which runs.
    """

    def start_and_ask(folder: Path) -> _T:
        broker = Broker(folder)
        directory(broker.data)
        with broker:
            return ask(broker)

    entry = _killed_entry() if directory is killed else _stopped_entry()
    return answered(name, start_and_ask, Path(ask.__code__.co_filename), _sums_of(entry))


def with_topics(configs: Mapping[str, Mapping[str, str]], to: Path) -> Path:
    """Return a copy of the directory of a broker that knows some topics, all empty, and stopped."""

    def create(folder: Path) -> Path:
        with Broker(folder) as broker:
            Client(broker.bootstrap).create_topics(configs)
            broker.stop()
        return broker.data

    return written("topics", create, to, (repr(configs),))


def _killed_entry() -> Path:
    return _entry("killed", _write_everything)


def _stopped_entry() -> Path:
    return _entry("stopped", _recover, _sums_of(_killed_entry()))


def _sums_of(entry: Path) -> str:
    return (entry / cache.SUMS).read_text()


def _copy(entry: Path, to: Path) -> Path:
    assert not to.exists(), to
    to.mkdir(parents=True)
    _tar("-xzSf", entry / "data.tar.gz", "-C", to)
    return to


def _entry(name: str, write: Callable[[Path], Path], *made_of: str | Path) -> Path:
    """Return where a directory is kept that a broker has written."""

    def make(entry: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            data = write(Path(folder))
            _tar("-czSf", entry / "data.tar.gz", "-C", data, ".")

    return cache.kept(f"broker-{name}", [*_made_of(write), *made_of], make)


def _made_of(function: Callable[[Path], object]) -> list[str | Path]:
    """Return what decides all that brokers are made to do by a function."""
    modules = [path for path in sorted(HERE.glob("*.py")) if not path.name.startswith("test_")]
    own = Path(function.__code__.co_filename)
    return [*modules, own, jars.POM, jars.version(), confluent_kafka.__version__, _since()]


@functools.cache
def _since() -> str:
    """Return since when what is made is kept: the same for as long as this process runs."""
    return cache.since("brokers", _KEPT_S)


def _tar(*arguments: str | Path) -> None:
    subprocess.run(["tar", *arguments], check=True)


def _write_everything(folder: Path) -> Path:
    with Broker(folder / "broker") as broker:
        client = Client(broker.bootstrap)
        keep = fill(broker, client)
        _fill_spanning(client)
        keep += _fill_ends(client)
        _fill_emptied(client, broker)
        _commit_offsets(client, "idempotent", {"group.id": "readers", "client.id": "größe"})
        protocol = "consumer" if jars.version_info() >= (4, 0) else "classic"
        _commit_offsets(client, "idempotent", {"group.id": "new", "group.protocol": protocol})
        broker.kill()
        del keep
    return broker.data


def _fill_spanning(client: Client) -> None:
    """Aborted and committed transactions, each over many segments, and all at the same time."""
    client.create_topic("spanning", 1, **SMALL)
    producers = [client.producer(transactional_id=f"span-{n}") for n in range(3)]
    for producer in producers:
        producer.begin()
    for turn in range(40):
        for number, producer in enumerate(producers):
            producer.send("spanning", numbered(12, 100 * turn + 30 * number, keys=7))
            producer.flush()
        if turn % 9 == 8:
            number = turn // 9 % 3
            (producers[number].abort if turn % 2 else producers[number].commit)()
            producers[number].begin()
    producers[0].abort()
    producers[1].commit()
    producers[2].abort()
    client.producer().batches("spanning", [numbered(5)])


def _fill_ends(client: Client) -> list[object]:
    """One topic ends with an aborted transaction, the other has one that is open, in the middle."""
    client.create_topics({"left-open": SMALL, "ends-aborted": SMALL})
    plain = client.producer()
    producers = [
        client.producer(transactional_id=f"end-{n}", transaction_timeout_ms=OPEN_FOR_MS)
        for n in range(2)
    ]
    for producer in producers:
        producer.begin()
    for topic, first in (("left-open", 0), ("ends-aborted", 1)):
        for turn in range(20):
            plain.batches(topic, [numbered(4, 10 * turn)])
            if turn > 8:
                producers[first].send(topic, numbered(6, 50 * turn))
                producers[first].flush()
    producers[1].abort()
    aborted = client.producer(transactional_id="end-2")
    aborted.begin()
    aborted.send("left-open", numbered(9))
    aborted.flush()
    aborted.abort()
    plain.batches("left-open", batches(numbered(200), 20))
    return [producers[0]]


def _fill_emptied(client: Client, broker: Broker) -> None:
    """Have a broker compact away all records of an idempotent producer's last batch."""
    client.create_topic(EMPTIED, 1, **COMPACT)
    producer = client.producer(enable_idempotence="true")
    producer.batches(EMPTIED, [[r._replace(timestamp=TIME_MS * 2) for r in numbered(20, keys=4)]])
    client.producer().batches(EMPTIED, batches(numbered(2000, keys=30), 50))
    clean(client, EMPTIED, broker)


def _commit_offsets(client: Client, topic: str, config: dict[str, str]) -> None:
    """Join a group, commit what was read, and leave."""
    consumer = Consumer(
        {
            "bootstrap.servers": client.bootstrap,
            **config,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while (message := consumer.poll(0.1)) is None:
            assert time.monotonic() < deadline
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def _recover(folder: Path) -> Path:
    broker = Broker(folder / "broker")
    killed(broker.data)
    with broker:
        broker.stop()
    return broker.data
