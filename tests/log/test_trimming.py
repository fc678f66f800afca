"""Trimming by hand: which record is the first to be kept, and what goes with the others."""

import logging
import threading
from datetime import UTC

import pytest

from logfs.errors import (
    BadSelectorError,
    IllegalTopicNameError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    ReadOnlyError,
    UnknownNameError,
)
from logfs.log.reading.address import parse_partition_name
from logfs.records.record import Record
from logfs.services.retention.trimming import (
    Trimmed,
    offset_to_keep,
    parse_trim_address,
    preview_trim,
    trim,
    trim_all,
)
from logfs.types import View
from tests.fakes import START_MS, FakeDisk
from tests.log.support import Bench, end_of, kept_runs_of, lines_of, log_name

SMALL = {"internal.segment.bytes": "150"}
LINES = [b"a%d" % n for n in range(8)]


@pytest.fixture
def bench() -> Bench:
    """Eight records of three bytes, two in each segment, a second between them."""
    bench = Bench(SMALL)
    for number, line in enumerate(LINES):
        bench.append([Record(0, START_MS + 1000 * number, None, line, ())])
    bench.now_ms = START_MS + 10_000
    return bench


def keep(bench: Bench, name: str) -> int:
    return offset_to_keep(bench.log, parse_partition_name(name, UTC), bench.now_ms)


@pytest.mark.parametrize(
    ("selector", "offset"),
    [
        ("@earliest", 0),
        ("@latest", 8),
        ("@offset=0", 0),
        ("@offset=3", 3),
        ("@offset=8", 8),
        ("@offset=-1", 7),
        ("@offset=-100", 0),
        (f"@{START_MS + 2000}", 2),
        (f"@{START_MS + 2001}", 3),
        (f"@{START_MS + 9000}", 8),
        ("@1970-01-01", 0),
        ("@-8s", 2),
        ("@now", 8),
        ("@byte=0", 0),
        ("@byte=2", 0),
        ("@byte=3", 1),
        ("@byte=23", 7),
        ("@byte=24", 8),
        ("@byte=-1", 7),
        ("@byte=-99", 0),
        ("@byte=6.tsv", 1),
    ],
)
def test_the_selector_names_the_first_record_to_keep(
    bench: Bench, selector: str, offset: int
) -> None:
    assert keep(bench, f"0{selector}") == offset
    trim(bench.log, offset, bench.now_ms)
    assert lines_of(bench.log) == LINES[offset:]


