"""Brokers for the tests of this folder, which are all marked ``kafka``.

They end with the last test of the folder: one that does nothing takes processor time, too.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.client import Client


@pytest.fixture(scope="package")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for tests that have their own topics and do not stop it."""
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="package")
def client(shared_broker: Broker) -> Client:
    """A client of the shared broker."""
    return Client(shared_broker.bootstrap)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An empty data directory."""
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Broker]:
    """A broker that forgets producers at once, as one does after a day."""
    settings = {
        "producer.id.expiration.ms": "1000",
        "producer.id.expiration.check.interval.ms": "200",
    }
    with Broker(tmp_path / "kafka", settings) as broker:
        yield broker
