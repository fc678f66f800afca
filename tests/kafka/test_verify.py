"""``logfs verify`` beside a broker that writes, rolls, deletes and compacts: nothing is damage."""

import time
from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.load import TOPICS, load
from tests.log.verifying import check

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SECONDS = 3


def test_beside_a_broker_that_writes(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        client = Client(broker.bootstrap)
        client.create_topics(TOPICS)
        disk, checked = PosixDisk(broker.data), 0
        with load(broker.bootstrap):
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                found = check(disk, wait=lambda _: time.sleep(0.2))
                assert [str(finding) for finding in found.damages] == []
                checked += found.records
        assert checked > 0
        broker.kill()
        assert [str(finding) for finding in check(disk).damages] == []
        broker.start()
        broker.stop()
        assert [str(finding) for finding in check(disk).damages] == []
