"""After a failed fsync: what the disk may not have is written once more, and read back from it."""

import errno
from collections.abc import Mapping, Sequence

import pytest

from logfs.config import StoreConfig
from logfs.disk.vfs import write_again
from logfs.errors import LogOfflineError
from logfs.log.host import Host
from logfs.log.lines.writer import LineWriter
from logfs.log.names import SEGMENT_TABLE
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.log.writing.segmentremoval import DeletedFiles
from logfs.types import View
from tests.fakes import FakeDisk
from tests.fakestate import Stopped
from tests.fakesyncs import FakeSyncs
from tests.log.durability import OFFLINE, fail_sync
from tests.log.support import DIRECTORY, TP, Bench, contents, lines_of, log_name

LOG = f"{DIRECTORY}/{log_name(0)}"


class Successor:
    """What a daemon that was killed has left to the next one: the writer of one open file."""

    def __init__(self) -> None:
        self.writers: list[LineWriter] = []

    def deleted_in(self, _directory: str) -> Sequence[DeletedFiles]:
        return ()

    def view_of(self, _name: str) -> View | None:
        return View.TEXT

    def settle(self, _log: PartitionLog, writers: Mapping[str, LineWriter]) -> None:
        self.writers += writers.values()


def failed_bench() -> Bench:
    """A log of two segments of which a sync has failed; all its lines can still be read."""
    bench = Bench({"internal.segment.bytes": "1000"})
    bench.write(b"durable")
    bench.log.flush()
    bench.write(*(b"line %d of the log" % n for n in range(15)))
    fail_sync(bench)
    return bench


def recover(bench: Bench, *, is_reloaded: bool) -> PartitionLog:
    if is_reloaded:
        return bench.reload()
    return bench.kill()


@pytest.mark.allow_log("is offline:")
@pytest.mark.expect_log("can be read, but not written")
@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.ENOSPC])
def test_what_cannot_be_written_again_can_be_read(error: int) -> None:
    """ext4 refuses every write after an error of its journal."""
    bench = failed_bench()
    kept = lines_of(bench.log)
    for operation in ("pwrite", "truncate", "rename", "remove", "touch_times", "sync_directory"):
        bench.disk.fail(operation, "*", error)
    for _ in range(2):
        log = bench.reload()
        assert lines_of(log) == kept
        with pytest.raises(LogOfflineError):
            bench.write(b"no")
    bench.disk.heal()
    bench.reload()
    bench.write(b"after")
    bench.log.flush()
    assert lines_of(bench.crash()) == [*kept, b"after"]


@pytest.mark.allow_log("is offline:")
@pytest.mark.parametrize("is_reloaded", [True, False])
def test_a_line_that_an_fsync_has_covered_after_a_failed_one_survives_a_power_cut(
    is_reloaded: bool,
) -> None:
    bench = failed_bench()
    log = recover(bench, is_reloaded=is_reloaded)
    bench.write(b"after")
    log.flush()
    kept = lines_of(log)
    assert len(kept) == 17
    assert lines_of(bench.crash()) == kept


@pytest.mark.allow_log("is offline:")
def test_half_a_line_whose_open_file_continues_survives_a_power_cut_after_a_good_fsync() -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(b"first half, ", bench.now_ms)
    bench.disk.fail_next_sync("*.unfinished")
    with pytest.raises(OSError, match=str(errno.EIO)):
        writer.sync()
    bench.disk.kill()
    successor = Successor()
    host = Host(bench.boot, lambda: b"0" * 16)
    bench.store = LogStore.open(
        bench.disk, StoreConfig(), host, now_ms=bench.now_ms, resumed=successor
    )
    writer = successor.writers[-1]
    writer.write(b"second half", bench.now_ms)
    writer.sync()
    assert lines_of(bench.crash()) == [b"first half, second half"]


@pytest.mark.allow_log("is offline:")
def test_the_segment_table_is_whole_on_the_disk_after_a_failed_sync_of_it() -> None:
    bench = Bench({"internal.segment.bytes": "1000"})
    bench.write(b"a")
    bench.log.roll(bench.now_ms)
    bench.disk.fail_next_sync(f"*{SEGMENT_TABLE}")
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.log.maintain()
    bench.reload()
    table = bench.file(SEGMENT_TABLE)
    bench.disk.crash(None)
    assert bench.file(SEGMENT_TABLE) == table


@pytest.mark.allow_log("is offline:")
@pytest.mark.parametrize("is_reloaded", [True, False])
def test_a_stop_at_any_step_of_the_repair_changes_nothing(is_reloaded: bool) -> None:
    steps, is_done = 0, False
    while not is_done:
        bench = failed_bench()
        shown = lines_of(bench.log)
        if not is_reloaded:
            bench.disk.kill()
        bench.disk.stop_before(steps, torn=0.5)
        try:
            _ = bench.reload() if is_reloaded else bench.open()
            is_done = True
        except Stopped:
            steps += 1
        log = bench.kill()
        assert lines_of(log) == shown
        bench.write(b"after")
        log.flush()
        assert lines_of(bench.crash()) == [*shown, b"after"]
        assert not [name for name in contents(bench.disk) if name.endswith(".log.tmp")]
    assert steps > 10


