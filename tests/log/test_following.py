"""What a broker does to its files, and what readers of a followed log see of it."""

import errno
import itertools
from itertools import pairwise
from uuid import UUID

import pytest

from logfs.errors import NoSuchTopicError
from logfs.services.following.followed import FollowedLog
from logfs.services.views.files import GrowingFile
from logfs.types import View
from tests.fakes import FakeDisk
from tests.log.followed import fill, numbered, placed
from tests.log.foreign import FakeBroker, Follower
from tests.log.support import contents, lines_of


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker(FakeDisk())


class Reader:
    """A program that reads on and on, as ``tail -f`` does."""

    def __init__(self, log: FollowedLog, view: View = View.TEXT) -> None:
        self._file = GrowingFile(log, view, 0)
        self._offset = 0
        self.read_so_far = b""

    def read(self, size: int = 1 << 16) -> bytes:
        out = memoryview(bytearray(size))
        got = self._file.read_into(out, self._offset)
        self._offset += got
        self.read_so_far += out[:got]
        return bytes(out[:got])

    @property
    def lines(self) -> list[bytes]:
        return self.read_so_far.splitlines()


def test_records_rolls_and_retention_are_followed(broker: FakeBroker) -> None:
    follower = Follower(broker.disk)
    reader = Reader(follower.log)
    for _ in range(3):
        fill(broker, 12, segments=2)
        follower.look()
        reader.read()
    assert reader.lines == numbered(0, 72)
    where = placed(follower.log)
    broker.retain(2)
    log = follower.settle()
    assert lines_of(log) == broker.values()
    assert log.log_start_offset == broker.bases[0]
    assert placed(log).items() <= where.items()
    broker.remove_deleted()
    fill(broker, 3)
    follower.look()
    reader.read()
    assert reader.lines == numbered(0, 75)


def test_nothing_is_written_into_the_directory(broker: FakeBroker) -> None:
    fill(broker, 12, segments=3)
    before = contents(broker.disk)
    follower = Follower(broker.disk, FakeDisk())
    changes = {"pwrite", "truncate", "rename", "remove", "lock", "sync", "make_directory", "map"}
    seen = set[str]()
    broker.disk.before = lambda operation, name, size: seen.add(operation)
    follower.settle()
    lines_of(follower.restart())
    assert "pread" in seen
    assert not seen & changes
    assert contents(broker.disk) == before


def test_an_idle_partition_costs_two_looks_at_names_and_no_read(broker: FakeBroker) -> None:
    fill(broker, 12, segments=3)
    follower = Follower(broker.disk)
    follower.settle()
    broker.disk.counts.clear()
    assert not follower.log.refresh(follower.now_ms + 500)
    assert dict(broker.disk.counts) == {"stat": 2}


def test_what_one_look_leaves_the_next_one_reads(broker: FakeBroker) -> None:
    for _ in range(5):
        broker.append(*[b"x" * 1000] * 1000)
    follower = Follower(broker.disk, at_once_bytes=0)
    looks = 1
    while follower.log.refresh(follower.now_ms + 500, 10_000):
        looks += 1
    assert looks > 3
    assert lines_of(follower.log) == broker.values()


def test_a_batch_that_is_not_whole_is_not_there_yet(broker: FakeBroker) -> None:
    fill(broker, 6)
    follower = Follower(broker.disk)
    data = broker.batch(b"late", b"later")
    for start, stop in pairwise([0, 5, 40, 70, len(data)]):
        assert len(lines_of(follower.look())) == 6
        broker.write(data[start:stop])
    broker.next_offset += 2
    assert lines_of(follower.look())[6:] == [b"late", b"later"]
    assert not follower.log.losses


def test_a_batch_whose_checksum_does_not_fit_is_not_there_yet(broker: FakeBroker) -> None:
    fill(broker, 6)
    follower = Follower(broker.disk)
    data = broker.batch(b"late", b"later")
    end = broker.disk.stat(broker.path(0)).size
    broker.write(data[:-2] + b"\0\0")
    assert len(lines_of(follower.look())) == 6
    broker.disk.open(broker.path(0), write=True).pwrite(data, end)
    assert len(lines_of(follower.look())) == 8
    assert not follower.log.losses


def test_the_zero_tail_of_a_preallocated_log_is_not_there_yet(broker: FakeBroker) -> None:
    fill(broker, 6)
    size = broker.disk.stat(broker.path(0)).size
    file = broker.disk.open(broker.path(0), write=True)
    file.truncate(size + 4096)
    follower = Follower(broker.disk)
    assert len(lines_of(follower.log)) == 6
    file.pwrite(broker.batch(b"late"), size)
    assert lines_of(follower.look())[6:] == [b"late"]
    assert not follower.log.losses


