"""A disk with no room at all: logfs starts, stops, deletes, trims and compacts on it."""

import errno

import pytest

from logfs.errors import LogOfflineError
from logfs.log.names import SEGMENT_TABLE
from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import positions_of_offset
from logfs.log.segments.table import SegmentTable
from logfs.records.record import Record
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from logfs.types import Positions, TopicPartition
from tests.log.looking import directories
from tests.log.support import DIRECTORY, Bench, lines_of, log_name, text_of

SMALL = {"internal.segment.bytes": "300", "index.interval.bytes": "0"}


def full_bench(lines: int = 20) -> Bench:
    bench = Bench(SMALL)
    bench.write(*[b"line %d" % n for n in range(lines)])
    bench.log.flush()
    return bench


@pytest.mark.allow_log("deleted without a note for its restoration")
@pytest.mark.expect_log("topic t is deleted; to be done later")
def test_a_topic_is_deleted_on_a_full_disk() -> None:
    bench = full_bench()
    bench.store.attributes.set("t", 0, mode=0o600)
    bench.store.checkpoint()
    bench.disk.fill()
    bench.store.delete_topic("t", bench.now_ms)
    assert bench.store.topics() == []
    bench.store.remove_due_files(bench.now_ms + 10**9)
    assert directories(bench.disk) == []


@pytest.mark.allow_log("to be done later", "without a note for its restoration")
@pytest.mark.parametrize("stop", ["kill", "restart", "crash"])
def test_a_topic_made_again_has_nothing_of_one_deleted_on_a_full_disk(stop: str) -> None:
    bench = full_bench()
    bench.log.advance_log_start_offset(15, bench.now_ms)
    bench.store.attributes.set("t", 0, mode=0o600)
    bench.store.checkpoint()
    bench.disk.fill()
    bench.store.delete_topic("t", bench.now_ms)
    bench.disk.space_bytes = None
    bench.store.create_topic("t", 1, SMALL, bench.now_ms)
    bench.write(b"new")
    bench.log.flush()
    getattr(bench, stop)()
    assert lines_of(bench.log) == [b"new"]
    assert bench.log.log_start_offset == 0
    assert bench.store.attributes.get("t", 0).mode is None


@pytest.mark.allow_log("to be done later", "without a note for its restoration")
def test_a_topic_is_not_made_again_while_old_rows_cannot_be_removed() -> None:
    bench = full_bench()
    bench.log.advance_log_start_offset(15, bench.now_ms)
    bench.store.checkpoint()
    bench.disk.fill()
    bench.store.delete_topic("t", bench.now_ms)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.store.create_topic("t", 1, {}, bench.now_ms)
    bench.disk.kill()
    bench.store = bench.open()
    assert bench.store.topics() == []
    assert TopicPartition("t", 0).directory not in directories(bench.disk)


@pytest.mark.allow_log("could not be closed cleanly", "could not be written", "no clean stop")
def test_a_stop_on_a_full_disk_loses_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    bench = full_bench()
    bench.disk.fill()
    bench.store.close(bench.now_ms)
    assert "the next start recovers the logs" in caplog.text
    assert "is offline" not in caplog.text
    bench.disk.space_bytes = None
    bench.store = bench.open()
    assert len(lines_of(bench.log)) == 20
    assert bench.log.snapshot.holes == ()


@pytest.mark.allow_log(
    "could not be closed cleanly",
    "could not be written",
    "it is done once there is room",
    "left out:",
    "no clean stop",
)
@pytest.mark.parametrize("names_need_room", [True, False])
@pytest.mark.parametrize("stop", ["kill", "crash", "restart"])
def test_a_store_starts_on_a_full_disk_and_takes_appends_once_there_is_room(
    stop: str, *, names_need_room: bool
) -> None:
    bench = full_bench()
    bench.write(b"not flushed")
    shown = bench.log.snapshot.end.positions
    expected = [b"line %d" % n for n in range(20)]
    bench.disk.fill(names_need_room=names_need_room)
    for _ in range(3):
        getattr(bench, stop)()
        assert bench.log.offline is None
        assert lines_of(bench.log)[:20] == expected
        with pytest.raises(OSError, match=str(errno.ENOSPC)):
            bench.write(b"no room")
        assert bench.log.offline is None
    found = resolve_all(bench.log)
    bench.disk.space_bytes = None
    begin = bench.log.snapshot.end.positions
    bench.write(b"room")
    bench.log.flush()
    assert begin.at_least(shown) == begin, "no position is given twice"
    assert resolve_all(bench.log)[: len(found)] == found
    for after in ("kill", "crash", "restart"):
        getattr(bench, after)()
        assert lines_of(bench.log)[:20] == expected
        assert resolve_all(bench.log)[: len(found)] == found
    assert not bench.log.losses or stop == "crash"


