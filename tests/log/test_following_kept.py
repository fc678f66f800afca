"""What outlasts a mount of a followed directory: positions, in a cache."""

import errno
from collections.abc import Callable
from uuid import UUID

import pytest

from tests.fakes import FakeDisk
from tests.log.followed import fill, numbered, placed
from tests.log.foreign import FakeBroker, Follower
from tests.log.support import lines_of

_OTHER_ID = UUID(int=8 << 64)
Restart = Callable[[Follower], object]


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker(FakeDisk())


def test_without_a_cache_positions_start_again_under_other_inodes(broker: FakeBroker) -> None:
    fill(broker, 12, segments=2)
    follower = Follower(broker.disk)
    generation = follower.log.generation
    broker.retain(1)
    assert follower.restart().generation != generation
    assert placed(follower.log)[b"00012"] == 0


@pytest.mark.parametrize("restart", [Follower.restart, Follower.kill])
def test_with_a_cache_everything_stays_where_it_was(broker: FakeBroker, restart: Restart) -> None:
    fill(broker, 300, segments=3)
    follower = Follower(broker.disk, FakeDisk())
    where, generation = placed(follower.log), follower.log.generation
    broker.retain(2)
    fill(broker, 12)
    restart(follower)
    log = follower.settle()
    assert log.generation == generation
    assert lines_of(log) == broker.values()
    assert placed(log).items() >= {k: v for k, v in where.items() if k >= b"00300"}.items()
    assert placed(log)[b"00900"] == 900 * 6
    for _ in range(3):
        broker.roll()
        fill(broker, 30)
        restart(follower)
        assert lines_of(follower.log) == broker.values()
        assert placed(follower.log)[b"00900"] == 900 * 6
    assert not follower.log.losses


def test_what_is_known_is_not_read_again(broker: FakeBroker) -> None:
    fill(broker, 3000, segments=4)
    follower = Follower(broker.disk, FakeDisk())
    broker.disk.bytes_of.clear()
    follower.restart()
    size = sum(broker.disk.stat(broker.path(base)).size for base in broker.bases)
    assert broker.disk.bytes_of["pread"] < size / 3
    assert lines_of(follower.log) == broker.values()


def test_a_cache_keeps_no_file_open_between_two_looks(broker: FakeBroker) -> None:
    cache = FakeDisk()
    follower = Follower(broker.disk, cache)
    for _ in range(3):
        fill(broker, 30)
        follower.look()
        assert not cache.opens
        broker.roll()
        follower.settle()
        assert not cache.opens
    where = placed(follower.log)
    follower.kill()
    assert placed(follower.log) == where
    assert not follower.log.losses


@pytest.mark.parametrize("restart", [Follower.restart, Follower.kill])
def test_compacted_segments_keep_their_gaps(broker: FakeBroker, restart: Restart) -> None:
    fill(broker, 30, segments=4)
    follower = Follower(broker.disk, FakeDisk())
    where = placed(follower.log)
    broker.compact(lambda offset: offset % 4 == 1, 2)
    follower.settle()
    broker.remove_deleted()
    restart(follower)
    found = placed(follower.log)
    assert found == {line: where[line] for line in found}
    assert lines_of(follower.log) == broker.values()
    assert not follower.log.losses


@pytest.mark.expect_log("it is not what it was when it was read last")
def test_what_was_compacted_meanwhile_begins_after_everything_and_is_a_loss(
    broker: FakeBroker,
) -> None:
    fill(broker, 30, segments=4)
    follower = Follower(broker.disk, FakeDisk())
    end = follower.log.snapshot.end.positions.text
    follower.store.close(follower.now_ms)
    broker.compact(lambda offset: offset % 4 == 1)
    broker.remove_deleted()
    follower.store = follower.open()
    assert lines_of(follower.log) == broker.values()
    assert min(placed(follower.log).values()) >= end
    assert [loss.kind for loss in follower.log.losses] == ["cut"]
    follower.restart()
    assert [loss.kind for loss in follower.log.losses] == ["cut"]
    assert min(placed(follower.log).values()) >= end


