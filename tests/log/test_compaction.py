"""Compaction: what survives, where it is, and what a stop at any moment leaves."""

from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.errors import CleaningAbortedError, CorruptRecordError
from logfs.log.checkpoints import write_offsets
from logfs.log.names import CLEANER_OFFSET_CHECKPOINT
from logfs.log.reading.address import parse_partition_name
from logfs.log.reading.reader import TextReader
from logfs.records.record import Record
from logfs.services.compaction.rounds import clean
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import resolve
from logfs.types import View
from tests.fakes import START_MS
from tests.log.compaction import (
    CompactedLog,
    check_positions,
    dirty_range_of,
    filled,
    leftovers,
    placed_lines,
    records,
    tools,
)
from tests.log.support import TP, kept_runs_of, read_all


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    log = filled()
    log.clean()
    assert len(log.model.records) == 5
    check_positions(log)
    for again in (log.restart, log.kill, log.restart):
        again()
        check_positions(log)
    assert log.log.losses == []
    assert leftovers(log.bench.disk) == []
    for first in range(60, 120, 4):
        log.append(records(first, 4, 7))
    log.roll()
    log.clean()
    check_positions(log)
    log.restart()
    check_positions(log)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_keep_their_codec(codec: str) -> None:
    log = filled(compression_type=codec)
    log.clean()
    check_positions(log)


def test_segments_are_merged() -> None:
    log = filled()
    log.clean()
    log.append(records(60, 1))
    log.roll()
    before = log.log.snapshot.segments
    done = log.clean()
    after = log.log.snapshot.segments
    assert done.segments == (len(before) - 1, 1)
    assert [s.base_offset for s in after] == [0, before[-1].base_offset]
    check_positions(log)
    assert log.log.state.table.entries.keys() == {s.base_offset for s in after}
    log.bench.now_ms += log.log.config.file_delete_delay_ms
    log.log.remove_due_files(log.bench.now_ms)
    assert leftovers(log.bench.disk) == []


def test_a_segment_without_kept_records_is_an_empty_file() -> None:
    log = filled(keys=2, internal_segment_bytes="200")
    log.append(records(60, 2, 2))
    log.roll()
    log.clean()
    check_positions(log)
    log.restart()
    check_positions(log)


def test_a_tombstone_is_removed_after_its_delete_horizon() -> None:
    log = filled(0, delete_retention_ms="1000")
    log.append([Record(0, START_MS, b"a", b"1", ()), Record(0, START_MS, b"b", b"1", ())])
    log.append([Record(0, START_MS, b"a", None, ())])
    log.roll()
    log.clean()
    assert [k.record.key for k in log.model.records] == [b"b", b"a"]
    for pause, left in ((999, [b"b", b"a", b"c"]), (1, [b"b", b"c", b"d"])):
        log.append([Record(0, START_MS, b"c" if pause > 1 else b"d", b"1", ())])
        log.roll()
        log.bench.now_ms += pause
        log.clean()
        assert [k.record.key for k in log.model.records] == left
        check_positions(log)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_full_map_takes_several_rounds(limit: int) -> None:
    log = filled(40)
    for _ in range(80):
        log.clean(limit)
        check_positions(log)
        if log.first_dirty == log.log.snapshot.active.base_offset:
            break
    assert len(log.model.records) == 5
    log.restart()
    check_positions(log)


def test_what_has_not_changed_is_not_rewritten() -> None:
    log = filled(0, internal_segment_bytes="1048576")
    log.append([r._replace(key=b"%d" % r.timestamp) for r in records(0, 60) if r.value is not None])
    log.roll()
    before = log.log.snapshot.segments
    log.log.flush()
    log.bench.disk.space_bytes = log.bench.disk.used_bytes
    assert log.clean().stats.bytes_written > 0
    assert log.log.snapshot.segments == before
    assert leftovers(log.bench.disk) == []


