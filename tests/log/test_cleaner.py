"""Which log is compacted next, what is saved of a compaction, and compaction on request."""

import errno

import pytest

from logfs.config import TopicConfig
from logfs.errors import CleaningAbortedError, PolicyViolationError
from logfs.log import names
from logfs.log.checkpoints import read_offsets, write_offsets
from logfs.services.compaction.cleaner import LogCleaner
from logfs.services.compaction.dirtyrange import find_dirty_range
from logfs.services.compaction.manual import compact_now, watched
from logfs.services.compaction.rounds import Sizes, group_segments
from logfs.services.compaction.tools import CleaningTools, Throttle
from logfs.services.meta import partition_meta
from logfs.types import View
from tests.fakes import START_MS
from tests.log.compaction import CompactedLog, filled, records, rewrite_next, tools
from tests.log.support import TP, Bench, kept_runs_of


def offsets(log: CompactedLog) -> dict[object, int]:
    return dict(read_offsets(log.bench.disk, names.CLEANER_OFFSET_CHECKPOINT))


def clean_dirtiest(log: CompactedLog) -> bool:
    return rewrite_next(LogCleaner(log.bench.store), log.bench.now_ms, tools())


def test_a_dirty_log_is_compacted_once_and_its_end_is_saved() -> None:
    log = filled()
    cleaner = LogCleaner(log.bench.store)
    assert cleaner.metrics(log.bench.now_ms).time_since_last_run_ms is None
    assert rewrite_next(cleaner, log.bench.now_ms, tools())
    assert offsets(log) == {TP: 60}
    assert len(log.log.snapshot.segments) > 1
    assert not rewrite_next(cleaner, log.bench.now_ms, tools())
    meta = partition_meta(log.log)["cleaner"]
    assert meta["first_dirty_offset"] == 60
    assert meta["last_cleaned"] == log.bench.now_ms
    assert meta["bytes_written"] < meta["bytes_read"]
    metrics = cleaner.metrics(log.bench.now_ms + 5)
    assert metrics.time_since_last_run_ms == 5
    assert 0 < metrics.cleaner_recopy_percent < 100
    assert metrics.by_name()["uncleanable-partitions-count"] == 0
    log.restart()
    assert not clean_dirtiest(log)


@pytest.mark.parametrize(
    "properties", [{"cleanup.policy": "delete"}, {"min.cleanable.dirty.ratio": "1"}]
)
def test_a_log_that_is_not_due_is_not_compacted(properties: dict[str, str]) -> None:
    log = filled()
    log.bench.store.alter_topic("t", properties)
    assert not clean_dirtiest(log)
    assert offsets(log) == {}


def test_a_topic_that_a_broker_made_is_not_compacted() -> None:
    log = filled()
    log.bench.disk.remove(f"{log.log.directory}/{names.TOPIC_CONFIG}")
    assert not clean_dirtiest(log)


@pytest.mark.expect_log("is not compacted any more until the next start")
def test_a_log_that_fails_is_not_compacted_until_the_next_start() -> None:
    log = filled()
    name = log.bench.names(".log")[1]
    good = log.bench.file(name)
    log.bench.put(name, good[:-3] + bytes([good[-3] ^ 1]) + good[-2:])
    cleaner = LogCleaner(log.bench.store)
    assert not rewrite_next(cleaner, log.bench.now_ms, tools())
    assert "checksum differs" in partition_meta(log.log)["cleaner"]["uncleanable"]
    metrics = cleaner.metrics(log.bench.now_ms)
    assert metrics.uncleanable_partitions_count == 1
    assert metrics.uncleanable_bytes > 0
    log.bench.put(name, good)
    assert not rewrite_next(cleaner, log.bench.now_ms, tools())
    log.restart()
    assert clean_dirtiest(log)


@pytest.mark.expect_log("it is tried again")
def test_a_compaction_on_a_full_disk_is_tried_again() -> None:
    log = filled(keys=40)
    log.log.flush()
    log.bench.disk.space_bytes = log.bench.disk.used_bytes + 10
    cleaner = LogCleaner(log.bench.store)
    assert not rewrite_next(cleaner, log.bench.now_ms, tools())
    assert log.log.cleaning.uncleanable is None