def resolve_all(log: PartitionLog) -> list[Positions]:
    """The position of each record, found by its offset."""
    return [positions_of_offset(log.snapshot, n) for n in range(log.log_end_offset)]


@pytest.mark.allow_log(
    "are no whole batch", "could not be written", "it is done once there is room"
)
@pytest.mark.parametrize("stop", ["kill", "crash"])
def test_half_a_batch_waits_on_a_full_disk_until_it_can_be_copied(stop: str) -> None:
    bench = full_bench()
    rest = bytes(range(1, 41))
    name = bench.log.snapshot.active.name
    file = bench.disk.open(name, write=True)
    size = file.size()
    file.pwrite(rest, size)
    file.sync()
    bench.disk.fill()
    for _ in range(2):
        getattr(bench, stop)()
        assert len(lines_of(bench.log)) == 20
        assert bench.disk.read(name)[size:] == rest, "nothing is cut without a copy"
        with pytest.raises(OSError, match=str(errno.ENOSPC)):
            bench.write(b"no room")
    bench.disk.space_bytes = None
    bench.write(b"room")
    (copy,) = bench.names(".cut")
    assert bench.file(copy) == rest
    assert bench.disk.stat(name).size == size
    bench.kill()
    assert lines_of(bench.log) == [*(b"line %d" % n for n in range(20)), b"room"]
    assert [loss.kind for loss in bench.log.losses] == ["cut"]


@pytest.mark.allow_log("it is done once there is room")
def test_half_an_append_that_was_cut_when_there_was_room_leaves_every_shown_size() -> None:
    bench = full_bench()
    bench.log.flush()
    bench.write(b"half of this")
    file = bench.disk.open(bench.log.snapshot.active.name, write=True)
    file.truncate(bench.log.snapshot.end.file_size - 3)
    bench.disk.fill()
    bench.kill()
    shown = bench.log.snapshot.end.positions
    bench.disk.space_bytes = None
    bench.disk.fail_next("pwrite", f"*{SEGMENT_TABLE}.tmp", errno.ENOSPC)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.write(b"no room")
    assert len(bench.names(".cut")) == 1, "the cut is done, and the rest is not"
    end = bench.kill().snapshot.end.positions
    assert end.at_least(shown) == end
    assert len(lines_of(bench.log)) == 20
    assert bench.log.losses == []


def damaged_bench() -> tuple[Bench, str]:
    """A store whose log has a damaged batch right after the recovery point."""
    bench = full_bench(19)
    bench.store.checkpoint()
    name = bench.log.snapshot.active.name
    size = bench.log.snapshot.end.file_size
    bench.write(b"late")
    assert bench.log.snapshot.active.name == name, "it is in the segment of what was flushed"
    file = bench.disk.open(name, write=True)
    file.pwrite(b"\xff" * 8, size + 61)
    file.sync()
    return bench, name


@pytest.mark.allow_log(
    "are no whole batch",
    "could not be written",
    "it is done once there is room",
    "the one before it is used",
)
@pytest.mark.parametrize("names_need_room", [True, False])
@pytest.mark.parametrize("stop", ["kill", "crash"])
def test_a_damaged_end_is_cut_once_there_is_room_although_the_start_before_had_none(
    stop: str, *, names_need_room: bool
) -> None:
    bench, name = damaged_bench()
    expected = [b"line %d" % n for n in range(19)]
    damaged = bench.disk.read(name)
    bench.disk.fill(names_need_room=names_need_room)
    getattr(bench, stop)()
    assert lines_of(bench.log) == expected
    begin = bench.log.snapshot.end.positions
    bench.disk.space_bytes = None
    getattr(bench, stop)()
    assert lines_of(bench.log) == expected
    assert bench.log.snapshot.end.positions == begin
    (copy,) = bench.names(".cut")
    assert damaged.endswith(bench.file(copy))
    assert [loss.kind for loss in bench.log.losses] == ["cut"]
    bench.write(b"room")
    assert lines_of(bench.crash())[:19] == expected


