"""Durability: what an fsync covers, which callers share it, and what a failed one means."""

import errno
from collections.abc import Callable

import pytest

from logfs.errors import DeletedError, LogOfflineError
from logfs.log.names import SEGMENT_TABLE, FileKind
from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import positions_of_offset
from logfs.log.segments.table import SegmentState, SegmentTable
from logfs.types import View
from tests.log.durability import OFFLINE, SMALL, Syncs, fail_sync, in_threads
from tests.log.support import DIRECTORY, Bench, end_of, lines_of, log_name

TABLE = f"{DIRECTORY}/{SEGMENT_TABLE}"


# Sharing


def test_flushes_that_wait_at_the_same_time_share_one_fsync() -> None:
    bench = Bench()
    bench.write(b"a")
    syncs = Syncs(bench.disk)
    syncs.go.clear()
    with in_threads(1, bench.log.flush):
        assert syncs.begun.wait(10)
        bench.write(b"b")  # not covered by the fsync that is under way
        with in_threads(3, bench.log.flush):
            syncs.go.set()
    assert syncs.logs == 2
    assert bench.log.recovery_point == 2


def test_a_flush_that_finds_itself_covered_while_it_waited_does_no_fsync() -> None:
    bench = Bench()
    bench.write(b"a")
    syncs = Syncs(bench.disk)
    syncs.go.clear()
    with in_threads(2, bench.log.flush):
        assert syncs.begun.wait(10)
        syncs.go.set()
    assert syncs.logs == 1


def test_a_flush_that_is_covered_returns_while_another_one_is_under_way() -> None:
    bench = Bench()
    bench.write(b"a")
    bench.log.flush()
    covered = bench.log.log_end_offset
    bench.write(b"b")
    syncs = Syncs(bench.disk)
    syncs.go.clear()
    with in_threads(1, bench.log.flush):
        assert syncs.begun.wait(10)
        bench.log.flusher.flush_to(covered)
        bench.write(b"c")
        assert lines_of(bench.log) == [b"a", b"b", b"c"], "appends and reads continue"
        syncs.go.set()
    assert (syncs.logs, bench.log.recovery_point) == (1, 2)


def test_a_second_flush_does_nothing() -> None:
    bench = Bench()
    bench.write(b"a")
    bench.log.flush()
    before = bench.disk.counts.copy()
    bench.log.flush()
    assert bench.disk.counts == before


def test_a_flush_covers_every_segment_since_the_last_one() -> None:
    bench = Bench(SMALL)
    bench.write(*[b"v%02d" % n for n in range(10)])
    bench.log.flush()
    assert bench.log.recovery_point == 10
    assert lines_of(bench.crash()) == [b"v%02d" % n for n in range(10)]


def test_a_flush_of_a_deleted_topic_is_refused() -> None:
    bench = Bench()
    bench.write(b"a")
    log = bench.log
    bench.store.delete_topic("t", bench.now_ms)
    with pytest.raises(DeletedError):
        log.flush()


# Failures


def fail_write(bench: Bench) -> None:
    bench.disk.fail_next_write("*.log", after_bytes=30)
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.write(b"lost")


def fail_maintenance(bench: Bench) -> None:
    bench.log.roll(bench.now_ms)
    bench.disk.fail_next_sync("*.timeindex")
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.log.maintain()


FAILURES = [fail_sync, fail_write, fail_maintenance]


@pytest.mark.expect_log(OFFLINE)
@pytest.mark.parametrize("fail", FAILURES)
def test_after_a_failure_every_append_and_fsync_is_refused(fail: Callable[[Bench], None]) -> None:
    bench = Bench()
    bench.write(b"a")
    bench.log.flush()
    bench.write(b"b")
    fail(bench)
    log, before = bench.log, bench.disk.counts.copy()
    calls: list[Callable[[], None]] = [lambda: bench.write(b"c"), log.flush, bench.writer().sync]
    for _ in range(2):
        for refused in calls:
            with pytest.raises(LogOfflineError, match=r"t/0 is offline: .* failed: .*reloaded"):
                refused()
    assert bench.disk.counts == before, "the disk was not asked again"
    assert lines_of(log)[:1] == [b"a"], "it can be read"


@pytest.mark.allow_log("are no whole batch", "is offline:")
@pytest.mark.parametrize("is_reloaded", [True, False])
@pytest.mark.parametrize("fail", FAILURES)
def test_reloaded_it_continues_after_every_size_shown(
    fail: Callable[[Bench], None], is_reloaded: bool
) -> None:
    bench = Bench()
    bench.write(b"a")
    bench.log.flush()
    bench.write(b"b")
    shown = end_of(bench.log, View.TEXT)
    fail(bench)
    log = bench.reload() if is_reloaded else bench.kill()
    assert log.offline is None
    assert lines_of(log) in ([b"a"], [b"a", b"b"]), "the failed sync may have lost the second"
    bench.write(b"c")
    log.flush()
    kept = lines_of(log)
    assert end_of(log, View.TEXT) - len(b"c\n") >= shown
    assert lines_of(bench.crash()) == kept, "what an fsync covers after the failure is durable"


@pytest.mark.expect_log(OFFLINE)
def test_a_caller_that_waits_for_a_failing_flush_fails_too() -> None:
    bench = Bench()
    bench.write(b"a")
    log, errors = bench.log, list[Exception]()

    def flush() -> None:
        try:
            log.flush()
        except (OSError, LogOfflineError) as error:
            errors.append(error)

    syncs = Syncs(bench.disk)
    syncs.go.clear()
    bench.disk.fail_next_sync("*.log")
    with in_threads(3, flush):
        assert syncs.begun.wait(10)
        syncs.go.set()
    assert len(errors) == 3
    assert (syncs.logs, log.recovery_point) == (1, 0)


