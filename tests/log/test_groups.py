"""What consumer groups have committed: the bytes of the records, and the table of them."""

from collections.abc import Mapping
from functools import partial

import pytest

from logfs.disk.waiting import WouldWaitError, waiting_forbidden
from logfs.errors import CorruptRecordError, InvalidConfigError
from logfs.log import names
from logfs.log.groups import coding, removal
from logfs.log.groups.coding import OFFSETS_CONFIG, OFFSETS_TOPIC, Position, PositionKey
from logfs.log.groups.removal import Removal
from logfs.log.groups.table import commit_records, removal_records
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.fakes import START_MS
from tests.log.support import Bench

ORDERS = TopicPartition("orders", 0)
DAY_MS = 86_400_000

KEY = bytes.fromhex("0001 0007") + b"billing" + bytes.fromhex("0006") + b"orders" + bytes(4)
VALUE = (
    bytes.fromhex("0003 0000000000000fa0 ffffffff 0002") + b"me" + bytes.fromhex("0000019000000000")
)


def test_a_position_has_the_bytes_that_a_broker_writes() -> None:
    assert coding.encode_key(PositionKey("billing", ORDERS)) == KEY
    assert coding.encode_position(Position(4000, "me", 0x19000000000)) == VALUE
    assert coding.decode_key(KEY) == PositionKey("billing", ORDERS)
    assert coding.decode_position(VALUE) == Position(4000, "me", 0x19000000000)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000000000000007 0000 0000000000000009", Position(7, "", 9)),
        ("0001 0000000000000007 0000 0000000000000009 000000000000000b", Position(7, "", 9, 11)),
        ("0003 0000000000000007 00000002 0000 0000000000000009", Position(7, "", 9, None, 2)),
        ("0004 0000000000000007 00000002 03 6d65 0000000000000009 00",
         Position(7, "me", 9, None, 2)),
    ],
)  # fmt: skip
def test_all_versions_of_a_position_are_read(value: str, expected: Position) -> None:
    assert coding.decode_position(bytes.fromhex(value)) == expected


@pytest.mark.parametrize("value", ["", "0003 00", "0005 0000000000000007", VALUE[:-1].hex()])
def test_a_position_that_does_not_parse_is_refused(value: str) -> None:
    with pytest.raises(CorruptRecordError):
        coding.decode_position(bytes.fromhex(value))


def test_a_group_with_a_leader_has_members() -> None:
    head = bytes.fromhex("0003 0008") + b"consumer" + bytes.fromhex("00000005")
    empty = head + bytes.fromhex("ffff ffff 0000000000000064 00000000")
    stable = head + bytes.fromhex("0005") + b"range" + bytes.fromhex("0001 63 0000000000000064")
    assert coding.decode_group(empty) == coding.GroupState(has_members=False, since_ms=100)
    assert coding.decode_group(stable) == coding.GroupState(has_members=True, since_ms=100)


@pytest.mark.parametrize(
    ("group", "partition"),
    # The hashes of Java; that of the last one is -2147483648, whose abs is 0 to Kafka.
    [("a", 97 % 50), ("hello", 99162322 % 50), ("polygenelubricants", 0)],
)
def test_the_partition_of_a_group_is_that_of_a_broker(group: str, partition: int) -> None:
    assert coding.partition_of(group, 50) == partition


@pytest.mark.parametrize("group", ["", "x" * 40_000, "\ud800"])
def test_a_name_that_a_broker_could_not_read_is_refused(group: str) -> None:
    with pytest.raises(InvalidConfigError):
        names.check_group(group)


class Committing(Bench):
    """A store with topics ``orders`` and ``__consumer_offsets``."""

    def __init__(self) -> None:
        super().__init__()
        self.store.create_topic("orders", 2, {}, self.now_ms)
        self.store.create_topic(OFFSETS_TOPIC, 3, OFFSETS_CONFIG, self.now_ms)

    def commit(self, group: str, offset: int, where: TopicPartition = ORDERS) -> None:
        position = Position(offset, "", self.now_ms)
        self._append(group, commit_records(group, {where: position}))

    def remove(self, group: str, where: TopicPartition = ORDERS) -> None:
        self._append(group, removal_records(group, [where], self.now_ms))

    def put_record(self, key: bytes, value: bytes | None) -> None:
        record = Record(0, self.now_ms, key, value)
        self.store.partition(OFFSETS_TOPIC, 0).append_records([record], self.now_ms)

    def expire(self) -> list[Removal]:
        log_of = partial(self.store.partition, OFFSETS_TOPIC)
        return removal.expire(self.store.groups, log_of, 7 * DAY_MS, self.now_ms)

    def _append(self, group: str, records: list[Record]) -> None:
        number = self.store.groups.partition_of(group)
        self.store.partition(OFFSETS_TOPIC, number).append_records(records, self.now_ms)

    @property
    def positions(self) -> Mapping[str, Mapping[str, int]]:
        found = self.store.groups.groups()
        return {
            name: {str(one): position.offset for one, position in group.positions.items()}
            for name, group in found.items()
        }


