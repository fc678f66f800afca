"""Backups: the same offsets, positions and records, also when source or copy change later."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from logfs.errors import BackupError
from logfs.log import names
from logfs.log.lines.writer import LineWriter
from logfs.log.segments.table import SegmentState, SegmentTable
from logfs.log.store import LogStore
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.services.backup.point import Point
from logfs.services.backup.taking import back_up
from logfs.services.compaction.manual import compact_now
from logfs.types import TopicPartition, View
from tests.log.backups import (
    KEYS,
    LINES,
    Killed,
    Steps,
    asker,
    bytes_below,
    files_below,
    job,
    opened,
    restored,
    seen,
    seen_in,
    seen_now,
    write,
)
from tests.log.compaction import tools
from tests.log.support import text_of
from tests.mounting import now_ms


def test_a_backup_of_a_running_store_has_the_same_records(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    before = seen_now(store)
    made = back_up(job(data, tmp_path / "backup"), "data", asker(store))
    assert made.problems == []
    assert seen_now(store) == before
    assert seen_in(tmp_path / "backup") == before
    gaps = [s.has_gaps for s in store.partition("keys", 0).snapshot.segments]
    assert any(gaps), "nothing was compacted, so nothing was shown of that"


def test_a_backup_is_stopped_cleanly_and_can_be_appended_to(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    back_up(job(data, tmp_path / "backup"), "data", asker(store))
    generation = store.partition("lines", 0).generation
    copy = restored(tmp_path / "backup")
    before = seen_now(copy)
    log = copy.partition("lines", 0)
    assert (log.generation, log.losses) == (generation, [])
    # The producer is known: what it repeats is not appended again.
    again = log.append_records(
        [Record(0, now_ms(), None, b"once")], now_ms(), ProducerBatch(77, 0, 0, False)
    )
    assert again.base_offset == 240
    assert seen_now(copy) == before
    write(copy, 240, 5)
    assert log.log_end_offset == 246
    end = before[LINES].positions[0]
    assert seen(log).runs["TEXT"][-1][1].endswith(b"line 244\n")
    assert log.snapshot.end.positions.text == end + 5 * len("line 240\n")
    copy.close(now_ms())


def test_sealed_segments_are_linked_and_the_active_one_is_not(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    back_up(job(data, tmp_path / "backup"), "data", asker(store))
    sealed = [s.base_offset for s in store.partition("lines", 0).snapshot.segments]
    for base in sealed:
        for kind in ("log", "index", "timeindex", "textindex"):
            path = tmp_path / "backup" / "lines-0" / f"{base:020}.{kind}"
            assert (path.stat().st_nlink == 2) == (base != sealed[-1]), path.name


def test_later_changes_of_the_source_do_not_reach_the_backup(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    back_up(job(data, tmp_path / "backup"), "data", asker(store))
    before = bytes_below(tmp_path / "backup")
    write(store, 240, 100)
    compact_now(store.partition("keys", 0), now_ms(), tools(), roll=True)
    store.partition("lines", 0).truncate_to(110, now_ms())
    store.partition("lines", 0).advance_log_start_offset(80, now_ms())
    store.remove_due_files(now_ms())
    store.delete_topic("keys", now_ms())
    assert bytes_below(tmp_path / "backup") == before


def test_the_backup_of_a_directory_closed_without_a_flush_is_durable(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    before = seen_now(store)
    log = store.partition("lines", 0)
    store.close(now_ms(), is_durable=False)
    made = back_up(job(data, tmp_path / "backup"), "data", None)
    assert made.problems == []
    assert (tmp_path / "backup" / names.CLEAN_SHUTDOWN).exists()
    assert not (tmp_path / "backup" / names.CLOSED).exists()
    assert seen_in(tmp_path / "backup") == before
    offsets = (tmp_path / "backup" / names.RECOVERY_POINT_CHECKPOINT).read_text().splitlines()
    assert f"lines 0 {log.log_end_offset}" in offsets
    table = SegmentTable.load(PosixDisk(tmp_path / "backup"), "lines-0")
    assert table.entries[log.snapshot.active.base_offset].state is SegmentState.CLOSED
    copy = restored(tmp_path / "backup")
    assert copy.was_clean
    assert copy.partition("lines", 0).snapshot.end == log.snapshot.end
    copy.close(now_ms())


def test_later_changes_of_the_backup_do_not_reach_the_source(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    back_up(job(data, tmp_path / "backup"), "data", asker(store))
    before, inodes = bytes_below(data), {path: path.stat().st_ino for path in files_below(data)}
    # As after a crash that has taken the checkpoints: every segment is scanned and reindexed.
    for name in (names.CLEAN_SHUTDOWN, names.RECOVERY_POINT_CHECKPOINT):
        (tmp_path / "backup" / name).unlink()
    log_file = sorted((tmp_path / "backup" / "lines-0").glob("*.log"))[1]
    (tmp_path / "backup" / names.BACKUP).unlink()  # or it would be read-only
    copy = opened(tmp_path / "backup")
    write(copy, 240, 30)
    copy.partition("lines", 0).truncate_to(110, now_ms())
    compact_now(copy.partition("keys", 0), now_ms(), tools(), roll=True)
    copy.close(now_ms())
    assert log_file.stat().st_size == (data / "lines-0" / log_file.name).stat().st_size
    assert bytes_below(data) == before
    assert {path: path.stat().st_ino for path in files_below(data)} == inodes


def test_a_sealed_segment_that_is_read_stays_linked(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    back_up(job(data, tmp_path / "backup"), "data", asker(store))
    log = store.partition("lines", 0)
    for segment in log.snapshot.segments:
        if segment is not log.snapshot.active:
            segment.close_files()
    seen(log)
    assert all((data / segment.name).stat().st_nlink == 2 for segment in log.snapshot.segments[:-1])


def test_an_unfinished_line_becomes_a_record_like_after_a_crash(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    writer = LineWriter(store.partition("lines", 0), View.TEXT)
    writer.write(b"begun and ", now_ms())
    back_up(job(data, tmp_path / "backup"), "data", asker(store))
    writer.write(b"ended\n", now_ms())
    back_up(job(data, tmp_path / "second"), "data", asker(store))
    writer.close(now_ms())
    for backup, last in (("backup", b"begun and \n"), ("second", b"begun and ended\n")):
        copy = restored(tmp_path / backup)
        runs = seen(copy.partition("lines", 0)).runs["TEXT"]
        assert runs[-1][1].endswith(b"once\n" + last)
        copy.close(now_ms())


def roll_and_compact(store: LogStore) -> None:
    compact_now(store.partition("keys", 0), now_ms(), tools(), roll=True)


def delete(store: LogStore) -> None:
    log = store.partition("lines", 0)
    log.advance_log_start_offset(log.log_start_offset + 8, now_ms())
    log.remove_due_files(now_ms())


def append(store: LogStore) -> None:
    write(store, 1000, 50)


def truncate(store: LogStore) -> None:
    log = store.partition("lines", 0)
    log.truncate_to(log.log_end_offset - 25, now_ms())
    write(store, 2000, 50)


@pytest.mark.parametrize("change", [append, delete, roll_and_compact, truncate])
def test_each_partition_is_of_one_moment_despite_changes_meanwhile(
    store: LogStore, data: Path, tmp_path: Path, change: Callable[[LogStore], None]
) -> None:
    class Changing(Steps):
        """Something happens to the source before one step."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.at = at

        def take(self) -> None:
            if self.done == self.at:
                change(store)
            super().take()

    for at in (*range(12), *range(12, 120, 12)):
        before, steps = seen_now(store), Changing(at)
        target = tmp_path / f"at-{at}"
        made = back_up(job(data, target, steps=steps), "data", asker(store))
        assert made.problems == []
        after, found = seen_now(store), seen_in(target)
        for topic_partition, copy in found.items():
            moments = (before[topic_partition], after[topic_partition])
            if change is delete:
                # What is deleted while it is copied may be there or not.
                texts = [data for moment in moments for _, data in moment.runs["TEXT"]]
                runs = copy.runs["TEXT"]
                assert copy.end == moments[1].end
                assert all(any(text.endswith(data) for text in texts) for _, data in runs)
            else:
                assert copy in moments, f"{topic_partition} at step {at}"
        if steps.done <= at:
            break
    assert at > 20


