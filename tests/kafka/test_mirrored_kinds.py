"""A mirror of topics of every kind that a broker has: compacted, trimmed, transactional, many."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import logfs
from tests.kafka import theirs
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.mirrors import RunningMirror, plan_for, stored
from tests.log.verifying import check

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.allow_log("logfs.kafka.", "logfs.log.losses"),
]
LEVELS = {
    READ_UNCOMMITTED: logfs.IsolationLevel.READ_UNCOMMITTED,
    READ_COMMITTED: logfs.IsolationLevel.READ_COMMITTED,
}
MANY = 300


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        client = Client(broker.bootstrap)
        left_open = theirs.fill(broker, client)
        yield broker
        del left_open


@pytest.mark.parametrize("fetch_bytes", ["1048576", "1000"])
def test_consumers_of_the_source_and_readers_of_the_mirror_see_the_same(
    fetch_bytes: str, source: Broker, tmp_path: Path
) -> None:
    client, data = Client(source.bootstrap), tmp_path / "data"
    plan = plan_for(source.bootstrap, *theirs.TOPICS, until_now=True)
    with RunningMirror(data, plan, **{"fetch.message.max.bytes": fetch_bytes}) as running:
        running.wait_for_end()
        assert running.error is None
        assert not running.mirror.losses
        starts = {topic: running.log(topic).log_start_offset for topic in theirs.TOPICS}
        ends = {topic: running.log(topic).log_end_offset for topic in theirs.TOPICS}
    assert not check(running.store.disk).damages
    for topic in theirs.TOPICS:
        assert starts[topic] == client.earliest(topic), topic
        assert ends[topic] == client.latest(topic), topic
        for name, level in LEVELS.items():
            with logfs.open(f"{data}/{topic}/0", isolation_level=level) as partition:
                ours = list(partition.read())
            assert ours == client.consume(topic, isolation=name), (topic, name)
        if topic.startswith(("codec", "compacted", "transactions", "idempotent")):
            assert stored(data / f"{topic}-0") == stored(source.partition(topic)), topic


def test_hundreds_of_partitions(source: Broker, tmp_path: Path) -> None:
    client = Client(source.bootstrap)
    client.create_topic("many", MANY)
    producer = client.producer()
    for partition in range(MANY):
        producer.send("many", theirs.numbered(3 + partition % 5), partition)
    producer.flush()
    with RunningMirror(tmp_path / "data", plan_for(source.bootstrap, "many")) as running:
        for partition in range(MANY):
            running.wait_for("many", 3 + partition % 5, partition)
        client.produce("many", theirs.numbered(2), MANY - 1)
        running.wait_for("many", 5 + (MANY - 1) % 5, MANY - 1)
    for partition in range(MANY):
        ours = stored(tmp_path / "data" / f"many-{partition}")
        assert ours == stored(source.partition("many", partition))
