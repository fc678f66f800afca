"""Small files that the disk cannot read (EIO): logfs does without them, and destroys nothing."""

import pytest

from logfs.errors import LogOfflineError
from logfs.log.producers.snapshots import snapshot_name
from logfs.log.reading.lookup import positions_of_offset
from logfs.types import TopicPartition
from tests.log.foreign import Follower
from tests.log.support import DIRECTORY, Bench, lines_of

LINES = [b"line %d" % n for n in range(20)]
CONFIG = {"internal.segment.bytes": "300", "index.interval.bytes": "0", "retention.ms": "1000"}

DONE_WITHOUT = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "logfs.attributes",
    "logfs.closed",
    f"{DIRECTORY}/leader-epoch-checkpoint",
    f"{DIRECTORY}/logfs.losses",
    f"{DIRECTORY}/*.index",
    f"{DIRECTORY}/*.timeindex",
    f"{DIRECTORY}/*.textindex",
    f"{DIRECTORY}/*.snapshot",
)
ONLY_READ_WITHOUT = (
    f"{DIRECTORY}/logfs.segments",
    f"{DIRECTORY}/logfs.config",
    f"{DIRECTORY}/partition.metadata",
)


def bench_with_files() -> Bench:
    bench = Bench(CONFIG)
    bench.write(*LINES)
    bench.log.add_loss("line", "x.cut", 0, 5, "for a test", bench.now_ms)
    bench.log.flush()
    bench.store.checkpoint()
    bench.store.attributes.set("t", 0, mode=0o640)
    return bench


def stop(bench: Bench, how: str) -> None:
    if how == "kill":
        bench.disk.kill()
    else:
        bench.store.close(bench.now_ms, is_durable=how == "restart")


@pytest.mark.allow_log(
    "[loss: line,",
    "is taken to begin at 0",
    "owners and modes are not known",
    "the index starts at the end of the segment",
    "the leader epochs are rebuilt",
    "the one before it is used",
    "the segment is scanned instead",
)
@pytest.mark.parametrize("how", ["kill", "restart", "leave"])
@pytest.mark.parametrize("pattern", DONE_WITHOUT)
def test_a_partition_loads_and_is_written_without(pattern: str, how: str) -> None:
    bench = bench_with_files()
    end = bench.log.snapshot.end.positions
    stop(bench, how)
    bench.disk.fail("pread", pattern)
    bench.store = bench.open()
    assert lines_of(bench.log) == LINES
    bench.write(b"more")
    bench.disk.heal()
    assert lines_of(bench.restart()) == [*LINES, b"more"]
    assert bench.log.snapshot.end.positions.text == end.text + len("more\n")
    assert bench.store.attributes.get("t", 0).mode == 0o640
    assert bench.log.topic_id is not None
    assert [loss.detail for loss in bench.log.losses] == ["for a test"]


@pytest.mark.allow_log(
    "[loss: line,",
    "can be read, but not written",
    "is used instead",
    "restart at 0",
    "the topic has no id without it",
)
@pytest.mark.parametrize("how", ["kill", "restart", "leave"])
@pytest.mark.parametrize("pattern", ONLY_READ_WITHOUT)
def test_a_partition_is_only_read_without_what_says_how_to_write_it(pattern: str, how: str) -> None:
    bench = bench_with_files()
    topic_id, end = bench.log.topic_id, bench.log.snapshot.end
    stop(bench, how)
    bench.disk.fail("pread", pattern)
    bench.store = bench.open()
    assert lines_of(bench.log) == LINES
    with pytest.raises(LogOfflineError, match="Input/output error"):
        bench.write(b"more")
    bench.store.checkpoint()
    bench.disk.heal()
    bench.reload()
    assert (bench.log.topic_id, bench.log.snapshot.end) == (topic_id, end)
    bench.write(b"more")
    assert lines_of(bench.restart()) == [*LINES, b"more"]
    assert bench.log.config.get("retention.ms") == "1000"


@pytest.mark.allow_log("for a test")
@pytest.mark.expect_log("owners and modes are not known")
def test_only_the_owner_may_use_what_has_an_unknown_mode() -> None:
    bench = bench_with_files()
    stop(bench, "kill")
    bench.disk.fail("pread", "logfs.attributes")
    bench.store = bench.open()
    attributes = bench.store.attributes
    assert (attributes.get("t", None).mode, attributes.get("t", 0).mode) == (0o700, 0o600)
    attributes.set("t", 0, mode=0o644)
    assert attributes.get("t", 0).mode == 0o644
    bench.disk.heal()
    bench.kill()
    assert bench.store.attributes.get("t", 0).mode == 0o640, "nothing was overwritten"


@pytest.mark.allow_log("[loss: line,", "the leader epochs are rebuilt")
def test_epochs_that_cannot_be_read_are_taken_from_the_batches() -> None:
    bench = bench_with_files()
    name = f"{DIRECTORY}/leader-epoch-checkpoint"
    bench.disk.replace(name, b"0\n1\n7 0\n")
    bench.restart()
    bench.write(b"in epoch 7")
    stop(bench, "restart")
    bench.disk.fail("pread", name)
    bench.store = bench.open()
    bench.disk.heal()
    assert bench.disk.read(name) == b"0\n1\n7 20\n"


@pytest.mark.allow_log("[loss: line,", "the one before it is used")
def test_producers_are_known_without_the_newest_snapshot() -> None:
    bench = bench_with_files()
    stop(bench, "restart")
    bench.disk.fail("pread", snapshot_name(TopicPartition("t", 0).directory, 20))
    bench.store = bench.open()
    assert bench.log.offline is None
    assert lines_of(bench.log) == LINES


@pytest.mark.allow_log("for a test")
@pytest.mark.expect_log("the segment is scanned instead")
@pytest.mark.parametrize("operation", ["open", "pread"])
@pytest.mark.parametrize("kind", ["index", "timeindex", "textindex"])
def test_a_read_only_mount_reads_segments_without_their_indexes(kind: str, operation: str) -> None:
    bench = bench_with_files()
    stop(bench, "restart")
    bench.disk.fail(operation, f"{DIRECTORY}/*.{kind}")
    log = Follower(bench.disk).log
    assert log.offline is None
    assert lines_of(log) == LINES
    for number in range(20):
        position = positions_of_offset(log.snapshot, number).text
        assert position == sum(len(line) + 1 for line in LINES[:number])
