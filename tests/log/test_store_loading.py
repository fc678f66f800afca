"""Stopping and starting a data directory: checkpoints, the marker, recovery, what is opened."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from logfs.config import StoreConfig
from logfs.errors import LogfsError, LogOfflineError
from logfs.log import names
from logfs.log.segments import table
from logfs.log.store import LogStore
from logfs.records._encoding import encode_records
from logfs.records.batch import encode_batch
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from tests.fakes import START_MS, FakeDisk
from tests.log.looking import READING, new_host, opened_by
from tests.log.support import DIRECTORY, Bench, contents, lines_of, log_name

CLEAN = names.CLEAN_SHUTDOWN
RECOVERY_POINTS = names.RECOVERY_POINT_CHECKPOINT
SMALL = {"internal.segment.bytes": "250"}
RECOVERING = "no clean shutdown: recovering"


def open_store(
    disk: FakeDisk, progress: Callable[[str], None] | None = None, threads: int = 2
) -> LogStore:
    config = StoreConfig(num_recovery_threads_per_data_dir=threads)
    return LogStore.open(disk, config, new_host(), now_ms=START_MS, progress=progress)


# Checkpoints


def test_a_clean_stop_writes_kafkas_files_byte_for_byte() -> None:
    bench = Bench()
    bench.store.create_topic("orders", 1, {}, bench.now_ms)
    bench.store.grow_topic("t", 2, bench.now_ms)
    bench.write(b"a", b"b", b"c")
    bench.log.advance_log_start_offset(1, bench.now_ms)
    bench.store.close(bench.now_ms)
    disk = bench.disk.after_crash(None)
    rows = b"0\n3\norders 0 0\nt 0 3\nt 1 0\n"
    assert disk.read("recovery-point-offset-checkpoint") == rows
    assert disk.read("replication-offset-checkpoint") == rows
    assert disk.read("log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"
    assert disk.read(".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    assert disk.read("t-0/leader-epoch-checkpoint") == b"0\n1\n0 1\n"
    topic_id = bench.log.topic_id or ""
    assert disk.read("t-0/partition.metadata").decode() == f"version: 0\ntopic_id: {topic_id}"


def test_the_recovery_point_in_the_checkpoint_is_what_is_durable() -> None:
    bench = Bench()
    bench.write(b"a", b"b")
    bench.log.flush()
    bench.write(b"c")
    bench.store.checkpoint()
    assert bench.disk.read(RECOVERY_POINTS) == b"0\n1\nt 0 2\n"
    assert bench.disk.read(names.REPLICATION_OFFSET_CHECKPOINT) == b"0\n1\nt 0 3\n"
    assert bench.disk.read(names.LOG_START_OFFSET_CHECKPOINT) == b"0\n0\n"


@pytest.mark.expect_log("every partition is taken to begin at 0 there")
@pytest.mark.parametrize("data", [b"\0" * 30, b"1\n0\n", b"0\n1\nt 0 2"])
def test_a_checkpoint_that_does_not_parse_is_ignored(data: bytes) -> None:
    bench = Bench()
    bench.write(b"a", b"b")
    bench.log.flush()
    bench.store.checkpoint()
    bench.disk.replace(RECOVERY_POINTS, data)
    assert lines_of(bench.kill()) == [b"a", b"b"]
    assert bench.log.recovery_point == 0


# The marker


def test_the_marker_is_durably_removed_before_a_partition_is_touched() -> None:
    bench = Bench()
    bench.store.close(bench.now_ms)
    durable: list[bool] = []

    def see(_operation: str, name: str, _size: int) -> None:
        if name.startswith(DIRECTORY):
            durable.append(bench.disk.after_crash(None).exists(CLEAN))

    bench.disk.before = see
    bench.open()
    assert durable
    assert not any(durable)


def test_the_marker_is_the_last_thing_a_clean_stop_writes() -> None:
    bench = Bench(SMALL)
    bench.write(*[b"v"] * 7)
    done: list[tuple[str, str]] = []
    bench.disk.before = lambda operation, name, _: done.append((operation, name))
    bench.store.close(bench.now_ms)
    changes = [(operation, name) for operation, name in done if operation not in READING]
    # Truncated, written, synced, renamed, and the directory synced.
    assert [name.startswith(CLEAN) for _, name in changes[-5:-1]] == [True] * 4
    assert changes[-1] == ("sync_directory", "")
    assert not any(name.startswith(CLEAN) for _, name in changes[:-5])
    after = bench.disk.after_crash(None)
    said: list[str] = []
    store = open_store(after, said.append)
    assert lines_of(store.partition("t", 0)) == [b"v"] * 7
    assert said == []


@pytest.mark.allow_log("could not be closed cleanly", "is offline:")
def test_a_stop_that_is_not_clean_leaves_no_marker() -> None:
    bench = Bench()
    bench.write(b"a")
    bench.disk.fail_next_sync("*.log")
    bench.store.close(bench.now_ms)
    assert not bench.disk.exists(CLEAN)
    said: list[str] = []
    store = open_store(bench.disk, said.append)
    assert said[0] == f"{RECOVERING} 1 partitions"
    assert lines_of(store.partition("t", 0)) == [b"a"]


def test_a_start_after_a_clean_stop_opens_no_segment_and_changes_no_partition() -> None:
    bench = Bench(SMALL)
    bench.write(*[b"v"] * 20)
    bench.store.close(bench.now_ms)
    before = contents(bench.disk, DIRECTORY)
    opened = opened_by(bench.disk, lambda: setattr(bench, "store", bench.open()))
    assert opened == {f"{DIRECTORY}/{20:020}.snapshot"}
    assert contents(bench.disk, DIRECTORY) == before
    bench.store.close(bench.now_ms)
    assert contents(bench.disk, DIRECTORY) == before


def test_a_directory_is_listed_once_at_a_start_and_left_alone_at_the_stop_if_nothing_changed() -> (
    None
):
    bench = Bench(SMALL)
    bench.write(*[b"v"] * 20)
    bench.store.close(bench.now_ms)
    seen: list[tuple[str, str]] = []
    bench.disk.before = lambda operation, name, _size: seen.append((operation, name))
    store = bench.open()
    assert seen.count(("list", DIRECTORY)) == 1
    seen.clear()
    store.close(bench.now_ms)
    bench.disk.before = None
    assert not [name for _, name in seen if name.startswith(DIRECTORY)]


@pytest.mark.parametrize("took_s", [0.0, 1.0])
def test_partitions_are_loaded_in_parallel_after_a_clean_stop_if_they_take_long(
    took_s: float,
) -> None:
    disk, count = FakeDisk(), 20
    store = open_store(disk)
    store.create_topic("t", count, {}, START_MS)
    store.close(START_MS)
    threads: list[str] = []

    def see(operation: str, name: str, _size: int) -> None:
        if operation == "list" and name.startswith("t-"):
            threads.append(threading.current_thread().name)

    disk.before = see
    ticks = itertools.count()
    host = replace(new_host(), clock_s=lambda: next(ticks) * took_s)
    store = LogStore.open(disk, StoreConfig(), host, now_ms=START_MS)
    disk.before = None
    assert len(store.all_partitions()) == len(threads) == count
    assert any(name.startswith("recovery") for name in threads) == (took_s > 0)


# Recovery


def test_partitions_are_recovered_in_parallel() -> None:
    disk, count = FakeDisk(), 4
    store = open_store(disk)
    store.create_topic("t", count, {}, START_MS)
    options = EncodeOptions(1 << 20)
    for log in store.all_partitions():
        log.append(encode_records([Record(0, 1, None, b"v")], 0, 1, options).batches, START_MS)
    disk.kill()
    together = threading.Barrier(count)

    def see(operation: str, name: str, _size: int) -> None:
        if operation == "open" and name.endswith(".log"):
            together.wait(10)

    disk.before = see
    said: list[str] = []
    store = open_store(disk, said.append, threads=count)
    disk.before = None
    assert said[0] == f"{RECOVERING} 4 partitions"
    assert said[-1] == "loaded t/3 (4 of 4)"
    assert [lines_of(log) for log in store.all_partitions()] == [[b"v"]] * count


@pytest.mark.expect_log("no whole batch")
def test_only_segments_from_the_recovery_point_on_are_read() -> None:
    bench = Bench(SMALL)
    bench.write(*[b"v%02d" % n for n in range(20)])
    bench.log.flush()
    bench.store.checkpoint()
    bases = [segment.base_offset for segment in bench.log.snapshot.segments]
    bench.write(b"w")
    log_file = bench.disk.open(f"{DIRECTORY}/{log_name(bases[-1])}", write=True)
    log_file.pwrite(b"junk", log_file.size())
    bench.disk.kill()
    opened = opened_by(bench.disk, lambda: setattr(bench, "store", bench.open()))
    # The second one is new: it begins after the cut.
    expected = [f"{DIRECTORY}/{log_name(base)}" for base in (bases[-1], 21)]
    assert sorted(name for name in opened if name.endswith(".log")) == expected
    assert lines_of(bench.log)[-2:] == [b"v19", b"w"]
    assert [loss.kind for loss in bench.log.losses] == ["cut"]


# What cannot be loaded


def newer_table(bench: Bench) -> None:
    data = bytearray(bench.file(names.SEGMENT_TABLE))
    data[4:8] = (table.VERSION + 1).to_bytes(4, "big")
    bench.put(names.SEGMENT_TABLE, bytes(data))


def newer_config(bench: Bench) -> None:
    bench.put(names.TOPIC_CONFIG, b"# logfs topic configuration, version 2\nx=1\n")


def wrong_config(bench: Bench) -> None:
    bench.put(names.TOPIC_CONFIG, b"retention.ms=soon\n")


def corrupt_metadata(bench: Bench) -> None:
    bench.put(names.PARTITION_METADATA, b"version: 0\ntopic")


def newer_metadata(bench: Bench) -> None:
    data = bench.file(names.PARTITION_METADATA)
    bench.put(names.PARTITION_METADATA, data.replace(b"version: 0", b"version: 9"))


def corrupt_epochs(bench: Bench) -> None:
    bench.put(names.LEADER_EPOCH_CHECKPOINT, b"0\n1\n")


@pytest.mark.expect_log("t/0 could not be loaded")
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (newer_table, "logfs.segments: version 2, this logfs reads version 1"),
        (newer_config, "logfs.config: version 2, this logfs reads version 1"),
        (wrong_config, "retention.ms"),
        (corrupt_metadata, "partition.metadata"),
        (newer_metadata, "t-0/partition.metadata, line 1: version 9, expected 0"),
        (corrupt_epochs, "leader-epoch-checkpoint"),
    ],
)
def test_a_partition_that_cannot_be_loaded_is_offline_and_the_others_work(
    damage: Callable[[Bench], None], reason: str, is_clean: bool
) -> None:
    bench = Bench()
    bench.store.create_topic("u", 1, {}, bench.now_ms)
    bench.write(b"a", b"b")
    bench.log.flush()
    bench.store.checkpoint()
    if is_clean:
        bench.store.close(bench.now_ms)
    else:
        bench.disk.kill()
    damage(bench)
    before = contents(bench.disk, DIRECTORY)
    bench.store = bench.open()
    assert bench.store.topics() == ["t", "u"]
    assert bench.log.is_unreadable
    assert reason in (bench.log.offline or "")
    check_refusals(bench)
    assert bench.store.partition("u", 0).offline is None
    bench.store.close(bench.now_ms)
    assert contents(bench.disk, DIRECTORY) == before
    assert not bench.disk.exists(CLEAN)
    assert b"\nt 0 2\n" in bench.disk.read(RECOVERY_POINTS), "its row stays for a later load"


def check_refusals(bench: Bench) -> None:
    store = bench.store
    calls: list[Callable[[], object]] = [
        lambda: bench.write(b"c"),
        bench.log.flush,
        lambda: store.grow_topic("t", 2, bench.now_ms),
        lambda: store.alter_topic("t", {"retention.ms": "1"}),
    ]
    for call in calls:
        with pytest.raises(LogOfflineError, match="could not be loaded"):
            call()


@pytest.mark.allow_log("could not be loaded")
def test_a_partition_is_loaded_once_its_files_are_repaired() -> None:
    bench = Bench()
    bench.write(b"a", b"b")
    good = bench.file(names.PARTITION_METADATA)
    bench.store.close(bench.now_ms)
    corrupt_metadata(bench)
    bench.store = bench.open()
    with pytest.raises(LogfsError):
        bench.write(b"c")
    bench.put(names.PARTITION_METADATA, good)
    assert lines_of(bench.reload()) == [b"a", b"b"]
    bench.write(b"c")
    assert lines_of(bench.restart()) == [b"a", b"b", b"c"]


# A broker in between


def test_records_that_a_broker_appended_before_a_roll_are_shown() -> None:
    """The segment that was active at a clean stop has grown, and is not the last one any more."""
    bench = Bench()
    bench.write(b"a", b"b")
    bench.store.close(bench.now_ms)
    more = encode_batch([Record(n, START_MS, None, b"more %d" % n, ()) for n in (2, 3)])
    bench.put(log_name(0), bench.file(log_name(0)) + more)
    bench.put(log_name(4), encode_batch([Record(4, START_MS, None, b"rolled", ())]))
    bench.store = bench.open()
    assert lines_of(bench.log) == [b"a", b"b", b"more 2", b"more 3", b"rolled"]
    assert bench.log.losses == []