@pytest.mark.expect_log(OFFLINE)
def test_a_partition_that_is_offline_harms_no_other() -> None:
    bench = Bench()
    bench.store.create_topic("u", 1, {}, bench.now_ms)
    bench.write(b"a")
    fail_sync(bench)
    other = bench.store.partition("u", 0)
    other.flush()
    assert other.offline is None


@pytest.mark.parametrize("after_bytes", [0, 1, 60, 75])
def test_a_full_disk_leaves_the_log_intact_and_online(after_bytes: int) -> None:
    bench = Bench(SMALL)
    bench.write(b"a", b"b")
    before = bench.file(log_name(0))
    bench.disk.fail_next_write("*.log", errno.ENOSPC, after_bytes)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.write(b"c")
    assert bench.log.offline is None
    assert bench.file(log_name(0)) == before
    bench.write(b"c", b"d")
    assert lines_of(bench.kill()) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("seed", range(10))
def test_what_a_full_disk_refused_does_not_come_back_with_a_power_cut(seed: int) -> None:
    bench = Bench(SMALL)
    bench.write(b"a")
    bench.log.flush()
    bench.disk.fail_next_write("*.log", errno.ENOSPC, after_bytes=1000)  # all of it is written
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.write(b"b")
    assert lines_of(bench.crash(seed)) == [b"a"]


def test_a_disk_without_room_takes_lines_again_when_there_is_some() -> None:
    bench = Bench(SMALL)
    bench.write(b"a")
    bench.disk.space_bytes = bench.disk.used_bytes + 150
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.write(*[b"v"] * 100)
    held = lines_of(bench.log)
    assert bench.log.offline is None
    bench.disk.space_bytes = None
    bench.write(b"z")
    assert lines_of(bench.log) == lines_of(bench.restart()) == [*held, b"z"]


# When it happens by itself


@pytest.mark.parametrize(("limit", "points"), [(1, [1, 2, 3, 4]), (3, [0, 0, 3, 3])])
def test_flush_messages_counts_records_that_are_not_durable(limit: int, points: list[int]) -> None:
    bench = Bench({"flush.messages": str(limit)})
    found = []
    for _ in points:
        bench.write(b"v")
        found.append(bench.log.recovery_point)
    assert found == points


def test_flush_ms_counts_from_the_oldest_record_that_is_not_durable() -> None:
    bench = Bench({"flush.ms": "1000"})
    due = bench.store.flush_due
    assert due(bench.now_ms + 10_000) == []
    bench.write(b"a")
    written_ms = bench.now_ms
    bench.now_ms += 600
    bench.write(b"b")
    assert due(written_ms + 999) == []
    assert due(written_ms + 1000) == [bench.log]
    bench.log.flush()
    assert due(written_ms + 100_000) == []


@pytest.mark.expect_log(OFFLINE)
def test_a_partition_that_is_offline_is_never_due() -> None:
    bench = Bench({"flush.ms": "0"})
    bench.write(b"a")
    fail_sync(bench)
    assert bench.store.flush_due(bench.now_ms + 10_000) == []


# Sealed segments


def test_maintain_makes_sealed_segments_durable_before_the_recovery_point_passes_them() -> None:
    bench = Bench(SMALL)
    lines = [b"v%02d" % n for n in range(10)]
    bench.write(*lines)
    due, point = bench.log.maintenance_due, bench.log.recovery_point
    assert (due, point) == (True, 0)
    bench.log.maintain()
    assert not bench.log.maintenance_due
    sealed = bench.log.snapshot.segments[:-1]
    assert bench.log.recovery_point == sealed[-1].next_offset
    durable = bench.disk.after_crash(None)
    kinds = FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TEXT_INDEX
    for name in [segment.file_name(kind) for segment in sealed for kind in kinds]:
        assert durable.read(name) == bench.disk.read(name) != b"", name
    entries = SegmentTable.load(durable, DIRECTORY).entries
    for segment in sealed:
        assert entries[segment.base_offset] == segment.entry(SegmentState.SEALED)


def test_the_recovery_point_never_passes_what_is_not_durable() -> None:
    bench = Bench(SMALL)
    bench.write(*[b"v%02d" % n for n in range(10)])
    log = bench.log
    done: set[str] = set()

    def check(operation: str, name: str, _size: int) -> None:
        for segment in log.snapshot.segments[:-1]:
            if log.recovery_point > segment.base_offset:
                assert segment.name in done, "the recovery point ran ahead"
        if operation == "sync":
            done.add(name)

    bench.disk.before = check
    log.maintain()
    bench.write(b"w")
    log.flush()
    assert TABLE in done


@pytest.mark.allow_log("are no whole batch", "the one before it is used")
@pytest.mark.parametrize("seed", range(0, 160, 4))
def test_indexes_of_a_segment_sealed_after_the_recovery_point_are_not_trusted(seed: int) -> None:
    # The flush syncs the log, the roll comes after it: the indexes are not durable yet.
    bench = Bench({"index.interval.bytes": "0"})
    bench.write(*[b"v%d" % n for n in range(30)])
    bench.log.flush()
    bench.log.roll(bench.now_ms)
    bench.write(b"w")
    bench.store.checkpoint()
    for shift in range(4):
        after = Bench(disk=bench.disk.after_crash(seed + shift))
        check_look_ups(after.log)


def check_look_ups(log: PartitionLog) -> None:
    text = tsv = 0
    for offset in range(30):
        found = positions_of_offset(log.snapshot, offset)
        assert (found.text, found.tsv) == (text, tsv), offset
        text += len(b"v%d\n" % offset)
        tsv += len(b"\\N\tv%d\n" % offset)