def test_what_is_before_the_first_change_stays() -> None:
    log = CompactedLog({})
    for keys in ([b"a", b"b"], [b"c"], [b"d", b"e"], [b"f", b"f"], [b"g"], [b"d"]):
        log.append([Record(0, START_MS, key, b"of " + key, ()) for key in keys])
    log.roll()
    log.clean()
    check_positions(log)
    assert [k.record.key for k in log.model.records] == [b"a", b"b", b"c", b"e", b"f", b"g", b"d"]


def test_the_file_is_as_old_as_the_last_of_its_segments() -> None:
    log = filled(30)
    log.bench.disk.now_ms += 5000
    log.append(records(30, 3))
    log.roll()
    log.bench.disk.now_ms += 5000
    log.clean()
    times = [log.bench.disk.stat(s.name).mtime_ms for s in log.log.snapshot.segments[:-1]]
    assert times == [*[START_MS] * (len(times) - 1), START_MS + 5000]


# Readers


def test_an_open_growing_file_reads_on_without_replay() -> None:
    log, piece = filled(), 16
    file = GrowingFile(log.log, View.TEXT, 0)
    before = b"".join(data for _, data in log.model.runs(View.TEXT))
    out, seen = bytearray(piece), b""
    for _ in range(10):
        seen += bytes(out[: file.read_into(memoryview(out), len(seen))])
    assert seen == before[: len(seen)]
    log.clean()
    log.bench.now_ms += log.log.config.file_delete_delay_ms
    log.log.remove_due_files(log.bench.now_ms)
    log.append(records(60, 2))
    while got := file.read_into(memoryview(out), len(seen)):
        seen += bytes(out[:got])
    # What was read ahead is shown to its end; from there on only what is kept.
    left = [line for _, line in placed_lines(log.log, View.TEXT)]
    lines = seen.splitlines(keepends=True)
    assert lines[-2:] == left[-2:]
    assert all(line in before.splitlines(keepends=True) for line in lines[:-2])


def test_a_fixed_name_continues_reading_its_segments() -> None:
    log = filled()
    resolved = resolve(log.log, parse_partition_name("0@earliest..latest", UTC), log.bench.now_ms)
    log.log.pin(resolved.segments)
    before = b"".join(data for _, data in log.model.runs(View.TEXT))
    file = FixedFile(resolved)
    for keys in (5, 3):
        log.clean()
        log.bench.now_ms += log.log.config.file_delete_delay_ms
        log.log.remove_due_files(log.bench.now_ms)
        assert read_all(FixedFile(resolved), 64) == before
        log.append(records(100, 6, keys))
        log.roll()
    assert read_all(file) == before
    file.close()
    log.log.unpin(resolved.segments)
    log.log.remove_due_files(log.bench.now_ms + log.log.config.file_delete_delay_ms)
    assert leftovers(log.bench.disk) == []
    check_positions(log)


def test_readers_that_know_the_old_segments_never_see_the_new_files() -> None:
    log = filled()
    old = log.log.snapshot
    runs = {view: log.model.runs(view) for view in View}
    log.clean()

    for view in View:
        reader = TextReader(view, lambda: old)
        out = bytearray(1 << 16)
        reader.seek(0)
        got = reader.read_into(memoryview(out), 1 << 16)
        assert [(0, bytes(out[:got]))] == runs[view]


# What goes wrong


@pytest.mark.expect_log("another process, perhaps a broker, has compacted it")
def test_a_log_that_a_broker_has_compacted_meanwhile_is_an_error() -> None:
    log, other = filled(), filled()
    other.clean()
    other.bench.store.close(other.bench.now_ms)
    log.bench.store.close(log.bench.now_ms)
    for name in other.bench.names():
        if name[0] == "0" and not name.endswith((".textindex", ".deleted")):
            log.bench.put(name, other.bench.file(name))
    write_offsets(log.bench.disk, CLEANER_OFFSET_CHECKPOINT, {TP: 60})
    log.bench.store = log.bench.open()
    kinds = {loss.kind for loss in log.log.losses}
    assert kinds == {"positions"}
    left = b"".join(data for _, data in other.model.runs(View.JSONL))
    assert b"".join(data for _, data in kept_runs_of(log.log, View.JSONL)) == left
    assert log.log.snapshot.end.positions == log.model.end


