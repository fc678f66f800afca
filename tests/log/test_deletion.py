"""Deleting topics and segments: renamed at once, removed later, readable while somebody reads."""

import errno
import re

import pytest

from logfs.config import StoreConfig
from logfs.errors import DeletedError
from logfs.log.names import SEGMENT_TABLE
from logfs.log.reading.reader import TextReader
from logfs.log.segments.deletion import DeletedSegments, remove_files
from logfs.log.segments.snapshot import Snapshot
from logfs.log.segments.table import SegmentState
from logfs.types import View
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
    assert text_of(log) == b"a\n", "who has it open reads on"
    bench.store.remove_due_files(bench.now_ms + DELAY_MS - 1)
    assert directories(bench.disk) == [left]
    bench.store.remove_due_files(bench.now_ms + DELAY_MS)
    assert directories(bench.disk) == []


@pytest.mark.parametrize("stop", ["restart", "kill", "crash"])
def test_what_is_left_of_a_deleted_topic_goes_at_the_next_start(stop: str) -> None:
    bench = Bench()
    bench.store.create_topic("gone", 2, {}, bench.now_ms)
    bench.store.delete_topic("gone", bench.now_ms)
    getattr(bench, stop)()
    assert directories(bench.disk) == [DIRECTORY]
    assert bench.store.topics() == ["t"]


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
    assert bench.store.partitions("t") == [0], "the other one is gone already"
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


def test_pinned_segments_outlive_the_topic_those_deleted_before_it_too() -> None:
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
    deleted = DeletedSegments(bench.disk)
    deleted.add(first, bench.now_ms, is_replaced=True)
    (taken,) = deleted.take_due(bench.now_ms)
    # What compaction has left is put in its place, and replaced itself before the files are gone.
    bench.put(name, b"second")
    second.pins = 1
    deleted.add(second, bench.now_ms, is_replaced=True)
    remove_files(bench.disk, taken)
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


def test_what_a_deleted_partition_still_notes_never_goes_to_a_new_one_of_its_name() -> None:
    bench = Bench()
    bench.write(b"old")
    old = bench.log
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.create_topic("t", 1, {}, bench.now_ms)
    table = bench.file(SEGMENT_TABLE)
    old.table.close()
    old.lease.distrust(old.snapshot.active)
    assert bench.file(SEGMENT_TABLE) == table
