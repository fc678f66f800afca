"""What was lost: noted once, kept for good, readable by people, never misread."""

import errno
import json

import pytest

from logfs.errors import CorruptRecordError, UnsupportedFormatError
from logfs.log.losses import Loss, LossFile
from logfs.log.names import LOSSES
from logfs.services.meta import partition_meta
from logfs.services.retention.trimming import trim
from tests.fakes import FakeDisk
from tests.log.support import DIRECTORY, Bench, log_name

NAME = f"{DIRECTORY}/{LOSSES}"
CUT = Loss(1, "cut", "00000000000000000000.log", 4096, 100, 17, 'copied to "a.cut"\n')
LINE = Loss(2, "line", "größer.cut", 0, 3, None, "größer")


def with_directory(data: bytes | None = None) -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory(DIRECTORY)
    if data is not None:
        disk.replace(NAME, data)
    disk.sync_directory("")
    return disk


def losses_on(disk: FakeDisk, *, read_only: bool = False) -> LossFile:
    return LossFile(disk, DIRECTORY, read_only=read_only)


def test_without_losses_there_is_no_file() -> None:
    disk = with_directory()
    losses = losses_on(disk)
    losses.save()
    assert losses.all() == []
    assert not disk.exists(NAME)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_losses_are_durable_in_their_order(seed: int | None) -> None:
    disk = with_directory()
    losses = losses_on(disk)
    losses.add(CUT)
    losses.add(LINE)
    assert losses.all() == losses_on(disk.after_crash(seed)).all() == [CUT, LINE]
    assert not losses.is_dirty


def test_the_file_is_one_json_object_a_line_below_the_version() -> None:
    disk = with_directory()
    losses_on(disk).add(CUT)
    first, *rows = disk.read(NAME).decode().splitlines()
    assert json.loads(first) == {"version": 1}
    assert [json.loads(row) for row in rows] == [CUT._asdict()]
    assert disk.read(NAME).endswith(b"\n")


def test_the_same_loss_seen_again_counts_once() -> None:
    disk = with_directory()
    losses_on(disk).add(CUT)
    losses = losses_on(disk)
    assert losses.note(CUT._replace(time_ms=99, offset=5)) is False
    assert losses.note(CUT._replace(position=5000)) is True
    assert len(losses.all()) == 2


def test_what_was_noted_is_saved_later() -> None:
    disk = with_directory()
    losses = losses_on(disk)
    assert losses.note(CUT)
    assert losses.is_dirty
    assert not disk.exists(NAME)
    losses.save()
    assert losses_on(disk).all() == [CUT]
    before = disk.counts.copy()
    losses.save()
    assert disk.counts == before, "there was nothing to save"


def test_a_failed_save_is_tried_again() -> None:
    disk = with_directory()
    losses = losses_on(disk)
    disk.fail_next_write(f"{NAME}*", errno.EIO)
    with pytest.raises(OSError, match=str(errno.EIO)):
        losses.add(CUT)
    assert losses.is_dirty
    losses.save()
    assert losses_on(disk).all() == [CUT]


@pytest.mark.expect_log("the loss is noted there later")
def test_a_loss_on_a_full_disk_is_saved_once_there_is_room() -> None:
    disk = with_directory()
    losses = losses_on(disk)
    disk.fail_next_write(f"{NAME}*", errno.ENOSPC)
    losses.add(CUT)
    assert losses.all() == [CUT]
    assert losses.is_dirty
    losses.save()
    assert losses_on(disk).all() == [CUT]


def test_a_read_only_store_notes_in_memory_alone() -> None:
    disk = with_directory()
    losses = losses_on(disk, read_only=True)
    losses.add(CUT)
    assert losses.all() == [CUT]
    assert not losses.is_dirty
    assert not disk.exists(NAME)


@pytest.mark.expect_log("lines that do not parse are passed over")
@pytest.mark.parametrize(
    "junk",
    [b"", b"\0\0\0", b"7", b"[]", b'{"version"', b'{"kind": "cut"}', b"[" * 100_000, b"\xff"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_lines_that_do_not_parse_are_passed_over(junk: bytes, place: int) -> None:
    disk = with_directory()
    losses = losses_on(disk)
    losses.add(CUT)
    losses.add(LINE)
    lines = disk.read(NAME).splitlines()
    lines[place] = junk
    disk.replace(NAME, b"\n".join(lines) + b"\n")
    kept = [loss for number, loss in ((1, CUT), (2, LINE)) if number != place]
    assert losses_on(disk).all() == kept


@pytest.mark.expect_log("lines that do not parse are passed over")
def test_an_empty_file_says_nothing() -> None:
    assert losses_on(with_directory(b"")).all() == []


def test_a_newer_file_is_refused_and_left() -> None:
    data = b'{"version": 2}\n{"what": "else"}\n'
    disk = with_directory(data)
    for change in (LossFile.all, lambda losses: losses.add(CUT)):
        with pytest.raises(UnsupportedFormatError, match="version 2, this logfs reads version 1"):
            change(losses_on(disk))
    assert disk.read(NAME) == data


# On a partition


@pytest.mark.expect_log("it happened")
def test_a_loss_of_a_partition_is_in_meta_and_survives() -> None:
    bench = Bench()
    bench.write(b"a", b"b")
    bench.log.add_loss("line", "x.cut", 0, 3, "it happened", bench.now_ms)
    expected = Loss(bench.now_ms, "line", "x.cut", 0, 3, 2, "it happened")
    for log in (bench.log, bench.crash(), bench.restart()):
        assert log.losses == [expected]
        assert partition_meta(log)["losses"] == [expected._asdict()]


@pytest.mark.expect_log("[loss: corrupt, ")
def test_a_corrupt_batch_that_readers_meet_is_noted_once_and_saved_by_maintain() -> None:
    bench = Bench()
    bench.write(b"a")
    error = CorruptRecordError("bad", 70, f"{DIRECTORY}/x.log", 80)
    for later_ms in range(3):
        bench.log.note_corrupt(error, bench.now_ms + later_ms)
    due = [bench.log.maintenance_due]
    assert bench.names(LOSSES) == []
    bench.log.maintain()
    due.append(bench.log.maintenance_due)
    assert due == [True, False]
    expected = Loss(bench.now_ms, "corrupt", f"{DIRECTORY}/x.log", 70, 80, None, "bad")
    assert bench.kill().losses == [expected]


@pytest.mark.expect_log("damage")
def test_a_loss_that_a_reader_met_outlives_the_segment_it_is_in() -> None:
    bench = Bench({"internal.segment.bytes": "300"})
    bench.write(*[b"line %d" % n for n in range(20)])
    error = CorruptRecordError("damage", 70, f"{DIRECTORY}/{log_name(0)}", 80)
    bench.log.note_corrupt(error, bench.now_ms)
    trim(bench.log, 15, bench.now_ms, at_once=True)
    assert [loss.file for loss in bench.kill().losses] == [f"{DIRECTORY}/{log_name(0)}"]
