"""Deleting topics and segments: renamed at once, removed later, readable by open files."""

import contextlib
import errno
import re

import pytest

from logfs.config import StoreConfig
from logfs.errors import DeletedError, NoSuchTopicError, TopicExistsError
from logfs.log.names import SEGMENT_TABLE
from logfs.log.reading.reader import TextReader
from logfs.log.segments.snapshot import Snapshot
from logfs.log.segments.table import SegmentState
from logfs.log.writing.active import remove_segment_files
from logfs.log.writing.segmentremoval import DeletedSegments
from logfs.types import View
from tests.fakestate import Stopped
from tests.log.looking import directories
from tests.log.support import DIRECTORY, Bench, lines_of, log_name, text_of

DELAY_MS = StoreConfig().log_segment_delete_delay_ms
SMALL = {"internal.segment.bytes": "150"}


def test_a_deleted_topic_is_renamed_at_once_and_removed_later() -> None:
    bench = Bench()
    bench.write(b"a")
    log = bench.log
    bench.store.attributes.set("t", 0, mode=0o600)
    bench.store.delete_topic("t", bench.now_ms)
    assert bench.store.topics() == []
    (left,) = directories(bench.disk)
    assert re.fullmatch(r"t-0\.[0-9a-f]{32}-delete", left)
    assert bench.store.attributes.get("t", 0).mode is None
    with pytest.raises(DeletedError, match="t/0: the topic has been deleted"):
        log.roll(bench.now_ms)
    assert text_of(log) == b"a\n", "open files are still readable"
    bench.store.remove_due_files(bench.now_ms + DELAY_MS - 1)
    assert directories(bench.disk) == [left]
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    assert directories(bench.disk) == []


@pytest.mark.parametrize("stop", ["restart", "kill", "crash"])
def test_a_restart_does_not_shorten_the_delay(stop: str) -> None:
    bench = Bench()
    bench.store.create_topic("gone", 2, {}, bench.now_ms)
    bench.store.delete_topic("gone", bench.now_ms)
    getattr(bench, stop)()
    assert bench.store.topics() == ["t"]
    bench.store.remove_due_files(bench.now_ms + DELAY_MS - 1)
    assert len(directories(bench.disk)) == 3
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    assert directories(bench.disk) == [DIRECTORY]


def test_due_directories_are_removed_before_anything_is_loaded() -> None:
    bench = Bench()
    bench.store.create_topic("gone", 2, {}, bench.now_ms)
    bench.store.delete_topic("gone", bench.now_ms)
    bench.now_ms += DELAY_MS
    bench.restart()
    assert directories(bench.disk) == [DIRECTORY]


def _stop(bench: Bench, stop: str | None) -> None:
    with contextlib.suppress(NoSuchTopicError):  # the log of "t", which they return
        if stop is not None:
            getattr(bench, stop)()


@pytest.mark.parametrize("stop", [None, "restart", "kill", "crash"])
def test_a_deleted_topic_can_be_restored(stop: str | None) -> None:
    bench = Bench()
    bench.write(b"a", b"b", b"c")
    bench.log.advance_log_start_offset(1, bench.now_ms)
    bench.log.flush()
    bench.store.attributes.set("t", None, mode=0o700)
    bench.store.attributes.set("t", 0, uid=33)
    ends, topic_id = bench.log.snapshot.end, bench.store.topic_id("t")
    bench.store.delete_topic("t", bench.now_ms)
    _stop(bench, stop)
    bench.store.undelete_topic("t", bench.now_ms)
    assert lines_of(bench.log) == [b"b", b"c"]
    assert bench.log.log_start_offset == 1
    if stop != "crash":  # after that positions begin above all that may have been shown
        assert bench.log.snapshot.end == ends
    assert bench.store.topic_id("t") == topic_id
    assert bench.store.attributes.get("t", None).mode == 0o700
    assert bench.store.attributes.get("t", 0).uid == 33
    assert directories(bench.disk) == [DIRECTORY]
    bench.write(b"d")
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    assert lines_of(bench.kill()) == [b"b", b"c", b"d"]


