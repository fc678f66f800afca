"""The first start of a directory: positions are the same after every stop, and none is lost."""

import contextlib

import pytest

from logfs.config import StoreConfig
from logfs.log.host import Host
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.services.retention.logs import apply_retention
from logfs.types import Positions
from tests.fakes import START_MS, FakeDisk
from tests.fakestate import Stopped
from tests.log.foreign import FakeBroker
from tests.log.support import lines_of

VALUES = [b"%d" % number for number in range(12)]
OWED = "it is done once there is room", "it is done later", "could not be written"


def left_by_a_broker() -> FakeBroker:
    """A directory of a broker, with four segments."""
    broker = FakeBroker(FakeDisk())
    for value in VALUES:
        if broker.next_offset in {3, 6, 9}:
            broker.roll()
        broker.append(value)
    return broker


def opened(disk: FakeDisk, start: int) -> LogStore:
    """Start for the n-th time; what is random is another one at each start."""
    host = Host("boot", lambda: bytes([start]) * 16)
    config = StoreConfig(num_recovery_threads_per_data_dir=1)
    return LogStore.open(disk, config, host, now_ms=START_MS)


def shown(log: PartitionLog) -> tuple[bytes, list[tuple[int, Positions]]]:
    """Which positions a log has: their generation, and where each segment begins."""
    return log.generation, [(one.base_offset, one.bases) for one in log.snapshot.segments]


@pytest.mark.allow_log(*OWED)
@pytest.mark.parametrize("names_need_room", [True, False])
def test_a_topic_made_with_little_room_has_the_same_positions_after_a_kill(
    *, names_need_room: bool
) -> None:
    made = 0
    for room in range(0, 1000, 20):
        disk = FakeDisk()
        store = opened(disk, 1)
        disk.space_bytes, disk.names_need_room = disk.used_bytes + room, names_need_room
        with contextlib.suppress(OSError):
            store.create_topic("t", 1, {}, START_MS)
        if "t" not in store.topics():
            continue
        made += 1
        before = shown(store.partition("t", 0))
        disk.kill()
        assert shown(opened(disk, 2).partition("t", 0)) == before
    assert made


@pytest.mark.allow_log(*OWED)
@pytest.mark.parametrize("room", [0, 40, 200, 600])
def test_a_directory_of_a_broker_has_the_same_positions_at_each_start_on_a_full_disk(
    room: int,
) -> None:
    disk = left_by_a_broker().disk
    disk.fill(names_need_room=False)
    disk.space_bytes = disk.used_bytes + room
    first = opened(disk, 1).partition("t", 0)
    before = shown(first)
    for start in (2, 3):
        disk.kill()
        log = opened(disk, start).partition("t", 0)
        assert (shown(log), log.losses) == (before, [])
    disk.kill()
    disk.space_bytes = None
    assert shown(opened(disk, 4).partition("t", 0)) == before


@pytest.mark.allow_log(*OWED, "go without a note")
def test_retention_makes_room_in_a_directory_that_is_opened_on_a_full_disk() -> None:
    disk = left_by_a_broker().disk
    disk.replace("t-0/logfs.config", b"retention.bytes=1\n")
    disk.fill(names_need_room=False)
    log = opened(disk, 1).partition("t", 0)
    before = log.generation
    assert apply_retention(log, START_MS).segments
    assert log.offline is None
    disk.kill()
    log = opened(disk, 2).partition("t", 0)
    assert (lines_of(log), log.losses) == (VALUES[9:], [])
    assert log.generation != before, "its positions restart at 0"


def test_a_first_start_that_is_killed_is_no_loss_of_positions() -> None:
    disk, changes = left_by_a_broker().disk, 0
    while True:
        killed = disk.after_kill()
        killed.stop_before(changes)
        try:
            opened(killed, 1)
        except Stopped:
            log = opened(killed.after_kill(), 2).partition("t", 0)
            assert (lines_of(log), log.losses) == (VALUES, [])
            changes += 1
            continue
        break
    assert changes > 10