def test_a_checkpoint_outside_the_log_is_corrected() -> None:
    log = filled()
    write_offsets(log.bench.disk, names.CLEANER_OFFSET_CHECKPOINT, {TP: 1000})
    log.bench.store.alter_topic("t", {"min.cleanable.dirty.ratio": "1"})
    assert not clean_dirtiest(log)
    assert offsets(log) == {TP: 0}


def test_truncation_and_deletion_change_the_checkpoint() -> None:
    log = filled()
    assert clean_dirtiest(log)
    log.log.truncate_to(55, log.bench.now_ms)
    assert offsets(log) == {TP: 55}
    log.bench.store.delete_topic("t", log.bench.now_ms)
    assert offsets(log) == {}


def test_compaction_on_request_takes_all_that_is_cleanable() -> None:
    log = filled()
    log.append(records(60, 3))
    log.bench.store.alter_topic("t", {"min.cleanable.dirty.ratio": "1"})
    done = compact_now(log.log, log.bench.now_ms, tools(map_bytes=24 * 4))
    assert (done.end_offset, done.written_records) == (60, 5) or done.rounds > 1
    assert offsets(log) == {TP: 60}
    done = compact_now(log.log, log.bench.now_ms, tools(), roll=True)
    assert (done.end_offset, done.rounds) == (63, 1)
    assert len(b"".join(d for _, d in kept_runs_of(log.log, View.JSONL)).splitlines()) == 5
    again = compact_now(log.log, log.bench.now_ms, tools())
    assert (again.end_offset, again.rounds, again.read_records) == (63, 1, again.written_records)
    log.bench.store.alter_topic("t", {"cleanup.policy": "delete"})
    with pytest.raises(PolicyViolationError, match=r"cleanup\.policy=delete,compact"):
        compact_now(log.log, log.bench.now_ms, tools())


def test_compaction_on_request_removes_tombstones_of_a_clean_log() -> None:
    log = filled(40, delete_retention_ms="1000")
    compact_now(log.log, log.bench.now_ms, tools())
    before = kept_runs_of(log.log, View.TSV)
    compact_now(log.log, log.bench.now_ms + 2000, tools())
    after = b"".join(data for _, data in kept_runs_of(log.log, View.TSV))
    assert b"\\N" in b"".join(data for _, data in before)
    assert b"\\N" not in after


def test_an_empty_log_has_nothing_to_compact() -> None:
    log = CompactedLog({})
    assert compact_now(log.log, log.bench.now_ms, tools()).rounds == 0


# The rules


def test_records_that_are_too_young_are_not_cleanable() -> None:
    log = filled(60, internal_segment_bytes="300")
    config = log.log.config.with_changes({"min.compaction.lag.ms": "10"})
    now_ms = START_MS + 40
    dirt = find_dirty_range(log.log.snapshot, config, None, now_ms)
    young = [s for s in log.log.snapshot.segments[:-1] if s.max_timestamp > now_ms - 10]
    assert dirt.first_uncleanable == young[0].base_offset
    assert dirt.clean_bytes == 0
    assert dirt.ratio == 1


def test_the_segment_with_the_first_dirty_offset_is_clean_and_cleanable() -> None:
    log = filled(60, internal_segment_bytes="300")
    snapshot = log.log.snapshot
    second = snapshot.segments[1]
    dirt = find_dirty_range(snapshot, log.log.config, second.base_offset + 1, START_MS)
    sizes = [s.size_bytes for s in snapshot.segments[:-1]]
    assert (dirt.clean_bytes, dirt.cleanable_bytes) == (sum(sizes[:2]), sum(sizes[1:]))
    assert not dirt.is_due(TopicConfig.from_properties({"min.cleanable.dirty.ratio": "0.99"}))


