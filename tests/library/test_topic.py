"""A topic in the library: appends by key, and reads merged by time."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord
from logfs.errors import NoSuchTopicError
from logfs.records.partitioner import partition_for_key

BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[logfs.Store]:
    with logfs.open_store(tmp_path) as store:
        store.create_topic("orders", 3)
        yield store


# What Kafka's own test of the hash expects; the partition is (hash & 0x7fffffff) % partitions.
# Source: Kafka UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_a_key_has_the_partition_that_a_producer_of_kafka_chooses(key: bytes, hashed: int) -> None:
    for count in (1, 3, 50):
        assert partition_for_key(key, count) == (hashed & 0x7FFFFFFF) % count


def test_records_with_a_key_keep_their_order_in_one_partition(store: logfs.Store) -> None:
    orders = store.topic("orders")
    keys = [b"%d" % (n % 7) for n in range(700)]
    appended = orders.append_many(NewRecord(b"%d" % n, key) for n, key in enumerate(keys))
    assert sum(appended.values()) == 700
    where = orders.append(b"last", key=b"3", durable=True)
    assert where.partition == partition_for_key(b"3", 3)
    assert where.offset == appended[where.partition]
    for partition in orders.partitions:
        found = list(partition.read())
        assert {partition_for_key(record.key or b"", 3) for record in found} == {partition.number}
        assert [int(record.value or b"") for record in found if record.value != b"last"] == [
            n for n, key in enumerate(keys) if partition_for_key(key, 3) == partition.number
        ]


def test_records_without_a_key_go_to_one_partition_after_the_other(store: logfs.Store) -> None:
    orders = store.topic("orders")
    assert sorted(orders.append(b"x").partition for _ in range(6)) == [0, 0, 1, 1, 2, 2]
    assert list(orders.append_many([b"x"] * 10).values()) == [10]


def test_a_topic_is_read_merged_by_time(store: logfs.Store) -> None:
    orders, chance = store.topic("orders"), random.Random(4)
    times = sorted(chance.sample(range(10_000), 300))
    for time in times:
        number = chance.randrange(3)
        store.partition("orders", number).append(b"%d" % time, timestamp=BEGIN_MS + time)
    assert [int(record.value or b"") for record in orders.read()] == times
    late = [int(record.value or b"") for record in orders.read(str(BEGIN_MS + 5000))]
    assert late == [time for time in times if time >= 5000]


def test_a_topic_that_does_not_exist_is_refused(store: logfs.Store) -> None:
    with pytest.raises(NoSuchTopicError):
        store.topic("order")
