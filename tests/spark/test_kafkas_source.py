"""What Spark's own Kafka source reads from a broker, ours reads from the broker's directory."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logfs.errors import LogfsError
from tests.kafka.broker import Broker
from tests.kafka.mirrors import RunningMirror, plan_for
from tests.kafka.theirs import numbered
from tests.mounting import wait_until
from tests.spark.beside import OURS, PARTS, SOME, THEIRS, Beside, at, of_parts
from tests.spark.connector import jars
from tests.spark.logs import Logs
from tests.spark.reading import places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def beside(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    jars.connector()  # says what to do where it is missing
    with Broker(tmp_path_factory.mktemp("beside")) as broker:
        yield Beside(spark, broker)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_all_columns_of_every_kind_of_topic(beside: Beside, level: str) -> None:
    options = {"subscribePattern": ".", "includeHeaders": "true", "kafka_isolation_level": level}
    rows = beside.rows(OURS, **options)
    assert rows == beside.rows(THEIRS, **options)
    assert {row[2] for row in rows} == {*SOME, "parts"} - {"all-deleted", "empty"}


@pytest.mark.parametrize("headers", ["true", "false"])
def test_the_schema(beside: Beside, headers: str) -> None:
    options = {"subscribe": "parts", "includeHeaders": headers}
    ours = beside.table(OURS, **options).schema
    assert ours.jsonValue() == beside.table(THEIRS, **options).schema.jsonValue()


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"subscribePattern": "ar[tc]"}, sum(PARTS)),
        ({"subscribe": "empty, parts"}, sum(PARTS)),
        ({"assign": json.dumps({"parts": [0, 2]})}, PARTS[0] + PARTS[2]),
    ],
)
def test_what_is_read(beside: Beside, options: dict[str, str], count: int) -> None:
    rows = beside.rows(OURS, **options)
    assert rows == beside.rows(THEIRS, **options)
    assert len(rows) == count


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 75),
        ({"startingOffsets": of_parts(3, -2, 25), "endingOffsets": of_parts(10, 20, -1)}, 42),
        ({"startingTimestamp": str(at(5)), "endingTimestamp": str(at(20) + 1)}, 35),
        (
            {"startingTimestamp": str(at(20)), "startingOffsetsByTimestampStrategy": "latest"},
            25,
        ),
        (
            {
                "startingOffsetsByTimestamp": of_parts(at(2), at(3), at(4)),
                "endingOffsetsByTimestamp": of_parts(at(5), at(5), at(500)),
            },
            41,
        ),
        # The time for all comes before that for each, and that before the offsets.
        (
            {
                "startingTimestamp": str(at(7)),
                "startingOffsetsByTimestamp": of_parts(at(0), at(0), at(0)),
                "startingOffsets": of_parts(1, 1, 1),
                "endingOffsetsByTimestamp": of_parts(at(9), at(9), at(9)),
                "endingOffsets": of_parts(1, 1, 1),
            },
            6,
        ),
        ({"minPartitions": "7"}, 75),
        ({"startingOffsets": of_parts(1, 2, 3), "maxRecordsPerPartition": "20"}, 69),
    ],
)
def test_where_reading_begins_and_ends(beside: Beside, options: dict[str, str], count: int) -> None:
    rows = beside.rows(OURS, subscribe="parts", **options)
    assert rows == beside.rows(THEIRS, subscribe="parts", **options)
    assert len(rows) == count


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("topic", ["open-transaction", "compacted-transactions"])
def test_moments_of_a_topic_with_transactions(beside: Beside, topic: str, level: str) -> None:
    options = {"subscribe": topic, "kafka_isolation_level": level, "startingTimestamp": str(at(1))}
    rows = beside.rows(OURS, **options)
    assert rows == beside.rows(THEIRS, **options)
    assert rows


@pytest.mark.allow_log("continuing with what is left")
def test_what_is_gone_is_left_out(beside: Beside) -> None:
    options = {"subscribe": "deleted-records", "failOnDataLoss": "false"}
    options["startingOffsets"] = json.dumps({"deleted-records": {"0": 5}})
    rows = beside.rows(OURS, **options)
    assert rows == beside.rows(THEIRS, **options)
    assert rows[0][4] == 777


@pytest.mark.parametrize("least", ["3", "7", "20"])
def test_so_many_tasks(beside: Beside, least: str) -> None:
    options = {"subscribe": "parts", "minPartitions": least}
    ours, theirs = (
        beside.table(source, **options).rdd.getNumPartitions() for source in (OURS, THEIRS)
    )
    assert ours == theirs


@pytest.mark.parametrize(
    ("options", "theirs", "ours"),
    [
        (
            {"subscribe": "parts", "assign": '{"parts": [0]}'},
            "Only one of the following options",
            "expected one of subscribe, subscribePattern and assign",
        ),
        ({"subscribe": ""}, "No topics to subscribe to", "names no topic"),
        ({"subscribePattern": ""}, "Pattern to subscribe is empty", "subscribePattern is empty"),
        ({"assign": "parts"}, "No topicpartitions to assign", "assign 'parts': expected JSON"),
        ({"startingOffsets": "latest"}, "can't be latest for batch", "a batch reads nothing"),
        ({"startingOffsets": of_parts(1, 1, -1)}, "can't be latest for batch", "reads nothing"),
        ({"endingOffsets": "earliest"}, "can't be earliest", "before which there is nothing"),
        ({"endingOffsets": of_parts(1, 1, -2)}, "can't be earliest", "there is nothing"),
        ({"startingOffsets": "5"}, "Expected e.g. .*, got 5", "expected earliest, latest or JSON"),
        ({"startingOffsets": of_parts(1, 1)}, "don.t match what are assigned", "must name all"),
        (
            {"startingOffsets": of_parts(5, 5, 5), "endingOffsets": of_parts(4, 5, 5)},
            "start offset 5 is greater than the end offset 4",
            "parts/0: startingOffsets 5 is after endingOffsets 4",
        ),
        ({"startingTimestamp": "today"}, "single long value, got today", "expected milliseconds"),
        ({"startingTimestamp": str(at(30))}, "No offset matched", "no record is at or after"),
        ({"minPartitions": "0"}, "must be positive", "expected a positive number"),
        (
            {"kafka_auto_offset_reset": "latest"},
            "'auto.offset.reset' is not supported",
            "said by startingOffsets",
        ),
        ({"kafka_key_deserializer": "x"}, "is not supported", "read as bytes: cast them"),
        ({"kafka_enable_auto_commit": "true"}, "is not supported", "no offsets are committed"),
        ({"failOnDataLoss": "maybe"}, 'For input string: "maybe"', "expected true or false"),
    ],
)
def test_both_refuse(beside: Beside, options: dict[str, str], theirs: str, ours: str) -> None:
    if not options.keys() & {"subscribePattern", "assign"}:
        options = {"subscribe": "parts", **options}
    with pytest.raises(LogfsError, match=ours):
        places(beside.broker.data, **options)
    with pytest.raises(Exception, match=theirs):
        beside.table(THEIRS, **options).rdd.getNumPartitions()


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "parts", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"},
        {
            "subscribePattern": "transaction",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "900",
            "kafka_isolation_level": "read_committed",
        },
    ],
)
def test_a_stream_batch_by_batch(beside: Beside, options: dict[str, str], tmp_path: Path) -> None:
    batches = beside.stream(OURS, tmp_path / "ours", **options)
    assert batches == beside.stream(THEIRS, tmp_path / "theirs", **options)
    assert len(batches) > 2


def test_a_query_moves_to_logfs_and_back_with_its_checkpoint(
    beside: Beside, tmp_path: Path
) -> None:
    beside.client.create_topic("moved", 2)
    options = {"subscribe": "moved", "startingOffsets": "earliest"}
    first = 0
    for source in (THEIRS, OURS, THEIRS):
        beside.client.produce("moved", numbered(5), 1)
        (batch,) = beside.stream(source, tmp_path / "checkpoint", **options)
        assert batch == [("moved", 1, first + n) for n in range(5)]
        first += 5


def test_what_both_sinks_make_of_a_table(beside: Beside, tmp_path: Path) -> None:
    beside.client.create_topic("written", 3)
    logs = Logs(tmp_path / "data")
    logs.topic("written", 3)
    logs.close()
    table = beside.spark.range(200).selectExpr(
        "concat('key ', cast(id as string)) key",
        "if(id % 7 = 0, null, cast(id as string)) value",
        "if(id % 3 = 0, null, array(struct('h' key, cast('x' as binary) value))) headers",
        "if(id % 5 = 0, 1, null) partition",
    )
    options = {"kafka.bootstrap.servers": beside.broker.bootstrap, "topic": "written"}
    written = []
    for source, path in ((THEIRS, ""), (OURS, str(tmp_path / "data"))):
        writer = table.write.format(source).options(**options, includeHeaders="true")
        writer.mode("append").save(path or None)
        rows = beside.rows(source, path, subscribe="written", includeHeaders="true")
        written.append(sorted((row[3], str(row[0]), row[1], row[7]) for row in rows))
    assert written[0] == written[1]
    assert len(written[0]) == 200


def test_a_stream_over_a_mirrored_topic_has_the_rows_of_one_over_the_broker(
    beside: Beside, tmp_path: Path
) -> None:
    beside.client.create_topic("live", 2)
    producer = beside.client.producer(transactional_id="live")
    options = {"includeHeaders": "true", "kafka_isolation_level": "read_committed"}
    options |= {"subscribe": "live", "startingOffsets": "earliest"}
    data = tmp_path / "mirror"
    with RunningMirror(data, plan_for(beside.broker.bootstrap, "live")) as running:
        running.wait_until(lambda: "live" in running.store.topics(), "it is mirrored")
        with (
            beside.running(THEIRS, "", tmp_path / "theirs", **options) as theirs,
            beside.running(OURS, str(data), tmp_path / "ours", **options) as ours,
        ):
            for number in range(6):
                producer.begin()
                for partition in (0, 1):
                    records = numbered(20 + number, 100 * number, keys=3)
                    producer.send("live", records, partition)
                producer.flush()
                (producer.abort if number % 3 == 2 else producer.commit)()
            count = sum(2 * (20 + number) for number in (0, 1, 3, 4))
            for rows in (theirs, ours):
                wait_until(lambda rows=rows: len(rows) >= count, "all rows were read")  # type: ignore[misc]
        assert len(theirs) == count
        assert sorted(ours, key=repr) == sorted(theirs, key=repr)
