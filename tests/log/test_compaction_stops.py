"""A compaction that is stopped: killed, without power, or by a disk that fails, at any step."""

import contextlib
import errno

import pytest

from logfs.log.host import Host
from logfs.log.segments.table import ENTRY_BYTES
from logfs.services.backup.copying import Job
from logfs.services.backup.point import take_point
from logfs.services.backup.taking import back_up
from logfs.services.compaction.manual import compact_now
from logfs.services.compaction.rounds import clean
from logfs.types import View
from tests.fakes import FakeDisk
from tests.fakestate import Stopped
from tests.log.compaction import (
    CompactedLog,
    dirty_range_of,
    filled,
    leftovers,
    placed_lines,
    records,
    tools,
)
from tests.log.support import DIRECTORY
from tests.model.backups import FakeTransfer


def states_while_cleaning(log: CompactedLog, *, seeds: tuple[int | None, ...]) -> list[FakeDisk]:
    """The disk as it is found after a stop before each operation: killed, or without power."""
    disk, states = log.bench.disk, []

    def look(operation: str, _name: str, _size: int) -> None:
        if operation in {"pwrite", "truncate", "sync", "rename", "remove", "sync_directory"}:
            disk.before = None
            states.append(disk.after_kill())
            states.extend(disk.after_crash(seed) for seed in seeds)
            disk.before = look

    disk.before = look
    log.clean()
    disk.before = None
    return [*states, disk.after_kill(), *(disk.after_crash(seed) for seed in seeds)]


@pytest.mark.slow
@pytest.mark.parametrize("boots", [0, 1])
@pytest.mark.parametrize("twice", [False, True])
def test_a_stop_at_any_moment_loses_nothing(boots: int, twice: bool) -> None:
    log = filled(15, internal_segment_bytes="300")
    if twice:
        log.clean()
        for first in range(15, 24, 3):
            log.append(records(first, 3, 7))
        log.roll()
    log.log.flush()
    log.bench.store.checkpoint()
    before = {view: dict(placed_lines(log.log, view)) for view in View}
    states = states_while_cleaning(log, seeds=(None, 1, 2) if boots else ())
    after = {view: dict(placed_lines(log.log, view)) for view in View}
    if boots:
        log.bench.new_boot()
    for disk in states:
        read_only = log.bench.open(disk.after_kill(), read_only=True).partition("t", 0)
        shown = {view: placed_lines(read_only, view) for view in View}
        store = log.bench.open(disk)
        found = store.partition("t", 0)
        assert found.losses == []
        assert leftovers(disk) == []
        for view in View:
            lines = placed_lines(found, view)
            assert lines == shown[view], "a read-only store shows what loading leaves"
            assert after[view].items() <= dict(lines).items() <= before[view].items()
            assert [at for at, _ in lines] == sorted({at for at, _ in lines})
        # Another round gets where the first one would have.
        dirt = dirty_range_of(found, 0, log.bench.now_ms)
        clean(found, dirt, log.bench.now_ms, tools())
        assert {view: dict(placed_lines(found, view)) for view in View} == after
        store.close(log.bench.now_ms)


def without_its_last_record() -> CompactedLog:
    """Two segments; compaction takes the last record of the first one, which leaves no gap."""
    log = CompactedLog({"internal.segment.bytes": "350"})
    writer = log.bench.writer(View.TSV)
    for line in (b"a\t" + b"x" * 70, b"b\t1", b"price\t10"):
        writer.write(line + b"\n", log.bench.now_ms)
    log.bench.log.roll(log.bench.now_ms)
    writer.write(b"price\t" + b"y" * 70 + b"\n", log.bench.now_ms)
    log.bench.log.roll(log.bench.now_ms)
    return log


def test_a_recovery_that_is_killed_after_a_compaction_finds_no_loss() -> None:
    log = without_its_last_record()
    disk, taken_up = log.bench.disk, []

    def look(operation: str, name: str, _size: int) -> None:
        if operation == "rename" and name.endswith(".swap"):
            disk.before = None
            taken_up.append(disk.after_kill())
            disk.before = look

    disk.before = look
    compact_now(log.bench.log, log.bench.now_ms, tools())
    disk.before = None
    lines = placed_lines(log.bench.log, View.TSV)
    assert [line.partition(b"\t")[0] for _, line in lines] == [b"a", b"b", b"price"]
    first, last = taken_up[0], taken_up[-1]
    for found in (first, last):
        for changes in range(200):
            dying = found.after_kill()
            dying.stop_before(changes)
            try:
                log.bench.open(dying)
            except Stopped:
                again = log.bench.open(dying.after_kill()).partition("t", 0)
                assert (again.losses, placed_lines(again, View.TSV)) == ([], lines)
            else:
                break
        assert changes > 20


