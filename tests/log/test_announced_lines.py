"""A line is a record once, although its batch was rewritten or removed, or could not be written."""

import errno
import threading
from collections.abc import Callable

import pytest

from logfs.log.lines.append import append_lines
from logfs.log.lines.form import LineForm
from logfs.log.lines.writer import LineWriter
from logfs.log.writing.unfinished import UnfinishedFile
from logfs.services.compaction.manual import compact_now
from logfs.services.retention.trimming import trim
from logfs.types import View
from tests.fakes import FakeDisk
from tests.log.compaction import tools
from tests.log.support import DIRECTORY, TP, Bench, lines_of, log_name

CHANGES = {"pwrite", "truncate", "sync", "rename", "remove", "sync_directory"}
SMALL = {"internal.segment.bytes": "300"}


def in_two_pieces(bench: Bench, first: bytes, rest: bytes, *, is_synced: bool) -> LineWriter:
    """Write a line in two pieces; the file stays open."""
    writer = bench.writer(View.TSV)
    writer.write(first, bench.now_ms)
    if is_synced:
        writer.sync()
    writer.write(rest, bench.now_ms)
    return writer


def superseded(*, is_synced: bool, is_next_begun: bool = False) -> Bench:
    """A compacted topic with a line in two pieces, and a newer value of the same key after it."""
    bench = Bench({"cleanup.policy": "compact"})
    writer = in_two_pieces(bench, b"price\t10", b"00\n", is_synced=is_synced)
    if is_next_begun:
        writer.write(b"other\t1", bench.now_ms)
    newer = bench.writer(View.TSV)
    newer.write(b"price\t2000\n", bench.now_ms)
    bench.log.roll(bench.now_ms)
    return bench


def compact(bench: Bench) -> None:
    compact_now(bench.log, bench.now_ms, tools())


def states_during(bench: Bench, change: Callable[[], object]) -> list[tuple[FakeDisk, bool]]:
    """The disk as it is found after a stop before each operation, and whether power was lost."""
    states: list[tuple[FakeDisk, bool]] = []

    def look(operation: str = "sync", _name: str = "", _size: int = 0) -> None:
        if operation in CHANGES:
            bench.disk.before = None
            states.append((bench.disk.after_kill(), False))
            states.extend((bench.disk.after_crash(seed), True) for seed in (None, *range(6)))
            bench.disk.before = look

    bench.disk.before = look
    change()
    look()
    bench.disk.before = None
    return states


@pytest.mark.allow_log("unfinished line set aside")
@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize("is_next_begun", [False, True])
def test_a_piece_of_a_compacted_line_never_becomes_a_record(
    is_synced: bool, is_next_begun: bool
) -> None:
    bench = superseded(is_synced=is_synced, is_next_begun=is_next_begun)
    bench.log.flush()
    states = states_during(bench, lambda: compact(bench))
    for disk, has_lost_power in states:
        if has_lost_power:
            bench.new_boot()
        lines = lines_of(bench.open(disk).partition(*TP), View.TSV)
        values = [line for line in lines if line.startswith(b"price")]
        assert values in ([b"price\t1000", b"price\t2000"], [b"price\t2000"])
        if is_next_begun and not has_lost_power:
            assert lines[-1] == b"other\t1"


@pytest.mark.parametrize("seed", range(6))
def test_a_file_that_waits_for_its_record_to_be_durable_goes_with_a_compaction(seed: int) -> None:
    bench = superseded(is_synced=True)
    compact(bench)
    assert lines_of(bench.crash(seed), View.TSV)[-1] == b"price\t2000"


@pytest.mark.parametrize("seed", range(30))
def test_no_piece_is_beside_a_line_that_was_synced_by_another_file(seed: int) -> None:
    bench = Bench()
    writer, other = bench.writer(), bench.writer()
    writer.write(b"half", bench.now_ms)
    writer.write(b" and half\n", bench.now_ms)
    if seed % 3 == 1:
        writer.close(bench.now_ms)
    elif seed % 3 == 2:
        writer.write(b"next", bench.now_ms)
    other.sync()
    assert b"half" not in lines_of(bench.crash(seed))
    assert b"half and half" in lines_of(bench.log)


@pytest.mark.parametrize("seed", range(30))
def test_no_piece_is_beside_a_line_that_was_synced_after_a_kill(seed: int) -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(b"half", bench.now_ms)
    writer.write(b" and half\n", bench.now_ms)
    if seed % 2:
        writer.close(bench.now_ms)
    bench.kill().flush()
    assert lines_of(bench.crash(seed)) == [b"half and half"]


