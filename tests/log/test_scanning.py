"""A partition by offset, straight from its files, while another process writes and deletes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError, NoSuchPartitionError
from logfs.records.columns import Columns, RecordColumns
from logfs.records.record import Record
from logfs.services.following.files import FollowedSegments
from logfs.services.scanning.ranges import OffsetRange, RangeReader
from logfs.services.scanning.stored import Bounds, RecoveredEnds, StoredLog, cut, size_of
from logfs.types import IsolationLevel, TopicPartition
from tests.fakes import START_MS, FakeDisk
from tests.log.foreign import FakeBroker
from tests.log.support import Bench
from tests.log.transactions import ABORT, COMMIT, TransactionLog
from tests.records.arrow import numbers, strings

TP = TopicPartition("t", 0)
EVERYTHING = IsolationLevel.READ_UNCOMMITTED
COMMITTED = IsolationLevel.READ_COMMITTED
NOW_MS = START_MS


def stored(disk: FakeDisk, bounds: Bounds | None = None) -> StoredLog:
    log = StoredLog(disk, FollowedSegments(disk, 4), TP)
    log.refresh(NOW_MS, bounds or Bounds())
    return log


class Reading:
    """A range that is read, and what of it was said to be gone."""

    def __init__(
        self, disk: FakeDisk, start: int, end: int, *, hides_aborted: bool = False
    ) -> None:
        self.lost: list[tuple[int, int]] = []
        self.reader = RangeReader(
            disk,
            OffsetRange(TP, start, end),
            Columns.OFFSET | Columns.VALUE,
            hides_aborted=hides_aborted,
            on_loss=lambda first, behind: self.lost.append((first, behind)),
        )

    def rows(self) -> list[tuple[int, bytes | None]]:
        return [row for columns in self.reader.columns() for row in rows_of(columns)]


def rows_of(columns: RecordColumns) -> list[tuple[int, bytes | None]]:
    assert columns.offsets is not None
    assert columns.values is not None
    offsets = numbers("q", columns.rows, columns.offsets)
    return list(zip(offsets, strings(columns.rows, columns.values), strict=True))


def value(offset: int) -> bytes:
    return b"value %d " % offset * 40


def filled(
    disk: FakeDisk, batches: int = 12, per_batch: int = 5, per_segment: int = 4
) -> FakeBroker:
    broker = FakeBroker(disk)
    for number in range(batches):
        if number and number % per_segment == 0:
            broker.roll()
        first = broker.next_offset
        broker.append(*(value(first + n) for n in range(per_batch)))
    return broker


def expected(start: int, end: int) -> list[tuple[int, bytes | None]]:
    return [(offset, value(offset)) for offset in range(start, end)]


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


def test_bounds_and_moments(disk: FakeDisk) -> None:
    filled(disk)
    log = stored(disk)
    assert (log.earliest(), log.latest(EVERYTHING, NOW_MS)) == (0, 60)
    for offset in (0, 1, 19, 20, 33, 59):
        assert log.offset_for_time(START_MS + offset, EVERYTHING, NOW_MS) == offset
    assert log.offset_for_time(START_MS - 5, EVERYTHING, NOW_MS) == 0
    assert log.offset_for_time(START_MS + 60, EVERYTHING, NOW_MS) is None


def test_checkpoints_say_where_it_begins_and_how_far_it_is_replicated(disk: FakeDisk) -> None:
    filled(disk)
    log = stored(disk, Bounds(7, 31))
    assert log.earliest() == 7
    assert log.latest(IsolationLevel.HIGH_WATERMARK, NOW_MS) == 31
    assert log.latest(EVERYTHING, NOW_MS) == 60
    assert log.offset_for_time(0, EVERYTHING, NOW_MS) == 7
    assert log.offset_for_time(START_MS + 31, IsolationLevel.HIGH_WATERMARK, NOW_MS) is None


@given(st.integers(0, 70), st.integers(0, 70))
def test_a_range_is_read_as_it_was_written(start: int, end: int) -> None:
    disk = FakeDisk()
    filled(disk)
    reading = Reading(disk, start, min(end, 60))
    assert reading.rows() == expected(start, min(end, 60))
    assert reading.lost == []


def test_what_is_appended_is_seen_at_the_next_look(disk: FakeDisk) -> None:
    broker = filled(disk)
    log = stored(disk)
    for _ in range(3):
        broker.append(value(broker.next_offset))
        log.refresh(NOW_MS)
        assert log.latest(EVERYTHING, NOW_MS) == broker.next_offset
        broker.roll()
    log.refresh(NOW_MS)
    assert log.latest(EVERYTHING, NOW_MS) == broker.next_offset
    assert Reading(disk, 58, broker.next_offset).rows() == expected(58, 63)


@pytest.mark.parametrize("keeps", [0, 5, 30, -3])
def test_a_batch_that_is_not_all_there_is_not_there_yet(disk: FakeDisk, keeps: int) -> None:
    broker = filled(disk)
    data = broker.batch(value(60))
    broker.write(data[:keeps] if keeps else bytes(500))
    log = stored(disk)
    assert log.latest(EVERYTHING, NOW_MS) == 60
    assert Reading(disk, 55, 60).rows() == expected(55, 60)


def test_a_log_that_was_truncated_ends_where_it_ends_now(disk: FakeDisk) -> None:
    broker = filled(disk)
    log = stored(disk)
    broker.truncate(50)
    log.refresh(NOW_MS)
    assert log.latest(EVERYTHING, NOW_MS) == 50
    reading = Reading(disk, 45, 60)
    assert reading.rows() == expected(45, 50)
    assert reading.lost == [(50, 60)]


def test_a_partition_that_is_gone_is_said_to_be(disk: FakeDisk) -> None:
    broker = filled(disk)
    log = stored(disk)
    broker.delete_topic()
    with pytest.raises(NoSuchPartitionError, match="t/0 is not there"):
        log.refresh(NOW_MS)
    reading = Reading(disk, 0, 60)
    assert reading.rows() == []
    assert reading.lost == [(0, 60)]


def test_what_vanishes_between_two_calls_is_looked_for_again(disk: FakeDisk) -> None:
    broker = filled(disk)
    log = stored(disk)
    broker.retain(1)
    broker.remove_deleted()
    assert log.offset_for_time(START_MS, EVERYTHING, NOW_MS) == 40
    assert log.cut(0, 60, 1, NOW_MS)[-1].end == 60


def test_what_retention_took_is_told(disk: FakeDisk) -> None:
    broker = filled(disk)
    broker.retain(1)
    reading = Reading(disk, 3, 60)
    assert reading.rows() == expected(40, 60)
    assert reading.lost == [(3, 40)]


def in_the_middle(
    disk: FakeDisk, reading: Reading, happens: Callable[[], object]
) -> list[tuple[int, bytes | None]]:
    """Read a range; something happens once, before the first read of the second segment."""
    seen = set[str]()

    def observe(operation: str, name: str, _size: int) -> None:
        if operation == "pread" and name.endswith(".log") and name not in seen:
            seen.add(name)
            if len(seen) == 2:
                happens()

    disk.before = observe
    rows = reading.rows()
    assert len(seen) >= 2
    return rows


def test_retention_in_the_middle_of_a_range(disk: FakeDisk) -> None:
    broker = filled(disk)

    def happens() -> None:
        broker.retain(1)
        broker.remove_deleted()

    reading = Reading(disk, 0, 60)
    rows = in_the_middle(disk, reading, happens)
    # The second segment was open already, and what is open can be read to its end.
    assert rows == expected(0, 60)
    assert reading.lost == []


@pytest.mark.parametrize("group", [None, 1])
def test_compaction_in_the_middle_of_a_range(disk: FakeDisk, group: int | None) -> None:
    broker = filled(disk)
    reading = Reading(disk, 0, 60)
    rows = in_the_middle(
        disk, reading, lambda: broker.compact(lambda offset: offset % 3 == 0, group)
    )
    offsets = [offset for offset, _ in rows]
    assert sorted(set(offsets)) == offsets
    assert reading.lost == []
    assert {offset for offset in range(60) if offset % 3 == 0} | set(range(40, 60)) <= set(offsets)
    assert all(row == (row[0], value(row[0])) for row in rows)


@pytest.mark.parametrize("group", [None, 1])
def test_every_moment_of_a_swap_shows_every_survivor(disk: FakeDisk, group: int | None) -> None:
    broker = filled(disk)
    kept = {offset for offset in range(40) if offset % 4 == 1} | set(range(40, 60))
    for _ in broker.compacting(lambda offset: offset % 4 == 1, group):
        reading = Reading(disk, 0, 60)
        found = [offset for offset, _ in reading.rows()]
        assert found == sorted(set(found))
        assert kept <= set(found)
        assert reading.lost == []
        assert stored(disk).latest(EVERYTHING, NOW_MS) == 60
    assert {offset for offset, _ in Reading(disk, 0, 60).rows()} == kept


def test_damage_in_the_range_is_named_and_elsewhere_it_is_not_seen(disk: FakeDisk) -> None:
    broker = filled(disk)
    name = broker.path(20)
    file = disk.open(name, write=True)
    position = file.size() // 2 + 100
    file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)
    assert Reading(disk, 0, 20).rows() == expected(0, 20)
    assert Reading(disk, 40, 60).rows() == expected(40, 60)
    with pytest.raises(CorruptRecordError, match=f"{name} at byte"):
        Reading(disk, 0, 60).rows()


def test_damage_before_good_batches_of_the_newest_segment_does_not_end_the_log(
    disk: FakeDisk,
) -> None:
    broker = filled(disk)
    file = disk.open(broker.path(40), write=True)
    file.pwrite(bytes([file.pread(1, 100)[0] ^ 1]), 100)
    assert stored(disk).latest(EVERYTHING, NOW_MS) == 60
    with pytest.raises(CorruptRecordError, match=r"at byte 0: .*checksum differs"):
        Reading(disk, 35, 60).rows()


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20_000))
def test_pieces_are_the_range_in_order(start: int, end: int, most_bytes: int) -> None:
    disk = FakeDisk()
    filled(disk)
    snapshot = stored(disk).snapshot
    pieces = cut(snapshot, start, end, most_bytes)
    if start >= end:
        assert pieces == []
        return
    assert [pieces[0].start, *(piece.end for piece in pieces)] == [
        *(piece.start for piece in pieces),
        pieces[-1].end,
    ]
    assert (pieces[0].start, pieces[-1].end) == (start, end)
    assert all(piece.start < piece.end for piece in pieces)
    assert sum(piece.size_bytes for piece in pieces) == size_of(snapshot, start, end)


def test_pieces_are_about_as_large_as_wanted() -> None:
    bench = Bench({"index.interval.bytes": "100", "segment.bytes": "1048576"})
    bench.write(*(value(n) for n in range(300)))
    snapshot = stored(bench.disk).snapshot
    total = size_of(snapshot, 0, 300)
    sizes = [piece.size_bytes for piece in cut(snapshot, 0, 300, total // 6)]
    assert len(sizes) == 7
    assert max(sizes) < 1.2 * min(sizes)


def test_a_segment_without_an_index_is_a_piece(disk: FakeDisk) -> None:
    filled(disk)
    pieces = cut(stored(disk).snapshot, 3, 60, 1)
    assert [(piece.start, piece.end) for piece in pieces] == [(3, 20), (20, 40), (40, 60)]


steps = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["write", "write", "abort", "commit", "roll"])),
    max_size=14,
)


@given(steps)
def test_committed_records_are_those_that_a_loaded_log_shows(
    actions: list[tuple[int, str]],
) -> None:
    log = TransactionLog({"segment.bytes": "1048576", "index.interval.bytes": "100"})
    seen = stored(log.bench.disk)
    for number, (producer_id, action) in enumerate(actions):
        if action == "write":
            records = [Record(0, START_MS + number, None, b"%d" % n) for n in range(2)]
            log.produce(producer_id, records)
        elif action == "roll":
            log.roll()
        else:
            log.end(producer_id, ABORT if action == "abort" else COMMIT, START_MS + number)
        seen.refresh(NOW_MS)
        for one in (seen, stored(log.bench.disk)):
            assert one.latest(COMMITTED, NOW_MS) == log.stable_offset
            assert one.latest(EVERYTHING, NOW_MS) == log.model.end_offset
    disk, committed = log.bench.disk, [kept.record for kept in log.committed()]
    reading = Reading(disk, 0, log.stable_offset, hides_aborted=True)
    assert reading.rows() == [(record.offset, record.value) for record in committed]
    for record in committed:
        first = next(r.offset for r in committed if r.timestamp >= record.timestamp)
        assert seen.offset_for_time(record.timestamp, COMMITTED, NOW_MS) == first


@pytest.mark.allow_log("no whole batch")
@pytest.mark.allow_log("was cut before it")
def test_a_query_plans_no_record_that_a_recovery_would_not_keep() -> None:
    bench = Bench()
    bench.write(b"a", b"b")
    bench.log.roll(bench.now_ms)
    bench.write(b"c")

    def planned() -> int:
        ends = RecoveredEnds(bench.disk, lambda _: bench.open(read_only=True))
        ends.look()
        return stored(bench.disk, Bounds(recovered_end=ends.of(TP))).latest(EVERYTHING, NOW_MS)

    assert planned() == 3
    bench.disk.kill()
    assert planned() == 3
    bench.new_boot()
    first = bench.disk.open(bench.log.snapshot.segments[0].name, write=True)
    first.truncate(first.size() - 1)
    assert planned() == 1
    bench.store = bench.open()
    assert bench.log.log_end_offset == 1
    bench.write(b"d")
    assert planned() == 2
    bench.store.close(bench.now_ms)
    assert planned() == 2
