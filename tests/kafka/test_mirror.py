"""A mirror beside a real broker: the same bytes, over everything that happens to the source."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from logfs.kafka import fetcher
from logfs.kafka.cluster import LATEST
from logfs.kafka.fetching import NEWEST_VERSION
from logfs.kafka.selection import OnRecreate
from logfs.log.mirrorfile import FAILED, STOPPED
from logfs.records.record import Record
from logfs.types import IsolationLevel
from tests.fakes import FakeDisk
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, Client
from tests.kafka.mirrors import RunningMirror, plan_for, stored
from tests.log.verifying import check
from tests.mounting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.allow_log("logfs.kafka.", "logfs.log.losses")]
START_MS = 1_700_000_000_000


def records(count: int, first: int = 0) -> list[Record]:
    return [
        Record(0, START_MS + n, b"k%d" % n, b"value %d " % n * 9, ((b"h", b"x"),))
        for n in range(first, first + count)
    ]


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def check_equal(broker: Broker, data: Path, topic: str, partition: int = 0) -> None:
    theirs, ours = stored(broker.partition(topic, partition)), stored(data / f"{topic}-{partition}")
    assert checksum(ours) == checksum(theirs)


def check_clean(running: RunningMirror) -> None:
    """After the store is closed nothing is damaged."""
    assert not [str(finding) for finding in check(running.store.disk).damages]


def test_every_codec_arrives_byte_for_byte_also_live(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("codecs", 2)
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        client.produce("codecs", records(300), compression_type=codec)
    plan = plan_for(shared_broker.bootstrap, "codecs")
    with RunningMirror(data, plan) as running:
        running.wait_for("codecs", 1500)
        for codec in codecs:
            client.produce("codecs", records(300, 300), partition=1, compression_type=codec)
        running.wait_for("codecs", 1500, partition=1)
        source = running.log("codecs").mirror
        assert source is not None
        assert running.store.topic_id("codecs") == source.topic_id
    for partition in (0, 1):
        check_equal(shared_broker, data, "codecs", partition)
    check_clean(running)
    with RunningMirror(data, plan) as again:
        client.produce("codecs", records(10))
        again.wait_for("codecs", 1510)
    check_equal(shared_broker, data, "codecs")
    assert not again.mirror.losses


def test_open_committed_and_aborted_transactions(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("sales")
    producers = [client.producer(transactional_id=f"sales-{n}") for n in range(3)]
    for number, producer in enumerate(producers):
        producer.begin()
        producer.send("sales", records(20, 100 * number))
        producer.flush()
    producers[0].commit()
    producers[1].abort()
    committed = client.consume("sales", isolation=READ_COMMITTED)
    with RunningMirror(data, plan_for(shared_broker.bootstrap, "sales")) as running:
        running.wait_for("sales", 62)
        log = running.log("sales")
        assert log.last_stable_offset == 40
        producers[2].commit()
        running.wait_for("sales", 63)
        assert log.last_stable_offset == 63
        (aborted,) = log.snapshot.aborted
        assert aborted.first_offset == 20
        assert aborted.last_offset in {60, 61}  # the broker writes both markers by itself
        end = log.snapshot.visible_end(IsolationLevel.READ_COMMITTED)
        assert end.offset == 63
    assert len(committed) == 20
    check_equal(shared_broker, data, "sales")
    check_clean(running)


def test_the_topic_grows_and_new_ones_match(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("web-a")
    client.produce("web-a", records(5))
    plan = plan_for(shared_broker.bootstrap, "/web-.*/", prefix="copy-of-")
    with RunningMirror(data, plan) as running:
        running.wait_for("copy-of-web-a", 5)
        client.create_topic("web-b")
        client.produce("web-b", records(7))
        running.wait_for("copy-of-web-b", 7)
        admin = AdminClient({"bootstrap.servers": shared_broker.bootstrap})
        for future in admin.create_partitions([NewPartitions("web-a", 3)]).values():
            future.result(PATIENCE_S)
        running.wait_for("copy-of-web-a", 0, partition=2)
        client.produce("web-a", records(5), partition=2)
        running.wait_for("copy-of-web-a", 5, partition=2)
        assert "__consumer_offsets" not in running.store.topics()
    check_clean(running)


@pytest.mark.parametrize("how", list(OnRecreate))
def test_a_topic_that_was_made_again(
    how: OnRecreate, shared_broker: Broker, client: Client, data: Path
) -> None:
    topic = f"again-{how}"
    client.create_topic(topic)
    client.produce(topic, records(9))
    plan = plan_for(shared_broker.bootstrap, topic, on_recreate=how)
    with RunningMirror(data, plan) as running:
        running.wait_for(topic, 9)
    client.delete_topic(topic)
    client.create_topic(topic)
    client.produce(topic, records(4, 50))
    with RunningMirror(data, plan) as running:
        if how is not OnRecreate.STOP:
            running.wait_for(topic, 4)
            others = [name for name in running.store.topics() if name.startswith(f"{topic}.20")]
            assert len(others) == (how is OnRecreate.KEEP)
            for name in others:
                source = running.log(name).mirror
                assert source is not None
                assert (running.log(name).log_end_offset, source.state) == (9, STOPPED)
        else:
            running.wait_for_end()
            assert running.log(topic).log_end_offset == 9
            assert "made again" in running.mirror.failures[0]
            source = running.log(topic).mirror
            assert source is not None
            assert source.state == FAILED
    if how is not OnRecreate.STOP:
        check_equal(shared_broker, data, topic)


def test_the_log_of_the_source_starts_in_the_middle_of_a_batch(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("middle")
    client.produce("middle", records(100))
    client.delete_records("middle", 37)
    with RunningMirror(data, plan_for(shared_broker.bootstrap, "middle")) as running:
        running.wait_for("middle", 100)
        running.wait_until(
            lambda: running.log("middle").log_start_offset == 37, "it starts where the source does"
        )
        assert not running.mirror.losses
    check_equal(shared_broker, data, "middle")
    check_clean(running)


def test_what_the_source_deleted_before_it_was_fetched_is_a_loss(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("missed")
    client.produce("missed", records(20))
    plan = plan_for(shared_broker.bootstrap, "missed")
    with RunningMirror(data, plan) as running:
        running.wait_for("missed", 20)
    client.produce("missed", records(30))
    client.produce("missed", records(10))
    client.delete_records("missed", 55)
    with RunningMirror(data, plan) as running:
        running.wait_for("missed", 60)
        (loss,) = running.log("missed").losses
        assert (loss.kind, "20 to 49" in loss.detail) == ("missed", True)
        assert running.mirror.losses == 1
    check_clean(running)


@pytest.mark.parametrize("keep_ms", [None, "-1"])
def test_what_the_source_deletes_goes_here_too_unless_all_is_kept(
    keep_ms: str | None, shared_broker: Broker, client: Client, data: Path
) -> None:
    topic = f"deleted-records{keep_ms or ''}"
    client.create_topic(topic, max_message_bytes="54321")
    client.produce(topic, records(20))
    plan = plan_for(shared_broker.bootstrap, topic, keep_ms=keep_ms)
    with RunningMirror(data, plan) as running:
        running.wait_for(topic, 20)
        properties = running.store.topic_properties(topic)
        assert (properties["max.message.bytes"], properties["retention.ms"]) == ("54321", "-1")
        client.delete_records(topic, 8)
        client.produce(topic, records(1))
        running.wait_for(topic, 21)
        start = 8 if keep_ms is None else 0
        running.wait_until(
            lambda: running.log(topic).log_start_offset == start, f"it starts at {start}"
        )


def test_a_mirror_may_begin_at_the_end_or_at_a_moment(
    shared_broker: Broker, client: Client, data: Path, tmp_path: Path
) -> None:
    client.create_topic("late")
    client.produce("late", records(50))
    client.produce("late", records(50, 50))
    with RunningMirror(data, plan_for(shared_broker.bootstrap, "late", start=LATEST)) as running:
        running.wait_for("late", 100)
        client.produce("late", records(5))
        running.wait_for("late", 105)
        assert running.log("late").log_start_offset == 100
    moment = plan_for(shared_broker.bootstrap, "late", start=START_MS + 70)
    with RunningMirror(tmp_path / "moment", moment) as running:
        running.wait_for("late", 105)
        running.wait_until(
            lambda: running.log("late").log_start_offset == 70, "it starts at the moment"
        )
    check_clean(running)


@pytest.mark.long
@pytest.mark.parametrize("newest", [4, 5, 7, 9, 11, 12, 13, 15])
def test_every_version_of_fetch_requests_brings_the_same(
    newest: int,
    shared_broker: Broker,
    client: Client,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "NEWEST_VERSION", newest)
    topic = f"version-{newest}"
    client.create_topic(topic)
    client.produce(topic, records(300), compression_type="zstd" if newest > 9 else "lz4")
    with RunningMirror(data, plan_for(shared_broker.bootstrap, topic)) as running:
        running.wait_for(topic, 300)
        client.produce(topic, records(50, 300))
        running.wait_for(topic, 350)
        assert not running.mirror.losses
    check_equal(shared_broker, data, topic)


def test_until_now_ends_and_a_second_run_copies_what_came(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("backup", 2)
    plan = plan_for(shared_broker.bootstrap, "backup", until_now=True)
    for round_ in range(3):
        client.produce("backup", records(10 * round_), partition=1)
        with RunningMirror(data, plan) as running:
            running.wait_for_end()
            assert running.error is None
    check_equal(shared_broker, data, "backup", 1)


def test_a_full_disk_is_said_and_waited_for(shared_broker: Broker, client: Client) -> None:
    client.create_topic("filling")
    client.produce("filling", records(100))
    disk = FakeDisk()
    with RunningMirror(disk, plan_for(shared_broker.bootstrap, "filling")) as running:
        running.wait_for("filling", 100)
        disk.fill()
        client.produce("filling", records(100, 100))
        (one,) = running.mirror.partitions
        running.wait_until(lambda: "No space left" in one.error, "it says so")
        assert running.log("filling").log_end_offset == 100
        disk.space_bytes = None
        running.wait_for("filling", 200)
        running.wait_until(lambda: not one.error, "the error is over")
        assert not running.mirror.losses
    check_clean(running)
    names = sorted(n for n in disk.contents("filling-0").files if n.endswith(".log"))
    ours = b"".join(disk.read(f"filling-0/{name}") for name in names)
    assert ours == stored(shared_broker.partition("filling"))


@pytest.fixture
def broker_of_its_own(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "kafka") as broker:
        yield broker


@pytest.mark.parametrize("newest", [NEWEST_VERSION, pytest.param(11, marks=pytest.mark.long)])
def test_records_that_the_source_has_lost_are_cut_after_a_copy(
    newest: int, broker_of_its_own: Broker, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "NEWEST_VERSION", newest)
    broker = broker_of_its_own
    Client(broker.bootstrap).create_topic("diverging")
    Client(broker.bootstrap).produce("diverging", records(100))
    broker.stop()
    before = broker.copy_data(broker.directory / "before")
    broker.start()  # each start begins a leader epoch
    for first in range(100, 150, 10):  # small batches: a wrong cut would keep some of them
        Client(broker.bootstrap).produce("diverging", records(10, first))
    with RunningMirror(data, plan_for(broker.bootstrap, "diverging")) as running:
        running.wait_for("diverging", 150)
    broker.stop()
    broker.data.rename(broker.directory / "lost")
    before.rename(broker.data)
    broker.start()
    broker.restart()
    Client(broker.bootstrap).produce("diverging", records(40, 500))
    with RunningMirror(data, plan_for(broker.bootstrap, "diverging")) as running:
        running.wait_for("diverging", 140)
        (loss,) = running.log("diverging").losses
        assert loss.kind == "diverged"
        assert "offsets 100 to 149 were cut; a copy is in" in loss.detail
    check_equal(broker, data, "diverging")
    check_clean(running)


def test_after_the_cluster_is_lost_a_broker_starts_on_a_copy_of_the_mirror(
    broker_of_its_own: Broker, shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("saved")
    client.produce("saved", records(300), compression_type="lz4")
    client.produce("saved", records(50, 300))
    plan = plan_for(shared_broker.bootstrap, "saved", until_now=True)
    with RunningMirror(data, plan) as running:
        running.wait_for_end()
    other = broker_of_its_own
    Client(other.bootstrap).create_topic("saved")
    other.stop()
    for path in other.partition("saved").glob("0*"):
        path.unlink()
    for path in (data / "saved-0").glob("*.log"):
        shutil.copy(path, other.partition("saved"))
    for path in [other.data / ".kafka_cleanshutdown", *other.data.glob("*-checkpoint")]:
        path.unlink()
    other.start()
    assert Client(other.bootstrap).consume("saved") == client.consume("saved")
    assert Client(other.bootstrap).latest("saved") == 350