@pytest.mark.allow_log("unfinished line of")
@pytest.mark.parametrize("seed", range(30))
def test_no_piece_is_shown_beside_a_synced_line_while_the_next_line_waits(seed: int) -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(b"half", bench.now_ms)
    writer.write(b" and half\nnext", bench.now_ms)
    bench.disk.sync_directory(DIRECTORY)
    bench.disk.fill()
    writer.close(bench.now_ms)
    bench.log.flush()
    bench.disk.space_bytes = None
    assert b"half" not in lines_of(bench.crash(seed))
    assert b"half and half" in lines_of(bench.log)


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_line_that_retention_has_removed_does_not_come_back(is_synced: bool) -> None:
    bench = Bench(SMALL)
    writer = in_two_pieces(bench, b"half", b" and half\n", is_synced=is_synced)
    for n in range(20):
        bench.write(b"later %d" % n)
    states = states_during(bench, lambda: trim(bench.log, 15, bench.now_ms))
    for disk, has_lost_power in states:
        if not has_lost_power:
            assert b"half" not in lines_of(bench.open(disk).partition(*TP))
    assert writer.unfinished == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_line_removed_after_a_restart_does_not_come_back(seed: int) -> None:
    bench = Bench(SMALL)
    in_two_pieces(bench, b"half", b" and half\n", is_synced=True)
    bench.log.roll(bench.now_ms)
    bench.restart()
    for n in range(20):
        bench.write(b"later %d" % n)
    trim(bench.log, 15, bench.now_ms)
    assert b"half" not in lines_of(bench.crash(seed))


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_a_truncated_line_does_not_come_back(seed: int | None) -> None:
    bench = Bench(SMALL)
    bench.write(b"first")
    in_two_pieces(bench, b"half", b" and half\n", is_synced=bool(seed and seed % 2))
    bench.log.truncate_to(1, bench.now_ms)
    bench.log.flush()
    assert lines_of(bench.crash(seed)) == [b"first"]


# Lines that wait


def out_of_room(bench: Bench, *operations: str) -> None:
    """Let these operations on the log and the files of lines fail, once the log was written to."""
    seen: list[str] = []

    def full(operation: str, name: str, _size: int) -> None:
        if operation == "pwrite" and name.endswith(".log"):
            seen.append(name)
            raise OSError(errno.ENOSPC, "full", name)
        if operation in operations and seen and name.endswith(".unfinished"):
            raise OSError(errno.ENOSPC, "full", name)

    bench.disk.before = full


def fill_and_trim(bench: Bench) -> None:
    for n in range(30):
        bench.write(b"later %d" % n)
    trim(bench.log, 20, bench.now_ms)
    bench.log.flush()


@pytest.mark.expect_log("waits")
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_line_that_found_no_room_precedes_all_later_appends(is_killed: bool) -> None:
    bench = Bench(SMALL)
    writer = bench.writer()
    writer.write(b"waits", bench.now_ms)
    writer.sync()
    out_of_room(bench, "pwrite")
    writer.close(bench.now_ms)
    with pytest.raises(OSError, match="wait for room"):
        bench.write(b"later")
    if is_killed:
        bench.kill()
    bench.disk.before = None
    bench.write(b"later")
    assert lines_of(bench.log) == [b"waits", b"later"]
    bench.log.flush()
    assert bench.names(".unfinished") == []
    assert lines_of(bench.kill()) == [b"waits", b"later"]
    assert bench.log.losses == []


@pytest.mark.expect_log("waits")
def test_a_line_that_found_no_room_becomes_a_record_before_a_bulk_append_or_a_roll() -> None:
    steps: list[Callable[[Bench], object]] = [
        lambda bench: append_lines(bench.log, b"later\n", LineForm(View.TEXT), bench.now_ms),
        lambda bench: bench.log.roll(bench.now_ms),
    ]
    for go_on in steps:
        bench = Bench(SMALL)
        writer = bench.writer()
        writer.write(b"waits", bench.now_ms)
        out_of_room(bench, "pwrite")
        writer.close(bench.now_ms)
        bench.disk.before = None
        go_on(bench)
        assert lines_of(bench.log)[0] == b"waits"


@pytest.mark.expect_log("waits")
def test_a_line_that_found_no_room_at_a_start_becomes_a_record_once() -> None:
    bench = Bench(SMALL)
    writer = bench.writer()
    writer.write(b"waits", bench.now_ms)
    writer.sync()
    writer.write(b" and ends\n", bench.now_ms)
    bench.disk.crash(None)
    bench.new_boot()
    out_of_room(bench, "pwrite")
    bench.store = bench.open()
    bench.disk.before = None
    bench.write(b"later")
    assert lines_of(bench.log) == [b"waits", b"later"]
    bench.log.flush()
    assert bench.names(".unfinished") == []
    fill_and_trim(bench)
    assert b"waits" not in lines_of(bench.restart())


@pytest.mark.allow_log("waits", "could not be cut off")
@pytest.mark.parametrize("is_killed", [False, True])
def test_nothing_is_appended_where_an_append_was_announced_in_vain(is_killed: bool) -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(b"the same", bench.now_ms)
    out_of_room(bench, "truncate")
    with pytest.raises(OSError, match="full"):
        writer.write(b"\n", bench.now_ms)

    def cannot_be_cut(operation: str, name: str, _size: int) -> None:
        if operation == "truncate" and name.endswith(".unfinished"):
            raise OSError(errno.ENOSPC, "full", name)

    bench.disk.before = cannot_be_cut
    with pytest.raises(OSError, match="full"):
        bench.write(b"the same")  # would be the very batch that was announced
    bench.disk.before = None
    bench.write(b"the same")
    if is_killed:
        bench.kill()
    else:
        writer.close(bench.now_ms)
    assert lines_of(bench.log) == [b"the same", b"the same"]
    assert bench.log.losses == []


