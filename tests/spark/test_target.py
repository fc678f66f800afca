"""Where rows go, and what is refused before anything is staged, without a JVM."""

from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest

from logfs.errors import (
    InvalidConfigError,
    LogfsError,
    NoSuchPartitionError,
    NoSuchTopicError,
    RecordTooLargeError,
    UnparsableLineError,
)
from logfs.log.publishing.staging import StagedFile, staged_batches
from logfs.records.batch import decode_records
from logfs.records.record import Record
from logfs.spark.target import SinkTarget, advice_on, parse_target
from tests.spark.logs import START_MS, Logs

pytestmark = pytest.mark.spark

VALUE = (("value", "binary"),)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    logs = Logs(tmp_path_factory.mktemp("data"))
    logs.topic("orders", 3)
    logs.topic("small", max_message_bytes="200")
    logs.topic("compacted", cleanup_policy="compact")
    logs.close()
    return logs


def target_of(
    path: str, columns: tuple[tuple[str, str], ...] = VALUE, **options: str
) -> SinkTarget:
    """Ask as Spark does; names of options have ``_`` for a dot."""
    named = {name.replace("_", "."): text for name, text in options.items()}
    return parse_target({"path": path, **named}, columns, UTC, is_overwritten=False)


def test_the_topic_is_the_options_the_paths_or_the_rows(logs: Logs) -> None:
    root = str(logs.path)
    by_row = (*VALUE, ("TOPIC", "string"), ("Headers", "array<struct<key:string,value:binary>>"))
    assert target_of(root, topic="orders") == SinkTarget(root, "orders", has_headers=False)
    assert target_of(f"{root}/orders", by_row) == SinkTarget(root, "orders", has_headers=True)
    assert target_of(root, by_row) == SinkTarget(root, None, has_headers=True)
    assert target_of(root, by_row, Topic="orders").topic == "orders"
    assert target_of(f"{root}/orders", topic="orders").topic == "orders"


@pytest.mark.parametrize("is_in_path", [True, False], ids=["path", "option"])
def test_a_missing_topic_is_created_if_that_is_asked_for(
    tmp_path: Path, *, is_in_path: bool
) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("orders")
    logs.close()
    root, options = str(logs.path), {} if is_in_path else {"topic": "new"}
    path = f"{root}/new" if is_in_path else root
    for asked in ({}, {"createTopic": "false"}):
        with pytest.raises(NoSuchTopicError, match="createTopic=true"):
            target_of(path, VALUE, **options, **asked)
    for _ in range(2):
        assert target_of(path, VALUE, **options, createTopic="true").topic == "new"
        assert (logs.path / "new-0").is_dir()
    with pytest.raises(InvalidConfigError, match="expected true or false"):
        target_of(f"{root}/other", createTopic="yes")
    assert not (logs.path / "other-0").exists()


def test_options_of_a_network_do_nothing(logs: Logs) -> None:
    found = target_of(
        str(logs.path), topic="orders", kafka_bootstrap_servers="b:9092", includeHeaders="true"
    )
    assert found.topic == "orders"


@pytest.mark.parametrize(
    ("below", "options", "error", "text"),
    [
        ("", {"topics": "orders"}, InvalidConfigError, "no option topics; did you mean topic"),
        ("", {"kafka_key_serializer": "x"}, InvalidConfigError, "keys are written as bytes"),
        ("", {"topic": "none"}, NoSuchTopicError, "there is no topic none: create it with logfs"),
        ("", {}, InvalidConfigError, "nothing says the topic"),
        ("/none", {}, NoSuchTopicError, "there is no topic none"),
        ("/orders", {"topic": "small"}, InvalidConfigError, "the path says topic orders, the op"),
        ("/orders/0", {}, InvalidConfigError, "a sink has one path: a data directory, or a topic"),
    ],
)
def test_refusals(
    logs: Logs, below: str, options: dict[str, str], error: type[LogfsError], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        target_of(f"{logs.path}{below}", VALUE, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ((("v", "binary"),), "no column value: expected one, string or binary"),
        ((("value", "int"),), "column value is int, not string or binary: cast it"),
        ((*VALUE, ("other", "int")), "a column other cannot be written: expected some of value,"),
        ((*VALUE, ("partition", "bigint")), "column partition is bigint, not int: cast it"),
    ],
)
def test_columns_that_are_refused(
    logs: Logs, columns: tuple[tuple[str, str], ...], text: str
) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        target_of(str(logs.path), columns, topic="orders")


