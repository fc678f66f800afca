"""A forward of messages that a broker of today does not take: formats v0 and v1."""

from pathlib import Path

import pytest

from tests.kafka import oldformats, ours
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, Client
from tests.kafka.forwards import forward_now, forward_plan, make, without_offsets

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose topics are logs of a broker from before an upgrade."""
    path = tmp_path_factory.mktemp("data")
    for name, upgraded in oldformats.LOGS.items():
        make(path, name)
        for file in (path / f"{name}-0").glob("0*"):
            file.unlink()
        (path / f"{name}-0" / f"{0:020}.log").write_bytes(upgraded()[0])
    for file in path.glob("*-checkpoint"):
        file.unlink()
    with ours.opened(path):
        pass
    return path


@pytest.mark.parametrize("first", [0, 101])
@pytest.mark.parametrize("name", oldformats.LOGS)
def test_every_record_arrives_in_todays_format(
    name: str, first: int, shared_broker: Broker, client: Client, data: Path
) -> None:
    destination = f"upgraded-{name}-{first}"
    client.create_topic(destination)
    plan = forward_plan(
        shared_broker.bootstrap, name, destination, until_now=True, start=first, resumes=first > 0
    )
    forward_now(data, plan)
    forward_now(data, forward_plan(shared_broker.bootstrap, name, destination, until_now=True))
    expected = without_offsets(oldformats.LOGS[name]()[1][first:])
    assert without_offsets(client.consume(destination)) == expected
    assert without_offsets(client.consume(destination, isolation=READ_COMMITTED)) == expected
