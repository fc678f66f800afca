"""A forward to a broker that fails at random: every record once, in order, over every failure."""

import json
import random
import subprocess
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord
from tests.clusters.brokers import FakeBroker
from tests.kafka.forwards import RunningForward, forward_now, forward_plan, without_offsets
from tests.mounting import COMMAND, PATIENCE_S, Mount, now_ms
from tests.processes import Process, wait_until

pytestmark = pytest.mark.allow_log("logfs.kafka.")
QUICK = {"reconnect.backoff.ms": "1", "reconnect.backoff.max.ms": "3"}


def make(data: Path, topic: str = "t") -> None:
    data.mkdir()
    with logfs.open_store(str(data)) as store:
        store.create_topic(topic, 1, {"retention.ms": "-1"})


def append(data: Path, chance: random.Random, number: int) -> int:
    """Append records of many sizes; returns the number of the next one."""
    with logfs.open(f"{data}/t/0") as partition:
        for _ in range(chance.randint(1, 12)):
            count = chance.choice([1, 1, 2, 30])
            size = chance.choice([1, 10, 3000])
            partition.append_many(
                NewRecord(b"%d " % n * size, b"k%d" % (n % 5), ((b"h", None),), 1000 + n)
                for n in range(number, number + count)
            )
            number += count
    return number


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loses", [False, True])
def test_every_record_is_there_once(seed: int, loses: bool, tmp_path: Path) -> None:
    data, chance, number = tmp_path / "data", random.Random(seed), 0
    make(data)
    with FakeBroker("t", 1, random.Random(seed)) as broker:
        broker.loses = loses
        for _ in range(6):
            number = append(data, chance, number)
            plan = forward_plan(broker.bootstrap, "t")
            with RunningForward(data, plan, **QUICK) as running:
                if chance.random() < 0.5:
                    running.wait_for(number)
            if chance.random() < 0.5:
                broker.forget()
        broker.chance = None
        forward_now(data, forward_plan(broker.bootstrap, "t", until_now=True), **QUICK)
        with logfs.open(f"{data}/t/0") as partition:
            ours = without_offsets(list(partition.read()))
        assert len(ours) == number
        assert without_offsets(broker.logs[0].records()) == ours


def test_a_log_that_ends_before_what_was_forwarded_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make(data)
    append(data, random.Random(1), 0)
    with FakeBroker("t") as broker:
        plan = forward_plan(broker.bootstrap, "t", start=10_000, resumes=True)
        with RunningForward(data, plan, **QUICK) as running:
            running.wait_for_end()
    (failure,) = running.forward.failures
    assert "what was forwarded ends at 10000: this log has lost its end" in failure
    assert not broker.logs[0].batches


@pytest.mark.parametrize("seed", range(2))
def test_by_key_every_record_is_there_once(seed: int, tmp_path: Path) -> None:
    data, chance, number = tmp_path / "data", random.Random(seed), 0
    make(data)
    with FakeBroker("t", 3, random.Random(seed)) as broker:
        for _ in range(5):
            number = append(data, chance, number)
            plan = forward_plan(broker.bootstrap, "t", by_key=True)
            with RunningForward(data, plan, **QUICK) as running:
                if chance.random() < 0.5:
                    running.wait_for(number)
            if chance.random() < 0.5:
                broker.forget()
        broker.chance = None
        plan = forward_plan(broker.bootstrap, "t", by_key=True, until_now=True)
        forward_now(data, plan, **QUICK)
        with logfs.open(f"{data}/t/0") as partition:
            ours = without_offsets(list(partition.read()))
        theirs = [log.records() for log in broker.logs]
        assert sum(map(len, theirs)) == len(ours) == number
        for records in theirs:
            keys = {record.key for record in records}
            assert without_offsets(records) == [record for record in ours if record.key in keys]


def test_a_record_that_is_too_large_stops_it_or_is_left_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make(data)
    with logfs.open(f"{data}/t/0") as partition:
        partition.append_many([b"%d" % n for n in range(50)])
        partition.append(b"x" * 5000)
        partition.append_many([b"%d" % n for n in range(50, 100)])
    with FakeBroker("t") as broker:
        broker.most_bytes = 600
        plan = forward_plan(broker.bootstrap, "t", until_now=True)
        with RunningForward(data, plan, **QUICK) as running:
            running.wait_for_end()
        (failure,) = running.forward.failures
        assert "t/0: offset 50" in failure
        assert "--skip-too-large" in failure
        plan = forward_plan(broker.bootstrap, "t", until_now=True, skips_too_large=True)
        with RunningForward(data, plan, **QUICK) as running:
            running.wait_for_end()
        assert running.forward.losses == 1
        assert [r.value for r in broker.logs[0].records()] == [b"%d" % n for n in range(100)]


@pytest.mark.fuse
def test_beside_a_daemon_lines_are_sent_and_trim_waits_for_them(tmp_path: Path) -> None:
    process = Process("forward", tmp_path / "log")
    with FakeBroker("t") as broker, Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        to, log = f"kafka://{broker.bootstrap}", broker.logs[0]
        (mount.point / "t").mkdir()
        path = mount.point / "t" / "0"
        with path.open("ab", buffering=0) as file:
            file.write(b"first\n")
            process.start([*COMMAND, "forward", mount.point / "t", "--to", to, "-X", "linger.ms=0"])
            wait_until(lambda: log.end == 1, "the line is there")
            file.write(b"half a ")
            file.write(b"line\nsecond\n")
            wait_until(lambda: log.end == 3, "three lines are there")
        second = run("forward", mount.point / "t", "--to", to)
        assert second.returncode == 1
        assert "lock" in second.stderr
        meta = path.with_name("0.meta")
        wait_until(
            lambda: json.loads(meta.read_text())["forward"][0]["lag_records"] == 0, ".meta shows it"
        )
        assert "logfs_forward_lag_records" in run("metrics", mount.point).stdout
        assert lag_s(mount) == 0
        assert process.stop() == 0, process.log
        old_ms = now_ms() - 3_600_000
        with path.with_name("0.jsonl").open("a") as lines:
            lines.write(json.dumps({"value": "third", "timestamp": old_ms}) + "\n")
            lines.write(json.dumps({"value": "fourth"}) + "\n")
        before_ms = now_ms()
        assert json.loads(meta.read_text())["forward"][0]["oldest"] == old_ms
        assert before_ms - old_ms <= lag_s(mount) * 1000 <= now_ms() - old_ms
        refused = run("trim", f"{mount.point}/t/0@latest")
        assert refused.returncode == 1
        assert "offsets from 3 on were not forwarded" in refused.stderr
        forced = run("trim", f"{mount.point}/t/0@latest", "--even-if-not-forwarded")
        assert forced.returncode == 0, forced.stderr
    assert [r.value for r in log.records()] == [b"first", b"half a line", b"second"]


def lag_s(mount: Mount) -> float:
    """Return the age of the oldest record that waits."""
    for line in run("metrics", mount.point).stdout.splitlines():
        if line.startswith("logfs_forward_lag_seconds{"):
            return float(line.split()[-1])
    raise AssertionError("no such metric")


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
