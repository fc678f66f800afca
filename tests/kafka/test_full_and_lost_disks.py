"""A mirror and a forward on a file system that is full, or loses what was not synced."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.forwards import check_forwarded, make
from tests.kafka.mirrors import RunningMirror, plan_for, stored
from tests.log.verifying import check
from tests.loopdevices import LoopDevice, loop_device
from tests.mounting import COMMAND, logfs, output
from tests.processes import Process, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.allow_log("")]
START_MS = 1_700_000_000_000
QUICK = ("-X", "linger.ms=0", "-X", "reconnect.backoff.ms=50", "-X", "fetch.wait.max.ms=50")


@pytest.fixture
def device(tmp_path: Path) -> Iterator[LoopDevice]:
    with loop_device(tmp_path, 32) as found:
        yield found


@pytest.fixture
def data(device: LoopDevice) -> Path:
    path = Path(device.point, "data")
    path.mkdir()
    return path


def large(count: int, first: int = 0) -> list[Record]:
    chance = random.Random(first)
    return [
        Record(0, START_MS + n, None, chance.randbytes(4000)) for n in range(first, first + count)
    ]


def test_a_mirror_waits_for_room_and_has_every_byte_then(
    shared_broker: Broker, client: Client, device: LoopDevice, data: Path
) -> None:
    client.create_topic("no-room")
    client.produce("no-room", large(500))
    with RunningMirror(data, plan_for(shared_broker.bootstrap, "no-room")) as running:
        running.wait_for("no-room", 500)
        device.fill()
        client.produce("no-room", large(500, 500))
        (one,) = running.mirror.partitions
        running.wait_until(lambda: "No space left" in one.error, "it says so")
        assert running.log("no-room").log_end_offset < 1000
        device.make_room()
        running.wait_for("no-room", 1000)
        running.wait_until(lambda: not one.error, "the error is over")
        assert not running.mirror.losses
        assert not check(running.store.disk).damages
    assert stored(data / "no-room-0") == stored(shared_broker.partition("no-room"))


@pytest.mark.long
def test_after_a_power_cut_a_mirror_fetches_what_the_disk_has_lost(
    shared_broker: Broker, client: Client, device: LoopDevice, data: Path, tmp_path: Path
) -> None:
    topic, address = "cut-off", f"kafka://{shared_broker.bootstrap}"
    client.create_topic(topic)
    words = ("mirror", str(data), topic, "--from", address, *QUICK)
    for number in range(3):
        before = len(stored(data / f"{topic}-0"))
        client.produce(topic, large(300, 300 * number))
        process = Process("mirror", tmp_path / "log")
        process.start([*COMMAND, *words])
        wait_until(lambda b=before: len(stored(data / f"{topic}-0")) > b, "something was fetched")  # type: ignore[misc]
        device.go_away()
        process.kill()
        device.remount()
    logfs(*words, "--until", "now")
    assert stored(data / f"{topic}-0") == stored(shared_broker.partition(topic))
    logfs("verify", data)


@pytest.mark.long
def test_after_a_power_cut_a_forward_whose_note_is_older_sends_every_record_once(
    shared_broker: Broker, client: Client, device: LoopDevice, data: Path, tmp_path: Path
) -> None:
    topic, number = "cut-short", 0
    client.create_topic(topic)
    make(data, topic)
    words = ("forward", f"{data}/{topic}", "--to", f"kafka://{shared_broker.bootstrap}", *QUICK)
    for _ in range(4):
        process = Process("forward", tmp_path / "log")
        process.start([*COMMAND, *words])
        for _ in range(3):
            logfs(
                "append",
                f"{data}/{topic}/0",
                data=b"".join(b"%d\n" % (number + n) for n in range(50)),
            )
            number += 50
            output("sync", "--file-system", data)
            wait_until(lambda n=number: client.latest(topic) >= n, "they were sent")  # type: ignore[misc]
        device.go_away()
        process.kill()
        device.remount()
    logfs(*words, "--until", "now")
    assert len(check_forwarded(client, data, topic)) == number == client.latest(topic)
