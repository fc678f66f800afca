"""When a forward stops instead of guessing, and a mirror instead of asking for ever."""

import random
import shutil
from pathlib import Path
from uuid import UUID

import pytest

import logfs
from logfs.kafka.cluster import Leader
from logfs.kafka.fetching import Fetched
from logfs.kafka.mirrored import MirroredPartition, PartitionFailedError
from logfs.kafka.targets import DaemonTarget
from logfs.log.mirrorfile import MirrorSource, write_mirror
from logfs.machine.disks import disk_of
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import Compression
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.clusters.brokers import FakeBroker
from tests.kafka.forwards import (
    RunningForward,
    append,
    forward_now,
    forward_plan,
    make,
    some,
    without_offsets,
)

pytestmark = pytest.mark.allow_log("")
QUICK = {"reconnect.backoff.ms": "1", "reconnect.backoff.max.ms": "3"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    make(path, "t")
    append(path, "t", some(30))
    return path


def all_of(data: Path) -> list[Record]:
    with logfs.open(f"{data}/t/0") as partition:
        return without_offsets(list(partition.read()))


def test_it_stops_if_the_destination_cannot_tell_how_far_it_got(data: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    with FakeBroker("t") as broker:
        plan = forward_plan(broker.bootstrap, "t")
        with RunningForward(data, plan, **QUICK) as running:
            running.wait_for(30)
            shutil.copytree(data, killed)  # the note as a kill leaves it
            append(data, "t", some(5, 30))
            running.wait_for(35)
        append(killed, "t", some(5, 30))
        broker.forget()
        broker.logs[0].delete_all()
        with RunningForward(killed, plan, **QUICK) as running:
            running.wait_until(lambda: running.forward.failures, "it fails")
        (failure,) = running.forward.failures
        assert "t/0: it is not known whether partition 0 of kafka://" in failure
        assert "--resume-at noted or --resume-at OFFSET" in failure
        assert not broker.logs[0].batches
        noted = forward_plan(broker.bootstrap, "t", start=None, resumes=True, until_now=True)
        forward_now(killed, noted, **QUICK)
        assert without_offsets(broker.logs[0].records()) == all_of(killed)[30:]


def test_after_a_clean_stop_its_note_is_enough(data: Path) -> None:
    with FakeBroker("t") as broker:
        plan = forward_plan(broker.bootstrap, "t", until_now=True)
        forward_now(data, plan, **QUICK)
        broker.forget()
        broker.logs[0].delete_all()
        append(data, "t", some(5, 30))
        forward_now(data, plan, **QUICK)
        assert without_offsets(broker.logs[0].records()) == all_of(data)[30:]


def test_what_the_destination_has_lost_as_a_whole_is_sent_again(data: Path) -> None:
    with FakeBroker("t") as broker:
        plan = forward_plan(broker.bootstrap, "t", until_now=True)
        forward_now(data, plan, **QUICK)
        broker.forget()
        broker.logs[0].batches.clear()
        append(data, "t", some(5, 30))
        forward_now(data, plan, **QUICK)
        assert without_offsets(broker.logs[0].records()) == all_of(data)


def test_a_mirror_is_not_forwarded_to_its_own_cluster(data: Path) -> None:
    for cluster_id, is_refused in (("fake", True), ("another", False)):
        write_mirror(disk_of(str(data)), "t-0", MirrorSource(cluster_id, "b:9092", "orders"))
        with FakeBroker("t") as broker:
            plan = forward_plan(broker.bootstrap, "t", until_now=True)
            with RunningForward(data, plan, **QUICK) as running:
                running.wait_for_end()
        assert ("not forwarded to the same cluster" in str(running.error)) == is_refused
        assert bool(broker.logs[0].batches) != is_refused


def test_it_goes_on_with_the_partitions_it_was_begun_with(data: Path) -> None:
    with FakeBroker("t", 2, random.Random(1)) as broker:
        broker.chance = None
        forward_now(data, forward_plan(broker.bootstrap, "t", until_now=True), **QUICK)
        by_key = forward_plan(broker.bootstrap, "t", until_now=True, by_key=True)
        with RunningForward(data, by_key, **QUICK) as running:
            running.wait_for_end()
    assert "it was begun with --partitions same" in str(running.error)
    assert not broker.logs[1].batches


def test_a_batch_that_the_daemon_does_not_take_fails_its_partition() -> None:
    batch = encode_batch(
        [Record(7, 0, None, bytes(65 << 20))], BatchFields(Compression.NONE, leader_epoch=0)
    )
    partition = MirroredPartition(
        TopicPartition("t", 0), "t", UUID(int=1), Leader(1, 0), True, 0, 7
    )
    answer = Fetched("t", None, 0, 0, 8, 8, 0, -1, None, None, memoryview(batch))
    with pytest.raises(PartitionFailedError, match=r"t/0: offset 7: a batch has 68.* bytes"):
        partition.take(answer, DaemonTarget("/nowhere"))