@pytest.mark.allow_log("are no whole batch", "it is done once there is room")
@pytest.mark.parametrize("stop", ["kill", "crash"])
def test_a_start_that_could_not_copy_a_damaged_end_leaves_it_to_the_next_one(stop: str) -> None:
    bench, name = damaged_bench()
    damaged = bench.disk.read(name)
    before = bench.disk.before
    refuse_writes(bench, ".cut.tmp")
    getattr(bench, stop)()
    assert len(lines_of(bench.log)) == 19
    bench.disk.before = before
    getattr(bench, stop)()
    assert len(lines_of(bench.log)) == 19
    (copy,) = bench.names(".cut")
    assert damaged.endswith(bench.file(copy))
    assert [loss.kind for loss in bench.log.losses] == ["cut"]


@pytest.mark.allow_log("are no whole batch")
def test_recovery_after_a_power_cut_writes_nothing_over_flushed_records() -> None:
    """A second power cut could damage what is being written then."""
    bench, name = damaged_bench()
    written = []

    def note(operation: str, file: str, _: int) -> None:
        if operation == "pwrite":
            written.append(file)

    bench.disk.before = note
    bench.crash()
    assert bench.names(".cut"), "the damaged end was cut"
    assert written
    assert name not in written


@pytest.mark.allow_log("are no whole batch", "it is done once there is room")
@pytest.mark.parametrize("names_need_room", [True, False])
def test_a_flush_waits_for_room_if_the_log_is_not_loaded_as_a_whole(
    *, names_need_room: bool
) -> None:
    bench, _ = damaged_bench()
    bench.disk.remove("recovery-point-offset-checkpoint")
    bench.disk.fill(names_need_room=names_need_room)
    bench.kill()
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.log.flush()
    assert bench.log.offline is None
    bench.disk.space_bytes = None
    bench.log.flush()
    assert bench.log.recovery_point == 19
    assert lines_of(bench.crash()) == [b"line %d" % n for n in range(19)]


@pytest.mark.expect_log("t/0 can be read, but not written: it could not be loaded as a whole")
def test_what_cannot_be_recovered_on_a_full_disk_can_be_read() -> None:
    bench = full_bench()
    bench.disk.kill()
    # As of a file that a backup shares, which is copied before it is written.
    bench.disk.fail_next("open", f"{DIRECTORY}/*.log", errno.ENOSPC)
    bench.store = bench.open()
    assert len(lines_of(bench.log)) == 20
    with pytest.raises(LogOfflineError):
        bench.write(b"no room")
    bench.reload()
    bench.write(b"room")
    assert lines_of(bench.kill())[-2:] == [b"line 19", b"room"]


@pytest.mark.allow_log("[loss: missing", "go without a note", "the loss is noted there later")
@pytest.mark.parametrize("full_directory", [False, True])
@pytest.mark.parametrize("stop", ["kill", "crash", "restart"])
def test_segments_are_deleted_on_a_full_disk_for_good(stop: str, *, full_directory: bool) -> None:
    bench = full_bench()
    bases = [segment.base_offset for segment in bench.log.snapshot.segments]
    bench.disk.fill()
    if full_directory:
        refuse(bench, "rename")
    used = bench.disk.used_bytes
    trimmed = trim(bench.log, bases[2], bench.now_ms, at_once=True)
    assert trimmed.log_start_offset == bases[2]
    assert bench.disk.used_bytes < used
    bench.disk.before = None
    at = positions_of_offset(bench.log.snapshot, bases[2])
    getattr(bench, stop)()
    assert bench.log.log_start_offset == bases[2]
    assert positions_of_offset(bench.log.snapshot, bases[2]) == at
    assert lines_of(bench.log) == [b"line %d" % n for n in range(bases[2], 20)]


