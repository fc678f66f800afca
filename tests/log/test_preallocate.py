"""``preallocate``: the active ``.log`` has the maximum size, and readers do not see it."""

import errno

import pytest

from logfs.records.batch import encode_batch
from logfs.records.record import Record
from logfs.types import Positions, View
from tests.fakes import START_MS, FakeDisk
from tests.log.damage import LINES, cut_copies, kinds_of_losses, start
from tests.log.foreign import Follower
from tests.log.legacy import foreign
from tests.log.support import DIRECTORY, TP, Bench, batches_in, lines_of, log_name, text_of
from tests.log.verifying import check

SEGMENT_BYTES = 1000
PROPERTIES = {"preallocate": "true", "internal.segment.bytes": str(SEGMENT_BYTES)}


def sizes(bench: Bench) -> list[int]:
    return [bench.disk.stat(f"{DIRECTORY}/{name}").size for name in bench.names(".log")]


def payload(bench: Bench) -> int:
    """Bytes of the batches of the last segment."""
    return bench.log.snapshot.end.file_size


def filled() -> Bench:
    bench = Bench(PROPERTIES)
    bench.write(*LINES)
    return bench


def test_a_new_segment_is_as_long_as_it_may_get() -> None:
    bench = Bench(PROPERTIES)
    assert sizes(bench) == [SEGMENT_BYTES]
    bench.write(*LINES)
    assert sizes(bench) == [SEGMENT_BYTES]
    assert 0 < payload(bench) < SEGMENT_BYTES
    assert lines_of(bench.log) == LINES
    assert bench.log.snapshot.end.positions[View.TEXT] == len(text_of(bench.log))


def test_a_segment_is_cut_to_its_records_when_the_next_one_begins() -> None:
    bench = filled()
    bench.write(*LINES)
    batches = batches_in(bench.file(log_name(0)))
    assert sum(header.size_bytes for _, header in batches) == sizes(bench)[0]
    assert sizes(bench)[1] == SEGMENT_BYTES
    assert lines_of(bench.log) == LINES + LINES


@pytest.mark.parametrize("count", [0, 8])
def test_a_clean_stop_cuts_it_and_the_next_start_does_not_make_it_longer(count: int) -> None:
    bench = Bench(PROPERTIES)
    bench.write(*LINES[:count])
    size = payload(bench)
    bench.store.close(bench.now_ms)
    assert sizes(bench) == [size]
    disk = bench.disk.after_crash(None)
    assert disk.stat(f"{DIRECTORY}/{log_name(0)}").size == size
    start(bench)
    assert sizes(bench) == [size]
    bench.write(b"later")
    assert sizes(bench) == [payload(bench)]
    assert lines_of(bench.log) == [*LINES[:count], b"later"]
    bench.log.roll(bench.now_ms)
    assert sizes(bench)[-1] == SEGMENT_BYTES


@pytest.mark.parametrize("count", [0, 12])
def test_after_a_kill_the_zeros_go_and_are_no_loss(count: int) -> None:
    bench = Bench(PROPERTIES)
    bench.write(*LINES[:count])
    size, end = payload(bench), bench.log.snapshot.end
    bench.kill()
    assert sizes(bench) == [size]
    assert bench.log.losses == []
    assert bench.log.snapshot.end == end  # the same positions continue
    assert lines_of(bench.log) == LINES[:count]


@pytest.mark.parametrize("seed", range(6))
def test_after_a_power_cut_only_the_zeros_are_passed_over_in_silence(seed: int) -> None:
    bench = filled()
    bench.log.flush()
    bench.write(b"perhaps")
    bench.crash(seed)
    assert lines_of(bench.log)[: len(LINES)] == LINES
    assert sizes(bench)[0] in {payload(bench), bench.log.snapshot.segments[0].size_bytes}
    assert sum(len(copy) for copy in cut_copies(bench).values()) < 200
    bench.write(b"later")
    assert lines_of(bench.log)[-1] == b"later"


