"""A cluster of three: leaders are killed, elections are unclean, replicas are fetched from."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord
from logfs.records.record import Record
from tests.kafka import tools
from tests.kafka.client import Client
from tests.kafka.forwards import RunningForward, append, check_forwarded, forward_plan, make, some
from tests.kafka.mirrors import RunningMirror, plan_for, stored
from tests.kafka.threebrokers import NODES, ThreeBrokers
from tests.log.verifying import check
from tests.mounting import COMMAND
from tests.processes import Process, wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.allow_log("logfs.kafka.", "logfs.log.losses"),
]
START_MS = 1_700_000_000_000
QUICK = ("-X", "reconnect.backoff.ms=50", "-X", "reconnect.backoff.max.ms=500")
UNCLEAN: dict[str, str] = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path_factory.mktemp("kafka")) as brokers:
        yield brokers


def records(count: int, first: int = 0) -> list[Record]:
    return [Record(0, START_MS + n, None, b"value %d" % n) for n in range(first, first + count)]


def wait_for_replicas(client: Client, topic: str, *nodes: int, partition: int = 0) -> None:
    wait_until(lambda: client.in_sync(topic, partition) == sorted(nodes), f"{nodes} are in sync")


def test_a_mirror_follows_leaders_that_are_killed(brokers: ThreeBrokers, data: Path) -> None:
    client = Client(brokers.bootstrap, replicas=3)
    client.create_topic("led", 3, min_insync_replicas="2")
    with RunningMirror(data, plan_for(brokers.bootstrap, "led")) as running:
        for number in range(8):
            first = 200 * number
            for partition in range(3):
                client.produce("led", records(100, first), partition, compression_type="lz4")
            node = brokers.wait_for_leader(client, "led", number % 3)
            brokers.kill(node)
            for partition in range(3):
                client.produce(
                    "led", records(100, first + 100), partition, enable_idempotence="true"
                )
            for partition in range(3):
                running.wait_for("led", first + 200, partition)
            brokers.start(node)
            for partition in range(3):
                wait_for_replicas(client, "led", *NODES, partition=partition)
        assert not running.mirror.losses
        assert not running.mirror.failures
    for partition in range(3):
        leader = brokers.wait_for_leader(client, "led", partition)
        theirs = stored(brokers.partition(leader, "led", partition))
        assert stored(data / f"led-{partition}") == theirs
        with logfs.open(f"{data}/led/{partition}") as ours:
            assert [r.value for r in ours.read()] == [r.value for r in records(1600)]
    assert not check(running.store.disk).damages


def test_a_mirror_fetches_from_the_replica_in_its_rack_and_from_the_leader_without_it(
    brokers: ThreeBrokers, data: Path
) -> None:
    client = Client(brokers.bootstrap, replicas=3)
    client.create_topic("near", min_insync_replicas="1")
    leader = brokers.wait_for_leader(client, "near")
    near = next(node for node in NODES if node != leader)
    plan = plan_for(brokers.bootstrap, "near")
    with RunningMirror(data, plan, **{"client.rack": f"rack-{near}"}) as running:
        client.produce("near", records(10))
        running.wait_for("near", 10)
        (partition,) = running.mirror.partitions
        running.wait_until(lambda: partition.replica == near, "it asks the replica")
        client.produce("near", records(10))
        running.wait_for("near", 20)
        brokers.kill(near)
        client.produce("near", records(10))
        running.wait_for("near", 30)
        brokers.start(near)
        wait_for_replicas(client, "near", *NODES)
    assert stored(data / "near-0") == stored(brokers.partition(leader, "near"))


class Election:
    """A partition whose leader is killed while its follower is down: what it had alone is lost."""

    def __init__(self, brokers: ThreeBrokers, topic: str) -> None:
        self.client = Client(brokers.bootstrap, replicas=2)
        self.topic = topic
        self._brokers = brokers
        self.client.create_topics({topic: UNCLEAN})
        wait_until(lambda: len(self.client.in_sync(topic)) == 2, "both are in sync")
        self._leader = brokers.wait_for_leader(self.client, topic)
        (self.follower,) = set(self.client.in_sync(topic)) - {self._leader}

    def lose_follower(self) -> None:
        wait_for_replicas(self.client, self.topic, self._leader, self.follower)
        self._brokers.kill(self.follower)
        wait_for_replicas(self.client, self.topic, self._leader)

    def elect_follower(self) -> None:
        self._brokers.kill(self._leader)
        self._brokers.start(self.follower)
        wait_until(lambda: self.client.leader(self.topic) == self.follower, "it is elected")

    def end(self) -> None:
        self._brokers.start(self._leader)
        wait_for_replicas(self.client, self.topic, self._leader, self.follower)


def test_a_mirror_cuts_what_an_unclean_election_has_lost(brokers: ThreeBrokers, data: Path) -> None:
    election = Election(brokers, "unclean")
    client = election.client
    with RunningMirror(data, plan_for(brokers.bootstrap, "unclean")) as running:
        client.produce("unclean", records(100))
        running.wait_for("unclean", 100)
        election.lose_follower()
        client.produce("unclean", records(50, 100))
        running.wait_for("unclean", 150)
        election.elect_follower()
        client.produce("unclean", records(40, 500))
        running.wait_for("unclean", 140)
        (loss,) = running.log("unclean").losses
        assert (loss.kind, "offsets 100 to 149 were cut" in loss.detail) == ("diverged", True)
        election.end()
    assert stored(data / "unclean-0") == stored(brokers.partition(election.follower, "unclean"))
    assert not check(running.store.disk).damages


def test_a_forward_sends_again_what_an_unclean_election_has_lost(
    brokers: ThreeBrokers, data: Path
) -> None:
    election = Election(brokers, "lossy")
    make(data, "lossy")
    append(data, "lossy", some(100))
    with RunningForward(data, forward_plan(brokers.bootstrap, "lossy")) as running:
        running.wait_for(100)
        election.lose_follower()
        append(data, "lossy", some(50, 100))
        running.wait_for(150)
        election.elect_follower()
        append(data, "lossy", some(40, 150))
        running.wait_for(190)
        election.end()
    assert len(check_forwarded(Client(brokers.bootstrap), data, "lossy")) == 190


def test_a_forward_is_killed_while_leaders_are_killed(
    brokers: ThreeBrokers, data: Path, tmp_path: Path
) -> None:
    client = Client(brokers.bootstrap, replicas=3)
    client.create_topic("shipped", min_insync_replicas="2")
    make(data, "shipped")
    over = threading.Event()
    count = 0

    def write() -> None:
        nonlocal count
        while not over.wait(0.02):
            append(data, "shipped", some(10, count))
            count += 10

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    process = Process("forward", tmp_path / "log")
    to = f"kafka://{brokers.bootstrap}"
    command = [*COMMAND, "forward", str(data / "shipped"), "--to", to, "-X", "linger.ms=0", *QUICK]
    kill_with_leaders(brokers, client, "shipped", process, command)
    over.set()
    writing.join()
    process.start([*command, "--until", "now"])
    assert process.wait() == 0, process.log
    assert len(check_forwarded(client, data, "shipped")) == count > 100
    assert client.latest("shipped") == count


def test_a_mirror_is_killed_while_leaders_are_killed(
    brokers: ThreeBrokers, data: Path, tmp_path: Path
) -> None:
    client = Client(brokers.bootstrap, replicas=3)
    client.create_topic("copied", min_insync_replicas="2")
    over = threading.Event()
    count = 0

    def write() -> None:
        nonlocal count
        while not over.wait(0.05):
            client.produce("copied", records(10, count), enable_idempotence="true")
            count += 10

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    process = Process("mirror", tmp_path / "log")
    source = f"kafka://{brokers.bootstrap}"
    command = [*COMMAND, "mirror", str(data), "copied", "--from", source, *QUICK]
    kill_with_leaders(brokers, client, "copied", process, command)
    over.set()
    writing.join()
    process.start([*command, "--until", "now"])
    assert process.wait() == 0, process.log
    leader = brokers.wait_for_leader(client, "copied")
    assert stored(data / "copied-0") == stored(brokers.partition(leader, "copied"))
    with logfs.open(f"{data}/copied/0") as ours:
        assert [r.value for r in ours.read()] == [r.value for r in records(count)]
    assert count > 100


def kill_with_leaders(
    brokers: ThreeBrokers, client: Client, topic: str, process: Process, command: list[str]
) -> None:
    """Kill a process 200 times, and the leader of its topic 20 times."""
    chance, pause = random.Random(1), threading.Event()
    for _ in range(20):
        leader = brokers.wait_for_leader(client, topic)
        for kill in range(10):
            process.start(command)
            pause.wait(chance.uniform(0.3, 1.5))
            if kill == 5:
                brokers.kill(leader)
            pause.wait(chance.uniform(0, 0.5))
            process.kill()
        brokers.start(leader)
        wait_for_replicas(client, topic, *NODES)


def test_an_outage_of_the_whole_cluster_is_waited_for(brokers: ThreeBrokers, data: Path) -> None:
    client = Client(brokers.bootstrap, replicas=3)
    for topic in ("away", "back"):
        client.create_topic(topic, min_insync_replicas="2")
    client.produce("away", records(100))
    local = data.with_name("local")
    local.mkdir()
    make(local, "back")
    append(local, "back", some(100))
    with (
        RunningMirror(data, plan_for(brokers.bootstrap, "away")) as mirror,
        RunningForward(local, forward_plan(brokers.bootstrap, "back")) as forward,
    ):
        mirror.wait_for("away", 100)
        forward.wait_for(100)
        for node in NODES:
            brokers.kill(node)
        append(local, "back", some(50, 100))
        (one,), (other,) = mirror.mirror.partitions, forward.forward.partitions
        mirror.wait_until(lambda: "refused" in one.error, "the mirror says so")
        forward.wait_until(lambda: "refused" in other.sender.error, "the forward says so")
        assert (other.lag, forward.forward.failures) == (50, [])
        brokers.start(*NODES)
        client.produce("away", records(50, 100))
        mirror.wait_for("away", 150)
        forward.wait_for(150)
        mirror.wait_until(lambda: not one.error, "the error is over")
        assert not mirror.mirror.losses
        assert not other.sender.error
    leader = brokers.wait_for_leader(client, "away")
    assert stored(data / "away-0") == stored(brokers.partition(leader, "away"))
    assert len(check_forwarded(client, local, "back")) == 150


def test_a_quota_slows_both_down_and_no_more(brokers: ThreeBrokers, data: Path) -> None:
    client = Client(brokers.bootstrap, replicas=3)
    for topic in ("slow", "slowly"):
        client.create_topic(topic)
    client.produce("slow", [Record(0, START_MS, None, b"%d" % n * 300) for n in range(3000)])
    local = data.with_name("local")
    local.mkdir()
    make(local, "slowly")
    for first in range(0, 3000, 100):
        append(local, "slowly", [NewRecord(b"%d" % n * 300) for n in range(first, first + 100)])
    limit_clients(brokers, "--add-config", "producer_byte_rate=100000,consumer_byte_rate=100000")
    try:
        with (
            RunningMirror(data, plan_for(brokers.bootstrap, "slow")) as mirror,
            RunningForward(local, forward_plan(brokers.bootstrap, "slowly")) as forward,
        ):
            mirror.wait_for("slow", 3000)
            forward.wait_for(3000)
            assert mirror.mirror.partitions[0].throttled_ms > 0
            assert forward.forward.partitions[0].sender.totals.throttled_ms > 0
            assert not forward.forward.losses
    finally:
        limit_clients(brokers, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    leader = brokers.wait_for_leader(client, "slow")
    assert stored(data / "slow-0") == stored(brokers.partition(leader, "slow"))
    assert len(check_forwarded(client, local, "slowly")) == 3000


def limit_clients(brokers: ThreeBrokers, how: str, configs: str) -> None:
    """Change the quotas of all clients, as kafka-configs does."""
    where = ("--bootstrap-server", brokers.bootstrap, "--entity-type", "clients")
    done = tools.run(
        "kafka.admin.ConfigCommand", *where, "--entity-default", "--alter", how, configs
    )
    assert done.status == 0, done