@pytest.mark.allow_log("can be read, but not written", "is offline:")
def test_a_disk_that_returns_other_bytes_keeps_the_partition_offline() -> None:
    bench = failed_bench()
    shown = lines_of(bench.log)

    def damage(operation: str, name: str, _size: int) -> None:
        if operation == "drop_cached":
            bench.disk.before = None
            file = bench.disk.open(name, write=True)
            file.pwrite(b"damage", 100)

    bench.disk.before = damage
    log = bench.reload()
    assert log.offline is not None
    assert "other bytes" in log.offline
    assert lines_of(log) == shown
    assert lines_of(bench.reload()) == shown
    assert bench.log.offline is None


@pytest.mark.allow_log("can be read, but not written", "is offline:")
def test_without_room_for_the_repair_the_log_is_read_and_written_once_there_is_some() -> None:
    bench = failed_bench()
    shown = lines_of(bench.log)
    bench.disk.fill()
    log = bench.reload()
    assert lines_of(log) == shown
    with pytest.raises(Exception, match=OFFLINE):
        log.flush()
    bench.disk.space_bytes = None
    assert lines_of(bench.reload()) == shown
    bench.log.flush()
    assert lines_of(bench.crash()) == shown


def test_what_was_a_hole_of_a_rewritten_file_takes_no_room() -> None:
    disk = FakeDisk()
    file = disk.open("f", write=True, create=True)
    file.pwrite(b"begin", 0)
    file.truncate(5 << 20)
    file.pwrite(b"end", (5 << 20) - 3)
    before, data, inode = disk.used_bytes, disk.read("f"), disk.stat("f").inode
    file.close()
    write_again(disk, "f")
    assert (disk.read("f"), disk.stat("f").inode == inode) == (data, False)
    assert disk.used_bytes < before + (2 << 20)
    assert disk.list("") == [("f", False)]


def test_recovery_after_a_kill_copies_nothing_that_no_sync_has_failed_for() -> None:
    bench = Bench()
    bench.write(b"a")
    inode = bench.disk.stat(LOG).inode
    bench.kill()
    assert bench.disk.stat(LOG).inode == inode
    assert bench.store.partition(*TP).offline is None


@pytest.mark.expect_log("another program has removed it")
@pytest.mark.allow_log(OFFLINE)
@pytest.mark.parametrize("removes_directory", [True, False])
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_flush_of_a_log_that_another_program_has_removed_fails_and_tells_of_a_loss(
    removes_directory: bool, is_begun: bool
) -> None:
    bench, syncs = Bench(), FakeSyncs()
    bench.write(b"a")
    bench.log.flush()
    bench.write(b"b")
    flush = bench.log.flusher.begin(syncs) if is_begun else None
    bench.disk.remove_tree(DIRECTORY) if removes_directory else bench.disk.remove(LOG)
    if flush is not None:
        syncs.let_go()
        assert not bench.log.flusher.end(flush)
    with pytest.raises(OSError, match="another program has removed the file"):
        bench.log.flush()
    log = bench.log
    assert [(loss.kind, loss.bytes) for loss in log.losses] == [("removed", 138)]
    assert lines_of(log) == [b"a", b"b"]
    with pytest.raises(LogOfflineError):
        bench.write(b"c")
    if removes_directory:
        assert lines_of(bench.reload()) == [b"a", b"b"], "there is nothing to load"


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_log_that_a_trim_has_removed_while_it_was_synced_is_no_loss(is_begun: bool) -> None:
    bench, syncs = Bench(), FakeSyncs()
    bench.write(b"a")
    flush = bench.log.flusher.begin(syncs) if is_begun else None

    def remove(operation: str, name: str, _size: int) -> None:
        if operation == "has_name":
            bench.disk.before = None
            bench.log.roll(bench.now_ms)
            bench.log.advance_log_start_offset(1, bench.now_ms)
            bench.log.removal.expedite(bench.now_ms)
            bench.log.remove_due_files(bench.now_ms)

    bench.disk.before = remove
    if flush is not None:
        syncs.let_go()
        bench.log.flusher.end(flush)
    bench.log.flush()
    assert (bench.log.offline, bench.log.losses) == (None, [])


def test_a_topic_whose_creation_a_kill_cut_short_survives_a_power_cut_once_loaded() -> None:
    disk, killed = FakeDisk(), list[FakeDisk]()

    def see(operation: str, name: str, _size: int) -> None:
        if operation == "sync_directory" and name == "" and DIRECTORY in disk.inodes(""):
            killed.append(disk.after_kill())

    disk.before = see
    Bench(disk=disk)
    disk = killed[0]
    assert not disk.is_durable(DIRECTORY)
    bench = Bench(disk=disk)
    bench.write(b"acknowledged")
    bench.log.flush()
    assert lines_of(bench.crash()) == [b"acknowledged"]