@pytest.mark.parametrize("is_running", [True, False])
def test_a_backup_killed_at_any_step_is_not_opened_and_can_be_completed(
    store: LogStore, data: Path, tmp_path: Path, *, is_running: bool
) -> None:
    if not is_running:
        store.close(now_ms())
    ask = asker(store) if is_running else None
    expected = seen_in(data)
    for last in range(0, 2000, 11):
        target = tmp_path / f"killed-at-{last}"
        try:
            back_up(job(data, target, steps=Steps(last)), "data", ask)
        except Killed:
            if any(target.glob("*-0")):
                with pytest.raises(BackupError, match="a backup of data was interrupted"):
                    opened(target)
                with pytest.raises(BackupError, match="interrupted"):
                    opened(target, read_only=True)
        else:
            break
        made = back_up(job(data, target), "data", ask)
        assert made.problems == []
        assert seen_in(target) == expected
        assert not list(target.rglob("*.tmp"))
    assert last > 20
    assert seen_in(data) == expected


def test_unchanged_files_are_not_copied_again(store: LogStore, data: Path, tmp_path: Path) -> None:
    first = job(data, tmp_path / "first", may_link=False)
    back_up(first, "data", asker(store))
    write(store, 240, 10)
    second = job(data, tmp_path / "second", tmp_path / "first", may_link=False)
    back_up(second, "data", asker(store))
    assert second.transfer.copied_bytes < first.transfer.copied_bytes / 2
    compact_now(store.partition("keys", 0), now_ms(), tools(), roll=True)
    back_up(job(data, tmp_path / "third", tmp_path / "second", may_link=False), "", asker(store))
    assert seen_in(tmp_path / "third") == seen_now(store)
    assert os.stat(tmp_path / "first" / "logfs.backup").st_nlink == 1