def test_a_restored_topic_is_read_on_by_open_files_and_refuses_their_appends() -> None:
    bench = Bench()
    bench.write(b"a")
    old = bench.log
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.undelete_topic("t", bench.now_ms)
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    assert text_of(old) == b"a\n"
    with pytest.raises(DeletedError):
        old.roll(bench.now_ms)


def test_the_latest_of_several_deletions_is_restored() -> None:
    bench = Bench()
    for value in (b"first", b"second"):
        bench.write(value)
        bench.store.delete_topic("t", bench.now_ms)
        bench.now_ms += 1
        bench.store.create_topic("t", 1, {}, bench.now_ms)
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.undelete_topic("t", bench.now_ms)
    assert lines_of(bench.log) == []
    bench.store.delete_topic("t", bench.now_ms + 1)
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    bench.store.undelete_topic("t", bench.now_ms)
    assert lines_of(bench.log) == []


def test_a_topic_that_cannot_be_restored_is_reported() -> None:
    bench = Bench()
    with pytest.raises(TopicExistsError, match=r"topic t exists; .* delete this one"):
        bench.store.undelete_topic("t", bench.now_ms)
    bench.store.delete_topic("t", bench.now_ms)
    with pytest.raises(NoSuchTopicError, match=r"no deleted topic x is left to restore; .*: t"):
        bench.store.undelete_topic("x", bench.now_ms)
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    with pytest.raises(NoSuchTopicError, match="no deleted topic t is left to restore"):
        bench.store.undelete_topic("t", bench.now_ms)


@pytest.mark.allow_log("deleted without a note", "its owner and mode are lost")
def test_without_its_note_a_topic_comes_back_to_its_owner_only() -> None:
    bench = Bench()
    bench.write(b"a")
    bench.disk.fail_next("open", "*/logfs.deleted*")
    bench.store.delete_topic("t", bench.now_ms)
    _stop(bench, "restart")
    bench.store.undelete_topic("t", bench.now_ms)
    assert lines_of(bench.log) == [b"a"]
    assert bench.store.attributes.get("t", None).mode == 0o700


def test_a_topic_that_cannot_be_restored_whole_stays_deleted() -> None:
    bench = Bench()
    bench.write(b"a")
    bench.store.grow_topic("t", 2, bench.now_ms)
    bench.store.delete_topic("t", bench.now_ms)
    bench.disk.fail_next("rename", "t-1.*-delete")
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.store.undelete_topic("t", bench.now_ms)
    assert bench.store.topics() == []
    bench.store.undelete_topic("t", bench.now_ms)
    assert bench.store.partitions("t") == [0, 1]
    assert lines_of(bench.log) == [b"a"]


def test_a_topic_of_the_same_name_can_be_made_at_once() -> None:
    bench = Bench()
    bench.write(b"old")
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.create_topic("t", 1, {}, bench.now_ms)
    bench.write(b"new")
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    assert lines_of(bench.restart()) == [b"new"]


def test_a_topic_whose_directory_cannot_be_renamed_stays() -> None:
    bench = Bench()
    bench.write(b"a")
    bench.store.grow_topic("t", 2, bench.now_ms)
    bench.disk.fail_next("rename", "t-0")
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.store.delete_topic("t", bench.now_ms)
    assert bench.store.partitions("t") == [0, 1]
    bench.write(b"b")
    assert lines_of(bench.log) == [b"a", b"b"]
    bench.store.delete_topic("t", bench.now_ms)
    assert bench.store.topics() == []


def test_deleted_segments_are_renamed_wait_and_are_removed() -> None:
    bench = Bench({**SMALL, "file.delete.delay.ms": "1000"})
    bench.write(*[b"v"] * 6)
    bench.log.advance_log_start_offset(4, bench.now_ms)
    assert f"{log_name(0)}.deleted" in bench.names()
    assert log_name(0) not in bench.names()
    bench.store.remove_due_files(bench.now_ms + 999)
    assert f"{log_name(0)}.deleted" in bench.names()
    bench.store.remove_due_files(bench.now_ms + 1000)
    assert bench.names(".deleted") == []


def read_from(snapshot: Snapshot) -> bytes:
    reader = TextReader(View.TEXT, lambda: snapshot)
    reader.seek(0)
    out = memoryview(bytearray(100))
    return bytes(out[: reader.read_into(out, snapshot.end.positions.text)])


