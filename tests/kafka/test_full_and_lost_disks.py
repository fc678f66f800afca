"""A mirror and a forward on a file system that is full, or loses what was not synced."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.log.forwardfile import ForwardFile, read_notes
from logfs.machine.disks import disk_of
from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.forwards import check_forwarded, make
from tests.kafka.mirrors import RunningMirror, plan_for, stored
from tests.log.verifying import check
from tests.loopdevices import LoopDevice, loop_device
from tests.mounting import COMMAND, logfs
from tests.processes import Process, wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.allow_log("logfs.kafka.", "logfs.log.losses"),
]
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
    lost = 0
    for number in range(3):
        before = len(stored(data / f"{topic}-0"))
        client.produce(topic, large(300, 300 * number))
        process = Process("mirror", tmp_path / "log")
        process.start([*COMMAND, *words])
        wait_until(lambda b=before: len(stored(data / f"{topic}-0")) > b, "something was fetched")  # type: ignore[misc]
        fetched = len(stored(data / f"{topic}-0"))
        device.go_away()
        process.kill()
        device.remount()
        lost += len(stored(data / f"{topic}-0")) < fetched
    assert lost, "everything was durable before the power cut"
    logfs(*words, "--until", "now")
    assert stored(data / f"{topic}-0") == stored(shared_broker.partition(topic))
    logfs("verify", data)


@pytest.mark.long
def test_after_a_power_cut_a_forward_whose_note_is_older_sends_every_record_once(
    forgetful: Broker, device: LoopDevice, data: Path, tmp_path: Path
) -> None:
    topic, number, older = "cut-short", 0, 0
    client = Client(forgetful.bootstrap)
    client.create_topic(topic)
    make(data, topic)
    words = ("forward", f"{data}/{topic}", "--to", f"kafka://{forgetful.bootstrap}", *QUICK)
    for _ in range(4):
        process = Process("forward", tmp_path / "log")
        append(data, topic, number)
        process.start([*COMMAND, *words])
        wait_until(lambda n=number: client.latest(topic) >= n + 50, "the first were sent")  # type: ignore[misc]
        append(data, topic, number + 50)
        number += 100
        wait_until(lambda n=number: client.latest(topic) >= n, "all were sent")  # type: ignore[misc]
        device.go_away()
        process.kill()
        device.remount()
        older += noted(data, f"{topic}-0") < number
    assert older, "every note was durable before the power cut"
    logfs(*words, "--until", "now")
    assert len(check_forwarded(client, data, topic)) == number == client.latest(topic)


def append(data: Path, topic: str, first: int) -> None:
    """Append records that a broker soon forgets the producer of, in its own process."""
    rows: list[dict[str, object]] = [
        {"timestamp": START_MS + n, "key": None, "value": f"{n}", "headers": []}
        for n in range(first, first + 50)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    logfs("append", "--durable", f"{data}/{topic}/0.jsonl", data=lines.encode())


def noted(data: Path, directory: str) -> int:
    """Return up to which offset a note says that records were acknowledged."""
    disk = disk_of(str(data))
    (note,) = read_notes(disk, directory)
    file = ForwardFile.open(disk, f"{directory}/{note.name}")
    position = file.position(0)
    file.close()
    return 0 if position is None else position.next_offset