@pytest.mark.parametrize("group", [1, 2, None])
@pytest.mark.parametrize("view", View)
def test_what_a_compaction_keeps_stays_where_it_was(
    broker: FakeBroker, group: int | None, view: View
) -> None:
    fill(broker, 12, segments=5)
    follower = Follower(broker.disk)
    where, reader = placed(follower.log, view), Reader(follower.log, view)
    reader.read(100)
    broker.compact(lambda offset: offset % 4 < 2, group)
    log = follower.settle()
    assert placed(log, view) == {line: where[line] for line in placed(log, view)}
    assert lines_of(log) == broker.values()
    broker.compact(lambda offset: offset % 3 == 0 and offset % 4 < 2)
    fill(broker, 6)
    log = follower.settle()
    broker.remove_deleted()
    assert lines_of(log) == broker.values()
    assert {line: at for line, at in placed(log, view).items() if line in where} == {
        line: where[line] for line in placed(log, view) if line in where
    }
    while reader.read(64):
        pass
    assert not log.losses


def test_what_is_compacted_twice_between_two_looks_stays_where_it_was(broker: FakeBroker) -> None:
    fill(broker, 12)
    follower = Follower(broker.disk)
    for _ in range(3):
        broker.roll()
        fill(broker, 12)
        follower.look()
    where = placed(Follower(broker.disk).log)  # by another follower: a reader has the files open
    for divisor in (4, 8):
        for keeps in (divisor, divisor * 3):
            broker.compact(lambda offset, keeps=keeps: offset % keeps < 2)  # type: ignore[misc]
            broker.remove_deleted()
        follower.settle()
    assert placed(follower.log) == {line: where[line] for line in broker.values()}
    assert not follower.log.losses


def test_a_log_that_rolls_all_the_time_is_followed_when_it_is_compacted(broker: FakeBroker) -> None:
    fill(broker, 12, segments=4)
    follower = Follower(broker.disk)
    where = placed(follower.log)
    broker.compact(lambda offset: offset % 4 == 1)
    for _ in range(2):
        broker.roll()
        fill(broker, 3)
        follower.look()
    broker.remove_deleted()
    assert lines_of(follower.log) == broker.values()
    found = placed(follower.log)
    assert {line: at for line, at in where.items() if line in found} == {
        line: at for line, at in found.items() if line in where
    }
    assert not follower.log.losses


def test_what_is_merged_while_it_is_looked_at_is_looked_at_again(broker: FakeBroker) -> None:
    fill(broker, 12, segments=5)
    follower = Follower(broker.disk)
    where = placed(follower.log)
    broker.compact(lambda offset: offset % 4 < 2, 2)
    follower.look()
    broker.disk.fail_next("open", "*/00000000000000000024.log", errno.ENOENT)
    follower.look()
    broker.compact(lambda offset: offset % 4 == 1)
    log = follower.settle()
    assert placed(log) == {line: where[line] for line in broker.values()}
    assert not log.losses


def test_in_the_middle_of_a_swap_nothing_is_missing(broker: FakeBroker) -> None:
    fill(broker, 12, segments=4)
    follower = Follower(broker.disk)
    everything = lines_of(follower.log)
    kept = [b"%05d" % offset for offset in range(48) if offset % 2 or offset >= 36]
    for _ in broker.compacting(lambda offset: offset % 2 == 1, 2):
        seen = lines_of(follower.look())
        assert set(kept) <= set(seen) <= set(everything)
    assert lines_of(follower.settle()) == kept == broker.values()


def test_between_two_looks_the_files_that_were_seen_are_read(broker: FakeBroker) -> None:
    fill(broker, 12, segments=4)
    follower = Follower(broker.disk)
    follower.settle()
    broker.compact(lambda offset: offset % 2 == 1, 1)
    assert lines_of(follower.log) == numbered(0, 48)


def test_a_compaction_that_removes_everything(broker: FakeBroker) -> None:
    fill(broker, 12, segments=3)
    follower = Follower(broker.disk)
    where = placed(follower.log)
    broker.compact(lambda _: False)
    log = follower.settle()
    assert placed(log) == {line: where[line] for line in numbered(24, 36)}