def test_a_pinned_segment_outlives_its_deletion() -> None:
    bench = Bench(SMALL)
    bench.write(b"a", b"b", b"c", b"d", b"e", b"f")
    log, old = bench.log, bench.log.snapshot
    log.pin(old.segments)
    log.advance_log_start_offset(6, bench.now_ms)
    bench.store.remove_due_files(bench.now_ms + 10 * DELAY_MS)
    assert read_from(old) == b"a\nb\nc\nd\ne\nf\n"
    log.unpin(old.segments)
    bench.store.remove_due_files(bench.now_ms + 10 * DELAY_MS)
    assert bench.names(".deleted") == []
    with pytest.raises(DeletedError, match="the segment has been deleted"):
        log.pin(old.segments)


def test_pinned_segments_outlive_the_topic_even_if_deleted_before_it() -> None:
    bench = Bench(SMALL)
    bench.write(b"a", b"b", b"c", b"d", b"e", b"f")
    log, old = bench.log, bench.log.snapshot
    log.pin(old.segments[:1])
    log.advance_log_start_offset(6, bench.now_ms)
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    assert read_from(old) == b"a\nb\nc\nd\ne\nf\n"
    log.unpin(old.segments[:1])
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    assert directories(bench.disk) == []


def test_a_segment_that_took_the_place_of_one_being_removed_keeps_its_own_files() -> None:
    bench = Bench(SMALL)
    bench.write(b"a", b"b", b"c")
    first, name = bench.log.snapshot.segments[0], log_name(0)
    second = first.successor(first.entry(SegmentState.SEALED))
    deleted = DeletedSegments(bench.disk, lambda *_: None)
    deleted.add(first, bench.now_ms, is_replaced=True)
    (taken,) = deleted.take_due(bench.now_ms)
    # What compaction has left is put in its place, and replaced itself before the files are gone.
    bench.put(name, b"second")
    second.pins = 1
    deleted.add(second, bench.now_ms, is_replaced=True)
    remove_segment_files(bench.disk, taken)
    assert deleted.take_due(bench.now_ms) == []
    assert second.files().log.pread(6, 0) == b"second"


def test_fsync_of_an_unfinished_line_of_a_deleted_topic_is_refused_as_deleted() -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(b"whole\nunfinished", bench.now_ms)
    bench.store.delete_topic("t", bench.now_ms)
    with pytest.raises(DeletedError):
        writer.sync()


def test_a_topic_deleted_during_an_fsync_is_not_offline() -> None:
    bench = Bench()
    log, writer = bench.log, bench.writer()
    writer.write(b"whole\nunfinished", bench.now_ms)

    def delete(operation: str, name: str, _: int) -> None:
        if operation == "sync" and name.endswith(".unfinished"):
            bench.disk.before = None
            bench.store.delete_topic("t", bench.now_ms)

    bench.disk.before = delete
    with pytest.raises(DeletedError):
        writer.sync()
    assert log.offline is None


def test_late_losses_of_a_deleted_partition_never_go_to_a_new_one_of_its_name() -> None:
    bench = Bench()
    bench.write(b"old")
    old = bench.log
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.create_topic("t", 1, {}, bench.now_ms)
    table = bench.file(SEGMENT_TABLE)
    old.state.table.close()
    old.state.reservation.invalidate(old.snapshot.active)
    assert bench.file(SEGMENT_TABLE) == table


def test_a_deletion_that_a_power_cut_undoes_is_undone_as_a_whole() -> None:
    bench = Bench()
    bench.write(b"a", b"b")
    bench.log.flush()
    disk = bench.disk
    disk.before = lambda _, name, __: disk.stop_before(1) if name == DIRECTORY else None
    with pytest.raises(Stopped):
        bench.store.delete_topic("t", bench.now_ms)
    disk.before = None
    disk.kill()
    store = bench.open()
    assert store.topics() == []
    store.remove_due_files(bench.now_ms + DELAY_MS)
    assert directories(disk) == []
    bench.new_boot()
    for seed in range(60):
        store = bench.open(disk.after_crash(seed))
        for log in store.all_partitions():
            assert lines_of(log) == [b"a", b"b"]
            assert log.losses == []
        store.close(bench.now_ms)
