"""``logfs forward`` as a process: killed, refused, beside a daemon, and its exit status."""

import random
import subprocess
import threading
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.forwards import START_MS, check_forwarded
from tests.long import KILLS
from tests.mounting import COMMAND, PATIENCE_S
from tests.processes import Process, wait_until

pytestmark = pytest.mark.kafka
QUICK = ("-X", "linger.ms=0", "-X", "reconnect.backoff.ms=50", "-X", "reconnect.backoff.max.ms=500")


def run(*words: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, input=stdin, timeout=PATIENCE_S
    )


class Writing(threading.Thread):
    """Appends records of every kind until it is told to stop."""

    def __init__(self, path: str, pause_s: float) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._path, self._pause_s = path, pause_s

    def run(self) -> None:
        chance, number = random.Random(1), 0
        with logfs.open(self._path) as partition:
            while not self.over.wait(self._pause_s):
                count = chance.choice([1, 1, 1, 10, 100])
                partition.append_many(
                    NewRecord(
                        b"line %d" % n,
                        None if n % 5 == 0 else b"k%d" % (n % 7),
                        ((b"h", b"%d" % n),) if n % 3 == 0 else (),
                        START_MS + n,
                    )
                    for n in range(number, number + count)
                )
                number += count


@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_a_forward_that_is_killed_sends_everything_once(
    kills: int, shared_broker: Broker, tmp_path: Path
) -> None:
    kill_and_check(shared_broker, f"shipped-{kills}", kills, tmp_path)


@pytest.mark.long
def test_also_if_the_broker_forgets_producers_at_once(forgetful: Broker, tmp_path: Path) -> None:
    kill_and_check(forgetful, "shipped", 200, tmp_path)


def kill_and_check(broker: Broker, topic: str, kills: int, tmp_path: Path) -> None:
    """Kill forwards while records are appended, and compare both sides at the end."""
    data, chance, client = tmp_path / "data", random.Random(kills), Client(broker.bootstrap)
    data.mkdir()
    client.create_topic(topic)
    assert run("topic", "create", data / topic, "--config", "retention.ms=-1").returncode == 0
    to = f"kafka://{broker.bootstrap}"
    process = Process("forward", tmp_path / "log")
    writing = Writing(f"{data}/{topic}/0", 0.01)
    writing.start()
    for number in range(kills):
        process.start([*COMMAND, "forward", data / topic, "--to", to, *QUICK])
        before = client.latest(topic)
        if number % 4:
            wait_until(
                lambda before=before: client.latest(topic) > before,  # type: ignore[misc]
                "something was sent",
            )
        writing.over.wait(chance.uniform(0, 0.3))
        process.kill()
    writing.over.set()
    writing.join()
    done = run("forward", data / topic, "--to", to, "--until", "now")
    assert (done.returncode, done.stderr) == (0, "")
    records = check_forwarded(client, data, topic)
    assert client.latest(topic) == len(records) > kills
    assert run("verify", data).returncode == 0


def test_exit_statuses_and_what_is_said(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    data, to = tmp_path / "data", f"kafka://{shared_broker.bootstrap}"
    data.mkdir()
    assert run("topic", "create", data / "told", "--partitions", "2").returncode == 0
    nobody = run("forward", data / "told", "--to", "kafka://127.0.0.1:1", "--until", "now")
    assert nobody.returncode == 75
    assert "127.0.0.1:1: Connection refused" in nobody.stderr
    missing = run("forward", data / "told", "--to", to, "--until", "now")
    assert missing.returncode == 1
    assert "the cluster has no topic told: make it first" in missing.stderr
    client.create_topic("told")
    for partition in (0, 1):
        assert run("append", data / f"told/{partition}", stdin="x\n").returncode == 0
    few = run("forward", data / "told", "--to", to, "--until", "now")
    assert few.returncode == 1
    assert "topic told has no partition 1: give it as many partitions" in few.stderr
    one = run("forward", data / "told/0", "--to", to, "--until", "now")
    assert (one.returncode, one.stderr) == (0, "")
    for words in ((), (data / "told",), ("--to", to), (data / "told/0@now", "--to", to)):
        assert run("forward", *words).returncode in {1, 2}
    status = run("status", data)
    assert "told is forwarded to kafka://" in status.stdout + status.stderr
    verified = run("verify", data)
    assert (verified.returncode, "logfs.forward" in verified.stdout) == (0, False)