def test_damage_stops_a_compaction_and_changes_nothing() -> None:
    log = filled()
    name = log.bench.names(".log")[2]
    data = bytearray(log.bench.file(name))
    data[-3] ^= 1
    log.bench.put(name, bytes(data))
    before = log.bench.names()
    with pytest.raises(CorruptRecordError, match=rf"{name} at byte \d+: .*checksum differs"):
        log.clean_only()
    assert log.bench.names() == before


def test_a_compaction_can_be_stopped() -> None:
    log = filled()
    left = iter([None] * 20)

    def spend(_: int) -> None:
        if next(left, 0) == 0:
            raise CleaningAbortedError("enough")

    work = replace(tools(), spend=spend)
    with pytest.raises(CleaningAbortedError, match="enough"):
        clean(log.log, dirty_range_of(log.log, 0, log.bench.now_ms), log.bench.now_ms, work)
    assert leftovers(log.bench.disk) == []
    check_positions(log)
    log.clean()
    check_positions(log)


def test_a_log_that_is_truncated_meanwhile_is_not_changed() -> None:
    log = filled()
    dirt = dirty_range_of(log.log, 0, log.bench.now_ms)
    steps = iter(range(1 << 30))

    def spend(_: int) -> None:
        if next(steps) == 5:  # while the keys are read
            log.truncate(20)

    with pytest.raises(
        CleaningAbortedError, match=r"changed while they were compacted|was removed meanwhile"
    ):
        clean(log.log, dirt, log.bench.now_ms, replace(tools(), spend=spend))
    assert not [n for n in log.bench.names() if n.endswith((".cleaned", ".swap"))]
    for view in View:
        assert kept_runs_of(log.log, view) == log.model.runs(view)


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    log = filled(keys=40)
    log.log.flush()
    log.bench.disk.space_bytes = log.bench.disk.used_bytes + 100
    with pytest.raises(OSError, match="No space"):
        log.clean_only()
    assert log.log.offline is None
    log.bench.disk.space_bytes = None
    check_positions(log)
    log.clean()
    check_positions(log)


# Any history

steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "roll", "clean", "restart", "kill", "advance"]),
        st.integers(0, 8),
    ),
    max_size=30,
)


@settings(max_examples=40)
@given(steps, st.sampled_from(["0", "60", "4096"]), st.sampled_from(["300", "900"]))
def test_any_history(history: list[tuple[str, int]], interval: str, segment_bytes: str) -> None:
    log = CompactedLog(
        {
            "internal.segment.bytes": segment_bytes,
            "index.interval.bytes": interval,
            "delete.retention.ms": "2",
        }
    )
    for number, (name, argument) in enumerate(history):
        log.bench.now_ms += 1
        match name:
            case "append":
                log.append(records(number * 10, argument, 4))
            case "roll":
                log.roll()
            case "clean":
                if log.first_dirty < log.log.snapshot.active.base_offset:
                    log.clean(argument + 1 if argument < 4 else 1 << 60)
            case "advance":
                offset = min(log.log.log_start_offset + argument, log.log.log_end_offset)
                log.advance(offset)
                log.first_dirty = max(log.first_dirty, log.log.log_start_offset)
                log.model.records = [
                    k
                    for k in log.model.records
                    if k.record.offset >= log.log.snapshot.segments[0].base_offset
                ]
            case "kill":
                log.kill()
            case "restart":
                log.restart()
        for view in View:
            assert kept_runs_of(log.log, view) == log.model.runs(view)
    assert log.log.losses == []
