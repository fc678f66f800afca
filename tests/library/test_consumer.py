"""Consumer groups in the library."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import logfs
from logfs.errors import InvalidConfigError, NoSuchTopicError
from tests.mounting import Mount


@pytest.fixture
def store(tmp_path: Path) -> Iterator[logfs.Store]:
    with logfs.open_store(tmp_path) as store:
        store.create_topic("orders", 2)
        for number in range(2):
            values = [b"%d.%d" % (number, n) for n in range(5)]
            store.partition("orders", number).append_many(values)
        yield store


def values(consumer: logfs.Consumer) -> list[bytes | None]:
    return [record.value for record in consumer.read()]


def test_a_consumer_continues_after_its_last_commit(store: logfs.Store) -> None:
    with store.consumer("billing", "orders") as consumer:
        for record in consumer.read():
            if record.value == b"1.2":
                break
        assert (record.topic, record.partition, record.offset) == ("orders", 1, 2)
        consumer.commit(durable=True)
        assert next(consumer.read()).value == b"1.3", "a second iterator continues"
    with store.consumer("billing", ["orders"]) as consumer:
        assert values(consumer) == [b"1.3", b"1.4"], "what was not committed comes again"
        store.partition("orders").append(b"new")
        assert values(consumer) == [b"new"]
        consumer.commit()
    assert store.partition("orders", 0).committed("billing") == 6
    assert [r.value for r in store.partition("orders", 1).read("group=billing")] == []


def test_a_consumer_takes_some_partitions_and_a_start(store: logfs.Store) -> None:
    with store.consumer("late", {"orders": [1]}, start="offset=3") as consumer:
        assert [(one.partition, len(some)) for one, some in consumer.follow_batches(timeout=0)] == [
            (1, 2)
        ]
        consumer.commit()
        consumer.seek("orders", 1, 4)
        assert values(consumer) == [b"1.4"]
    assert store.partition("orders", 0).committed("late") is None


@pytest.mark.allow_log("has been deleted")
def test_new_partitions_are_read_from_their_first_record(store: logfs.Store) -> None:
    with store.consumer("billing", "orders") as consumer:
        assert len(values(consumer)) == 10
        store.delete_topic("orders")
        store.create_topic("orders", 1)
        store.partition("orders").append(b"again")
        assert values(consumer) == [b"again"]


def test_wrong_names_are_refused(store: logfs.Store) -> None:
    with pytest.raises(NoSuchTopicError):
        store.consumer("billing", "nix")
    with pytest.raises(InvalidConfigError):
        store.consumer("", "orders")
    with pytest.raises(InvalidConfigError):
        store.partition("orders").commit("billing", -1)
    with pytest.raises(InvalidConfigError):
        store.partition("orders").commit("billing", 1, metadata="x" * 5000)


@pytest.mark.fuse
def test_the_mount_and_the_library_share_positions(tmp_path: Path) -> None:
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        topic = mount.point / "orders"
        topic.mkdir()
        with (topic / "0").open("ab") as file:
            file.write(b"a\nb\nc\n")
        assert (topic / "0@group=billing").read_bytes() == b"a\nb\nc\n"
        with logfs.open(mount.point / "orders" / "0") as orders:
            orders.commit("billing", 2)
            assert (topic / "0@group=billing.tsv").read_bytes() == b"\\N\tc\n"
            orders.commit("billing", 1)
            assert (topic / "0@group=billing").read_bytes() == b"b\nc\n"
            assert (topic / "0@earliest..group=billing").read_bytes() == b"a\n"
        mount.crash()
        assert (topic / "0@group=billing").read_bytes() == b"b\nc\n"
        assert sorted(path.name for path in mount.point.iterdir()) == ["orders"]
