"""``logfs mirror`` as a process: killed, refused, beside a mount, and its exit status."""

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.mirrors import stored
from tests.long import KILLS
from tests.mounting import COMMAND, PATIENCE_S, Mount
from tests.processes import Process, wait_until

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000
QUICK = ("-X", "fetch.wait.max.ms=50", "-X", "metadata.max.age.ms=500")


def records(count: int, first: int = 0) -> list[Record]:
    return [
        Record(0, START_MS + n, None, b"line %07d" % n, ()) for n in range(first, first + count)
    ]


def run(*words: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, input=stdin, timeout=PATIENCE_S
    )


def mirror(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run("mirror", data, *words)


def produced(client: Client, topic: str, count: int, first: int = 0) -> None:
    client.produce(topic, records(count, first), compression_type="lz4")


@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_a_mirror_that_is_killed_continues_where_it_was(
    kills: int, shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    topic, data, chance = f"killed-{kills}", tmp_path / "data", random.Random(kills)
    data.mkdir()
    client.create_topic(topic)
    process = Process("mirror", tmp_path / "log")
    address = f"kafka://{shared_broker.bootstrap}"
    for number in range(kills):
        produced(client, topic, 2000, 2000 * number)
        before = len(stored(data / f"{topic}-0"))
        process.start([*COMMAND, "mirror", data, topic, "--from", address, *QUICK])
        grown = chance.choice([0, 1, 5000, 20_000])
        wait_until(
            lambda before=before, grown=grown: (  # type: ignore[misc]
                len(stored(data / f"{topic}-0")) >= before + min(grown, 1)
            ),
            "something was fetched",
        )
        process.kill()
    done = mirror(data, topic, "--from", address, "--until", "now")
    assert (done.returncode, done.stderr) == (0, "")
    assert stored(data / f"{topic}-0") == stored(shared_broker.partition(topic))
    assert run("verify", data).returncode == 0


def test_exit_statuses_and_what_is_said(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    data, address = tmp_path / "data", f"kafka://{shared_broker.bootstrap}"
    data.mkdir()
    client.create_topic("said")
    nobody = mirror(data, "said", "--from", "kafka://127.0.0.1:1", "--until", "now")
    assert nobody.returncode == 75
    assert "127.0.0.1:1: Connection refused" in nobody.stderr
    missing = mirror(data, "nowhere", "--from", address, "--until", "now")
    assert missing.returncode == 1
    assert "the cluster has no such topic" in missing.stderr
    for words in (("said",), (), ("said", "--from", address, "--promote")):
        assert mirror(data, *words).returncode == 2
    wrong = mirror(data, "said", "--from", address, "-X", "fetch.wait=5")
    assert wrong.returncode == 1
    assert "did you mean fetch.wait.max.ms?" in wrong.stderr
    assert run("topic", "create", data / "said").returncode == 0
    ordinary = mirror(data, "said", "--from", address, "--until", "now")
    assert ordinary.returncode == 1
    assert "said/0 is an ordinary partition" in ordinary.stderr


def test_a_mirror_refuses_everything_but_its_source_until_it_is_promoted(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    client.create_topic("ours")
    produced(client, "ours", 10)
    address = f"kafka://{shared_broker.bootstrap}"
    assert mirror(data, "ours", "--from", address, "--until", "now").returncode == 0
    for words in (
        ("append", data / "ours/0"),
        ("topic", "alter", data / "ours", "--partitions", "3"),
    ):
        refused = run(*words, stdin="x\n")
        assert refused.returncode == 1
        assert "is a mirror of topic ours" in refused.stderr
    assert run("mirror", "--promote", data / "ours").returncode == 0
    assert run("append", data / "ours/0", stdin="x\n").returncode == 0
    assert run("cat", data / "ours/0").stdout.splitlines()[-1] == "x"
    again = run("mirror", "--promote", data / "ours")
    assert (again.returncode, "is no mirror" in again.stderr) == (1, True)


@pytest.mark.fuse
def test_a_mirror_through_a_daemon_that_is_killed_and_a_second_mirror(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("seen")
    produced(client, "seen", 100)
    address = f"kafka://{shared_broker.bootstrap}"
    process = Process("mirror", tmp_path / "log")
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        path = mount.point / "seen" / "0"
        process.start([*COMMAND, "mirror", mount.point, "seen", "--from", address, *QUICK])
        wait_until(lambda: lines(path) == 100, "the records are seen")
        with pytest.raises(OSError, match="Read-only"):
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
        meta = json.loads(path.with_name("0.meta").read_text())["mirror"]
        assert (meta["source"], meta["state"]) == ("seen", "mirroring")
        wait_until(lambda: fetches(mount) > 0, "the metrics show fetches")
        assert "logfs_mirror_lag_records" in metrics(mount)
        mount.crash()
        produced(client, "seen", 100)
        wait_until(lambda: lines(path) == 200, "it continues with the next daemon")
        assert process.stop() == 0, process.log
        assert run("mirror", "--promote", mount.point / "seen").returncode == 0
        with path.open("ab") as file:
            file.write(b"mine\n")
        assert lines(path) == 201


@pytest.mark.fuse
def test_one_of_two_mirrors_through_a_daemon_continues(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("both")
    address = f"kafka://{shared_broker.bootstrap}"
    processes = [Process(f"mirror {n}", tmp_path / f"log-{n}") for n in (0, 1)]
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        path = mount.point / "both" / "0"
        for process in processes:
            process.start([*COMMAND, "mirror", mount.point, "both", "--from", address, *QUICK])
        sent = 0
        while all(process.running.poll() is None for process in processes):
            produced(client, "both", 10, sent)
            sent += 10
            wait_until(lambda: lines(path) == sent, "the records are seen")  # noqa: B023
        loser, winner = sorted(processes, key=lambda process: process.running.poll() is None)
        assert loser.wait() == 1
        assert "another mirror writes to it: stop one of them" in loser.log
        produced(client, "both", 10, sent)
        wait_until(lambda: lines(path) == sent + 10, "the other continues")
        assert winner.stop() == 0, winner.log
    assert stored(tmp_path / "data" / "both-0") == stored(shared_broker.partition("both"))


@pytest.mark.fuse
def test_a_topic_made_again_is_kept_under_another_name_through_a_daemon(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    address = f"kafka://{shared_broker.bootstrap}"
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        words = ("made-again", "--from", address, "--until", "now", "--on-recreate", "keep")
        said = ""
        for count in (7, 3):
            client.create_topic("made-again")
            produced(client, "made-again", count)
            done = mirror(mount.point, *words)
            assert done.returncode == 0, done.stderr
            client.delete_topic("made-again")
            said = done.stderr
        found = {path.name: lines(path / "0") for path in mount.point.iterdir()}
        (kept,) = found.keys() - {"made-again"}
        assert found == {"made-again": 3, kept: 7}
        assert "is kept as made-again.20" in said
        status = run("status", mount.point)
        assert "failed" not in status.stdout, status.stdout
        meta = json.loads((mount.point / kept / "0.meta").read_text())["mirror"]
        assert meta["state"] == "stopped"


def lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return -1


def metrics(mount: Mount) -> str:
    return run("metrics", mount.point).stdout


def fetches(mount: Mount) -> float:
    """Return how many fetches the metrics show."""
    lines = metrics(mount).splitlines()
    return sum(float(line.split()[-1]) for line in lines if "_fetch_seconds_count{" in line)


def test_a_second_mirror_of_a_directory_is_refused(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    data, address = tmp_path / "data", f"kafka://{shared_broker.bootstrap}"
    data.mkdir()
    client.create_topic("twice")
    produced(client, "twice", 5)
    process = Process("mirror", tmp_path / "log")
    process.start([*COMMAND, "mirror", data, "twice", "--from", address, *QUICK])
    wait_until(lambda: stored(data / "twice-0"), "it mirrors")
    second = mirror(data, "twice", "--from", address)
    assert second.returncode == 1
    assert "lock" in second.stderr
    process.running.send_signal(signal.SIGINT)
    assert process.wait() == 0
