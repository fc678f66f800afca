"""What mirrors and forwards do about refused logins, and replicas that do not have an offset."""

import threading
from pathlib import Path

import pytest

from logfs.errors import ClusterRefusedError
from logfs.kafka.cluster import REFUSED_S, Cluster
from logfs.kafka.settings import ClientSettings, parse_bootstrap
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import Compression
from logfs.records.record import Record
from tests.clusters.brokers import FakeBroker, Partition
from tests.kafka.forwards import RunningForward, append, forward_plan, make, some
from tests.kafka.mirrors import RunningMirror, plan_for

pytestmark = pytest.mark.allow_log("logfs.kafka.")
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "secret",
    "reconnect.backoff.ms": "1",
    "reconnect.backoff.max.ms": "3",
}
RARELY = {"metadata.max.age.ms": "600000", "client.rack": "near"}


class RecordedWaits(threading.Event):
    """An event that notes how often a thread asks for a long wait, and waits 10 ms at most."""

    def __init__(self) -> None:
        super().__init__()
        self.long = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.long += timeout is not None and timeout >= REFUSED_S
        return super().wait(0.01 if timeout is None else min(timeout, 0.01))


def fill(log: Partition, count: int) -> None:
    """Append batches of ten records."""
    for first in range(0, count, 10):
        rows = [Record(n, 1000 + n, None, b"%d" % n) for n in range(first, first + 10)]
        log.append(encode_batch(rows, BatchFields(Compression.NONE, leader_epoch=0)))


def test_a_broker_that_refused_a_login_is_asked_again_after_ten_seconds() -> None:
    now_s = [100.0]
    with FakeBroker("t") as broker:
        addresses = parse_bootstrap(f"kafka://{broker.bootstrap}")[0]
        settings = ClientSettings.from_properties(LOGIN)
        cluster = Cluster(addresses, settings, lambda: now_s[0])
        broker.password = "another"
        for passed_s, refused in ((0, 1), (0, 1), (REFUSED_S - 0.1, 1), (0.1, 2)):
            now_s[0] += passed_s
            with pytest.raises(ClusterRefusedError, match="the login of me is refused: Invalid"):
                cluster.topics(["t"])
            assert broker.refused == refused
        broker.password = "secret"
        now_s[0] += REFUSED_S
        assert "t" in cluster.topics(["t"])
        cluster.close()


def test_a_forward_whose_login_is_refused_waits(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    make(data, "t", 2)
    append(data, "t", some(10))
    with FakeBroker("t", 2) as broker:
        running = RunningForward(data, forward_plan(broker.bootstrap, "t"), **LOGIN)
        waits = running.forward.owner.stopping = RecordedWaits()
        ready = threading.Event()
        running.forward.when_ready = ready.set
        with running:
            running.wait_until(ready.is_set, "it has begun")
            running.wait_for(10)
            broker.password = "another"
            broker.hang_up()
            for partition in (0, 1):
                append(data, "t", some(1, 10), partition)
            running.wait_until(lambda: waits.long > 5, "it has waited for the login")
            running.wait_until(lambda: "login of me is refused" in str(running.said), "it says so")
            assert 1 <= broker.refused < waits.long
            assert not running.forward.failures


def test_a_mirror_whose_login_is_refused_ends_after_one_attempt(tmp_path: Path) -> None:
    with FakeBroker("t") as broker:
        fill(broker.logs[0], 10)
        plan = plan_for(broker.bootstrap, "t")
        with RunningMirror(tmp_path / "data", plan, **LOGIN) as running:
            running.wait_for("t", 10)
            broker.password = "another"
            broker.hang_up()
            running.wait_for_end()
        assert "the login of me is refused" in str(running.error)
        assert broker.refused == 1


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_replica_that_does_not_have_the_offset_is_left_for_the_leader(
    *, is_behind: bool, tmp_path: Path
) -> None:
    """It has fewer records than the leader, or has deleted more than the leader."""
    with FakeBroker("t") as leader, FakeBroker("t") as replica:
        leader.replica = replica
        fill(leader.logs[0], 100)
        if is_behind:
            fill(replica.logs[0], 50)
        else:
            replica.logs[0].start = 150
        plan = plan_for(leader.bootstrap, "t")
        with RunningMirror(tmp_path / "data", plan, **RARELY) as running:
            running.wait_for("t", 100)
            leader.prefers = 1
            running.wait_until(lambda: replica.fetches, "it asks the replica")
            fill(leader.logs[0], 10)
            running.wait_for("t", 110)
            (partition,) = running.mirror.partitions
            assert (partition.replica, partition.node) == (None, 1)
            assert not running.mirror.losses
            assert replica.fetches == 1