@pytest.mark.expect_log("the log was cut at offset")
@pytest.mark.parametrize("offset", [0, 6, 24, 27, 30, 33])
@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_tail_that_is_cut_is_a_loss_and_no_position_is_given_again(
    broker: FakeBroker, offset: int, is_rewritten: bool
) -> None:
    fill(broker, 12, segments=3)
    follower = Follower(broker.disk)
    where, end = placed(follower.log), follower.log.snapshot.end.positions
    reader = Reader(follower.log)
    reader.read()
    broker.truncate(offset)
    if is_rewritten:
        broker.append(b"new", b"and newer")
        broker.append(*[b"x" * 50] * 10)
    log = follower.settle()
    assert lines_of(log) == broker.values()
    assert log.log_end_offset == broker.next_offset
    assert all(new >= old for new, old in zip(log.snapshot.end.positions, end, strict=True))
    assert all(
        where[line] == at if line in where else at >= end[0] for line, at in placed(log).items()
    )
    assert [loss.kind for loss in log.losses] == ["cut"]
    broker.append(b"at last")
    broker.roll()
    broker.append(b"in the next")
    follower.look()
    reader.read()
    new = [line for line in broker.values() if line not in where]
    assert reader.lines == numbered(0, 36) + new
    assert lines_of(follower.settle()) == broker.values()


def test_a_deleted_topic_goes_and_one_of_its_name_is_another(broker: FakeBroker) -> None:
    fill(broker, 12, segments=2)
    follower = Follower(broker.disk)
    old = follower.log
    reader = Reader(old)
    reader.read(30)
    broker.delete_topic()
    follower.store.look_around(follower.now_ms)
    with pytest.raises(NoSuchTopicError):
        follower.store.partition("t", 0)
    assert old.is_deleted
    reader.read()
    assert reader.lines == numbered(0, 24)
    again = FakeBroker(broker.disk)
    again.append(b"new")
    assert lines_of(follower.look()) == [b"new"]


def test_a_new_topic_is_there_once_it_has_a_segment_and_an_id(broker: FakeBroker) -> None:
    follower = Follower(broker.disk)
    broker.disk.make_directory("u-0")
    follower.look()
    assert follower.store.topics() == ["t"]
    broker.disk.remove_tree("u-0")
    FakeBroker(broker.disk, "u").append(b"x")
    follower.look()
    assert follower.store.topics() == ["t", "u"]


@pytest.mark.parametrize("skew_ms", [-1_000_000_000, 1_000_000_000])
def test_a_topic_made_at_the_time_of_another_is_seen_with_any_clock_of_the_server(
    broker: FakeBroker, skew_ms: int
) -> None:
    follower = Follower(broker.disk)
    broker.disk.now_ms = follower.now_ms + skew_ms
    FakeBroker(broker.disk, "u")
    follower.store.look_around(follower.now_ms)
    FakeBroker(broker.disk, "v")  # at the same time of the server
    follower.store.look_around(follower.now_ms + 1000)
    assert follower.store.topics() == ["t", "u", "v"]
    follower.store.look_around(follower.now_ms + 2000)
    broker.disk.counts.clear()
    follower.store.look_around(follower.now_ms + 3000)
    assert "list" not in broker.disk.counts


def test_checkpoints_say_where_the_log_starts_and_how_far_it_is_replicated(
    broker: FakeBroker,
) -> None:
    fill(broker, 12, segments=2)
    follower = Follower(broker.disk)
    assert follower.log.snapshot.watermark is None
    where = placed(follower.log)
    broker.note_checkpoints(5, 14)
    snapshot = follower.look().snapshot
    assert (snapshot.start.offset, snapshot.start.positions.text) == (5, where[b"00005"])
    assert snapshot.watermark is not None
    assert (snapshot.watermark.offset, snapshot.watermark.positions.text) == (14, where[b"00014"])
    assert lines_of(follower.log) == numbered(5, 24)


@pytest.mark.parametrize("turn", range(1, 7))
def test_batches_that_arrive_while_it_looks_are_no_damage(broker: FakeBroker, turn: int) -> None:
    fill(broker, 12)
    follower = Follower(broker.disk)
    fill(broker, 12)
    turns = itertools.count()

    def arrive(operation: str, name: str, _size: int) -> None:
        if operation in {"size", "stat"} and name == broker.path(0) and next(turns) == turn:
            fill(broker, 12)

    broker.disk.before = arrive
    for _ in range(4):
        follower.look()
    broker.disk.before = None
    assert next(turns) > turn
    assert lines_of(follower.log) == broker.values()
    assert not follower.log.losses


@pytest.mark.parametrize("count", [1, 20])
def test_a_look_lists_the_directory_as_often_for_many_deleted_topics_as_for_one(count: int) -> None:
    disk = FakeDisk()
    brokers = [FakeBroker(disk, f"t{number}", UUID(int=number + 1)) for number in range(20)]
    for broker in brokers:
        broker.append(b"a")
    follower = Follower(disk)
    for broker in brokers[:count]:
        broker.delete_topic()
    seen = []
    disk.before = lambda operation, name, _size: seen.append((operation, name))
    follower.store.look_around(follower.now_ms)
    disk.before = None
    assert len(follower.store.topics()) == 20 - count
    assert seen.count(("list", "")) <= 4