@pytest.mark.expect_log("the log was cut at offset")
@pytest.mark.parametrize("restart", [Follower.restart, Follower.kill])
@pytest.mark.parametrize("offset", [15, 33, 57])
def test_what_was_cut_meanwhile_is_a_loss(
    broker: FakeBroker, restart: Restart, offset: int
) -> None:
    fill(broker, 30, segments=2)
    follower = Follower(broker.disk, FakeDisk())
    where, end = placed(follower.log), follower.log.snapshot.end.positions.text
    broker.truncate(offset)
    broker.append(b"new", b"newer")
    restart(follower)
    log = follower.settle()
    assert lines_of(log) == broker.values()
    assert all(
        where[line] == at if line in where else at >= end for line, at in placed(log).items()
    )
    restart(follower)
    assert placed(log) == placed(follower.log)
    assert [loss.kind for loss in follower.log.losses] == ["cut"]


def test_after_a_power_cut_positions_continue_after_what_may_have_been_shown(
    broker: FakeBroker,
) -> None:
    fill(broker, 30, segments=2)
    cache = FakeDisk()
    follower = Follower(broker.disk, cache)
    fill(broker, 30)
    end = follower.look().snapshot.end.positions.text
    cache.crash(None)
    follower.boot += 1
    follower.kill()
    broker.append(b"new")
    log = follower.look()
    assert lines_of(log) == broker.values()
    assert placed(log)[b"new"] >= end
    follower.restart()
    assert placed(follower.log) == placed(log)


def test_after_a_restart_of_the_machine_positions_continue_after_the_reservation(
    broker: FakeBroker,
) -> None:
    fill(broker, 30, segments=2)
    follower = Follower(broker.disk, FakeDisk())
    where, end = placed(follower.log), follower.log.snapshot.end.positions.text
    follower.boot += 1
    follower.kill()
    broker.append(b"new")
    log = follower.look()
    # More may have been shown than what is found by now.
    assert placed(log)[b"new"] > end
    assert {line: at for line, at in placed(log).items() if line in where} == where
    assert not log.losses


@pytest.mark.expect_log("positions start again")
@pytest.mark.parametrize("damage", [b"", b"garbage" * 30])
def test_a_table_that_is_lost_is_reported(broker: FakeBroker, damage: bytes) -> None:
    fill(broker, 30, segments=2)
    cache = FakeDisk()
    follower = Follower(broker.disk, cache)
    generation = follower.log.generation
    follower.store.close(follower.now_ms)
    [directory] = [name for name, is_directory in cache.list("") if is_directory]
    name = f"{directory}/logfs.segments"
    cache.remove(name)
    if damage:
        cache.open(name, write=True, create=True).pwrite(damage, 0)
    follower.store = follower.open()
    assert follower.log.generation != generation
    assert lines_of(follower.log) == numbered(0, 60)
    assert [loss.kind for loss in follower.log.losses] == ["positions"]


@pytest.mark.expect_log("kept in memory only")
@pytest.mark.parametrize("name", ["*.textindex", "*/logfs.tail", "*/logfs.segments"])
def test_a_cache_that_fails_is_given_up_and_following_continues(
    broker: FakeBroker, name: str
) -> None:
    cache = FakeDisk()
    follower = Follower(broker.disk, cache)
    fill(broker, 300)
    follower.look()
    cache.fail_next_write(name, errno.ENOSPC)
    broker.roll()
    fill(broker, 3000)
    follower.look()
    broker.roll()
    fill(broker, 30)
    log = follower.look()
    assert lines_of(log) == broker.values()
    broker.compact(lambda offset: offset % 2 == 0)
    assert lines_of(follower.settle()) == broker.values()


def test_what_is_kept_of_a_deleted_topic_goes(broker: FakeBroker) -> None:
    fill(broker, 30)
    cache = FakeDisk()
    follower = Follower(broker.disk, cache)
    other = FakeBroker(broker.disk, "u", _OTHER_ID)
    other.append(b"x")
    follower.settle()
    assert len([name for name, is_directory in cache.list("") if is_directory]) == 2
    other.delete_topic()
    follower.restart()
    assert len([name for name, is_directory in cache.list("") if is_directory]) == 1


def _put_in_place(broker: FakeBroker, base_offset: int, data: bytes) -> None:
    """Replace a file, by one of the same size, as a backup that is restored does."""
    path = broker.path(base_offset)
    broker.disk.now_ms += 1000
    assert len(data) == broker.disk.stat(path).size
    broker.disk.remove(path)
    broker.put(path, data)


