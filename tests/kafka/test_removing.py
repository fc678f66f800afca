"""What is given up at the start of a log: by logfs as by a broker, and each opens what is left."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from logfs.fs.service.server import listen
from logfs.log import names
from logfs.records.record import Record
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from tests.kafka import ours
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import Client
from tests.mounting import now_ms

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DAY_MS = 86_400_000
BATCHES = 40
SEGMENTS = {"internal.segment.bytes": "3000"}

# name: the limits, and how many days old its records are, from the first to the last
CASES = {
    "size": ({"retention.bytes": "10000"}, (0.0, 0.0)),
    "nothing": ({"retention.bytes": "0"}, (0.0, 0.0)),
    "time": ({"retention.ms": str(10 * DAY_MS)}, (20.0, 0.0)),
    "all-old": ({"retention.ms": str(DAY_MS)}, (20.0, 3.0)),
    "future": ({"retention.ms": str(DAY_MS)}, (20.0, -20.0)),
    "both": ({"retention.ms": str(10 * DAY_MS), "retention.bytes": "6000"}, (20.0, 1.0)),
    "compact-and-delete": (
        {"retention.bytes": "10000", "cleanup.policy": "compact,delete",
         "min.cleanable.dirty.ratio": "1"}, (0.0, 0.0),
    ),
}  # fmt: skip
EVERLASTING = {"retention.ms": "-1", "retention.bytes": "-1", **SEGMENTS}


def bases(partition: Path) -> list[str]:
    """The segments that a partition directory holds."""
    return sorted(name for name in os.listdir(partition) if name.endswith(".log"))


def records(days: tuple[float, float]) -> list[list[Record]]:
    first, last = days
    now = now_ms()
    times = [now - int(DAY_MS * (first + (last - first) * n / BATCHES)) for n in range(BATCHES)]
    return [[Record(0, at, b"k%d" % at, b"v" * 250)] for at in times]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that has written the topics of CASES, from which nothing has gone yet."""
    with Broker(tmp_path_factory.mktemp("removing")) as broker:
        client = Client(broker.bootstrap)
        client.create_topics(dict.fromkeys((*CASES, "trimmed", "theirs"), EVERLASTING))
        for name in ("trimmed", "theirs"):
            client.producer().batches(name, records((0.0, 0.0)))
        for name, (_, days) in CASES.items():
            client.producer().batches(name, records(days))
        broker.stop()
        yield broker


def test_retention_leaves_the_segments_that_a_broker_leaves(kept: Broker, tmp_path: Path) -> None:
    own = copy_directory(kept.data, tmp_path / "own")
    before = {name: bases(own / f"{name}-0") for name in CASES}
    with ours.opened(own) as store:
        for name, (limits, _) in CASES.items():
            store.alter_topic(name, {**EVERLASTING, **limits})
            apply_retention(store.partition(name, 0), now_ms())
        starts = {name: store.partition(name, 0).log_start_offset for name in CASES}
    left = {name: bases(own / f"{name}-0") for name in CASES}
    assert left["future"] != before["future"]
    assert all(len(before[name]) > len(left[name]) >= 1 for name in CASES)
    assert min(starts.values()) > 0

    theirs = Broker(tmp_path / "theirs", {"log.cleaner.backoff.ms": "100"})
    copy_directory(kept.data, theirs.data)
    with theirs as broker:
        client = Client(broker.bootstrap)
        for name, (limits, _) in CASES.items():
            client.alter_topic(name, **{k.replace(".", "_"): v for k, v in limits.items()})
        broker.wait_until(
            lambda: {name: bases(broker.partition(name)) for name in CASES} == left, f"{left}"
        )
        assert {name: client.earliest(name) for name in CASES} == starts

    # And a broker opens what retention of ours has left.
    broken = Broker(tmp_path / "back")
    copy_directory(own, broken.data)
    with broken as broker:
        client = Client(broker.bootstrap)
        assert {name: client.earliest(name) for name in CASES} == starts
        for name in CASES:
            assert [r.offset for r in client.consume(name)] == list(range(starts[name], BATCHES))


@pytest.mark.parametrize("offset", [7, BATCHES])
def test_a_broker_opens_what_was_trimmed_beside_a_socket_that_was_left(
    kept: Broker, tmp_path: Path, offset: int
) -> None:
    broker = Broker(tmp_path / "kafka")
    copy_directory(kept.data, broker.data)
    with ours.opened(broker.data, clean=False) as store:
        trim(store.partition("trimmed", 0), offset, now_ms())
    left = listen(str(broker.data), PosixDisk(broker.data))
    assert isinstance(left, socket.socket)
    left.close()
    assert (broker.data / names.CONTROL_SOCKET).is_socket()
    with broker:
        client = Client(broker.bootstrap)
        assert (client.earliest("trimmed"), client.latest("trimmed")) == (offset, BATCHES)
        assert [r.offset for r in client.consume("trimmed")] == list(range(offset, BATCHES))
        assert client.latest("theirs") == BATCHES
        assert (broker.data / names.CONTROL_SOCKET).is_socket()


def test_what_a_broker_trimmed_is_not_shown(kept: Broker, tmp_path: Path) -> None:
    broker = Broker(tmp_path / "kafka")
    copy_directory(kept.data, broker.data)
    with broker:
        client = Client(broker.bootstrap)
        client.delete_records("theirs", 15)
        expected = client.consume("theirs")
        broker.stop()
    log = ours.seen(broker.data, "theirs")
    assert log.log_start_offset == 15
    assert ours.read(log) == expected
