"""The guide to a buffer before a cluster, with a real broker."""

from pathlib import Path

import pytest

from tests.guides import GUIDES, run_guide
from tests.kafka.broker import Broker
from tests.kafka.client import Client

pytestmark = [pytest.mark.kafka, pytest.mark.fuse]


def test_what_the_guide_shows_is_what_happens(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("site")
    places = {"b1:9092": shared_broker.bootstrap, "away:9092": "127.0.0.1:1"}
    run_guide(GUIDES["cluster-buffer"], tmp_path, places=places)