def test_a_restored_log_has_the_newest_values_although_files_were_open(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    log = store.partition("keys", 0)
    consumed, pending, next_begun = (LineWriter(log, View.TSV) for _ in range(3))
    for writer, key in ((consumed, b"a"), (pending, b"b"), (next_begun, b"c")):
        writer.write(key + b"\t10", now_ms())
        writer.sync() if key == b"c" else None
        writer.write(b"00\n", now_ms())
        LineWriter(log, View.TSV).write(key + b"\t2000\n", now_ms())
    pending.write(b"b\t3000", now_ms())
    next_begun.write(b"d\t4000\nc\t50", now_ms())
    back_up(job(data, tmp_path / "early"), "data", asker(store))
    roll_and_compact(store)
    back_up(job(data, tmp_path / "late"), "data", asker(store))
    for backup in ("early", "late"):
        assert len(list((tmp_path / backup / "keys-0").glob("*.unfinished"))) == 2
        copy = restored(tmp_path / backup)
        lines = text_of(copy.partition("keys", 0), View.TSV).splitlines()
        newest = dict(
            line.split(b"\t") for line in lines if line[:2] in (b"a\t", b"b\t", b"c\t", b"d\t")
        )
        assert newest == {b"a": b"2000", b"b": b"3000", b"c": b"50", b"d": b"4000"}
        assert [line for line in lines if line in (b"a\t10", b"b\t10", b"c\t10")] == []
        copy.close(now_ms())


def test_a_backup_is_read_only(store: LogStore, data: Path, tmp_path: Path) -> None:
    back_up(job(data, tmp_path / "backup"), "data", asker(store))
    before = bytes_below(tmp_path / "backup")
    with pytest.raises(BackupError, match="it is a backup of data, and backups are read-only"):
        opened(tmp_path / "backup")
    assert seen_in(tmp_path / "backup") == seen_now(store)
    assert bytes_below(tmp_path / "backup") == before


def test_a_store_that_crashed_is_backed_up_unrecovered(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    LineWriter(store.partition("lines", 0), View.TEXT).write(b"half a li", now_ms())
    store.partition("keys", 0).flush()
    store.unlock()  # nothing is closed
    back_up(job(data, tmp_path / "backup"), "data", None)
    assert seen_in(tmp_path / "backup") == seen_in(data)
    assert not (tmp_path / "backup" / names.CLEAN_SHUTDOWN).exists()
    copy = restored(tmp_path / "backup")
    assert seen(copy.partition("lines", 0)).runs["TEXT"][-1][1].endswith(b"once\nhalf a li\n")
    copy.close(now_ms())


def test_a_topic_that_is_deleted_meanwhile_is_left_out(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    def ask(topic_partition: TopicPartition) -> Point:
        point = asker(store)(topic_partition)
        if topic_partition == KEYS:
            store.delete_topic("keys", now_ms())
        return point

    made = back_up(job(data, tmp_path / "backup"), "data", ask)
    assert (made.problems, [row.topic for row in made.partitions]) == ([], ["lines"])
    assert seen_in(tmp_path / "backup") == seen_now(store)


def test_a_missing_segment_is_reported(store: LogStore, data: Path, tmp_path: Path) -> None:
    (data / store.partition("lines", 0).snapshot.segments[2].name).unlink()
    made = back_up(job(data, tmp_path / "backup"), "data", asker(store))
    assert [row.topic for row in made.partitions] == ["keys"]
    (problem,) = made.problems
    assert problem.startswith("lines/0: it has changed 200 times while it was copied (not all ")
    assert seen_in(tmp_path / "backup").keys() == {KEYS}


@pytest.mark.allow_log("lines/0")
def test_a_log_with_a_damaged_end_is_backed_up_to_the_damage(
    store: LogStore, data: Path, tmp_path: Path
) -> None:
    path = data / store.partition("lines", 0).snapshot.active.name
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    made = back_up(job(data, tmp_path / "backup"), "data", asker(store))
    (problem,) = made.problems
    assert problem.startswith("lines/0: the copy ends at offset 240, the log at 241: its active")
    runs = seen_in(tmp_path / "backup")[LINES].runs["TEXT"]
    assert runs[-1][1].endswith(b"line 239\n")
