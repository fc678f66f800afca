"""The units of ``logfs mirror`` and ``logfs forward`` under a real systemd, with a real broker."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.mounting import wait_until

HERE = Path(__file__).parent
CONFIGURATION = """
data = "/var/lib/logfs"
mountpoint = "/mnt/logs"
options = ["allow_other"]
[[mirror]]
from = "kafka://{bootstrap}"
topics = ["orders"]
[[forward]]
topic = "web"
to = "kafka://{bootstrap}/sent"
[forward.kafka]
"linger.ms" = "0"
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "kafka") as broker:
        yield broker


@pytest.mark.fuse
@pytest.mark.kafka
@pytest.mark.long
def test_a_mirror_and_a_forward_under_systemd(broker: Broker, tmp_path: Path) -> None:
    client, shared = Client(broker.bootstrap), tmp_path / "shared"
    client.create_topic("orders")
    client.create_topic("sent")
    client.produce("orders", lines(50))
    shared.mkdir()
    (shared / "web.toml").write_text(CONFIGURATION.format(bootstrap=broker.bootstrap))
    (shared / "scenario").write_bytes((HERE / "clusters.sh").read_bytes())
    as_root = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    logfs = f"{shlex.quote(sys.executable)} -m logfs"
    command = [*as_root, "bash", str(HERE / "boot.sh"), str(shared), logfs, "host"]
    with subprocess.Popen(command) as booted:
        wait_until(
            lambda: (shared / "killed").exists() or booted.poll() is not None, "it was killed"
        )
        client.produce("orders", lines(30))
        assert booted.wait(120) == 0
    told, daemon = (shared / "out").read_text(), (shared / "daemon").read_text()
    assert told.splitlines() == [
        "mirror: 0 active",
        "mirrored: 50 lines",
        "it takes no appends",
        "after a kill: 80 lines",
        "forward: 0 active",
        'sent: "held_offset": 3',
        "active",
        "stopped: success",
        "stopped: success",
        "done",
    ], f"{told}\n{(shared / 'err').read_text()}\n{daemon}"
    assert [record.value for record in client.consume("sent")] == [b"one", b"two", b"three"]


def lines(count: int) -> list[Record]:
    return [Record(0, 1_700_000_000_000, None, b"line %d" % n) for n in range(count)]