def test_settling_lines_needs_no_room() -> None:
    for change in (compact, lambda bench: trim(bench.log, 2, bench.now_ms)):
        for is_next_begun in (False, True):
            bench = superseded(is_synced=False, is_next_begun=is_next_begun)
            bench.store.alter_topic("t", {"cleanup.policy": "compact,delete"})

            def full(operation: str, name: str, _size: int) -> None:
                if operation in ("pwrite", "open") and name.endswith(".unfinished"):
                    raise OSError(errno.ENOSPC, "full", name)

            bench.disk.before = full
            change(bench)
            bench.disk.before = None
            assert b"price\t1000" not in lines_of(bench.log, View.TSV)
            assert b"price\t10" not in lines_of(bench.kill(), View.TSV)


@pytest.mark.allow_log("offline", "waits")
def test_a_file_that_cannot_be_removed_keeps_its_batch_from_changing() -> None:
    bench = superseded(is_synced=False)
    bench.log.flush()
    bench.disk.fail_next("remove", "*.unfinished")
    with pytest.raises(OSError, match="Input/output"):
        compact(bench)
    assert lines_of(bench.kill(), View.TSV) == [b"price\t1000", b"price\t2000"]


# Files that were written without the rules


def old_file(bench: Bench, line: bytes, announced: tuple[int, int] | None) -> None:
    """Leave a file of version 1, which differs in nothing but that."""
    name = "logfs.0123.unfinished"
    file = UnfinishedFile(bench.disk, DIRECTORY, name, View.TEXT)
    file.keep(line)
    if announced is not None:
        file.announce(*announced)
    file.close()
    data = bytearray(bench.file(name))
    data[4:8] = (1).to_bytes(4, "big")
    bench.put(name, bytes(data))


def test_a_line_of_an_older_logfs_becomes_a_record() -> None:
    bench = Bench()
    bench.write(b"first")
    old_file(bench, b"half", None)
    assert lines_of(bench.kill()) == [b"first", b"half"]


def test_a_line_of_an_older_logfs_whose_batch_may_have_gone_is_a_record_already() -> None:
    bench = Bench(SMALL)
    for n in range(20):
        bench.write(b"line %d" % n)
    trim(bench.log, 15, bench.now_ms)
    old_file(bench, b"line 3", (3, 1234))
    log = bench.kill()
    assert lines_of(log) == [b"line %d" % n for n in range(15, 20)]
    log.flush()
    assert bench.names(".unfinished") == []
    compacted = superseded(is_synced=False)
    compact(compacted)
    old_file(compacted, b"price\t10", (0, 1234))
    assert lines_of(compacted.kill(), View.TSV) == [b"price\t2000"]


def test_a_record_whose_offset_a_power_cut_has_damaged_is_not_made_again() -> None:
    bench = Bench()
    in_two_pieces(bench, b"half", b" and half\n", is_synced=True)
    data = bytearray(bench.file(log_name(0)))
    data[4] = 0x23  # of the base offset, which no checksum covers
    bench.put(log_name(0), bytes(data))
    assert lines_of(bench.crash()) == [b"half and half"]


def test_bytes_after_a_damaged_announcement_do_not_come_back() -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(b"half", bench.now_ms)
    writer.write(b"\nnext", bench.now_ms)
    (name,) = bench.names(".unfinished")
    data = bytearray(bench.file(name))
    data[16 + 12 + len(b"half") + 12] ^= 1
    bench.put(name, bytes(data))
    bench.put(log_name(0), b"")
    bench.new_boot()
    assert lines_of(bench.kill()) == [b"half"]
    assert b"next" not in lines_of(bench.kill())


def test_a_log_is_closed_while_a_thread_flushes_a_line_of_two_writes() -> None:
    bench = Bench()
    in_two_pieces(bench, b"half", b" and half\n", is_synced=False)
    log, has_begun, may_go_on = bench.log, threading.Event(), threading.Event()

    def hold(operation: str, name: str, _size: int) -> None:
        if operation == "sync" and not name.endswith(".log"):
            has_begun.set()
            assert may_go_on.wait(10)

    bench.disk.before = hold
    flush, close = (threading.Thread(target=do, daemon=True) for do in (log.flush, log.close))
    flush.start()
    assert has_begun.wait(10)
    close.start()
    close.join(0.2)  # it has the lock of the partition by then, and waits for the other one
    may_go_on.set()
    for thread in (flush, close):
        thread.join(10)
        assert not thread.is_alive()
    bench.disk.before = None
    assert lines_of(bench.kill()) == [b"half and half"]


@pytest.mark.allow_log("waits")
def test_an_fsync_of_another_file_keeps_a_line_that_found_no_room_at_the_close() -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(b"half", bench.now_ms)
    bench.disk.fill()
    writer.close(bench.now_ms)
    bench.disk.space_bytes, bench.disk.names_need_room = None, False
    bench.writer().sync()
    assert lines_of(bench.crash()) == [b"half"]