def test_what_is_there_is_never_replaced(logs: Logs) -> None:
    with pytest.raises(InvalidConfigError, match=r'only appended to: use \.mode\("append"\)'):
        parse_target({"path": str(logs.path)}, VALUE, UTC, is_overwritten=True)


def test_the_setting_that_makes_headers_slow_is_named() -> None:
    plain, headers = (
        SinkTarget("/", "orders", has_headers=False),
        SinkTarget("/", None, has_headers=True),
    )
    assert advice_on(plain, None) is advice_on(headers, "2147483647") is None
    for limit in (None, "67108864"):
        advice = advice_on(headers, limit)
        assert advice is not None
        assert 'conf.set("spark.sql.execution.arrow.maxBytesPerBatch", 2147483647)' in advice


Stage = Callable[..., list[StagedFile]]


@pytest.fixture
def stage(logs: Logs) -> Stage:
    import pyarrow as pa

    from logfs.spark.staging import Stager

    def stage(to: str | None, **columns: list[object]) -> list[StagedFile]:
        batch = pa.RecordBatch.from_pydict(columns)
        if "partition" in columns:
            number = batch.schema.get_field_index("partition")
            batch = batch.set_column(number, "partition", batch.column(number).cast(pa.int32()))
        return Stager(str(logs.path), to, "query", 0).stage([batch])

    return stage


def records_of(logs: Logs, file: StagedFile) -> list[Record]:
    found = staged_batches(logs.store.disk, file)
    return [record for data, _ in found for record in decode_records(bytes(data))]


def test_keys_go_where_kafka_sends_them(logs: Logs, stage: Stage) -> None:
    """Source: kafka-clients 4.1.1, BuiltInPartitioner.partitionForKey."""
    # Kafka UtilsTest.testMurmur2 has these hashes; toPositive, modulo 3 partitions.
    hashes = {
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        "abc": 479470107,
    }
    found = {
        record.key: file.partition
        for file in stage("orders", key=list(hashes), value=["v"] * len(hashes))
        for record in records_of(logs, file)
    }
    assert found == {key.encode(): (n & 0x7FFFFFFF) % 3 for key, n in hashes.items()}


def test_rows_without_a_key_go_together(stage: Stage) -> None:
    (one,) = stage("orders", value=["v"] * 100)
    assert one.records == 100


def test_a_null_value_is_a_tombstone(logs: Logs, stage: Stage) -> None:
    (one,) = stage("compacted", key=["k"], value=[None])
    (record,) = records_of(logs, one)
    assert (record.key, record.value) == (b"k", None)
    assert record.timestamp > START_MS, "the time when it is written"


@pytest.mark.parametrize(
    ("topic", "columns", "error", "text"),
    [
        (None, {"topic": ["orders", None]}, InvalidConfigError, "the column topic is null there"),
        (None, {"topic": ["orders", "none"]}, NoSuchTopicError, "there is no topic none"),
        ("orders", {"partition": [0, 3]}, NoSuchPartitionError, "partition 3: expected one of the"),
        ("orders", {"partition": [0, -1]}, NoSuchPartitionError, "topic orders: partition -1"),
        ("small", {"value": ["v", "v" * 200]}, RecordTooLargeError, "small/0: record 2: alone it"),
        (
            "compacted",
            {"key": ["k", None]},
            UnparsableLineError,
            "compacted/0: record 2: this topi",
        ),
    ],
)
def test_rows_that_are_refused_leave_nothing(
    logs: Logs,
    stage: Stage,
    topic: str | None,
    columns: dict[str, list[object]],
    error: type[LogfsError],
    text: str,
) -> None:
    before = sorted(logs.path.glob("*/*.staged"))
    with pytest.raises(error, match=text) as raised:
        stage(topic, **{"value": ["v", "w"], **columns})
    assert "\n" not in str(raised.value)
    assert sorted(logs.path.glob("*/*.staged")) == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"txnAppId": "a"}, "go together"),
        ({"txnVersion": "1"}, "go together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "expected a number from 0 on"),
        ({"txnAppId": "a", "txnVersion": "one"}, "expected a number from 0 on"),
    ],
)
def test_half_a_transaction_is_refused(logs: Logs, options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError, match=text):
        target_of(str(logs.path), VALUE, topic="orders", **options)


def test_options_and_columns_that_spark_itself_brings_are_accepted(logs: Logs) -> None:
    columns = (*VALUE, ("offset", "bigint"), ("timestampType", "int"))
    target = target_of(str(logs.path), columns, topic="orders", queryName="copy")
    assert target.topic == "orders"