def refuse_writes(bench: Bench, suffix: str) -> None:
    """Let every write to a file with this suffix find that there is no room."""

    def full(operation: str, name: str, _: int) -> None:
        if operation == "pwrite" and name.endswith(suffix):
            raise OSError(errno.ENOSPC, "No space left on device", name)

    bench.disk.before = full


def refuse(bench: Bench, operation: str) -> None:
    """Let every such operation find that there is no room."""

    def full(found: str, name: str, _: int) -> None:
        if found == operation:
            raise OSError(errno.ENOSPC, "No space left on device", name)

    bench.disk.before = full


@pytest.mark.allow_log("go without a note")
def test_trimming_inside_a_segment_makes_the_room_that_it_needs() -> None:
    bench = full_bench()
    bench.disk.fill(names_need_room=False)
    trimmed = trim(bench.log, 17, bench.now_ms, at_once=True)
    assert (trimmed.log_start_offset, trimmed.kept_offsets) == (17, 0)
    assert lines_of(bench.kill()) == [b"line 17", b"line 18", b"line 19"]


@pytest.mark.allow_log("go without a note")
def test_everything_is_trimmed_on_a_full_disk() -> None:
    bench = full_bench()
    bench.disk.fill(names_need_room=False)
    assert trim(bench.log, 20, bench.now_ms, at_once=True).log_start_offset == 20
    assert lines_of(bench.kill()) == []


@pytest.mark.allow_log("go without a note")
def test_without_removing_at_once_the_rest_waits_for_room() -> None:
    bench = full_bench()
    begin = max(s.base_offset for s in bench.log.snapshot.segments if s.base_offset < 17)
    bench.disk.fill()
    trimmed = trim(bench.log, 17, bench.now_ms)
    assert (trimmed.log_start_offset, trimmed.kept_offsets) == (begin, 17 - begin)
    assert lines_of(bench.kill()) == [b"line %d" % n for n in range(begin, 20)]


def one_segment(lines: int = 200) -> Bench:
    bench = Bench({"index.interval.bytes": "0"})
    bench.write(*[b"line %d" % n for n in range(lines)])
    bench.log.flush()
    return bench


@pytest.mark.parametrize("names_need_room", [True, False])
def test_a_log_of_one_segment_is_trimmed_on_a_full_disk(names_need_room: bool) -> None:
    bench = one_segment()
    bench.disk.fill(names_need_room=names_need_room)
    before = bench.disk.used_bytes
    trimmed = trim(bench.log, 200, bench.now_ms, at_once=True)
    assert before - bench.disk.used_bytes > trimmed.removed_bytes > 10_000
    assert lines_of(bench.kill()) == []


def test_a_segment_that_is_sealed_on_a_full_disk_is_read_without_its_text_index() -> None:
    bench = one_segment()
    kept = lines_of(bench.log)
    bench.disk.fill()
    bench.log.roll(bench.now_ms)
    assert lines_of(bench.log) == kept
    assert positions_of_offset(bench.log.snapshot, 150).text == len(b"\n".join(kept[:150])) + 1
    bench.disk.space_bytes = None
    bench.write(b"after")
    for log in (bench.log, bench.restart(), bench.kill()):
        assert lines_of(log) == [*kept, b"after"]


@pytest.mark.allow_log("unfinished line of")
def test_unfinished_lines_that_wait_for_room_do_not_keep_a_trim_from_making_it() -> None:
    bench = one_segment()
    writer = bench.writer()
    writer.write(b"half a line", bench.now_ms)
    bench.disk.fill()
    writer.close(bench.now_ms)
    with pytest.raises(OSError, match="wait for room"):
        bench.write(b"refused")
    before = bench.disk.used_bytes
    trimmed = trim(bench.log, 200, bench.now_ms, at_once=True)
    assert before - bench.disk.used_bytes > trimmed.removed_bytes > 10_000
    bench.write(b"after")
    assert lines_of(bench.kill()) == [b"half a line", b"after"]


