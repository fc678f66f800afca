"""A mirror of, and a forward to, a broker of 2022: old formats, old requests, no topic ids."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import logfs
from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.forwards import (
    RunningForward,
    append,
    check_forwarded,
    forward_now,
    forward_plan,
    make,
    some,
)
from tests.kafka.mirrors import RunningMirror, plan_for, stored
from tests.kafka.oldbroker import OldBroker
from tests.log.verifying import check
from tests.processes import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.allow_log("logfs.kafka.", "logfs.log.losses"),
]
START_MS = 1_700_000_000_000
FORMATS = ("0.9.0", "0.10.2", "2.8")
CODECS = ("none", "gzip", "snappy", "lz4")


def records(count: int, first: int = 0) -> list[Record]:
    return [
        Record(0, START_MS + n, b"k%d" % n, b"value %d " % n * 9)
        for n in range(first, first + count)
    ]


@pytest.fixture(scope="module", params=["2.8", "2.4"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker with topic ids, and one without."""
    settings = {"inter.broker.protocol.version": request.param}
    with OldBroker(tmp_path_factory.mktemp("kafka"), settings) as broker:
        yield broker


@pytest.fixture
def old(broker: Broker) -> Client:
    return Client(broker.bootstrap)


@pytest.mark.parametrize("version", FORMATS)
def test_sets_of_every_format_and_codec_are_mirrored_byte_for_byte(
    version: str, broker: Broker, old: Client, tmp_path: Path
) -> None:
    topic = f"format-{version}"
    old.create_topic(topic, message_format_version=version)
    for codec in CODECS:
        old.produce(topic, records(200), compression_type=codec)
    with RunningMirror(tmp_path / "data", plan_for(broker.bootstrap, topic)) as running:
        running.wait_for(topic, 800)
        old.produce(topic, records(50, 200))
        running.wait_for(topic, 850)
        assert not running.mirror.losses
    assert stored(tmp_path / "data" / f"{topic}-0") == stored(broker.partition(topic))
    assert not check(running.store.disk).damages
    with logfs.open(f"{tmp_path}/data/{topic}/0") as partition:
        ours = list(partition.read())
    if version == "0.9.0":  # such messages have no time
        ours = [record._replace(timestamp=record.timestamp + 1) for record in ours]
    assert ours == old.consume(topic)


def test_transactions_and_a_restart_that_begins_a_leader_epoch(
    broker: Broker, old: Client, tmp_path: Path
) -> None:
    old.create_topic("sales")
    producer = old.producer(transactional_id="sales")
    for number in range(4):
        producer.begin()
        producer.send("sales", records(20, 100 * number))
        producer.flush()
        (producer.abort if number == 1 else producer.commit)()
    with RunningMirror(tmp_path / "data", plan_for(broker.bootstrap, "sales")) as running:
        running.wait_for("sales", 84)
    broker.restart()
    again = Client(broker.bootstrap)
    again.produce("sales", records(10))
    with RunningMirror(tmp_path / "data", plan_for(broker.bootstrap, "sales")) as running:
        running.wait_for("sales", 94)
        assert not running.mirror.losses
    assert stored(tmp_path / "data" / "sales-0") == stored(broker.partition("sales"))
    level = logfs.IsolationLevel.READ_COMMITTED
    with logfs.open(f"{tmp_path}/data/sales/0", isolation_level=level) as partition:
        ours = list(partition.read())
    assert ours == again.consume("sales", isolation=READ_COMMITTED)


def test_a_forward_sends_every_record_once_and_continues_after_a_restart(
    broker: Broker, old: Client, data: Path
) -> None:
    make(data, "sent")
    old.create_topic("sent")
    append(data, "sent", some(700))
    forward_now(data, forward_plan(broker.bootstrap, "sent", until_now=True))
    broker.restart()
    again = Client(broker.bootstrap)
    append(data, "sent", some(300, 700))
    with RunningForward(data, forward_plan(broker.bootstrap, "sent")) as running:
        running.wait_for(1000)
    check_forwarded(again, data, "sent")
    assert again.latest("sent", isolation=READ_UNCOMMITTED) == 1000


def test_a_destination_of_an_old_format_is_refused_with_what_to_do(
    broker: Broker, old: Client, data: Path
) -> None:
    make(data, "old-format")
    old.create_topic("old-format", message_format_version="0.10.2")
    append(data, "old-format", some(10))
    with RunningForward(data, forward_plan(broker.bootstrap, "old-format")) as running:
        wait_until(lambda: running.forward.failures or running.error, "it fails")
        (failure,) = running.forward.failures
    assert "old-format/0: offset 0 is refused: " in failure
    assert "UNSUPPORTED_FOR_MESSAGE_FORMAT" in failure
    assert "message.format.version" in failure
    assert old.latest("old-format") == 0


def test_without_leader_epochs_what_the_source_has_lost_is_cut(
    broker: Broker, old: Client, tmp_path: Path
) -> None:
    topic, data = "no-epochs", tmp_path / "data"
    old.create_topic(topic, message_format_version="0.10.2")
    old.produce(topic, records(100))
    broker.stop()
    before = broker.copy_data(tmp_path / "before")
    broker.start()
    Client(broker.bootstrap).produce(topic, records(50, 100))
    with RunningMirror(data, plan_for(broker.bootstrap, topic)) as running:
        running.wait_for(topic, 150)
    broker.stop()
    broker.data.rename(tmp_path / "lost")
    before.rename(broker.data)
    broker.start()
    with RunningMirror(data, plan_for(broker.bootstrap, topic)) as running:
        running.wait_for(topic, 100)
        (loss,) = running.log(topic).losses
        assert "the log of the source ends at offset 100" in loss.detail
        Client(broker.bootstrap).produce(topic, records(40, 500))
        running.wait_for(topic, 140)
    assert stored(data / f"{topic}-0") == stored(broker.partition(topic))
