"""What a broker leaves, printed by ``logfs dump`` and by kafka-dump-log: the same."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from logfs.services.dumping.dump import SUFFIXES
from tests.kafka import theirs
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.dumping import compare
from tests.mounting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DECODERS = {
    "__consumer_offsets-0": ("--offsets-decoder", b'"subscription":{"topics":["idempotent"]'),
    "__transaction_state-0": ("--transaction-log-decoder", b'"transactionalId":"left-open"'),
    "__cluster_metadata-0": ("--cluster-metadata-decoder", b'"type":"REGISTER_BROKER_RECORD"'),
}
"""Directory -> option, and something that is printed then."""


@pytest.fixture(scope="module")
def killed_and_stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data directories of a broker that was killed, and of the same one stopped later."""
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "kafka") as broker:
        client = Client(broker.bootstrap)
        open_transactions = theirs.fill(broker, client)
        commit_offsets(client, "idempotent", {"group.id": "readers", "client.id": "größe"})
        commit_offsets(client, "idempotent", {"group.id": "new", "group.protocol": "consumer"})
        broker.kill()
        killed = broker.copy_data(directory / "killed")
        broker.start()
        broker.stop()
        del open_transactions
        return killed, broker.copy_data(directory / "stopped")


def commit_offsets(client: Client, topic: str, config: dict[str, str]) -> None:
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


def files_of(data: Path) -> Iterator[list[Path]]:
    for partition in sorted(data.glob("*-0")):
        yield sorted(path for path in partition.iterdir() if path.suffix in SUFFIXES)


@pytest.mark.parametrize("which", [0, 1], ids=["killed", "stopped"])
def test_all_files_of_a_broker(killed_and_stopped: tuple[Path, Path], which: int) -> None:
    # Where the killed broker had reserved room and used none of it, Kafka's tool gives up.
    unread = [] if which else ["empty-0", "preallocated-0"]
    found = [
        file
        for files in files_of(killed_and_stopped[which])
        for file in files
        if file.parent.name not in unread
    ]
    assert {file.suffix for file in found} >= {".log", ".index", ".timeindex", ".snapshot"}
    assert any(file.suffix == ".txnindex" for file in found)
    for options in ([], ["--print-data-log"], ["--verify-index-only", "--deep-iteration"]):
        compare(found, *options)


@pytest.mark.parametrize("directory", DECODERS)
def test_the_logs_that_kafka_keeps_for_itself(
    killed_and_stopped: tuple[Path, Path], directory: str
) -> None:
    logs = sorted((killed_and_stopped[1] / directory).glob("*.log"))
    option, expected = DECODERS[directory]
    assert expected in compare(logs, option, "--skip-record-metadata").out
    compare(logs, option)