def test_a_copy_of_a_segment_keeps_its_positions(broker: FakeBroker) -> None:
    fill(broker, 300, segments=3)
    follower = Follower(broker.disk, FakeDisk())
    where, generation = placed(follower.log), follower.log.generation
    follower.store.close(follower.now_ms)
    for base_offset in broker.bases[:-1]:
        _put_in_place(broker, base_offset, broker.disk.read(broker.path(base_offset)))
    follower.store = follower.open()
    assert follower.log.generation == generation
    assert placed(follower.log) == where
    assert not follower.log.losses


@pytest.mark.parametrize("restart", [Follower.restart, Follower.kill])
def test_a_copy_of_a_segment_is_opened_by_the_first_mount_only(
    broker: FakeBroker, restart: Restart
) -> None:
    fill(broker, 300, segments=3)
    follower = Follower(broker.disk, FakeDisk())
    follower.restart()
    copies = [broker.path(base_offset) for base_offset in broker.bases[:-1]]
    for base_offset in broker.bases[:-1]:
        _put_in_place(broker, base_offset, broker.disk.read(broker.path(base_offset)))
    opened = list[str]()

    def note(operation: str, name: str, _size: int) -> None:
        if operation == "open":
            opened.append(name)

    broker.disk.before = note
    restart(follower)
    assert set(copies) <= set(opened)
    opened.clear()
    restart(follower)
    assert not set(copies) & set(opened)


@pytest.mark.expect_log("it is not what it was when it was read last")
@pytest.mark.parametrize("restart", [Follower.restart, Follower.kill])
def test_another_segment_of_the_same_size_is_read_from_its_start(restart: Restart) -> None:
    broker, other = FakeBroker(FakeDisk()), FakeBroker(FakeDisk())
    fill(broker, 300, segments=3)
    follower = Follower(broker.disk, FakeDisk())
    end = follower.log.snapshot.end.positions.text
    for line in numbered(0, 298):
        other.append(line)
        if other.disk.stat(other.path(0)).size > broker.disk.stat(broker.path(0)).size - 1000:
            break
    left = broker.disk.stat(broker.path(0)).size - other.disk.stat(other.path(0)).size
    [value] = [bytes(n) for n in range(left) if len(other.batch(bytes(n))) == left]
    other.append(value.replace(b"\0", b"x"))
    data = other.disk.read(other.path(0))
    if restart == Follower.restart:
        follower.store.close(follower.now_ms)
    _put_in_place(broker, 0, data)
    follower.store = follower.open()
    assert lines_of(follower.log)[: other.next_offset] == other.values()
    assert min(placed(follower.log).values()) >= end
    assert [loss.kind for loss in follower.log.losses] == ["cut"]


@pytest.mark.parametrize("restart", [Follower.restart, Follower.kill])
def test_another_file_for_an_empty_last_segment_moves_nothing(
    broker: FakeBroker, restart: Restart
) -> None:
    fill(broker, 12)
    broker.roll()
    follower = Follower(broker.disk, FakeDisk())
    where = placed(follower.log)
    restart(follower)
    broker.delete(broker.bases.pop())
    broker.roll()
    fill(broker, 3)
    log = follower.settle()
    assert placed(log) == {**where, **{b"%05d" % n: 6 * n for n in range(12, 15)}}
    assert not log.losses


@pytest.mark.expect_log("the log was cut at offset 6")
@pytest.mark.parametrize("restart", [Follower.restart, Follower.kill])
def test_a_log_that_is_cut_before_its_empty_last_segment_repeats_no_position(
    broker: FakeBroker, restart: Restart
) -> None:
    fill(broker, 12)
    broker.roll()
    follower = Follower(broker.disk, FakeDisk())
    where = placed(follower.log)
    restart(follower)
    broker.truncate(6)
    broker.append(b"other1", b"other2")
    log = follower.settle()
    kept = {line: position for line, position in where.items() if line < b"00006"}
    assert placed(log) == {**kept, b"other1": 72, b"other2": 79}
    assert [loss.kind for loss in log.losses] == ["cut"]