@pytest.fixture
def bench() -> Committing:
    return Committing()


def test_the_last_commit_applies_until_it_is_removed(bench: Committing) -> None:
    groups = bench.store.groups
    assert bench.positions == {}
    bench.commit("a", 5)
    bench.commit("b", 6, TopicPartition("orders", 1))
    bench.commit("a", 7)
    assert bench.positions == {"a": {"orders/0": 7}, "b": {"orders/1": 6}}
    assert groups.committed("a", ORDERS) == 7
    assert groups.committed("b", ORDERS) is None
    bench.remove("a")
    assert bench.positions == {"b": {"orders/1": 6}}
    assert groups.group("a") is None


def test_positions_survive_a_kill(bench: Committing) -> None:
    bench.commit("a", 5)
    bench.kill()
    assert bench.positions == {"a": {"orders/0": 5}}


@pytest.mark.allow_log("ignored")
def test_garbage_in_the_topic_is_ignored(bench: Committing) -> None:
    for key in (b"", b"\0", b"\0\1\0\7b", b"\x7f\xff"):
        bench.put_record(key, b"value")
    bench.put_record(KEY, b"value")
    bench.commit("a", 5)
    assert bench.positions == {"a": {"orders/0": 5}}


@pytest.mark.allow_log("begins at the earliest record")
def test_a_position_beyond_the_end_is_none(bench: Committing) -> None:
    log = bench.store.partition("orders", 0)
    bench.commit("a", 1)
    assert bench.store.groups.position_in(log, "a") is None
    log.append_records([Record(0, bench.now_ms, None, b"x")], bench.now_ms)
    assert bench.store.groups.position_in(log, "a") == 1


def test_deleting_a_topic_removes_its_positions(bench: Committing) -> None:
    bench.commit("a", 0)
    bench.commit("a", 0, TopicPartition("t", 0))
    bench.store.delete_topic("orders", bench.now_ms)
    assert bench.positions == {"a": {"t/0": 0}}
    bench.kill()
    assert bench.positions == {"a": {"t/0": 0}}


def test_a_position_expires_a_week_after_its_commit(bench: Committing) -> None:
    bench.commit("a", 5)
    bench.now_ms += DAY_MS
    bench.commit("b", 5)
    bench.now_ms = START_MS + 7 * DAY_MS - 1
    assert not bench.expire()
    bench.now_ms += 1
    [gone] = bench.expire()
    assert (gone.group, gone.removed) == ("a", [ORDERS])
    assert bench.positions == {"b": {"orders/0": 5}}
    bench.restart()
    assert bench.positions == {"b": {"orders/0": 5}}


def test_positions_of_a_group_with_members_do_not_expire(bench: Committing) -> None:
    name = next(name for name in "abc" if bench.store.groups.partition_of(name) == 0)
    bench.commit(name, 5)
    member = bytes.fromhex("0005 0001") + name.encode() + bytes.fromhex("0001") + b"m"
    bench.now_ms += 30 * DAY_MS
    bench.put_record(member, b"member")
    assert not bench.expire()
    bench.put_record(member, None)
    assert bench.expire()


def test_a_thread_that_must_not_wait_does_not_read_a_long_topic(bench: Committing) -> None:
    records = commit_records("a", {ORDERS: Position(5, "", bench.now_ms)})
    log = bench.store.partition(OFFSETS_TOPIC, bench.store.groups.partition_of("a"))
    log.append_records(records * 5000, bench.now_ms)
    with waiting_forbidden(), pytest.raises(WouldWaitError):
        bench.store.groups.committed("a", ORDERS)
    assert bench.store.groups.committed("a", ORDERS) == 5
    with waiting_forbidden():
        assert bench.store.groups.committed("a", ORDERS) == 5
