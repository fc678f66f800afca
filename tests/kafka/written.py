"""Directories that brokers wrote: made twice a day, and kept between sessions, see ``tests.cache``.

    written("killed", write_and_kill, tmp_path / "data")     a copy of it, for this test alone

``killed`` and ``stopped`` have all that ``theirs`` writes, and more. They are not kept for longer,
because a broker forgets a producer after a day. A transaction that was left open stays so for
weeks.
"""

import functools
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

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

HERE = Path(__file__).parent
EMPTIED = "compacted-idempotent"
"""Its first segment keeps a batch without records, with the largest timestamp of all."""
_HALF_A_DAY_S = 43_200


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

    def make(entry: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            data = write(Path(folder))
            _tar("-czSf", entry / "data.tar.gz", "-C", data, ".")

    modules = [path for path in sorted(HERE.glob("*.py")) if not path.name.startswith("test_")]
    found = cache.kept(
        f"broker-{name}",
        [
            *modules,
            Path(write.__code__.co_filename),
            jars.POM,
            jars.version(),
            confluent_kafka.__version__,
            _half_day(),
            *made_of,
        ],
        make,
    )
    assert not to.exists(), to
    to.mkdir(parents=True)
    _tar("-xzSf", found / "data.tar.gz", "-C", to)
    return to


def killed(to: Path) -> Path:
    """Return a copy of what a broker left that was killed after it had written everything."""
    return written("killed", _write_everything, to)


def stopped(to: Path) -> Path:
    """Return a copy of the same after a broker has recovered it and was stopped."""
    return written("stopped", _recover, to)


def with_topics(configs: Mapping[str, Mapping[str, str]], to: Path) -> Path:
    """Return a copy of the directory of a broker that knows some topics, all empty, and stopped."""

    def create(folder: Path) -> Path:
        with Broker(folder) as broker:
            Client(broker.bootstrap).create_topics(configs)
            broker.stop()
        return broker.data

    return written("topics", create, to, (repr(configs),))


@functools.cache
def _half_day() -> str:
    """Return when this is: the same for as long as this process runs."""
    return str(time.time() // _HALF_A_DAY_S)


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
