"""A partition through the library, in a directory without a daemon."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord, Partition, Store
from logfs.errors import (
    BadSelectorError,
    CorruptRecordError,
    DeletedError,
    InvalidProducerEpochError,
    NoDataDirectoryError,
    NoSuchPartitionError,
    NoSuchTopicError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    UnknownNameError,
)
from logfs.library.places import locate
from logfs.library.points import Point
from logfs.library.writer import Writer
from logfs.log.store import LogStore
from tests.mounting import ROOT

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "data").mkdir()
    with logfs.open_store(tmp_path / "data") as store:
        store.create_topic("orders", 2)
        yield store


@pytest.fixture
def orders(store: Store) -> Partition:
    return store.partition("orders")


def values(records: Iterator[logfs.Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_appended_records_can_be_read(orders: Partition) -> None:
    at = int(NOW.timestamp() * 1000)
    headers: list[tuple[str | bytes, bytes | None]] = [("trace", b"x"), (b"\xff", None)]
    assert orders.append(b"v", key=b"k", headers=headers, timestamp=NOW) == 0
    assert orders.append(None, key=b"k", timestamp=at + 5) == 1
    assert list(orders.read()) == [
        logfs.Record(0, at, b"k", b"v", ((b"trace", b"x"), (b"\xff", None))),
        logfs.Record(1, at + 5, b"k", None, ()),
    ]
    assert (orders.start_offset, orders.end_offset) == (0, 2)
    assert [orders.timestamp_of(n) for n in range(3)] == [at, at + 5, None]


def test_append_many_takes_values_new_records_and_records(orders: Partition, store: Store) -> None:
    assert orders.append_many([]) == range(0)
    made = orders.append_many([b"plain", NewRecord(b"new", b"key"), NewRecord(b"old", timestamp=7)])
    assert made == range(3)
    copy = store.partition("orders", 1)
    assert copy.append_many(orders.read()) == range(3)
    assert list(copy.read()) == list(orders.read())
    assert [r.timestamp for r in copy.read()][2] == 7
    with pytest.raises(TypeError, match="expected bytes"):
        orders.append_many(["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="expected bytes"):
        orders.append("text")  # type: ignore[arg-type]


def test_append_many_takes_any_number_of_records(orders: Partition) -> None:
    assert orders.append_many(b"%d" % n for n in range(20_000)) == range(20_000)
    large = [b"x" * 1_000_000] * 20
    assert orders.append_many(large, durable=True) == range(20_000, 20_020)
    assert values(orders.read()) == [b"%d" % n for n in range(20_000)] + large
    assert all(orders.read_batches())


def test_a_refused_record_does_not_affect_earlier_ones(orders: Partition) -> None:
    with pytest.raises(RecordTooLargeError):
        orders.append_many([b"fits", b"x" * 2_000_000])
    assert orders.end_offset == 0


POINTS: list[tuple[object, int]] = [
    ("earliest", 0),
    ("latest", 10),
    ("offset=4", 4),
    ("offset=-3", 7),
    (4, 4),
    (-3, 7),
    (99, 10),
    (-99, 0),
    ("2026-11-20T10:03Z", 3),
    (NOW + timedelta(minutes=3), 3),
    (NOW + timedelta(minutes=3, seconds=1), 4),
    (NOW.timestamp().__int__() * 1000, 10),
    (str(int(NOW.timestamp()) * 1000 + 60_000), 1),
    ("2025-01-01", 0),
    ("now", 10),
    (timedelta(days=3650), 0),
    ("byte=0", 0),
    ("byte=9", 1),
    ("byte=10", 2),
    ("byte=-9", 9),
    ("byte=-10", 9),
]


@pytest.mark.parametrize(("point", "offset"), POINTS, ids=str)
def test_a_point_is_an_offset(orders: Partition, point: Point, offset: int) -> None:
    orders.append_many(
        NewRecord(b"record %d" % n, timestamp=NOW + timedelta(minutes=n)) for n in range(10)
    )
    assert orders.offset_at(point) == offset
    expected = [b"record %d" % n for n in range(10)]
    assert values(orders.read(point)) == expected[offset:]
    assert values(orders.read("earliest", point)) == expected[:offset]


def test_other_values_are_refused_as_points(orders: Partition) -> None:
    for text in ("lastweek", "20261120", "15m", ""):
        with pytest.raises(BadSelectorError):
            orders.read(text)
    with pytest.raises(TypeError, match="expected a selector"):
        orders.read(1.5)  # type: ignore[arg-type]


def test_read_resolves_points_when_it_is_called(orders: Partition) -> None:
    orders.append(b"before")
    found, coming = orders.read(), orders.follow(timeout=0.0)
    orders.append(b"behind")
    assert values(found) == [b"before"]
    assert values(coming) == [b"behind"]


def later(call: Callable[[], object]) -> threading.Thread:
    """Do something a little later, in a thread."""

    def run() -> None:
        time.sleep(0.1)
        call()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_follow_yields_new_records(orders: Partition) -> None:
    orders.append(b"before")
    coming = orders.follow("earliest")
    assert next(coming).value == b"before"
    for n in range(3):
        thread = later(lambda n=n: orders.append(b"%d" % n))  # type: ignore[misc]
        assert next(coming).value == b"%d" % n
        thread.join()


def test_follow_ends_at_its_stop_or_after_its_timeout(orders: Partition) -> None:
    orders.append_many([b"0", b"1", b"2", b"3"])
    assert values(orders.follow("earliest", 3)) == [b"0", b"1", b"2"]
    assert values(orders.follow("earliest", timeout=0.05)) == [b"0", b"1", b"2", b"3"]
    moment = NOW + timedelta(days=36500)
    coming = orders.follow("earliest", moment)
    thread = later(
        lambda: orders.append_many([b"4", NewRecord(b"5", timestamp=int(time.time() * 1000))])
    )
    assert values(orders.follow("latest", 6)) == [b"4", b"5"]
    thread.join()
    assert next(coming).value == b"0"


def test_close_ends_the_iterators_that_follow(orders: Partition) -> None:
    thread = later(orders.close)
    assert values(orders.follow()) == []
    thread.join()
    with pytest.raises(ValueError, match="is closed"):
        orders.append(b"v")
    with pytest.raises(ValueError, match="is closed"):
        orders.read()
    orders.close()


def test_follow_raises_when_its_topic_is_deleted(store: Store, orders: Partition) -> None:
    orders.append(b"v")
    coming = orders.follow("earliest")
    assert next(coming).value == b"v"
    thread = later(lambda: store.delete_topic("orders"))
    with pytest.raises(DeletedError, match="orders/0"):
        next(coming)
    thread.join()


def test_follow_yields_records_of_another_process(orders: Partition, tmp_path: Path) -> None:
    orders.append(b"mine")
    program = (
        "import logfs\n"
        f"with logfs.open({str(tmp_path / 'data' / 'orders' / '0')!r}) as orders:\n"
        "    for record in orders.follow('earliest', 3): print(record.value, flush=True)\n"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "b'mine'\n"
    orders.append(b"more")
    assert reader.stdout.readline() == "b'more'\n"
    orders.append(b"last")
    assert reader.communicate(timeout=60)[0] == "b'last'\n"
    assert reader.returncode == 0


def test_the_first_write_takes_the_lock_and_close_frees_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with logfs.open_store(data) as store:
        store.create_topic("orders", 2)
    program = "import logfs, sys; logfs.open(sys.argv[1]).append(b'other')"
    command = [sys.executable, "-c", program, str(data / "orders" / "0")]
    with logfs.open(data / "orders" / "0") as first, logfs.open(data / "orders" / "1") as second:
        subprocess.run(command, cwd=ROOT, check=True)
        assert values(first.follow("earliest", 1)) == [b"other"]
        first.append(b"mine")
        assert second.append(b"of the same process") == 0
        refused = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert "LockedError" in refused.stderr
        assert values(first.read()) == [b"other", b"mine"]
        first.close()
        second.append(b"still")
    subprocess.run(command, cwd=ROOT, check=True)
    with logfs.open(data / "orders" / "0") as orders:
        assert values(orders.read()) == [b"other", b"mine", b"other"]


def test_reading_alone_changes_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with logfs.open_store(data) as store:
        store.create_topic("orders")
        store.partition("orders").append(b"v")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in data.rglob("*")}
    with logfs.open(data / "orders" / "0") as orders:
        assert values(orders.read()) == [b"v"]
        assert values(orders.follow("earliest", timeout=0.0)) == [b"v"]
        assert orders.offset_at("-15m") == 0
    assert before == {
        path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in data.rglob("*")
    }


@pytest.mark.allow_log("corrupt")
def test_read_raises_at_a_corrupt_batch(store: Store, orders: Partition, tmp_path: Path) -> None:
    for value in (b"one", b"two", b"three"):
        orders.append(value)
    store.close()
    log = tmp_path / "data" / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[2 * len(data) // 3 - 3] ^= 1
    times = log.stat()
    log.write_bytes(data)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if the disk had changed it
    with logfs.open(tmp_path / "data" / "orders" / "0") as damaged:
        found = damaged.read()
        assert next(found).value == b"one"
        with pytest.raises(CorruptRecordError, match="offset 1"):
            next(found)
        assert values(damaged.read(2)) == [b"three"]


@pytest.mark.expect_log("removed before they were read")
def test_a_warning_names_records_removed_before_they_were_read(
    store: Store, tmp_path: Path
) -> None:
    store.create_topic("small", config={"internal.segment.bytes": "600000"})
    small = store.partition("small")
    for n in range(12):
        small.append(b"%02d" % n * 250_000)
    reader = logfs.open(tmp_path / "data" / "small" / "0")  # has no file open
    coming = reader.follow_batches("earliest", 12)
    seen = [record.offset for record in next(coming)]
    assert seen[0] == 0
    assert seen[-1] < 8

    def trim(owned: LogStore) -> None:
        log, now_ms = owned.partition("small", 0), int(time.time() * 1000)
        log.advance_log_start_offset(10, now_ms)
        log.remove_due_files(now_ms + log.config.file_delete_delay_ms)
        owned.checkpoint()

    # The writer that the store uses.
    with Writer.of(locate(store.data)) as writer, writer.connected() as way:
        assert way.store is not None
        trim(way.store.store)
    seen += [record.offset for batch in coming for record in batch]
    assert seen[-2:] == [10, 11]
    assert 9 not in seen
    assert small.start_offset == 10
    reader.close()


def test_producers(orders: Partition) -> None:
    producer = orders.producer(9)
    assert (producer.epoch, producer.sequence) == (0, 0)
    first = producer.append_many([b"a", b"b"])
    assert first == (0, 1, False)
    assert producer.append_many([b"a", b"b"], sequence=0) == (0, 1, True)
    assert producer.append_many([b"c"]) == (2, 2, False)
    # Another instance knows how far the one before it came.
    assert orders.producer(9).sequence == 3
    with pytest.raises(OutOfOrderSequenceError):
        producer.append_many([b"e"], sequence=4)
    newer = orders.producer(9, epoch=1)
    assert newer.sequence == 0
    newer.append_many([b"d"])
    with pytest.raises(InvalidProducerEpochError):
        producer.append_many([b"lost"])
    assert values(orders.read()) == [b"a", b"b", b"c", b"d"]


def test_a_producer_continues_its_sequence_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with logfs.open_store(tmp_path / "data") as store:
        store.create_topic("orders")
        store.partition("orders").producer(9).append_many([b"a", b"b"])
    with logfs.open(tmp_path / "data" / "orders" / "0") as orders:
        assert orders.producer(9).sequence == 2
        assert orders.producer(9).append_many([b"a", b"b"], sequence=0).is_duplicate


def fail_in_a_transaction(producer: logfs.Producer) -> None:
    with producer.transaction():
        producer.append_many([b"never"])
        raise KeyError


def test_transactions(store: Store, orders: Partition) -> None:
    committed = store.partition("orders", isolation_level="read_committed")
    producer = orders.producer(1)
    with producer.transaction():
        producer.append_many([b"a", b"b"])
        assert values(committed.read()) == []
        assert committed.end_offset == 0
        assert orders.end_offset == 2
    assert values(committed.read()) == [b"a", b"b"]
    with pytest.raises(KeyError):
        fail_in_a_transaction(producer)
    with producer.transaction():
        pass
    producer.append_many([b"outside"])
    assert values(committed.read()) == [b"a", b"b", b"outside"]
    assert values(orders.read()) == [b"a", b"b", b"never", b"outside"]
    assert orders.end_offset == 6  # two markers


def test_topics(store: Store) -> None:
    store.create_topic("prices", config={"cleanup.policy": "compact"})
    assert store.topics() == {"orders": 2, "prices": 1}
    store.delete_topic("orders")
    assert store.topics() == {"prices": 1}
    with pytest.raises(NoSuchTopicError):
        store.partition("orders")
    with pytest.raises(NoSuchPartitionError):
        store.partition("prices", 1)
    assert store.partition("prices") is store.partition("prices")


def test_the_error_of_open_names_its_cause(store: Store, tmp_path: Path) -> None:
    data = tmp_path / "data"
    store.partition("orders").append(b"v")
    for path, error, part in [
        (data, UnknownNameError, "expected a partition"),
        (data / "orders", UnknownNameError, "expected a partition"),
        (data / "orders" / "0@-1h", UnknownNameError, "read()"),
        (data / "orders" / "zero", UnknownNameError, "zero"),
        (data / "orders" / "0" / "x", UnknownNameError, "expected a partition"),
        (data / "orders" / "7", NoSuchPartitionError, "7"),
        (data / "order" / "0", NoSuchTopicError, "order"),
        (tmp_path / "nothing" / "orders" / "0", NoDataDirectoryError, "holds no logs"),
    ]:
        with pytest.raises(error, match=part.replace("(", r"\(").replace(")", r"\)")):
            logfs.open(path)
    with pytest.raises(NoDataDirectoryError, match="the data directory itself"):
        logfs.open_store(data / "orders")
    with pytest.raises(ValueError, match="sometimes"):
        logfs.open(data / "orders" / "0", isolation_level="sometimes")


def test_importing_it_loads_nothing() -> None:
    program = "import sys, logfs; print([m for m in sys.modules if m.startswith('logfs')])"
    output = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)
    assert output == "['logfs']\n"
    for name in logfs.__all__:
        assert getattr(logfs, name).__doc__
    assert set(logfs.__all__) <= set(dir(logfs))
    with pytest.raises(AttributeError, match="nothing"):
        _ = logfs.nothing


def test_a_closed_partition_that_goes_leaves_no_file_open(tmp_path: Path) -> None:
    with logfs.open_store(tmp_path) as store:
        store.create_topic("orders")
    gc.disable()
    try:
        with logfs.open(tmp_path / "orders/0") as partition:
            partition.append(b"a")
            assert len(list(partition.read())) == 1
        del partition
        links = Path("/proc/self/fd").iterdir()
        opened = [os.readlink(link) for link in links if link.is_symlink()]
    finally:
        gc.enable()
    assert [name for name in opened if name.startswith(str(tmp_path))] == []