def test_a_trim_first_removes_what_was_deleted_before() -> None:
    bench = Bench({"internal.segment.bytes": "2000"})  # no index has an entry that could go
    bench.write(*[b"line %d" % n for n in range(30)])
    trim(bench.log, bench.log.snapshot.active.base_offset, bench.now_ms)
    bench.disk.fill()
    assert trim(bench.log, 30, bench.now_ms, at_once=True).log_start_offset == 30


@pytest.mark.allow_log("to be done later")
def test_a_topic_that_is_deleted_at_once_frees_its_room_on_a_full_disk() -> None:
    bench = one_segment()
    bench.disk.fill()
    before = bench.disk.used_bytes
    bench.store.delete_topic("t", bench.now_ms, at_once=True)
    assert before - bench.disk.used_bytes > 10_000
    assert directories(bench.disk) == []
    bench.disk.crash(None)
    assert bench.open().topics() == []


def test_of_a_topic_that_is_deleted_at_once_an_open_fixed_name_keeps_its_files() -> None:
    bench = full_bench()
    log, snapshot = bench.log, bench.log.snapshot
    log.pin(snapshot.segments)
    bench.store.delete_topic("t", bench.now_ms, at_once=True)
    assert text_of(log) == b"".join(b"line %d\n" % n for n in range(20))
    log.unpin(snapshot.segments)
    bench.store.remove_due_files(bench.now_ms)
    assert directories(bench.disk) == []


def test_trimming_that_can_remove_nothing_leaves_a_full_log_as_it_was() -> None:
    bench = Bench()
    bench.write(*[b"line %d" % n for n in range(20)])
    bench.disk.fill()
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        trim(bench.log, 17, bench.now_ms, at_once=True)
    assert bench.log.log_start_offset == 0
    assert bench.log.offline is None


@pytest.mark.allow_log("go without a note")
def test_retention_makes_room_on_a_full_disk() -> None:
    bench = full_bench()
    bench.store.alter_topic("t", {"retention.ms": "1000"})
    bench.disk.fill()
    used, active = bench.disk.used_bytes, bench.log.snapshot.active.base_offset
    bench.now_ms += 10_000
    assert apply_retention(bench.log, bench.now_ms).segments
    assert bench.log.log_start_offset == active, "there is no room for a new segment"
    bench.log.remove_due_files(bench.now_ms + 10**9)
    assert bench.disk.used_bytes < used
    assert apply_retention(bench.log, bench.now_ms).segments == 1
    assert lines_of(bench.kill()) == []


@pytest.mark.allow_log("go without a note")
def test_a_fixed_name_reads_on_although_its_segment_could_not_be_renamed() -> None:
    bench = full_bench()
    log, (first, *_) = bench.log, bench.log.snapshot.segments
    log.pin([first])
    bench.disk.fill()
    refuse(bench, "rename")
    trim(log, log.snapshot.segments[1].base_offset, bench.now_ms, at_once=True)
    assert first.files().log.size() == first.size_bytes
    log.unpin([first])
    log.remove_due_files(bench.now_ms)
    bench.disk.before = None
    assert not bench.disk.exists(f"{DIRECTORY}/{log_name(0)}")


@pytest.mark.expect_log("its segments go without a note")
def test_segments_that_went_without_a_note_are_noted_once_there_is_room() -> None:
    bench = full_bench()
    bench.disk.fill()
    bench.log.advance_log_start_offset(bench.log.snapshot.segments[1].base_offset, bench.now_ms)
    bench.disk.space_bytes = None
    due = [bench.log.maintenance_due]
    bench.log.maintain()
    assert [*due, bench.log.maintenance_due] == [True, False]
    table = SegmentTable.load(bench.disk, DIRECTORY)
    assert min(table.entries) == bench.log.snapshot.segments[0].base_offset


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("has_room", [True, False])
@pytest.mark.expect_log("its segments go without a note")
@pytest.mark.allow_log("it could not be closed cleanly", "no clean stop")
def test_segments_that_went_without_a_note_are_no_loss_after_a_stop(
    is_durable: bool, has_room: bool
) -> None:
    bench = full_bench()
    bench.restart()
    bench.disk.fill()
    bench.log.advance_log_start_offset(bench.log.snapshot.segments[1].base_offset, bench.now_ms)
    lines = lines_of(bench.log)
    if has_room:
        bench.disk.space_bytes = None
    bench.store.close(bench.now_ms, is_durable=is_durable)
    bench.disk.space_bytes = None
    log = bench.kill()
    assert (log.losses, lines_of(log)) == ([], lines)


