"""Records as Arrow record batches, for one partition and for many."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import logfs
from logfs import NewRecord, Partition, Store
from logfs.errors import (
    BadSelectorError,
    CorruptRecordError,
    DeletedError,
    InvalidConfigError,
    NoDataDirectoryError,
    NoSuchPartitionError,
    NoSuchTopicError,
    UndecodableTextError,
)
from logfs.library.places import locate
from logfs.library.points import Point
from logfs.library.writer import Writer
from logfs.log.store import LogStore
from tests.mounting import ROOT

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
RECORDS = [
    NewRecord(
        None if n == 3 else b"value %d" % n,
        None if n % 3 == 0 else b"key %d" % n,
        [("trace", b"x"), ("none", None)][: n % 3],
        NOW + timedelta(minutes=n),
    )
    for n in range(10)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def store(data: Path) -> Iterator[Store]:
    with logfs.open_store(data) as store:
        store.create_topic("orders", 2)
        store.partition("orders", 0).append_many(RECORDS)
        store.partition("orders", 1).append_many(RECORDS[:4])
        store.create_topic("clicks")
        store.partition("clicks").append(b"click", timestamp=NOW)
        store.create_topic("__internal")
        store.partition("__internal").append(b"hidden")
        yield store


@pytest.fixture
def orders(store: Store) -> Partition:
    return store.partition("orders")


def places(table: pa.Table) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in table.select(["topic", "partition", "offset"]).to_pylist():
        found.setdefault(f"{row['topic']}/{row['partition']}", []).append(row["offset"])
    return found


def test_the_columns_have_all_that_the_records_have(orders: Partition) -> None:
    rows = orders.read_arrow().read_all().to_pylist()
    assert rows == [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": 0,
            "offset": record.offset,
            "timestamp": datetime.fromtimestamp(record.timestamp / 1000, UTC),
            "timestampType": 0,
            "headers": [{"key": k.decode(), "value": v} for k, v in record.headers] or None,
        }
        for record in orders.read()
    ]
    assert len(rows) == 10


@pytest.mark.parametrize(
    ("start", "stop", "offsets"),
    [
        ("earliest", None, range(10)),
        (-3, None, range(7, 10)),
        (2, 5, range(2, 5)),
        (NOW + timedelta(minutes=4), "2026-11-20T10:06Z", range(4, 6)),
        ("byte=9", "latest", range(2, 10)),
        (6, 2, range(0)),
        ("latest", None, range(0)),
    ],
    ids=str,
)
def test_a_range_of_a_partition_is_that_of_read(
    orders: Partition, start: Point, stop: str | None, offsets: range
) -> None:
    found = orders.read_arrow(start, stop, columns=["offset"]).read_all()
    assert found.column("offset").to_pylist() == list(offsets)
    assert [record.offset for record in orders.read(start, stop)] == list(offsets)


def test_a_scan_reads_the_partitions_that_its_path_and_topics_name(
    store: Store, data: Path
) -> None:
    everything = {"clicks/0": [0], "orders/0": list(range(10)), "orders/1": list(range(4))}
    topic = {name: offsets for name, offsets in everything.items() if name != "clicks/0"}
    assert places(pa.table(logfs.scan(data))) == everything
    assert places(pa.table(logfs.scan(data, topics=["orders"]))) == topic
    assert places(pa.table(logfs.scan(data / "orders"))) == topic
    assert places(pa.table(logfs.scan(data / "orders" / "1@offset=2"))) == {"orders/1": [2, 3]}
    assert list(places(pa.table(logfs.scan(data, topics="__internal")))) == ["__internal/0"]
    assert [str(one) for one in logfs.scan(data / "orders").partitions()] == [
        "orders/0",
        "orders/1",
    ]


def test_the_points_of_a_scan_apply_to_each_partition(store: Store, data: Path) -> None:
    found = pa.table(logfs.scan(data, start=NOW + timedelta(minutes=3), stop="offset=5"))
    assert places(found) == {"orders/0": [3, 4], "orders/1": [3]}
    found = pa.table(logfs.scan(data / "orders", start=-1))
    assert places(found) == {"orders/0": [9], "orders/1": [3]}
    assert pa.table(logfs.scan(data, start="now")).num_rows == 0
    found = pa.table(logfs.scan(data / "orders" / "0@2026-11-20T10:08Z..2026-11-20T10:09Z"))
    assert places(found) == {"orders/0": [8]}


def test_an_unknown_isolation_level_is_told_with_those_there_are(
    orders: Partition, data: Path
) -> None:
    expected = "isolation level 'commited': expected one of read_uncommitted, read_committed"
    for take in (logfs.scan, logfs.open_store):
        with pytest.raises(ValueError, match=expected):
            take(data, isolation_level="commited")


def test_columns_are_those_that_were_named(store: Store, data: Path) -> None:
    scan = logfs.scan(data / "clicks", columns=["offset", "VALUE"], text=True)
    assert scan.schema == pa.schema([("offset", pa.int64()), ("value", pa.string())])
    assert pa.table(scan).to_pylist() == [{"offset": 0, "value": "click"}]
    assert pa.table(logfs.scan(data / "clicks", columns=["topic"])).to_pylist() == [
        {"topic": "clicks"}
    ]


def test_each_use_of_a_scan_reads_what_is_there_then(
    store: Store, orders: Partition, data: Path
) -> None:
    scan = logfs.scan(data)
    assert pa.table(scan).num_rows == 15
    orders.append(b"more")
    store.create_topic("new")
    store.partition("new").append(b"first")
    assert pa.table(scan).num_rows == 17


def test_text_has_to_be_utf8(store: Store, orders: Partition, data: Path) -> None:
    orders.append_many(["größe".encode(), NewRecord(b"v", "schlüssel".encode())])
    tail = orders.read_arrow(10, columns=["key", "value"], text=True).read_all()
    assert tail.to_pylist() == [
        {"key": None, "value": "größe"},
        {"key": "schlüssel", "value": "v"},
    ]
    orders.append_many([b"fine", b"\xff\xfe"])
    what = r"^orders/0: the value at offset 13 is not UTF-8\. Read value as bytes"
    with pytest.raises(UndecodableTextError, match=what):
        orders.read_arrow(columns=["value"], text=True).read_all()
    with pytest.raises(pa.ArrowInvalid, match="value at offset 13 is not UTF-8"):
        pa.table(logfs.scan(data, text=["value"]))
    assert orders.read_arrow(columns=["value"], text=["key"]).read_all().num_rows == 14


def test_batches_are_small_and_come_as_they_are_read(orders: Partition) -> None:
    orders.append_many(b"x" * 100_000 for _ in range(200))
    orders.append_many(b"%d" % n for n in range(100_000))
    sizes = [(batch.num_rows, batch.nbytes) for batch in orders.read_arrow(columns=["value"])]
    assert sum(rows for rows, _ in sizes) == 100_210
    assert max(rows for rows, _ in sizes) <= 65_536
    assert max(nbytes for _, nbytes in sizes) < 5_000_000
    assert len(sizes) > 5


@pytest.mark.allow_log("corrupt")
def test_records_before_a_damaged_batch_are_read_and_a_range_after_it(
    store: Store, data: Path
) -> None:
    for value in (b"two", b"three"):
        store.partition("clicks").append(value, timestamp=NOW)
    store.close()
    log = data / "clicks-0" / f"{0:020}.log"
    damaged = bytearray(log.read_bytes())
    damaged[damaged.index(b"two")] ^= 1
    times = log.stat()
    log.write_bytes(damaged)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if the disk had changed it
    with logfs.open(data / "clicks" / "0") as clicks:
        reader = clicks.read_arrow(columns=["value"])
        assert reader.read_next_batch().to_pylist() == [{"value": b"click"}]
        with pytest.raises(CorruptRecordError, match="at byte"):
            reader.read_next_batch()
        assert clicks.read_arrow(2).read_all().num_rows == 1
        with pytest.raises(pa.ArrowInvalid, match="CorruptRecordError"):
            pa.table(clicks.read_arrow())


@pytest.mark.expect_log("offsets 0 to 9 were removed before they were read")
def test_a_warning_names_records_that_were_removed_meanwhile(store: Store, data: Path) -> None:
    store.create_topic("small", config={"internal.segment.bytes": "600000"})
    small = store.partition("small")
    for n in range(12):
        small.append(b"%02d" % n * 250_000)
    reader, scanned = small.read_arrow(), logfs.scan(data / "small").read_arrow()

    def trim(owned: LogStore) -> None:
        log, now_ms = owned.partition("small", 0), int(time.time() * 1000)
        log.advance_log_start_offset(10, now_ms)
        log.remove_due_files(now_ms + log.config.file_delete_delay_ms)

    # The writer that the store uses.
    with Writer.of(locate(store.data)) as writer, writer.connected() as way:
        assert way.store is not None
        trim(way.store.store)
    assert reader.read_all().column("offset").to_pylist() == [10, 11]
    assert scanned.read_all().column("offset").to_pylist() == [10, 11]


def test_a_reader_of_a_deleted_topic_raises(store: Store, data: Path) -> None:
    reader, scanned = store.partition("clicks").read_arrow(), logfs.scan(data).read_arrow()
    store.delete_topic("clicks")
    for one in (reader, scanned):
        with pytest.raises(DeletedError, match="clicks/0: the topic has been deleted"):
            one.read_all()


def fail_in_a_transaction(producer: logfs.Producer) -> None:
    with producer.transaction():
        producer.append_many([b"aborted"])
        raise ConnectionError


def test_aborted_records_are_shown_as_the_isolation_level_says(store: Store, data: Path) -> None:
    producer = store.partition("clicks").producer(7)
    with producer.transaction():
        producer.append_many([b"kept"])
    with pytest.raises(ConnectionError):
        fail_in_a_transaction(producer)
    with logfs.open(data / "clicks" / "0", isolation_level="read_committed") as clicks:
        for found in (
            clicks.read_arrow(columns=["value"]).read_all(),
            pa.table(
                logfs.scan(data / "clicks", columns=["value"], isolation_level="read_committed")
            ),
        ):
            assert found.column("value").to_pylist() == [b"click", b"kept"]
    everything = pa.table(logfs.scan(data / "clicks", columns=["value"]))
    assert everything.column("value").to_pylist() == [b"click", b"kept", b"aborted"]


def test_wrong_arguments_are_refused_when_the_scan_is_made(store: Store, data: Path) -> None:
    with pytest.raises(NoSuchTopicError, match="did you mean orders"):
        logfs.scan(data, topics="order")
    with pytest.raises(NoSuchPartitionError, match="orders/7"):
        logfs.scan(data / "orders" / "7")
    with pytest.raises(NoDataDirectoryError):
        logfs.scan(data.parent / "nothing")
    with pytest.raises(BadSelectorError, match="a byte is no place in a table"):
        logfs.scan(data, start="byte=7")
    with pytest.raises(BadSelectorError, match="soon"):
        logfs.scan(data, stop="soon")
    with pytest.raises(InvalidConfigError, match="the path and start both say"):
        logfs.scan(data / "orders" / "0@-1h", start="-2h")
    with pytest.raises(InvalidConfigError, match="the path names the topic orders"):
        logfs.scan(data / "orders", topics=["clicks"])
    with pytest.raises(InvalidConfigError, match="there is no column body: expected some of key"):
        logfs.scan(data, columns=["body"])
    with pytest.raises(InvalidConfigError, match="expected key, value or both"):
        logfs.scan(data, text=["topic"])
    with pytest.raises(TypeError, match=r"expected a list of names, as in \['value'\]"):
        logfs.scan(data, columns="value")


def test_without_pyarrow_an_error_says_how_to_add_it(store: Store, data: Path) -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
import logfs
from logfs.errors import ExtraMissingError
path = sys.argv[1]
with logfs.open(f"{path}/orders/0") as orders:
    for call in (orders.read_arrow, lambda: logfs.scan(path)):
        try:
            call()
        except ExtraMissingError as error:
            print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(data)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("take pyarrow" in line and "pip install" in line for line in lines)


FRAMES = """
import sys
from datetime import UTC, datetime
import duckdb, logfs, pandas as pd, polars as pl
data = sys.argv[1]
columns = ["topic", "partition", "value", "timestamp"]
scan = logfs.scan(data, columns=columns, text=True)
with logfs.open(f"{data}/orders/0") as orders:
    frame = pd.DataFrame.from_arrow(scan)
    assert list(frame.columns) == columns
    assert frame.groupby("topic").size().to_dict() == {"clicks": 1, "orders": 14}
    assert frame["timestamp"].max() == datetime(2026, 11, 20, 10, 9, tzinfo=UTC)
    assert orders.read_arrow(2, 4, columns=["offset"]).read_pandas()["offset"].tolist() == [2, 3]

    table = pl.DataFrame(scan)
    assert table.group_by("partition").len().sort("partition").rows() == [(0, 11), (1, 4)]
    assert pl.DataFrame(orders.read_arrow(-1, text=True))["value"].to_list() == ["value 9"]

    reader = orders.read_arrow(columns=["offset", "value"], text=True)
    for _ in range(2):  # a scan can be used again
        assert duckdb.sql("select count(*), max(value) from scan").fetchall() == [(15, "value 9")]
    eighth = "select sum(\\"offset\\") from reader where value like '%8'"
    assert duckdb.sql(eighth).fetchall() == [(8,)]
print("done")
"""


@pytest.mark.slow
def test_pandas_polars_and_duckdb_take_a_scan_and_a_reader(store: Store, data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRAMES, str(data)],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "done\n", done.stderr
