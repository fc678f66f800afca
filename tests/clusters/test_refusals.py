"""When a forward stops instead of guessing, and a mirror instead of asking for ever."""

import json
import random
import shutil
from pathlib import Path
from uuid import UUID

import pytest

import logfs
from logfs import NewRecord
from logfs.kafka.cluster import Leader
from logfs.kafka.fetching import Fetched
from logfs.kafka.mirrored import MirroredPartition, PartitionFailedError
from logfs.kafka.targets import DaemonTarget
from logfs.log.mirrorfile import MirrorSource, write_mirror
from logfs.machine.disks import disk_of
from logfs.records.batch import BatchFields, decode_header, encode_batch
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

pytestmark = pytest.mark.allow_log("logfs.kafka.")
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


def test_records_that_are_not_replicated_yet_are_waited_for(data: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    with FakeBroker("t") as broker:
        plan = forward_plan(broker.bootstrap, "t")
        with RunningForward(data, plan, **QUICK) as running:
            running.wait_for(30)
            shutil.copytree(data, killed)
            append(data, "t", some(5, 30))
            running.wait_for(35)
        append(killed, "t", some(9, 30))
        broker.high_watermark = 30
        with RunningForward(killed, plan, **QUICK) as running:
            running.wait_until(lambda: running.forward.partitions, "it has begun")
            (one,) = running.forward.partitions
            running.wait_until(
                lambda: "are not replicated there yet" in one.sender.error, "it says so"
            )
            broker.high_watermark = None
            running.wait_for(39)
        assert without_offsets(broker.logs[0].records()) == all_of(killed)


def test_by_key_other_records_are_refused_at_the_first_of_them(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with FakeBroker("t", 3) as broker:
        plan = forward_plan(broker.bootstrap, "t", by_key=True, until_now=True)
        forward_now(data, plan, **QUICK)
        shutil.copytree(data, copy)
        append(data, "t", [NewRecord(b"a %d" % n) for n in range(20)])
        forward_now(data, plan, **QUICK)
        append(copy, "t", [NewRecord(b"b %d" % n) for n in range(20)])
        with RunningForward(copy, plan, **QUICK) as running:
            running.wait_for_end()
        (failure,) = running.forward.failures
        assert "--resume-at 30 sends what is here from there on" in failure
        assert sum(len(log.records()) for log in broker.logs) == 50


def test_a_note_of_logfs_0_2_0_continues_with_its_producer(data: Path) -> None:
    """It does not say where it was made."""
    with FakeBroker("t") as broker:
        plan = forward_plan(broker.bootstrap, "t", until_now=True)
        forward_now(data, plan, **QUICK)
        (note,) = data.glob("t-0/logfs.forward-????????")
        stored = note.read_bytes()
        identity = json.loads(stored[:4096])
        assert identity.pop("home").endswith(f"/{note.parent.stat().st_ino}")
        old = json.dumps(identity | {"version": 1}).encode().ljust(4095) + b"\n"
        note.write_bytes(old + stored[4096:])
        append(data, "t", some(5, 30))
        forward_now(data, plan, **QUICK)
        assert len({decode_header(batch).producer_id for batch in broker.logs[0].batches}) == 1
        assert without_offsets(broker.logs[0].records()) == all_of(data)
        assert json.loads(note.read_bytes()[:4096]) == json.loads(stored[:4096])


def test_a_mirror_is_not_forwarded_to_its_own_cluster(data: Path) -> None:
    for cluster_id, is_refused in (("fake", True), ("another", False)):
        write_mirror(disk_of(str(data)), "t-0", MirrorSource(cluster_id, "b:9092", "orders"))
        with FakeBroker("t") as broker:
            plan = forward_plan(broker.bootstrap, "t", until_now=True)
            with RunningForward(data, plan, **QUICK) as running:
                running.wait_for_end()
        assert ("not forwarded to the same cluster" in str(running.error)) == is_refused
        assert bool(broker.logs[0].batches) != is_refused


def test_it_continues_with_the_partitions_it_was_begun_with(data: Path) -> None:
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
