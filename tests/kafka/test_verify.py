"""``logfs verify`` beside a broker that writes, rolls, deletes and compacts: nothing is damage."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.load import TOPICS, delete_records, produce, running
from tests.log.verifying import check

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SECONDS = 8


def test_beside_a_broker_that_writes(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        client = Client(broker.bootstrap)
        client.create_topics(TOPICS)
        acts: list[Callable[[threading.Event], object]] = [
            lambda stop, name=name: produce(Client(broker.bootstrap), name, stop)  # type: ignore[misc]
            for name in TOPICS
        ]
        acts.append(lambda stop: delete_records(Client(broker.bootstrap), stop))
        disk, checked = PosixDisk(broker.data), 0
        with running(acts):
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