@pytest.mark.expect_log("its segments go without a note")
def test_segments_that_went_without_a_note_are_noted_after_a_kill() -> None:
    bench = full_bench()
    bench.restart()
    bench.disk.fill()
    bench.log.advance_log_start_offset(bench.log.snapshot.segments[1].base_offset, bench.now_ms)
    bench.disk.space_bytes = None
    log = bench.kill()
    table = SegmentTable.load(bench.disk, DIRECTORY)
    assert sorted(table.entries) == [segment.base_offset for segment in log.snapshot.segments]
    assert lines_of(bench.restart()) == lines_of(log)


@pytest.mark.allow_log(
    "could not be written", "it is done once there is room", "unfinished line of"
)
@pytest.mark.parametrize("how", ["write", "maintain", "records"])
def test_a_line_that_a_crash_left_comes_before_what_is_appended_after_it(how: str) -> None:
    bench = full_bench()
    bench.writer().write(b"unfinished", bench.now_ms)
    bench.disk.fill()
    bench.kill()
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.write(b"no room")
    assert len(lines_of(bench.log)) == 20
    bench.disk.space_bytes = None
    assert bench.log.maintenance_due
    if how == "maintain":
        bench.log.maintain()
    if how == "records":
        bench.log.append_records([Record(-1, -1, None, b"new", ())], bench.now_ms)
    else:
        bench.write(b"new")
    assert lines_of(bench.log)[20:] == [b"unfinished", b"new"]
    assert lines_of(bench.restart())[20:] == [b"unfinished", b"new"]
    assert not bench.log.maintenance_due


@pytest.mark.allow_log("go without a note")
def test_positions_continue_after_a_power_cut_if_all_older_segments_went_without_a_note() -> None:
    bench = full_bench()
    bench.restart()
    bench.log.roll(bench.now_ms)
    end = bench.log.snapshot.end
    bench.disk.fill()
    bench.log.advance_log_start_offset(end.offset, bench.now_ms)
    bench.crash()
    assert bench.log.snapshot.end.positions.text >= end.positions.text


@pytest.mark.allow_log("no whole batch", "it is done once there is room", "is noted there later")
@pytest.mark.parametrize("room", [0, 40, 100, 200, 400, 1000])
def test_a_loss_is_told_though_a_full_disk_had_no_room_for_it(room: int) -> None:
    bench = Bench()
    bench.write(b"before", b"damaged")
    data = bytearray(bench.file(log_name(0)))
    data[-3] ^= 1
    bench.put(log_name(0), bytes(data))
    bench.new_boot()
    bench.disk.fill()
    bench.disk.space_bytes = bench.disk.used_bytes + room
    assert lines_of(bench.kill()) == [b"before"]
    bench.disk.space_bytes = None
    assert lines_of(bench.kill()) == [b"before"]
    assert [loss.kind for loss in bench.log.losses] == ["cut"]


@pytest.mark.allow_log(
    "no whole batch", "set aside", "it is done once there is room", "is noted there later"
)
@pytest.mark.parametrize("room", [0, 40, 100, 200, 400, 1000])
def test_a_segment_is_set_aside_and_told_though_a_full_disk_had_no_room_for_it(room: int) -> None:
    bench = Bench(SMALL)
    bench.write(*[b"line %d" % n for n in range(20)])
    first, *later = bench.names(".log")
    data = bytearray(bench.file(first))
    data[-3] ^= 1
    bench.put(first, bytes(data))
    bench.new_boot()
    bench.disk.fill()
    bench.disk.space_bytes = bench.disk.used_bytes + room
    shown = lines_of(bench.kill())
    bench.disk.space_bytes = None
    assert lines_of(bench.kill()) == shown == [b"line 0", b"line 1", b"line 2"]
    told = {loss.file for loss in bench.log.losses}
    assert told == {f"{DIRECTORY}/{name}" for name in (first, *later)}