def test_a_log_is_overdue_after_the_longest_lag() -> None:
    log = filled(60)
    config = TopicConfig.from_properties(
        {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "1000"}
    )
    first = log.log.snapshot.segments[0].first_timestamp
    assert not find_dirty_range(log.log.snapshot, config, None, first + 1000).is_due(config)
    dirt = find_dirty_range(log.log.snapshot, config, None, first + 1001)
    assert (dirt.delay_ms, dirt.is_due(config)) == (1, True)


def test_groups_are_no_larger_than_a_segment_may_be() -> None:
    sizes = [Sizes(n * 10, 40, 8, 12) for n in range(5)]
    assert group_segments(sizes, 100, 1000, 50) == [range(2), range(2, 4), range(4, 5)]
    assert group_segments(sizes, 1000, 24, 50) == [range(2), range(2, 4), range(4, 5)]
    assert group_segments(sizes, 10, 1000, 50) == [range(n, n + 1) for n in range(5)]
    far = [Sizes(0, 1, 0, 0), Sizes(2**31 - 10, 1, 0, 0), Sizes(2**31 + 5, 0, 0, 0)]
    assert group_segments(far, 1000, 1000, 2**31 + 9) == [range(1), range(1, 3)]
    far[1] = far[1]._replace(log=0)
    assert group_segments(far, 1000, 1000, 2**31 + 9) == [range(3)]


def test_a_throttle_keeps_to_its_rate() -> None:
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    throttle = Throttle(1000.0, lambda: now_s, sleep)
    for _ in range(100):
        throttle.spend(50)
    assert now_s == pytest.approx(5.0, abs=0.1)
    now_s += 60  # what was not used is not saved up
    throttle.spend(1000)
    assert now_s == pytest.approx(66.0, abs=0.2)


def test_a_compaction_that_was_stopped_is_due_again() -> None:
    log = filled()

    def spend(_: int) -> None:
        raise CleaningAbortedError("logfs stops")

    work = tools()
    stopped = type(work)(work.new_id, work.clock_s, spend)
    assert not rewrite_next(LogCleaner(log.bench.store), log.bench.now_ms, stopped)
    assert log.log.cleaning.uncleanable is None
    assert clean_dirtiest(log)


@pytest.mark.expect_log("it is tried again in 60 s")
def test_a_compaction_on_a_full_disk_is_not_tried_again_at_once() -> None:
    log = filled()
    cleaner, now_ms = LogCleaner(log.bench.store), log.bench.now_ms
    log.bench.disk.fill()
    assert not rewrite_next(cleaner, now_ms, tools())
    assert log.log.offline is None
    assert log.log.cleaning.uncleanable is None
    log.bench.disk.space_bytes = None
    assert not rewrite_next(cleaner, now_ms + 59_999, tools())
    assert rewrite_next(cleaner, now_ms + 60_000, tools())


@pytest.mark.expect_log("where compaction ended is noted later")
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_compaction_whose_end_cannot_be_saved_is_not_repeated(error: int) -> None:
    log = filled()
    cleaner, now_ms = LogCleaner(log.bench.store), log.bench.now_ms
    for _ in range(3):
        log.bench.disk.fail_next_write(f"{names.CLEANER_OFFSET_CHECKPOINT}*", error)
    assert rewrite_next(cleaner, now_ms, tools())
    assert not rewrite_next(cleaner, now_ms, tools())
    assert not rewrite_next(cleaner, now_ms, tools())
    assert offsets(log) == {}
    assert not rewrite_next(cleaner, now_ms, tools())
    assert offsets(log) == {TP: 60}


def test_every_tenth_is_reported_once() -> None:
    bench = Bench()
    bench.write(b"x" * 931)  # a batch of 1000 bytes and more
    log, lines, seen = bench.log, list[str](), list[int]()
    total = log.snapshot.end.file_size
    tools = CleaningTools(lambda: bytes(16), lambda: 0.0, advance=seen.append)
    told = watched(tools, log, lines.append)
    for _ in range(total):
        told.advance(1)
    told.advance(total)
    assert lines == [f"t/0: {n} % of {total} bytes read" for n in range(10, 101, 10)]
    assert sum(seen) == 2 * total, "other watchers are told as well"