@pytest.mark.expect_log("are no whole batch")
def test_a_torn_batch_before_the_zeros_is_copied_without_them() -> None:
    bench = filled()
    torn = bench.file(log_name(0))[:70] + b"torn"
    file = bench.disk.open(f"{DIRECTORY}/{log_name(0)}", write=True)
    size = payload(bench)
    file.pwrite(torn, size)
    bench.kill()
    assert kinds_of_losses(bench) == ["cut"]
    [loss] = bench.log.losses
    assert (loss.position, loss.bytes) == (size, len(torn))
    assert list(cut_copies(bench).values()) == [torn]
    assert sizes(bench)[0] == size
    assert lines_of(bench.log) == LINES


def test_a_kill_at_any_step_of_a_roll_loses_nothing() -> None:
    bench = filled()
    points: list[FakeDisk] = []
    disk = bench.disk
    disk.before = lambda operation, _name, _size: points.append(disk.after_kill())
    bench.log.roll(bench.now_ms)
    bench.write(b"next")
    disk.before = None
    for point in points:
        start(bench, point)
        assert lines_of(bench.log) in (LINES, [*LINES, b"next"])
        assert bench.log.losses == []
        assert all(size < SEGMENT_BYTES for size in sizes(bench)[:-1])


def test_a_read_only_store_passes_over_the_zeros() -> None:
    bench = filled()
    bench.disk.kill()
    log = bench.open(read_only=True).partition(*TP)
    assert log.losses == []
    assert log.snapshot.end.offset == len(LINES)
    assert lines_of(log) == LINES
    assert sizes(bench) == [SEGMENT_BYTES]


def test_zeros_of_a_broker_whose_settings_are_unknown_are_recognised() -> None:
    bench = filled()
    bench.store.close(bench.now_ms)
    file = bench.disk.open(f"{DIRECTORY}/{log_name(0)}", write=True)
    file.truncate(1 << 30)
    for name in ("logfs.config", "logfs.segments", f"{0:020}.textindex"):
        bench.disk.remove(f"{DIRECTORY}/{name}")
    bench.disk.remove(".kafka_cleanshutdown")
    start(bench)
    assert bench.log.losses == []
    assert lines_of(bench.log) == LINES
    assert sizes(bench) == [payload(bench)]


def test_no_room_for_a_new_segment_leaves_the_log_as_it_was() -> None:
    bench = filled()
    before = bench.log.snapshot
    bench.disk.fail_next("truncate", "*.log", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        bench.log.roll(bench.now_ms)
    assert bench.log.snapshot.end == before.end
    assert bench.log.offline is None
    bench.write(b"later")
    assert lines_of(bench.log) == [*LINES, b"later"]
    bench.log.roll(bench.now_ms)
    bench.kill()
    assert lines_of(bench.log) == [*LINES, b"later"]


def test_truncation_begins_a_long_segment_and_cuts_the_old_one() -> None:
    bench = filled()
    bench.log.truncate_to(5, bench.now_ms)
    assert sizes(bench)[1:] == [SEGMENT_BYTES]
    assert sizes(bench)[0] == bench.log.snapshot.segments[0].size_bytes
    bench.write(b"again")
    bench.kill()
    assert lines_of(bench.log) == [*LINES[:5], b"again"]
    assert bench.log.snapshot.segments[0].bases == Positions()


@pytest.mark.parametrize("is_clean", [True, False])
def test_zeros_that_a_broker_has_left_at_the_end_are_no_loss(is_clean: bool) -> None:
    data = encode_batch([Record(0, START_MS, None, b"one")])
    bench = foreign((0, data + bytes(5000)))
    if is_clean:
        bench.disk.replace(".kafka_cleanshutdown", b"{}")
    found = [f for f in check(bench.disk).findings if f.file.endswith(".log")]
    assert found == []
    followed = Follower(bench.disk).settle()
    reader = bench.open(read_only=True).partition(*TP)
    start(bench)
    for log in (followed, reader, bench.log):
        assert lines_of(log) == [b"one"]
        assert log.losses == []
    assert bench.file(log_name(0)) == data
    assert cut_copies(bench) == {}
