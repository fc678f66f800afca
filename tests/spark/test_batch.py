"""What a batch reads: equal to what was written, for every option."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logfs.errors import (
    InvalidConfigError,
)
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.log.transactions import ABORT, COMMIT, append_batch, marker
from tests.records import oracle
from tests.spark.logs import START_MS, Logs
from tests.spark.reading import expected, places, plain, rows, tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CODECS = ("gzip", "lz4", "producer", "snappy", "zstd")


def mixed(first: int, count: int) -> list[Record]:
    """Records of all kinds: without key, without value, with headers, without anything."""
    return [
        Record(
            0,
            START_MS + n,
            None if n % 3 == 0 else b"key %d" % n,
            None if n % 5 == 1 else b"value \xff\n%d" % n,
            ((b"h", b"%d" % n), (b"", None)) if n % 4 == 2 else (),
        )
        for n in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """``orders`` with three partitions in all codecs, ``clicks`` with one, ``__hidden``."""
    logs = Logs(tmp_path_factory.mktemp("data"))
    for number, codec in enumerate(CODECS):
        logs.topic(f"orders-{codec}", 2, compression_type=codec)
        for partition in range(2):
            for first in range(0, 60, 20):
                logs.append(f"orders-{codec}", partition, mixed(first + number, 20))
    logs.topic("clicks")
    logs.write("clicks", 0, *(b"click %d" % n for n in range(10)))
    logs.topic("empty", 2)
    logs.topic("__hidden")
    logs.write("__hidden", 0, b"secret")
    logs.close()
    return logs


def offsets(first: int, behind: int) -> list[int]:
    return list(range(first, behind))


def shown(logs: Logs) -> dict[TopicPartition, list[Record]]:
    return {one: records for one, records in logs.written.items() if one.topic != "__hidden"}


def test_every_record_comes_with_all_columns(logs: Logs) -> None:
    assert sorted(plain(rows(logs.path)), key=lambda row: row[2:5]) == expected(shown(logs))


def test_spark_reads_the_same(logs: Logs, spark: "SparkSession") -> None:
    table = spark.read.format("logfs").option("includeHeaders", "true").load(str(logs.path))
    found = plain(tuple(row) for row in table.collect())
    assert sorted(found, key=lambda row: row[2:5]) == expected(shown(logs))
    assert [field.name for field in table.schema][-2:] == ["timestampType", "headers"]
    assert table.where("offset < 3").count() == 30 + 3
    assert table.count() == 610  # an earlier filter has no effect
    assert spark.read.format("logfs").load(f"{logs.path}/empty").count() == 0


def test_spark_reads_only_the_columns_of_a_schema(logs: Logs, spark: "SparkSession") -> None:
    reader = spark.read.format("logfs").schema("offset long, value binary")
    found = [tuple(row) for row in reader.load(f"{logs.path}/clicks").collect()]
    assert found == [(n, bytearray(b"click %d" % n)) for n in range(10)]


def test_sql_reads_it(logs: Logs, spark: "SparkSession") -> None:
    path = f"{logs.path}/clicks/0@offset=8"
    spark.sql(f"CREATE TEMPORARY VIEW clicks USING logfs OPTIONS (path '{path}')")
    found = spark.sql("SELECT CAST(value AS STRING) AS v FROM clicks ORDER BY offset").collect()
    assert [row.v for row in found] == ["click 8", "click 9"]


def test_spark_shows_the_line_that_says_what_is_wrong(logs: Logs, spark: "SparkSession") -> None:
    from pyspark.errors import AnalysisException

    reader = spark.read.format("logfs").option("subscribe", "orderz")
    with pytest.raises(Exception, match="there is no topic orderz"):
        reader.load(str(logs.path)).count()
    with pytest.raises(AnalysisException, match="did you mean startingOffsets"):
        spark.read.format("logfs").option("startingOffset", "latest").load(str(logs.path)).count()


EVERY = [f"orders-{codec}/{n}" for codec in CODECS for n in (0, 1)]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["clicks/0", *EVERY]),
        ({"subscribe": "clicks, orders-gzip"}, ["clicks/0", "orders-gzip/0", "orders-gzip/1"]),
        ({"SUBSCRIBE": "__hidden"}, ["__hidden/0"]),
        (
            {"subscribePattern": "rs-[lz]"},
            ["orders-lz4/0", "orders-lz4/1", "orders-zstd/0", "orders-zstd/1"],
        ),
        ({"subscribePattern": "hid"}, []),
        ({"assign": '{"orders-lz4": [1], "clicks": [0]}'}, ["clicks/0", "orders-lz4/1"]),
    ],
)
def test_what_is_read(logs: Logs, options: dict[str, str], names: list[str]) -> None:
    found = places(logs.path, **options)
    assert sorted(found) == names
    assert all(sorted(found[name]) == offsets(0, len(found[name])) for name in names)


def each(**partitions: int) -> str:
    """``clicks=3`` as the options want it."""
    return json.dumps({topic: {"0": number} for topic, number in partitions.items()})


@pytest.mark.parametrize(
    ("options", "first", "behind"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 0, 10),
        ({"startingOffsets": each(clicks=4)}, 4, 10),
        ({"startingOffsets": each(clicks=-2), "endingOffsets": each(clicks=-1)}, 0, 10),
        ({"startingOffsets": each(clicks=2), "endingOffsets": each(clicks=5)}, 2, 5),
        ({"startingTimestamp": str(START_MS + 3)}, 3, 10),
        ({"endingTimestamp": str(START_MS + 3)}, 0, 3),
        ({"endingTimestamp": str(START_MS + 300)}, 0, 10),
        ({"startingOffsetsByTimestamp": each(clicks=START_MS + 6)}, 6, 10),
        ({"endingOffsetsByTimestamp": each(clicks=START_MS + 6)}, 0, 6),
        # The time for all comes before that for each, and that before the offsets.
        (
            {
                "startingTimestamp": str(START_MS + 7),
                "startingOffsetsByTimestamp": each(clicks=START_MS),
                "startingOffsets": each(clicks=1),
            },
            7,
            10,
        ),
        (
            {
                "startingOffsetsByTimestamp": each(clicks=START_MS + 8),
                "startingOffsets": each(clicks=1),
            },
            8,
            10,
        ),
        (
            {
                "startingTimestamp": str(START_MS + 99),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            10,
            10,
        ),
        ({"from": "offset=-3"}, 7, 10),
        ({"from": "offset=2", "to": "offset=4"}, 2, 4),
        ({"from": str(START_MS + 2), "to": str(START_MS + 5)}, 2, 5),
        ({"from": "2023-11-14T22:13:20.004Z", "to": "latest"}, 4, 10),
        ({"from": "offset=99"}, 10, 10),
        ({"from": "now"}, 10, 10),
        ({"from": "latest"}, 10, 10),
        ({"from": "offset=7", "to": "offset=3"}, 7, 7),
        ({"from": "-90000d", "to": "-1ms"}, 0, 10),
    ],
)
def test_where_reading_begins_and_ends(
    logs: Logs, options: dict[str, str], first: int, behind: int
) -> None:
    found = places(logs.path, subscribe="clicks", **options)
    assert found.get("clicks/0", []) == offsets(first, behind)


@pytest.mark.parametrize(
    ("address", "first", "behind"),
    [
        ("clicks", 0, 10),
        ("clicks/0", 0, 10),
        ("clicks/0@offset=4", 4, 10),
        ("clicks/0@offset=4..offset=6", 4, 6),
        (f"clicks/0@{START_MS + 1}..{START_MS + 3}", 1, 3),
        ("clicks/0@-5m", 10, 10),
        ("clicks/0@earliest..latest", 0, 10),
    ],
)
def test_an_address_in_the_path(logs: Logs, address: str, first: int, behind: int) -> None:
    assert places(f"{logs.path}/{address}").get("clicks/0", []) == offsets(first, behind)


def test_an_address_may_be_cut_by_options(logs: Logs) -> None:
    found = places(f"{logs.path}/clicks/0", startingTimestamp=str(START_MS + 2), to="offset=4")
    assert found == {"clicks/0": [2, 3]}


def test_options_of_a_network_are_accepted(logs: Logs) -> None:
    found = places(logs.path, subscribe="clicks", kafka_bootstrap_servers="a:1", groupIdPrefix="g")
    assert found == {"clicks/0": offsets(0, 10)}


def test_several_directories(logs: Logs, tmp_path: Path) -> None:
    other = Logs(tmp_path / "other")
    other.topic("more")
    other.write("more", 0, b"x")
    other.close()
    found = places(f"{logs.path},{other.path}", subscribe="more,clicks")
    assert found == {"clicks/0": offsets(0, 10), "more/0": [0]}
    with pytest.raises(InvalidConfigError, match="is no data directory"):
        places(f"{logs.path}/clicks,{other.path}")


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        logs = Logs(tmp_path / name)
        logs.topic("t")
        logs.close()
    with pytest.raises(InvalidConfigError, match=r"t/0 is in .*a and in .*b"):
        places(f"{tmp_path}/a,{tmp_path}/b")


def test_small_partitions_share_a_task_and_a_large_one_is_cut(logs: Logs) -> None:
    assert len(tasks(logs.path)) == 1
    cut = tasks(logs.path, ("offset",), subscribe="clicks", minPartitions="4")
    assert [len(task) for task in cut] == [2, 2, 3, 3]
    assert [row for task in cut for row in task] == [(n,) for n in range(10)]
    most = tasks(logs.path, ("offset",), subscribe="clicks", maxRecordsPerPartition="3")
    assert [len(task) for task in most] == [2, 2, 3, 3]
    assert [row for task in most for row in task] == [(n,) for n in range(10)]


def test_aborted_records_and_those_of_an_open_transaction_are_hidden(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("t")
    log = logs.log("t")
    for number, kind in ((0, COMMIT), (1, ABORT), (2, None)):
        offset = log.log_end_offset
        records = [Record(offset + n, START_MS, None, b"%d" % number) for n in range(2)]
        fields = BatchFields(
            producer_id=number, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        data = encode_batch(records, fields)
        append_batch(log, data, oracle.lengths(records), START_MS)
        if kind is not None:
            end = marker(number, log.log_end_offset, kind, START_MS)
            append_batch(log, end, (0, 0, 0), START_MS)
    assert places(logs.path) == {"t/0": [0, 1, 3, 4, 6, 7]}
    assert places(logs.path, kafka_isolation_level="read_committed") == {"t/0": [0, 1]}


def test_batches_of_few_large_records_and_of_many_small_ones(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("t")
    large, small = [b"x" * 900_000] * 5, [b"y"] * 1000
    for value in large:
        logs.write("t", 0, value)
    logs.write("t", 0, *small)
    found = rows(logs.path, ("topic", "partition", "value"))
    assert found == [("t", 0, value) for value in large + small]


def test_only_records_that_contain_a_text(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("t")
    logs.append("t", 0, [Record(0, START_MS, b"7 caf\xc3\xa9", None)])
    for number in range(300):
        logs.write("t", 0, b"%d caf\xc3\xa9" % number if number % 100 == 7 else b"%d" % number)
    columns = ("offset", "value")
    assert rows(logs.path, columns, contains="7 caf\u00e9") == [
        (n + 1, b"%d caf\xc3\xa9" % n) for n in (7, 107, 207)
    ]
    assert rows(
        logs.path, columns, contains="7 caf\u00e9", startingTimestamp=str(START_MS + 9)
    ) == [(n + 1, b"%d caf\xc3\xa9" % n) for n in (107, 207)]
    assert rows(logs.path, ("offset",), contains="nowhere") == []
    assert len(rows(logs.path, ("offset",), contains="")) == 301


def test_partitions_are_a_table(spark: "SparkSession", logs: Logs) -> None:
    reader = spark.read.format("logfs").option("table", "partitions")
    table = reader.load(str(logs.path))
    assert table.columns == ["topic", "partition", "startOffset", "endOffset", "bytes"]
    found = {(row.topic, row.partition): row for row in table.collect()}
    assert len(found) == 2 * len(CODECS) + 3
    assert (found["clicks", 0].startOffset, found["clicks", 0].endOffset) == (0, 10)
    assert found["clicks", 0].bytes == sum(
        path.stat().st_size for path in logs.path.glob("clicks-0/*.log")
    )
    assert (found["empty", 1].endOffset, found["empty", 1].bytes) == (0, 0)
    some = reader.option("subscribe", "clicks").schema("bytes long, topic string")
    assert [tuple(row) for row in some.load(str(logs.path)).collect()] == [
        (found["clicks", 0].bytes, "clicks")
    ]


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"table": "topics"}, None, "table 'topics': expected records or partitions"),
        ({"table": "partitions"}, "topic int", "there is no column topic int of partitions"),
    ],
)
def test_tables_that_there_are_not(
    spark: "SparkSession", logs: Logs, options: dict[str, str], schema: str | None, text: str
) -> None:
    reader = spark.read.format("logfs").options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    with pytest.raises(Exception, match=text):
        reader.load(str(logs.path)).collect()