def cleaned_without_room(written: int) -> CompactedLog:
    """A log that was compacted, with no room in the end for what the table is to say of it."""
    log = filled(30, internal_segment_bytes="400")
    log.clean()
    log.append(records(30, 3, 7))
    log.roll()
    log.log.maintain()
    disk, failed = log.bench.disk, []

    def fail(operation: str, name: str, size: int) -> None:
        if operation == "pwrite" and name.endswith("logfs.segments") and size > 2 * ENTRY_BYTES:
            disk.before = None
            failed.append(size)
            disk.fail_next_write("*logfs.segments", errno.ENOSPC, after_bytes=written)

    disk.before = fail
    log.clean_only()
    assert len(failed) == 1
    return log


@pytest.mark.parametrize("written", [0, ENTRY_BYTES, 2 * ENTRY_BYTES + 5])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_start_finds_no_loss_if_the_end_of_a_compaction_could_not_be_saved(
    written: int, is_killed: bool
) -> None:
    log = cleaned_without_room(written)
    before = placed_lines(log.log, View.TEXT)
    found = log.bench.kill() if is_killed else log.bench.restart()
    assert found.losses == []
    assert placed_lines(found, View.TEXT) == before


@pytest.mark.parametrize("written", [0, ENTRY_BYTES, 2 * ENTRY_BYTES + 5])
def test_a_backup_is_whole_if_the_end_of_a_compaction_could_not_be_saved(
    written: int,
) -> None:
    log = cleaned_without_room(written)
    disk = log.bench.disk
    log.log.flush()
    taken, now_ms = FakeDisk(), log.bench.now_ms
    job = Job(disk, taken, FakeTransfer(disk, taken), (), Host(log.bench.boot, lambda: bytes(16)),
              now_ms, lambda: now_ms, lambda: None, lambda _: None)  # fmt: skip
    made = back_up(job, "source", lambda _: take_point(log.log))
    assert made.problems == []
    found = log.bench.open(taken, read_only=True).partition("t", 0)
    assert placed_lines(found, View.TEXT) == placed_lines(log.log, View.TEXT)


@pytest.mark.allow_log("t/0 is offline")
def test_a_failing_disk_takes_the_log_offline_or_changes_nothing() -> None:
    for pattern in ("*.cleaned", "*.swap", "*.log", DIRECTORY, "*logfs.segments"):
        for operation in ("rename", "sync", "pwrite", "sync_directory", "open"):
            log = filled(30, internal_segment_bytes="400")
            log.log.maintain()
            before = {view: dict(placed_lines(log.log, view)) for view in View}
            log.bench.disk.fail_next(operation, pattern)
            try:
                log.clean_only()
            except OSError:
                if log.log.offline is not None:
                    log.bench.reload()
            log.bench.disk.heal()
            found = {view: dict(placed_lines(log.log, view)) for view in View}
            for view in View:
                assert found[view].items() <= before[view].items()
            assert log.bench.disk.stat(log.log.snapshot.segments[0].name).size is not None
            log.first_dirty = 0
            log.model.records = [
                k for k in log.model.records if k.positions.text in found[View.TEXT]
            ]
            log.clean()
            assert len(log.model.records) == 5


@pytest.mark.parametrize("is_read", [False, True])
def test_no_room_for_a_name_undoes_or_completes_a_compaction(*, is_read: bool) -> None:
    for number in range(100):
        log = filled(30, internal_segment_bytes="400")
        log.log.maintain()
        before = {view: dict(placed_lines(log.log, view)) for view in View}
        pinned = log.log.snapshot.segments[:-1] if is_read else ()
        log.log.pin(pinned)
        has_failed = fill_at_rename(log.bench.disk, number)
        with contextlib.suppress(OSError):
            log.clean_only()
        log.bench.disk.before = None
        assert log.log.offline is None
        for segment in pinned:
            assert segment.files().log.size() == segment.size_bytes
        found = {view: dict(placed_lines(log.log, view)) for view in View}
        for stop in (log.bench.kill, log.bench.crash):
            assert {view: dict(placed_lines(stop(), view)) for view in View} == found
            assert log.log.losses == []
            assert leftovers(log.bench.disk) == []
        assert found[View.TEXT].items() <= before[View.TEXT].items()
        clean(log.log, dirty_range_of(log.log, 0, log.bench.now_ms), log.bench.now_ms, tools())
        assert len(placed_lines(log.log, View.TEXT)) < len(before[View.TEXT])
        if not has_failed:
            return
    raise AssertionError("a compaction has fewer renames")


def fill_at_rename(disk: FakeDisk, number: int) -> list[str]:
    """Let one rename find no room; returns the list that its name will be in."""
    failed: list[str] = []
    count = 0

    def look(operation: str, name: str, _size: int) -> None:
        nonlocal count
        if operation == "rename":
            if count == number:
                failed.append(name)
            count += 1
            if count == number + 1:
                raise OSError(errno.ENOSPC, "No space left on device", name)

    disk.before = look
    return failed
