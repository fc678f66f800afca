"""Consumer groups: what logfs commits a broker knows, and what a broker commits logfs knows."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

import logfs
from logfs.errors import LockedError
from logfs.records.record import Record
from tests.kafka import tools
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.mounting import PATIENCE_S, wait_until
from tests.mounting import logfs as run

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


T = TypeVar("T")

_NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)


def patiently(ask: Callable[[], T]) -> T:
    """Ask a coordinator again while it is loading."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit a position as a consumer of a broker does."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": "0"})
    where = TopicPartition(topic, 0, offset)
    try:
        patiently(lambda: consumer.commit(offsets=[where], asynchronous=False))
    finally:
        consumer.close()


def described(bootstrap: str) -> dict[str, list[str]]:
    """Return partition, position, end and lag of each group in orders, from Kafka's tool.

    Not by confluent_kafka: it reads beyond the end of metadata that it gets, and may crash.
    """
    done = tools.run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", bootstrap, "--describe", "--all-groups"),
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[0]: row[2:6] for row in rows if row[1:2] == ["orders"]}


def listed(data: Path) -> dict[str, int]:
    rows = json.loads(run("group", "list", "--json", data))
    return {row["group"]: row["lag"] for row in rows}


def test_a_broker_and_logfs_agree_on_groups(tmp_path: Path) -> None:
    with Broker(tmp_path, {"offsets.topic.num.partitions": "7"}) as broker:
        client = Client(broker.bootstrap)
        client.create_topic("orders")
        client.produce("orders", [Record(0, -1, None, b"%d" % n) for n in range(10)])
        commit(broker.bootstrap, "theirs", "orders", 4)
        commit(broker.bootstrap, "shared", "orders", 2)
        # A read-only view of the running broker.
        wait_until(lambda: listed(broker.data) == {"shared": 8, "theirs": 6}, "both were seen")
        with logfs.open(broker.data / "orders" / "0") as orders, pytest.raises(LockedError):
            orders.commit("theirs", 5)
        broker.stop()
        with logfs.open(broker.data / "orders" / "0") as orders:
            assert orders.committed("theirs") == 4
            assert [r.value for r in orders.read("group=theirs")][:2] == [b"4", b"5"]
            orders.commit("ours", 7, metadata="of logfs")
            orders.commit("shared", 9)
        run("group", "delete", "theirs", broker.data)
        broker.start()
        assert described(broker.bootstrap) == {
            "ours": ["0", "7", "10", "3"],
            "shared": ["0", "9", "10", "1"],
        }
        commit(broker.bootstrap, "ours", "orders", 8)
        wait_until(lambda: listed(broker.data)["ours"] == 2, "its next commit was seen")