def test_bytes_before_the_start_and_in_holes(bench: Bench) -> None:
    trim(bench.log, 3, bench.now_ms)
    assert [keep(bench, f"0@byte={n}") for n in (0, 8, 9, 12)] == [3, 3, 3, 4]
    assert keep(bench, "0@offset=1") == 3
    assert keep(bench, "0@earliest") == 3


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("0", BadSelectorError, "expected one @FROM, the first record to keep"),
        ("0@earliest..latest", BadSelectorError, "expected one @FROM"),
        ("0@earliest.meta", UnknownNameError, ".meta goes without a selector"),
        ("0@offset=9", OffsetOutOfRangeError, r"offset 9 is outside the log, which holds \[0, 8\)"),
        ("0@byte=25", BadSelectorError, "byte 25 lies beyond the end, which is byte 24"),
        (f"0@{START_MS + 10_001}", BadSelectorError, "has not come yet.* say @latest"),
    ],
)
def test_points_beyond_the_log_are_refused(
    bench: Bench, name: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        keep(bench, name)


def test_trim_addresses_are_parsed() -> None:
    assert parse_trim_address(["orders", "3@-7d"], UTC)[:2] == ("orders", 3)
    whole = parse_trim_address(["orders@-7d"], UTC)
    assert whole[:2] == ("orders", None)
    assert whole.keep == parse_partition_name("0@-7d", UTC)
    for names in ([], ["orders"], ["orders", "0", "x"], ["orders@-7d", "0", "0"]):
        with pytest.raises(UnknownNameError, match="TOPIC/PARTITION@FROM"):
            parse_trim_address(names, UTC)
    with pytest.raises(BadSelectorError):
        parse_trim_address(["orders@soon"], UTC)
    with pytest.raises(IllegalTopicNameError):
        parse_trim_address(["a b@-7d"], UTC)


@pytest.mark.parametrize("policy", ["compact", ""])
def test_a_policy_without_delete_refuses_and_names_the_fix(bench: Bench, policy: str) -> None:
    bench.store.alter_topic("t", {"cleanup.policy": policy})
    fix = f"cleanup.policy={policy},delete" if policy else "cleanup.policy=delete'"
    with pytest.raises(PolicyViolationError, match=fix):
        trim(bench.log, 3, bench.now_ms)
    assert lines_of(bench.log) == LINES
    bench.store.alter_topic("t", {"cleanup.policy": "compact,delete"})
    trim(bench.log, 3, bench.now_ms)
    assert lines_of(bench.log) == LINES[3:]


def test_a_store_that_is_read_only_refuses(bench: Bench) -> None:
    bench.store.close(bench.now_ms)
    with pytest.raises(ReadOnlyError):
        trim(bench.open(read_only=True).partition("t", 0), 3, bench.now_ms)


def test_a_trim_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    size = len(bench.file(log_name(0)))
    assert trim(bench.log, 3, bench.now_ms) == Trimmed(0, 3, 3, 1, 0, size)
    assert trim(bench.log, 2, bench.now_ms) == Trimmed(0, 3, 0, 0, 0, 0)
    assert trim(bench.log, 5, bench.now_ms, at_once=True) == Trimmed(0, 5, 2, 1, 2 * size, 0)
    assert trim(bench.log, 8, bench.now_ms) == Trimmed(0, 8, 3, 2, 0, 2 * size)
    said = [record.message for record in caplog.records if "trimmed" in record.message]
    assert [text.partition("deleted; ")[2] for text in said] == [
        f"the log starts at offset {start}, it started at {before}"
        for start, before in ((3, 0), (5, 3), (8, 5))
    ]


def test_at_once_removes_files_now_except_those_that_are_read(bench: Bench) -> None:
    segments = bench.log.snapshot.segments
    size = len(bench.file(log_name(0)))
    bench.log.pin(segments[:1])
    done = trim(bench.log, 8, bench.now_ms, at_once=True)
    assert (done.removed_bytes, done.held_bytes) == (3 * size, size)
    assert bench.names(".log.deleted") == [f"{log_name(0)}.deleted"]
    assert bench.names(".log") == [log_name(8)]
    bench.log.unpin(segments[:1])
    bench.store.remove_due_files(bench.now_ms)
    assert bench.names(".deleted") == []


@pytest.mark.parametrize("offset", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("stop", ["restart", "kill", "crash"])
def test_trimmed_records_stay_deleted_after_a_stop(bench: Bench, offset: int, stop: str) -> None:
    end = end_of(bench.log, View.TEXT)
    bench.log.flush()
    trim(bench.log, offset, bench.now_ms)
    for _ in range(2):
        log = getattr(bench, stop)()
        assert lines_of(log) == LINES[offset:]
        assert (log.log_start_offset, log.log_end_offset) == (offset, 8)
        assert log.snapshot.start.positions.text == 3 * offset or offset == 8
        assert end_of(log, View.TEXT) >= end


@pytest.mark.parametrize("seed", [None, 1])
def test_a_stop_at_any_step_leaves_the_start_before_or_the_one_after(
    bench: Bench, seed: int | None
) -> None:
    bench.log.flush()
    bench.store.checkpoint()
    left: list[FakeDisk] = []

    def before(operation: str, name: str, size: int) -> None:
        if operation not in ("stat", "list", "pread"):
            left.extend([bench.disk.after_kill(), bench.disk.after_crash(seed)])

    bench.disk.before = before
    trim(bench.log, 5, bench.now_ms)
    bench.disk.before = None
    done = [bench.disk.after_kill(), bench.disk.after_crash(seed)]
    bench.new_boot()
    starts = set()
    for disk in [*left, *done]:
        log = bench.open(disk).partition("t", 0)
        start = log.log_start_offset
        starts.add(start)
        assert kept_runs_of(log, View.TEXT)[0][0] == 3 * start
        assert lines_of(log) == LINES[start:]
        assert disk not in done or start == 5
    assert {0, 5} <= starts


def test_a_concurrent_checkpoint_does_not_undo_a_trim(bench: Bench) -> None:
    bench.log.flush()
    beside = threading.Thread(target=bench.store.checkpoint)

    def before(operation: str, name: str, size: int) -> None:
        if operation == "pwrite" and name == "t-0/logfs.segments":
            bench.disk.before = None
            beside.start()
            beside.join(0.05)  # it has to wait, or it would write the start of before

    bench.disk.before = before
    trim(bench.log, 3, bench.now_ms)
    beside.join()
    assert bench.crash(1).log_start_offset == 3


def test_a_full_disk_changes_nothing_if_no_whole_segment_can_go(bench: Bench) -> None:
    bench.disk.fail_next("pwrite", "log-start-offset-checkpoint*", 28)
    with pytest.raises(OSError, match="28"):
        trim(bench.log, 1, bench.now_ms)
    assert bench.log.offline is None
    assert lines_of(bench.log) == LINES
    trim(bench.log, 3, bench.now_ms)
    assert lines_of(bench.log) == LINES[3:]


def test_all_partitions_of_a_topic_are_trimmed_or_none(bench: Bench) -> None:
    bench.store.grow_topic("t", 2, bench.now_ms)
    logs = bench.store.all_partitions()
    with pytest.raises(OffsetOutOfRangeError):
        trim_all(logs, parse_partition_name("0@offset=2", UTC), bench.now_ms)
    assert lines_of(bench.log) == LINES
    done = trim_all(logs, parse_partition_name("0@-8s", UTC), bench.now_ms)
    assert [(x.partition, x.log_start_offset) for x in done] == [(0, 2), (1, 0)]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("offset", range(9))
def test_a_preview_is_what_a_trim_then_does(bench: Bench, offset: int, at_once: bool) -> None:
    trim(bench.log, 1, bench.now_ms)
    expected = preview_trim(bench.log, offset, at_once=at_once)
    assert bench.log.log_start_offset == 1
    assert trim(bench.log, offset, bench.now_ms, at_once=at_once) == expected
    again = preview_trim(bench.log, offset, at_once=True)
    assert trim(bench.log, offset, bench.now_ms, at_once=True) == again
