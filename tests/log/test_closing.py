"""A close without a flush: the note that it leaves, when it is valid, and its readers."""

import json
from collections.abc import Callable

import pytest

from logfs.errors import LogOfflineError
from logfs.log import checkpoints, names
from logfs.log.segments.table import SegmentState, SegmentTable
from logfs.records.record import Record
from logfs.types import TopicPartition, View
from tests.log.support import DIRECTORY, Bench, contents, end_of, lines_of, log_name
from tests.log.verifying import check

SMALL = {"internal.segment.bytes": "250"}
TP = TopicPartition("t", 0)
LINES = [b"line %02d of some length" % number for number in range(20)]


def written(properties: dict[str, str] | None = None) -> Bench:
    bench = Bench(properties)
    bench.write(*LINES)
    return bench


def test_nothing_is_synced_and_the_next_start_scans_nothing() -> None:
    bench = written()
    durable = contents(bench.disk.after_crash(None))
    ends = bench.log.snapshot.end
    bench.leave()
    assert contents(bench.disk.after_crash(None)) == durable
    assert not checkpoints.has_clean_shutdown(bench.disk)
    bench.store = bench.open()
    assert bench.store.was_clean
    assert bench.log.counters.recovered_bytes == 0
    assert bench.log.snapshot.end == ends
    assert lines_of(bench.log) == LINES
    assert bench.log.recovery_point == 0
    assert not bench.disk.exists(names.CLOSED)


def test_positions_and_offsets_continue_where_they_were() -> None:
    bench = written(SMALL)
    size = end_of(bench.log, View.TEXT)
    for _ in range(3):
        bench.leave()
        bench.store = bench.open()
    bench.write(b"next")
    assert end_of(bench.log, View.TEXT) == size + 5
    assert bench.log.log_end_offset == len(LINES) + 1


def test_after_a_power_cut_the_logs_are_recovered_after_the_reservation() -> None:
    bench = written()
    size = end_of(bench.log, View.TEXT)
    bench.leave()
    # Of what was not synced, the note alone has come to the disk.
    note = bench.disk.read(names.CLOSED)
    bench.disk.crash(None)
    bench.disk.replace(names.CLOSED, note)
    bench.new_boot()
    bench.store = bench.open()
    assert not bench.store.was_clean
    assert lines_of(bench.log) == []
    assert end_of(bench.log, View.TEXT) >= size


def kill(bench: Bench) -> None:
    """Open the directory, write and kill, by a program that does not know the note."""
    note = bench.disk.read(names.CLOSED)
    bench.store = bench.open()
    bench.write(b"more")
    bench.disk.kill()
    bench.disk.replace(names.CLOSED, note)


def change(bench: Bench) -> None:
    """The last segment is as long as it was, and was written since."""
    bench.disk.touch_times(f"{DIRECTORY}/{log_name(0)}", bench.now_ms + 5)


def roll(bench: Bench) -> None:
    """Another segment was begun."""
    bench.disk.replace(f"{DIRECTORY}/{log_name(20)}", b"")


def add(bench: Bench) -> None:
    """Another partition was made."""
    bench.disk.make_directory("u-0")


def tear(bench: Bench) -> None:
    data = bench.disk.read(names.CLOSED)
    bench.disk.replace(names.CLOSED, data[: len(data) // 2])


def renew(bench: Bench) -> None:
    note = json.loads(bench.disk.read(names.CLOSED))
    bench.disk.replace(names.CLOSED, json.dumps({**note, "version": 2}).encode())


def flip(bench: Bench) -> None:
    """The entry of the segment does not decode."""
    note = json.loads(bench.disk.read(names.CLOSED))
    entry = note["logs"]["t-0"]["entry"]
    note["logs"]["t-0"]["entry"] = entry[:-1] + ("0" if entry[-1] != "0" else "1")
    bench.disk.replace(names.CLOSED, json.dumps(note).encode())


def remount(bench: Bench) -> None:
    """The file system went away and returned with everything that was written."""
    bench.disk.mounts += 1


@pytest.mark.parametrize(
    "what",
    [Bench.new_boot, remount, kill, change, roll, add, tear, renew, flip],
    ids=lambda f: f.__name__,
)
def test_the_note_is_ignored_after_other_changes(what: Callable[[Bench], None]) -> None:
    bench = written()
    bench.leave()
    what(bench)
    bench.store = bench.open()
    assert not bench.store.was_clean
    assert lines_of(bench.log)[:20] == LINES


def test_the_marker_of_a_clean_stop_goes_before_an_older_note() -> None:
    bench = written()
    bench.leave()
    note = bench.disk.read(names.CLOSED)
    bench.store = bench.open()
    bench.write(b"more")
    bench.store.close(bench.now_ms)
    bench.disk.replace(names.CLOSED, note)
    bench.store = bench.open()
    assert bench.store.was_clean
    assert lines_of(bench.log) == [*LINES, b"more"]
    assert bench.log.recovery_point == len(LINES) + 1


def test_a_clean_stop_after_it_makes_all_of_it_durable() -> None:
    bench = written(SMALL)
    bench.leave()
    bench.store = bench.open()
    bench.restart()
    bench.store.close(bench.now_ms)
    expected = contents(bench.disk)
    assert contents(bench.disk.after_crash(None)) == expected


def test_a_flush_after_it_covers_the_segments_sealed_before() -> None:
    bench = written(SMALL)
    bench.leave()
    bench.store = bench.open()
    bench.write(b"more")
    bench.log.flush()
    bench.crash(None)
    assert lines_of(bench.log) == [*LINES, b"more"]


def test_a_partition_that_is_offline_keeps_the_note_from_being_written() -> None:
    bench = written()
    bench.store.partition("t", 0).state.offline = "for a test"
    bench.leave()
    assert not bench.disk.exists(names.CLOSED)


def test_a_read_only_store_shows_everything_and_keeps_the_note() -> None:
    bench = written(SMALL)
    bench.leave()
    before = contents(bench.disk)
    store = bench.open(read_only=True)
    assert store.was_clean
    assert lines_of(store.partition("t", 0)) == LINES
    assert contents(bench.disk) == before


@pytest.mark.parametrize("boot", ["00000001", "another", ""])
def test_verify_finds_nothing_wrong(boot: str) -> None:
    bench = written(SMALL)
    bench.leave()
    assert check(bench.disk, boot_id=boot).findings == []


def test_the_table_keeps_its_reservation() -> None:
    bench = written()
    bench.leave()
    table = SegmentTable.load(bench.disk, DIRECTORY)
    assert table.entries[0].state is SegmentState.OPEN
    assert table.state.reserved.text > sum(map(len, LINES))


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_log_that_was_closed_takes_no_more_writes(is_durable: bool) -> None:
    bench = Bench()
    bench.write(b"line")
    log = bench.restart()
    bench.store.close(bench.now_ms, is_durable=is_durable)
    before = contents(bench.disk)
    for write in (
        lambda: log.roll(bench.now_ms),
        lambda: log.roll(bench.now_ms + (1 << 40), only_if_quiet=True),
        lambda: log.append_records([Record(0, bench.now_ms, None, b"late")], bench.now_ms),
    ):
        with pytest.raises(LogOfflineError, match="t/0 is closed"):
            write()
    assert contents(bench.disk) == before


def test_a_log_that_is_not_quiet_is_not_opened_to_be_rolled() -> None:
    bench = Bench()
    bench.write(b"line")
    log = bench.kill()
    before = contents(bench.disk)
    log.roll(bench.now_ms, only_if_quiet=True)
    assert contents(bench.disk) == before
