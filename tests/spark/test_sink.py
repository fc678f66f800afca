"""What is written: equal to what the rows say, once."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logfs import open_store
from logfs.records._encoding import murmur2
from tests.spark.logs import START_MS, Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    logs = Logs(tmp_path / "data")
    logs.topic("orders", 3)
    logs.topic("clicks", 1)
    logs.store.close(logs.now_ms)
    return logs


def test_a_table_is_appended(spark: "SparkSession", logs: Logs) -> None:
    rows = [
        (None if n % 5 == 0 else f"key {n}", None if n % 7 == 0 else f"value {n}", n % 4 == 0)
        for n in range(500)
    ]
    table = spark.createDataFrame(rows, "key string, value string, is_click boolean")
    table = table.selectExpr(
        "key", "value", "if(is_click, 'clicks', 'orders') topic",
        f"timestamp_millis({START_MS}) timestamp",
        "if(is_click, null, array(struct('h' key, cast(value as binary) value))) headers",
        "if(is_click or key is not null, null, 2) partition",
    )  # fmt: skip
    table.write.format("logfs").mode("append").save(str(logs.path))
    assert not list(logs.path.glob("*.ledger"))
    found = (
        spark.read.format("logfs").option("includeHeaders", "true").load(str(logs.path)).collect()
    )
    plain = {(key, value, "clicks" if is_click else "orders") for key, value, is_click in rows}
    assert len(found) == 500
    assert {
        (r.key and bytes(r.key).decode(), r.value and bytes(r.value).decode(), r.topic)
        for r in found
    } == plain
    for row in found:
        assert int(row.timestamp.timestamp() * 1000) == START_MS
        if row.key is not None and row.topic == "orders":
            assert row.partition == (murmur2(bytes(row.key)) & 0x7FFFFFFF) % 3
        if row.key is None and row.topic == "orders":
            assert row.partition == 2
        if row.topic == "orders":
            assert row.headers[0].value == row.value
        else:
            assert row.headers is None


def test_a_table_of_an_application_is_appended_once(spark: "SparkSession", logs: Logs) -> None:
    def append(value: str, application: str, version: int) -> None:
        table = spark.createDataFrame([(value,)], "value string")
        writer = table.write.format("logfs").mode("append").option("topic", "clicks")
        writer = writer.option("txnAppId", application).option("txnVersion", version)
        writer.save(str(logs.path))

    for value, application, version in (
        *(("a0", "a", 0), ("a0 again", "a", 0), ("a2", "a", 2)),
        *(("a1 late", "a", 1), ("b0", "b", 0), ("a2 again", "a", 2), ("a3", "a", 3)),
    ):
        append(value, application, version)
    found = spark.read.format("logfs").option("subscribe", "clicks").load(str(logs.path)).collect()
    assert [bytes(row.value).decode() for row in found] == ["a0", "a2", "b0", "a3"]
    assert not list(logs.path.glob("*/*.staged"))


@pytest.mark.expect_log(
    "orders: partition 0: its newest record is older than retention.ms=604800000"
)
def test_records_that_retention_is_about_to_delete_are_warned_of(logs: Logs) -> None:
    import pyarrow as pa

    from logfs.spark.sink import LogfsWriter
    from logfs.spark.target import SinkTarget

    time = pa.array([START_MS * 1000], pa.timestamp("us", tz="UTC"))
    for topic, times in (("orders", time), ("clicks", None)):
        writer = LogfsWriter(SinkTarget(str(logs.path), topic, has_headers=False))
        columns = {"value": [b"a"], "partition": pa.array([0], pa.int32())}
        rows = pa.record_batch(columns | ({} if times is None else {"timestamp": times}))
        writer.commit([writer.write(iter([rows]))])


def test_a_stream_is_appended_once(spark: "SparkSession", logs: Logs, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.txt").write_text(
            "".join(f"{number} {n}\n" for n in range(50))
        )
        query = (
            spark.readStream.format("text").load(str(tmp_path / "in")).writeStream.format("logfs")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).option("topic", "orders").start(str(logs.path))
        )  # fmt: skip
        query.awaitTermination()
        if number == 1:  # what a crash after the commit leaves
            for name in ("1", ".1.crc"):
                (tmp_path / "checkpoint" / "commits" / name).unlink()
    values = [
        bytes(r.value).decode() for r in spark.read.format("logfs").load(str(logs.path)).collect()
    ]
    assert sorted(values) == sorted(f"{a} {b}" for a in range(3) for b in range(50))
    assert not list(logs.path.glob("*/*.staged"))


def test_a_checkpoint_that_lost_its_last_batch_leaves_nothing_out_in_silence(
    spark: "SparkSession", logs: Logs, tmp_path: Path
) -> None:
    with open_store(logs.path) as store:
        store.create_topic("in")

    def run(**options: str) -> None:
        rows = spark.readStream.format("logfs").option("startingOffsets", "earliest")
        query = (
            rows.load(str(logs.path / "in")).writeStream.format("logfs").options(**options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start(str(logs.path / "clicks"))
        )  # fmt: skip
        query.awaitTermination()

    def put(first: int, stop: int) -> None:
        with open_store(logs.path) as store:
            store.partition("in").append_many([b"%d" % n for n in range(first, stop)])

    def there() -> list[int]:
        with open_store(logs.path) as store:
            return [int(record.value or b"") for record in store.partition("clicks").read()]

    for first in (0, 20):
        put(first, first + 20)
        run()
    for name in ("offsets/1", "commits/1", "offsets/.1.crc", "commits/.1.crc"):
        (tmp_path / "checkpoint" / name).unlink()  # Spark has not synced them before a power cut
    put(40, 60)
    with pytest.raises(Exception, match="comes again with 40 records, but was published with 20"):
        run()
    assert there() == list(range(40))
    assert not list(logs.path.glob("*/*.staged"))
    run(failOnDataLoss="false")
    put(60, 70)
    run()
    assert there() == [*range(40), *range(60, 70)]


@pytest.mark.expect_log("begins with a new checkpoint")
def test_a_new_checkpoint_names_the_streams_that_have_written_to_the_topic(
    logs: Logs, caplog: pytest.LogCaptureFixture
) -> None:
    import pyarrow as pa

    from logfs.spark.sink import LogfsStreamWriter, Staged
    from logfs.spark.staging import Stager
    from logfs.spark.target import SinkTarget

    target = SinkTarget(str(logs.path), "clicks", has_headers=False)
    for number, query in enumerate(("one", "two")):
        rows = pa.record_batch({"value": [b"a"]})
        files = Stager(target.root, "clicks", query, 0).stage([rows])
        LogfsStreamWriter(target).commit([Staged(query, tuple(files))], 0)
        told = "query two begins with a new checkpoint; query one has written up to batch 0"
        assert (told in caplog.text) == (number == 1)


def test_a_whole_result_is_appended_batch_by_batch(
    spark: "SparkSession", logs: Logs, tmp_path: Path
) -> None:
    """Complete mode, as Kafka's sink takes it."""
    (tmp_path / "in").mkdir()
    for text in ("a\nb\n", "b\n"):
        (tmp_path / "in" / f"{len(text)}.txt").write_text(text)
        words = spark.readStream.format("text").load(str(tmp_path / "in"))
        counts = words.groupBy("value").count()
        query = (
            counts.selectExpr("value key", "string(count) value").writeStream.format("logfs")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode("complete")
            .trigger(availableNow=True).option("topic", "clicks").start(str(logs.path))
        )  # fmt: skip
        query.awaitTermination()
    rows = spark.read.format("logfs").load(str(logs.path)).orderBy("offset").collect()
    found = [(bytes(row.key).decode(), int(bytes(row.value))) for row in rows]
    assert sorted(found[:2]) == [("a", 1), ("b", 1)]
    assert sorted(found[2:]) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        (("'v' v",), {"topic": "orders"}, "InvalidConfigError: there is no column value: expected"),
        (
            ("'v' value", "7 partition"),
            {"topic": "orders"},
            "NoSuchPartitionError: topic orders: partition 7: expected one of the topic's 3",
        ),
    ],
)
def test_a_refusal_is_the_last_line_of_python(
    spark: "SparkSession", logs: Logs, columns: tuple[str], options: dict[str, str], problem: str
) -> None:
    from pyspark.errors import PySparkException

    table = spark.range(1).selectExpr(*columns)
    with pytest.raises(PySparkException) as raised:
        table.write.format("logfs").options(**options).mode("append").save(str(logs.path))
    lines = [line for line in str(raised.value).splitlines() if "SQLSTATE" not in line]
    assert [line for line in lines if line.strip()][-1].startswith(f"logfs.errors.{problem}")
    assert not list(logs.path.glob("*/*.staged"))


def test_modes_that_are_not_append_are_refused(spark: "SparkSession", logs: Logs) -> None:
    from pyspark.errors import PySparkException

    def save(mode: str | None) -> None:
        writing = spark.range(1).selectExpr("'v' value").write.format("logfs")
        writing = writing if mode is None else writing.mode(mode)
        writing.save(f"{logs.path}/orders")

    with pytest.raises(PySparkException, match=r'use \.mode\("append"\)'):
        save("overwrite")
    with pytest.raises(PySparkException, match='Please use either the "Append"'):
        save(None)  # Spark says so before it asks
